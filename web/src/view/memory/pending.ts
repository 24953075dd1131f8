// The memory queue of all sessions, polled, and loaded again by the memory page.

import { computed, signal } from "@preact/signals";
import { ApiError } from "../../core/api";
import type { RetainedMemory, MemoryQueueInfo, MemoryQueueEntry } from "../../core/protocol";
import { api } from "../app/store";

const POLL_MS = 60_000;

export const queueEntries = signal<readonly MemoryQueueEntry[]>([]);
/** Retracted commits that the provider cannot forget. */
export const unretractable = signal<readonly RetainedMemory[]>([]);
/** Whether an entry is in doubt or failed. */
export const needsAttention = computed(() => queueEntries.value.some((row) => row.state === "in_doubt" || row.state === "failed"));

/** Sessions whose commit a user requested, until it is done. */
export const commitRequested = signal<ReadonlySet<string>>(new Set());

export function markCommitRequested(ids: readonly string[]): void {
  commitRequested.value = new Set([...commitRequested.value, ...ids]);
}

export function clearCommitRequested(ids: readonly string[]): void {
  if (ids.some((id) => commitRequested.value.has(id))) commitRequested.value = new Set([...commitRequested.value].filter((id) => !ids.includes(id)));
}

/** Sessions with an entry that was dismissed in this tab: no list contains it, and its event may be too old. */
export const dismissedSessions = signal<ReadonlySet<string>>(new Set());

let lastRequest = 0;
let lastResponse = 0;

/** Load and return the queue; without a connection, return the last known one. */
export async function loadQueue(): Promise<readonly MemoryQueueEntry[]> {
  const requestNumber = ++lastRequest;
  try {
    const list = await api.get<MemoryQueueInfo>("api/memory/waiting");
    // Responses may arrive out of order: ignore one that is older than the last.
    if (requestNumber < lastResponse) return queueEntries.value;
    lastResponse = requestNumber;
    queueEntries.value = list.waiting;
    unretractable.value = list.kept ?? [];
  } catch (error) {
    if (!(error instanceof ApiError)) throw error; // The connection shows the error; the next poll tries again.
  }
  return queueEntries.value;
}

/** Poll the queue until the returned function is called. */
export function pollQueue(): () => void {
  void loadQueue();
  const timer = setInterval(() => document.hidden || void loadQueue(), POLL_MS);
  return () => clearInterval(timer);
}
