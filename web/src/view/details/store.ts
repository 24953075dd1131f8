// What lies beside a conversation: whether it is shown, and what of the conversation it is about.

import { computed, signal } from "@preact/signals";
import { current, loading, place } from "../app/store";

const KEPT = "holdfast.details";
const SHOWN = "shown";

/** There is room for a third column; with less it lies over the second. */
export const roomy = matchMedia("(min-width: 1200px)");
export const small = matchMedia("(max-width: 760px)");

/** What lies over something else is not there before somebody asks for it. */
const wanted = signal(roomy.matches && localStorage.getItem(KEPT) === SHOWN);
const pointed = signal<{ session: string | null; id: string }>({ session: null, id: "" });

export const hasDetails = computed(() => current.value !== null && !place.value && loading.value !== "gone");
export const isBeside = computed(() => wanted.value && hasDetails.value);
/** The message or the call that is looked at; nothing: the conversation. */
export const picked = computed(() => (pointed.value.session === current.value ? pointed.value.id : ""));

/** Show the details, or hide them; this browser remembers where there is room. */
export function beside(isShown: boolean): void {
  if (roomy.matches) localStorage.setItem(KEPT, isShown ? SHOWN : "");
  wanted.value = isShown;
}

/** Look at a message or a call; at the conversation without one. */
export function pick(id: string): void {
  pointed.value = { session: current.value, id };
}

/** Close what lies over the conversation, or has the keyboard; whether there was any. */
export function closeBeside(target: EventTarget | null): boolean {
  const isMeant = isBeside.value && (!roomy.matches || (target instanceof Element && target.closest(".inspector") !== null));
  if (isMeant) beside(false);
  return isMeant;
}
