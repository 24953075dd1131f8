// The state of the details panel: whether it is open, and what it shows.

import { computed, signal } from "@preact/signals";
import { current, loading, page } from "../app/store";

const STORAGE_KEY = "holdfast.details";
const SHOWN = "shown";

/** Wide enough for a third column; otherwise the details are an overlay. */
export const wideScreen = matchMedia("(min-width: 1200px)");
export const smallScreen = matchMedia("(max-width: 760px)");

/** Only the column is open by default. */
const isWanted = signal(wideScreen.matches && localStorage.getItem(STORAGE_KEY) === SHOWN);
const selection = signal<{ session: string | null; id: string }>({ session: null, id: "" });

export const hasDetails = computed(() => current.value !== null && !page.value && loading.value !== "gone");
export const isDetailsOpen = computed(() => isWanted.value && hasDetails.value);
/** The selected message or call; "" is the session. */
export const selectedId = computed(() => (selection.value.session === current.value ? selection.value.id : ""));

/** Show or hide the details. A wide screen stores the choice. */
export function showDetails(isShown: boolean): void {
  if (wideScreen.matches) localStorage.setItem(STORAGE_KEY, isShown ? SHOWN : "");
  isWanted.value = isShown;
}

/** Select a message or a call; "" selects the session. */
export function selectEntry(id: string): void {
  selection.value = { session: current.value, id };
}

/** Close the details if they are an overlay or contain `target`. Return whether they were closed. */
export function closeDetails(target: EventTarget | null): boolean {
  const shouldClose = isDetailsOpen.value && (!wideScreen.matches || (target instanceof Element && target.closest(".inspector") !== null));
  if (shouldClose) showDetails(false);
  return shouldClose;
}
