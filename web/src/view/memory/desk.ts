// What the memory page knows, and what can be done there. It stays while other things are looked at.

import { batch, computed, signal } from "@preact/signals";
import { Refused } from "../../core/api";
import type { Memory, MemoryList, WaitingList, WaitingMemory } from "../../core/protocol";
import { actions, attempt } from "../actions";
import { api, notice, say } from "../state";
import { s } from "../strings";

const PAGE = 50;
const PAGE_MAX = 200;
const FORGET_MS = 8_000;

export const about = signal<Pick<MemoryList, "provider" | "health"> | null>(null);
export const words = signal("");
export const waiting = signal<readonly WaitingMemory[]>([]);
/** Why what is known cannot be shown; what was known before stays in sight. */
export const problem = signal("");
export const cursor = signal<string | null>(null);
/** What is being remembered now: a conversation, "all", or nothing; and what came of the last time. */
export const working = signal("");
export const outcome = signal("");

const known = signal<readonly Memory[]>([]);
const going = signal<ReadonlyMap<string, () => void>>(new Map());
/** What is to be seen: what is about to be forgotten is gone already. */
export const shown = computed(() => known.value.filter((each) => !going.value.has(each.id)));

let asked = 0;

function path(limit: number, after: string | null): string {
  const query = new URLSearchParams({ limit: String(limit), ...(words.value.trim() ? { q: words.value.trim() } : {}), ...(after ? { cursor: after } : {}) });
  return `api/memory?${query}`;
}

/** Read what is known: from its beginning, as much of it again as is there, or the page after that. */
export async function load(what: "new" | "again" | "more" = "new"): Promise<void> {
  const mine = ++asked;
  const isMore = what === "more";
  const limit = what === "again" ? Math.min(Math.max(PAGE, known.value.length), PAGE_MAX) : PAGE;
  try {
    const list = await api.get<MemoryList>(path(limit, isMore ? cursor.value : null));
    if (mine !== asked) return;
    batch(() => {
      about.value = list;
      cursor.value = list.cursor;
      known.value = isMore ? [...known.value, ...list.memories] : list.memories;
      problem.value = "";
    });
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    if (mine === asked) problem.value = error.message;
  }
}

/** Read what waits; when there is less of it than before, more is known. */
export async function look(): Promise<void> {
  try {
    const before = waiting.value;
    waiting.value = (await api.get<WaitingList>("api/memory/waiting")).waiting;
    const here = new Set(waiting.value.map((each) => `${each.session_id} ${each.segment}`));
    if (before.some((each) => !here.has(`${each.session_id} ${each.segment}`))) await load("again");
  } catch (error) {
    if (!(error instanceof Refused)) throw error; // Whoever cannot be reached is asked again soon.
  }
}

export async function add(text: string): Promise<boolean> {
  return attempt(async () => {
    const made = await api.post<Memory>("api/memory", { text });
    known.value = [made, ...known.value];
    say(s.memory.added);
  });
}

export async function edit(id: string, text: string): Promise<boolean> {
  return attempt(async () => {
    const changed = await api.patch<Memory>(`api/memory/${id}`, { text });
    known.value = known.value.map((each) => (each.id === id ? changed : each));
  });
}

/** Gone from sight at once, from memory when there was time to think again, or when the page is left. */
export function forget(id: string): void {
  const stay = () => {
    clearTimeout(timer);
    const rest = new Map(going.value);
    rest.delete(id);
    going.value = rest;
  };
  const go = async () => {
    clearTimeout(timer);
    await attempt(() => api.delete(`api/memory/${id}`).catch(unlessGone).then(() => (known.value = known.value.filter((each) => each.id !== id))));
    stay();
  };
  const timer = setTimeout(() => void go(), FORGET_MS);
  going.value = new Map(going.value).set(id, () => void go());
  say(s.memory.forgotten, { text: s.undo, run: stay });
}

/** Nobody is left to think again. */
export function forgetNow(): void {
  if (going.value.size && notice.value?.text === s.memory.forgotten) notice.value = null;
  for (const go of going.value.values()) go();
}

function unlessGone(error: unknown): void {
  if (!(error instanceof Refused) || error.problem.status !== 404) throw error;
}

/** Have it remembered now: one conversation, or all of them. */
export async function rememberNow(session?: string): Promise<void> {
  working.value = session ?? "all";
  outcome.value = "";
  const soon = setTimeout(() => void look(), 300);
  outcome.value = await actions.rememberNow(session);
  clearTimeout(soon);
  working.value = "";
  await Promise.all([look(), load("again")]);
}

export async function decide(row: WaitingMemory, decision: "retry" | "done" | "drop"): Promise<void> {
  await attempt(() => api.post(`api/memory/waiting/${row.session_id}/${row.segment}`, { decision }));
  await look();
}
