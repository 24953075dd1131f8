// What the memory page knows, and what can be done there. It stays while other things are looked at.

import { batch, computed, signal } from "@preact/signals";
import { Refused } from "../../core/api";
import type { Memory, MemoryList, SettingList, WaitingMemory } from "../../core/protocol";
import { actions, attempt } from "../app/actions";
import { api, leaving, leavingNotes, notice, say, UNDO_MS } from "../app/store";
import { s } from "../text/index";
import { letBe, readWaiting, waiting } from "./pending";

const PAGE = 50;
const PAGE_MAX = 200;

export const about = signal<Pick<MemoryList, "provider" | "health" | "shows"> | null>(null);
/** Where it is said that memory is off. */
export const offBy = signal("");
export const words = signal("");
/** Why what is known cannot be shown; what was known before stays in sight. */
export const problem = signal("");
export const cursor = signal<string | null>(null);
/** What is being remembered now: a conversation, "all", or nothing; and what came of the last time. */
export const working = signal("");
export const outcome = signal("");

const known = signal<readonly Memory[]>([]);
const going = signal<ReadonlyMap<string, () => void>>(new Map());
/** What is to be seen: what is about to be forgotten is gone already. */
export const shown = computed(() => known.value.filter((each) => !going.value.has(each.id) && !leavingNotes.value.has(each.session_id ?? "")));
export const shownWaiting = computed(() => waiting.value.filter((each) => !going.value.has(keyOf(each)) && !leaving.value.has(each.session_id)));
/** How many conversations could not be remembered so far. */
export const failing = computed(() => new Set(waiting.value.filter((each) => each.state === "failed").map((each) => each.session_id)).size);

let asked = 0;
let underWay = 0;

export function keyOf(row: WaitingMemory): string {
  return `${row.session_id} ${row.segment}${row.deleted ? " deleted" : ""}`;
}

function placeOf(row: WaitingMemory): string {
  return `api/memory/waiting/${row.session_id}/${row.segment}`;
}

function path(limit: number, after: string | null): string {
  const query = new URLSearchParams({ limit: String(limit), ...(words.value.trim() ? { q: words.value.trim() } : {}), ...(after ? { cursor: after } : {}) });
  return `api/memory?${query}`;
}

/** Read what is known: from its beginning, as much of it again as is there, or the page after that. */
export async function load(what: "new" | "again" | "more" = "new"): Promise<void> {
  const mine = ++asked;
  const isMore = what === "more";
  const limit = what === "again" ? Math.min(Math.max(PAGE, known.value.length), PAGE_MAX) : PAGE;
  underWay += 1;
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
    // A server that is away for a moment is no reason to take away what is in sight.
    if (mine === asked && !(error.problem.status === 0 && about.value)) problem.value = error.message;
  } finally {
    underWay -= 1;
  }
}

/** Read what waits, and what is known now: it may have been added elsewhere. */
export async function look(): Promise<void> {
  // As much as can be read at once; who has gone further down is not thrown back.
  await Promise.all([readWaiting(), known.value.length > PAGE_MAX ? undefined : load("again")]);
}

/** Look again, unless somebody slow is still being asked. */
export async function lookAgain(): Promise<void> {
  if (!document.hidden && !underWay) await look();
}

/** Where it is said that memory is off: a convenience, for those who may know the settings. */
export async function askOffBy(): Promise<void> {
  try {
    const { settings } = await api.get<SettingList>("api/settings");
    offBy.value = settings.find((each) => each.name === "memory")?.source ?? "";
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
  }
}

export async function add(text: string): Promise<boolean> {
  return attempt(async () => {
    const made = await api.post<Memory>("api/memory", { text });
    known.value = [made, ...known.value.filter((each) => each.id !== made.id)];
    say(s.memory.added);
    void load("again");
  });
}

export async function edit(id: string, text: string): Promise<boolean> {
  return attempt(async () => {
    const changed = await api.patch<Memory>(`api/memory/${id}`, { text });
    known.value = known.value.map((each) => (each.id === id ? changed : each));
  });
}

/** Gone from sight at once, for good when there was time to think again, or when the page is left. */
function later(key: string, said: string, work: () => Promise<unknown>): void {
  const stay = () => {
    clearTimeout(timer);
    const rest = new Map(going.value);
    rest.delete(key);
    going.value = rest;
  };
  const go = async () => {
    clearTimeout(timer);
    await attempt(work);
    stay();
  };
  const timer = setTimeout(() => void go(), UNDO_MS);
  going.value = new Map(going.value).set(key, () => void go());
  say(said, { text: s.undo, run: stay });
}

export function forget(id: string): void {
  later(id, s.memory.forgotten, async () => {
    await api.delete(`api/memory/${id}`).catch(unlessGone);
    known.value = known.value.filter((each) => each.id !== id);
    await load("again");
  });
}

/** Never have it remembered. */
export function drop(row: WaitingMemory): void {
  later(keyOf(row), s.memory.dropped, async () => {
    await api.postLast(placeOf(row), { decision: "drop", deleted: row.deleted });
    waiting.value = waiting.value.filter((each) => keyOf(each) !== keyOf(row));
    noteLetBe(row);
  });
}

function noteLetBe({ session_id, deleted }: WaitingMemory): void {
  // A conversation that was imported again has the id of the one that was deleted.
  if (!deleted) letBe.value = new Set([...letBe.value, session_id]);
}

/** Nobody is left to think again. */
export function leaveNow(): void {
  const said = notice.value?.text;
  if (going.value.size && (said === s.memory.forgotten || said === s.memory.dropped)) notice.value = null;
  for (const go of going.value.values()) go();
}

function unlessGone(error: unknown): void {
  if (!(error instanceof Refused) || error.problem.status !== 404) throw error;
}

/** Have it remembered now: one conversation, or all of them. */
export async function rememberNow(session?: string): Promise<void> {
  working.value = session ?? "all";
  outcome.value = "";
  const soon = setTimeout(() => void readWaiting(), 300);
  outcome.value = await actions.rememberNow(session);
  clearTimeout(soon);
  working.value = "";
  await look();
}

/** A person's word on what may have been remembered already. */
export async function decide(row: WaitingMemory, decision: "retry" | "done" | "drop"): Promise<void> {
  const isDone = await attempt(() => api.post(placeOf(row), { decision, deleted: row.deleted }));
  if (isDone && decision === "drop") noteLetBe(row);
  await look();
}
