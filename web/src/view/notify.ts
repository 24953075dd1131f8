// A word from the browser when something is finished or needs the owner, for those who asked for it.

import { sessions, questions, titleOf } from "./state";
import { s } from "./strings";

const ALLOWED = "holdfast.notify";
const before = new Map<string, string>();

export function wantsNotices(): boolean {
  return localStorage.getItem(ALLOWED) === "yes" && "Notification" in window && Notification.permission === "granted";
}

export async function askForNotices(wanted: boolean): Promise<boolean> {
  const given = wanted && "Notification" in window && (await Notification.requestPermission()) === "granted";
  localStorage.setItem(ALLOWED, given ? "yes" : "no");
  return given;
}

/** Called with every change of the list. */
export function notify(): void {
  const asking = questions.value;
  for (const row of sessions.value.values()) {
    const state = asking.has(row.id) ? "needs_you" : row.status;
    const was = before.get(row.id);
    before.set(row.id, state);
    if (!was || was === state || !document.hidden || !wantsNotices()) continue;
    const title = titleOf(row);
    if (state === "needs_you") tell(s.notifyAsks(title), row.id, asking.get(row.id)?.find((each) => each.asked)?.asked?.question);
    else if (was === "working" && state === "idle") tell(s.notifyDone(title), row.id);
  }
}

function tell(text: string, id: string, body = ""): void {
  const told = new Notification(text, { tag: id, ...(body ? { body } : {}) });
  told.onclick = () => {
    window.focus();
    location.hash = id;
  };
}
