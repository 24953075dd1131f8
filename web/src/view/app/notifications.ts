// A word from the browser when something is finished or needs the owner, for those who asked for it; and what the
// title counts. Whoever looks at the page, in whichever tab, sees it without.

import { signal } from "@preact/signals";
import { hasEnded, isOver, type Progress } from "../../core/session_progress";
import type { Session } from "../../core/protocol";
import { current, hidden, questions, sessions, titleOf } from "./store";
import { s } from "../text/index";
import { goTo } from "./navigation";

const ALLOWED = "holdfast.notify";
const LOOKED_AT = "holdfast.looked-at";
/** What was last told of each conversation. */
const before = new Map<string, Progress>();

/** Conversations that came to an end of their work while nobody looked at them, and that nobody has looked at since. */
export const finished = signal<ReadonlySet<string>>(new Set());

export function wantsNotices(): boolean {
  return localStorage.getItem(ALLOWED) === "yes" && "Notification" in window && Notification.permission === "granted";
}

export async function askForNotices(wanted: boolean): Promise<boolean> {
  const given = wanted && "Notification" in window && (await Notification.requestPermission()) === "granted";
  localStorage.setItem(ALLOWED, given ? "yes" : "no");
  return given;
}

/** Hold a lock while somebody looks at this tab, so that the browser's other tabs know. */
export function watchLook(): void {
  const hold = () => {
    if (document.hidden || !navigator.locks) return;
    const looks = () => new Promise<void>((end) => document.addEventListener("visibilitychange", () => end(), { once: true }));
    void navigator.locks.request(LOOKED_AT, { mode: "shared" }, looks);
  };
  hold();
  document.addEventListener("visibilitychange", hold);
}

/** Called with every change of the list, of what is open, and of whether it is looked at. */
export function notify(): void {
  const ended = new Set(finished.peek());
  for (const row of sessions.value.values()) {
    const state = questions.value.has(row.id) ? "needs_you" : row.status;
    const was = before.get(row.id);
    const now = { state, turns: row.turns, unread: row.unread };
    before.set(row.id, now);
    if (!was) continue;
    const isLookedAt = !hidden.value && current.value === row.id;
    const isDone = hasEnded(was, now);
    if (isDone && !isLookedAt) ended.add(row.id);
    else if (isLookedAt || !isOver(state) || (was.unread && !row.unread)) ended.delete(row.id);
    const text = isDone ? doneWords(row, state) : state === "needs_you" && was.state !== state ? s.notifyAsks(titleOf(row)) : "";
    if (text && hidden.value && wantsNotices()) void speak(row.id, text);
  }
  for (const id of ended) if (!sessions.value.has(id)) ended.delete(id);
  if (String([...ended]) !== String([...finished.peek()])) finished.value = ended;
}

function doneWords(row: Session, state: string): string {
  return state === "failed" ? s.notifyFailed(titleOf(row)) : s.notifyDone(titleOf(row));
}

async function speak(id: string, text: string): Promise<void> {
  const asked = questions.value.get(id)?.find((each) => each.asked)?.asked?.question;
  if (await isLookedAtElsewhere()) return;
  const told = new Notification(text, { tag: id, ...(asked ? { body: asked } : {}) });
  told.onclick = () => {
    window.focus();
    goTo(id);
  };
}

async function isLookedAtElsewhere(): Promise<boolean> {
  if (!navigator.locks) return false;
  return ((await navigator.locks.query()).held ?? []).some((lock) => lock.name === LOOKED_AT);
}
