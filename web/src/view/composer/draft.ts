// Store drafts: on the server for a session, so that every device has them; in this browser for a session that does
// not exist yet.

import { signal } from "@preact/signals";
import { useEffect, useLayoutEffect, useRef } from "preact/hooks";
import type { Draft } from "../../core/protocol";
import { api, current } from "../app/store";

const DRAFT_MS = 800;
const NEW_DRAFT_KEY = "holdfast.draft";
/** The draft that was being saved when this tab was left: the user may come back before it is saved. */
const LEFT_DRAFT_KEY = "holdfast.draft-left";
/** Drafts being saved for sessions that were left within the page. */
const inFlight = new Map<string, string>();
/** Browsers limit what a page can send while it is closed. */
const KEEPALIVE_CHARS_MAX = 15_000;

/** The text in the composer. */
export const draftText = signal("");

export function clearNewDraft(): void {
  localStorage.removeItem(NEW_DRAFT_KEY);
}

/** Store the text as the draft of session `id`; `isContinued`: it was typed before that session was created. */
export function useDraft(id: string | null, isContinued: boolean): void {
  /** The draft as last saved, as far as is known. */
  const savedText = useRef<string | null>("");
  const saveRef = useRef((_isLast: boolean) => undefined as void);
  saveRef.current = (isLast) => {
    const currentText = draftText.value;
    if (currentText === savedText.current) return;
    savedText.current = currentText;
    if (id === null) return currentText ? localStorage.setItem(NEW_DRAFT_KEY, currentText) : clearNewDraft();
    const body = { text: currentText };
    inFlight.set(id, currentText);
    if (isLast) sessionStorage.setItem(LEFT_DRAFT_KEY, JSON.stringify([id, currentText]));
    const request = isLast && currentText.length <= KEEPALIVE_CHARS_MAX ? api.postKeepalive(`api/sessions/${id}/draft`, body) : api.post(`api/sessions/${id}/draft`, body);
    void request.then(
      () => void (inFlight.get(id) === currentText && inFlight.delete(id)),
      // Save a draft that failed again with the next change.
      () => void (savedText.current === currentText && (savedText.current = null)),
    );
  };
  // A layout effect: it runs before the user can type, so the first characters are not lost.
  useLayoutEffect(() => {
    const save = saveRef.current;
    savedText.current = "";
    if (isContinued) clearNewDraft();
    else {
      draftText.value = "";
      void readDraft(id).then((draft) => {
        if (current.value === id && !draftText.value) draftText.value = savedText.current = draft;
      }, () => undefined);
    }
    const saveOnLeave = () => save(true);
    // Save also a draft whose timer is still running.
    addEventListener("pagehide", saveOnLeave);
    return () => {
      removeEventListener("pagehide", saveOnLeave);
      save(false);
    };
  }, [id]);
  useEffect(() => {
    if (draftText.value === savedText.current) return;
    const timer = setTimeout(() => saveRef.current(false), DRAFT_MS);
    return () => clearTimeout(timer);
  });
}

async function readDraft(id: string | null): Promise<string> {
  if (id === null) return localStorage.getItem(NEW_DRAFT_KEY) ?? "";
  const [leftId, leftText] = JSON.parse(sessionStorage.getItem(LEFT_DRAFT_KEY) ?? "[]") as string[];
  sessionStorage.removeItem(LEFT_DRAFT_KEY);
  const known = leftId === id ? leftText : inFlight.get(id);
  return known ?? (await api.get<Draft>(`api/sessions/${id}/draft`)).text;
}
