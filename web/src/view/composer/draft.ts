// What is typed is kept: for a conversation on the server, so that it is there on every screen; for one that has
// not begun, in this browser.

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Draft } from "../../core/protocol";
import { api, current } from "../app/store";

const DRAFT_MS = 800;
const UNBEGUN = "holdfast.draft";
/** What was on its way when this tab was left: whoever comes back at once may be sooner than that. */
const LEFT = "holdfast.draft-left";
/** The same of conversations that were left within the page. */
const underway = new Map<string, string>();
/** More than that no browser sends for a page that is left. */
const LAST_CHARS_MAX = 15_000;

/** What is typed in the conversation that is open. */
export const text = signal("");

export function forgetDraft(): void {
  localStorage.removeItem(UNBEGUN);
}

/** Keep what is typed as the draft of the conversation `id`; `goesOn`: it was typed where that one has just begun. */
export function useDraft(id: string | null, goesOn: boolean): void {
  /** What is kept, as far as is known. */
  const kept = useRef<string | null>("");
  const keep = useRef((_isLast: boolean) => undefined as void);
  keep.current = (isLast) => {
    const written = text.value;
    if (written === kept.current) return;
    kept.current = written;
    if (id === null) return written ? localStorage.setItem(UNBEGUN, written) : forgetDraft();
    const body = { text: written };
    underway.set(id, written);
    if (isLast) sessionStorage.setItem(LEFT, JSON.stringify([id, written]));
    const sent = isLast && written.length <= LAST_CHARS_MAX ? api.postLast(`api/sessions/${id}/draft`, body) : api.post(`api/sessions/${id}/draft`, body);
    void sent.then(
      () => void (underway.get(id) === written && underway.delete(id)),
      // What did not get there is tried again with the next word.
      () => void (kept.current === written && (kept.current = null)),
    );
  };
  // Before anything can be typed: what is typed first is not taken away.
  useLayoutEffect(() => {
    const mine = keep.current;
    kept.current = "";
    if (goesOn) forgetDraft();
    else {
      text.value = "";
      void read(id).then((draft) => {
        if (current.value === id && !text.value) text.value = kept.current = draft;
      }, () => undefined);
    }
    const leave = () => mine(true);
    // Whoever leaves within the moment that a draft waits to be kept keeps it, too.
    addEventListener("pagehide", leave);
    return () => {
      removeEventListener("pagehide", leave);
      mine(false);
    };
  }, [id]);
  useEffect(() => {
    if (text.value === kept.current) return;
    const timer = setTimeout(() => keep.current(false), DRAFT_MS);
    return () => clearTimeout(timer);
  });
}

async function read(id: string | null): Promise<string> {
  if (id === null) return localStorage.getItem(UNBEGUN) ?? "";
  const [left, written] = JSON.parse(sessionStorage.getItem(LEFT) ?? "[]") as string[];
  sessionStorage.removeItem(LEFT);
  const known = left === id ? written : underway.get(id);
  return known ?? (await api.get<Draft>(`api/sessions/${id}/draft`)).text;
}
