// The state of the memory page and its actions. The state stays while other pages are shown.

import { batch, computed, signal } from "@preact/signals";
import { ApiError } from "../../core/api";
import type { MemoryItem, MemoryItemList, SettingList, MemoryQueueEntry } from "../../core/protocol";
import { actions, attempt } from "../app/actions";
import { api, deletingSessions, deletingNotes, notice, showNotice, UNDO_MS } from "../app/store";
import { s } from "../text/index";
import { dismissedSessions, loadQueue, queueEntries } from "./pending";

const PAGE_SIZE = 50;
const PAGE_SIZE_MAX = 200;

export const providerInfo = signal<Pick<MemoryItemList, "provider" | "health" | "shows"> | null>(null);
/** Where the setting that turns memory off comes from. */
export const offSource = signal("");
export const searchText = signal("");
/** Why the memories cannot be loaded; those loaded before stay visible. */
export const loadError = signal("");
export const cursor = signal<string | null>(null);
/** What is being committed: a session, "all", or "" for nothing; and the outcome of the last commit. */
export const committing = signal("");
export const outcome = signal("");

const memories = signal<readonly MemoryItem[]>([]);
const pendingRemovals = signal<ReadonlyMap<string, () => void>>(new Map());
/** The visible memories: without those about to be forgotten. */
export const visibleMemories = computed(() => memories.value.filter((each) => !pendingRemovals.value.has(each.id) && !deletingNotes.value.has(each.session_id ?? "")));
export const visibleQueue = computed(() => queueEntries.value.filter((each) => !pendingRemovals.value.has(entryKey(each)) && !deletingSessions.value.has(each.session_id)));
/** How many sessions failed to commit. */
export const failedSessionCount = computed(() => new Set(queueEntries.value.filter((each) => each.state === "failed").map((each) => each.session_id)).size);

let lastLoad = 0;
let activeLoads = 0;

export function entryKey(row: MemoryQueueEntry): string {
  return `${row.session_id} ${row.segment}${row.deleted ? " deleted" : ""}`;
}

function entryPath(row: MemoryQueueEntry): string {
  return `api/memory/waiting/${row.session_id}/${row.segment}`;
}

function path(limit: number, after: string | null): string {
  const query = new URLSearchParams({ limit: String(limit), ...(searchText.value.trim() ? { q: searchText.value.trim() } : {}), ...(after ? { cursor: after } : {}) });
  return `api/memory?${query}`;
}

/** Load memories: the first page, as many as are shown, or the next page. */
export async function load(scope: "new" | "again" | "more" = "new"): Promise<void> {
  const loadNumber = ++lastLoad;
  const isMore = scope === "more";
  const limit = scope === "again" ? Math.min(Math.max(PAGE_SIZE, memories.value.length), PAGE_SIZE_MAX) : PAGE_SIZE;
  activeLoads += 1;
  try {
    const list = await api.get<MemoryItemList>(path(limit, isMore ? cursor.value : null));
    if (loadNumber !== lastLoad) return;
    batch(() => {
      providerInfo.value = list;
      cursor.value = list.cursor;
      memories.value = isMore ? [...memories.value, ...list.memories] : list.memories;
      loadError.value = "";
    });
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    // Keep the list during a short loss of the connection.
    if (loadNumber === lastLoad && !(error.problem.status === 0 && providerInfo.value)) loadError.value = error.message;
  } finally {
    activeLoads -= 1;
  }
}

/** Load the queue and the memories. */
export async function refresh(): Promise<void> {
  // A list longer than the largest page is not reloaded, so that the reader keeps the place.
  await Promise.all([loadQueue(), memories.value.length > PAGE_SIZE_MAX ? undefined : load("again")]);
}

/** Refresh, unless a load is still active. */
export async function poll(): Promise<void> {
  if (!document.hidden && !activeLoads) await refresh();
}

/** Load where the setting comes from, for users who may read the settings. */
export async function loadOffSource(): Promise<void> {
  try {
    const { settings } = await api.get<SettingList>("api/settings");
    offSource.value = settings.find((each) => each.name === "memory")?.source ?? "";
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
  }
}

export async function add(text: string): Promise<boolean> {
  return attempt(async () => {
    const memory = await api.post<MemoryItem>("api/memory", { text });
    memories.value = [memory, ...memories.value.filter((each) => each.id !== memory.id)];
    showNotice(s.memory.added);
    void load("again");
  });
}

export async function edit(id: string, text: string): Promise<boolean> {
  return attempt(async () => {
    const changed = await api.patch<MemoryItem>(`api/memory/${id}`, { text });
    memories.value = memories.value.map((each) => (each.id === id ? changed : each));
  });
}

/** Hide an item now, and run the action when Undo has expired or the page is left. */
function deferWithUndo(key: string, text: string, action: () => Promise<unknown>): void {
  const restore = () => {
    clearTimeout(timer);
    const rest = new Map(pendingRemovals.value);
    rest.delete(key);
    pendingRemovals.value = rest;
  };
  const runNow = async () => {
    clearTimeout(timer);
    await attempt(action);
    restore();
  };
  const timer = setTimeout(() => void runNow(), UNDO_MS);
  pendingRemovals.value = new Map(pendingRemovals.value).set(key, () => void runNow());
  showNotice(text, { text: s.undo, run: restore });
}

export function forget(id: string): void {
  deferWithUndo(id, s.memory.forgotten, async () => {
    await api.delete(`api/memory/${id}`).catch(ignoreNotFound);
    memories.value = memories.value.filter((each) => each.id !== id);
    await load("again");
  });
}

/** Dismiss a queue entry: it is never committed. */
export function dismissEntry(row: MemoryQueueEntry): void {
  deferWithUndo(entryKey(row), s.memory.dropped, async () => {
    await api.postKeepalive(entryPath(row), { decision: "drop", deleted: row.deleted });
    queueEntries.value = queueEntries.value.filter((each) => entryKey(each) !== entryKey(row));
    markDismissed(row);
  });
}

function markDismissed({ session_id, deleted }: MemoryQueueEntry): void {
  // An imported session may have the id of a deleted one.
  if (!deleted) dismissedSessions.value = new Set([...dismissedSessions.value, session_id]);
}

/** Run all pending removals now: the page is being left. */
export function runPendingRemovals(): void {
  const shown = notice.value?.text;
  if (pendingRemovals.value.size && (shown === s.memory.forgotten || shown === s.memory.dropped)) notice.value = null;
  for (const go of pendingRemovals.value.values()) go();
}

function ignoreNotFound(error: unknown): void {
  if (!(error instanceof ApiError) || error.problem.status !== 404) throw error;
}

/** Commit now: one session, or all of them. */
export async function commitNow(session?: string): Promise<void> {
  committing.value = session ?? "all";
  outcome.value = "";
  const timer = setTimeout(() => void loadQueue(), 300);
  outcome.value = await actions.commitNow(session);
  clearTimeout(timer);
  committing.value = "";
  await refresh();
}

/** Resolve an entry in doubt by the user's decision. */
export async function resolveInDoubt(row: MemoryQueueEntry, decision: "retry" | "done" | "drop"): Promise<void> {
  const isDone = await attempt(() => api.post(entryPath(row), { decision, deleted: row.deleted }));
  if (isDone && decision === "drop") markDismissed(row);
  await refresh();
}
