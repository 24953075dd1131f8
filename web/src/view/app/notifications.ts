// Browser notifications for finished work and open questions, and the count in the title. A user who looks at any
// tab of the page gets none.

import { signal } from "@preact/signals";
import { hasEnded, isOver, type Progress } from "../../core/session_progress";
import type { SessionInfo } from "../../core/protocol";
import { current, isTabHidden, questions, sessions, sessionTitle } from "./store";
import { s } from "../text/index";
import { goTo } from "./navigation";

const ENABLED_KEY = "holdfast.notify";
const VISIBLE_LOCK = "holdfast.looked-at";
/** The last known progress of each session. */
const lastProgress = new Map<string, Progress>();

/** Sessions that finished while hidden, and that the user has not opened since. */
export const finished = signal<ReadonlySet<string>>(new Set());

export function areNotificationsEnabled(): boolean {
  return localStorage.getItem(ENABLED_KEY) === "yes" && "Notification" in window && Notification.permission === "granted";
}

export async function requestNotifications(wanted: boolean): Promise<boolean> {
  const isGranted = wanted && "Notification" in window && (await Notification.requestPermission()) === "granted";
  localStorage.setItem(ENABLED_KEY, isGranted ? "yes" : "no");
  return isGranted;
}

/** Hold a lock while this tab is visible, so that the browser's other tabs know. */
export function holdVisibleLock(): void {
  const acquire = () => {
    if (document.hidden || !navigator.locks) return;
    const untilHidden = () => new Promise<void>((end) => document.addEventListener("visibilitychange", () => end(), { once: true }));
    void navigator.locks.request(VISIBLE_LOCK, { mode: "shared" }, untilHidden);
  };
  acquire();
  document.addEventListener("visibilitychange", acquire);
}

/** Update after a change of the list, of the current session, or of the tab's visibility. */
export function updateNotifications(): void {
  const unseen = new Set(finished.peek());
  for (const row of sessions.value.values()) {
    const state = questions.value.has(row.id) ? "needs_you" : row.status;
    const was = lastProgress.get(row.id);
    const now = { state, turns: row.turns, unread: row.unread };
    lastProgress.set(row.id, now);
    if (!was) continue;
    const isVisible = !isTabHidden.value && current.value === row.id;
    const isDone = hasEnded(was, now);
    if (isDone && !isVisible) unseen.add(row.id);
    else if (isVisible || !isOver(state) || (was.unread && !row.unread)) unseen.delete(row.id);
    const text = isDone ? doneText(row, state) : state === "needs_you" && was.state !== state ? s.notifyAsks(sessionTitle(row)) : "";
    if (text && isTabHidden.value && areNotificationsEnabled()) void showNotification(row.id, text);
  }
  for (const id of unseen) if (!sessions.value.has(id)) unseen.delete(id);
  if (String([...unseen]) !== String([...finished.peek()])) finished.value = unseen;
}

function doneText(row: SessionInfo, state: string): string {
  return state === "failed" ? s.notifyFailed(sessionTitle(row)) : s.notifyDone(sessionTitle(row));
}

async function showNotification(id: string, text: string): Promise<void> {
  const question = questions.value.get(id)?.find((each) => each.asked)?.asked?.question;
  if (await isVisibleElsewhere()) return;
  const notification = new Notification(text, { tag: id, ...(question ? { body: question } : {}) });
  notification.onclick = () => {
    window.focus();
    goTo(id);
  };
}

async function isVisibleElsewhere(): Promise<boolean> {
  if (!navigator.locks) return false;
  return ((await navigator.locks.query()).held ?? []).some((lock) => lock.name === VISIBLE_LOCK);
}
