// What waits to be remembered, of all conversations: read now and then, and more often by whoever looks at it.

import { computed, signal } from "@preact/signals";
import { Refused } from "../../core/api";
import type { KeptMemory, WaitingList, WaitingMemory } from "../../core/protocol";
import { api } from "../app/store";

const READ_MS = 60_000;

export const waiting = signal<readonly WaitingMemory[]>([]);
/** What was taken back, and memory cannot forget. */
export const kept = signal<readonly KeptMemory[]>([]);
/** Something is asked, or did not go well. */
export const needs = computed(() => waiting.value.some((row) => row.state === "in_doubt" || row.state === "failed"));

/** Conversations that somebody has asked to have remembered now, until they are. */
export const hurried = signal<ReadonlySet<string>>(new Set());

export function hurry(ids: readonly string[]): void {
  hurried.value = new Set([...hurried.value, ...ids]);
}

export function unhurry(ids: readonly string[]): void {
  if (ids.some((id) => hurried.value.has(id))) hurried.value = new Set([...hurried.value].filter((id) => !ids.includes(id)));
}

/** Conversations of which somebody let something be in this tab: no list tells of that, and its event may be past. */
export const letBe = signal<ReadonlySet<string>>(new Set());

let asked = 0;
let newest = 0;

/** What waits now; as far as was known before while the server cannot be asked. */
export async function readWaiting(): Promise<readonly WaitingMemory[]> {
  const mine = ++asked;
  try {
    const told = await api.get<WaitingList>("api/memory/waiting");
    // Answers may overtake each other: what was asked earlier does not replace what was asked later.
    if (mine < newest) return waiting.value;
    newest = mine;
    waiting.value = told.waiting;
    kept.value = told.kept ?? [];
  } catch (error) {
    if (!(error instanceof Refused)) throw error; // Told elsewhere, and asked again soon.
  }
  return waiting.value;
}

/** Look now and then, as long as the page is there; returns what ends that. */
export function watch(): () => void {
  void readWaiting();
  const timer = setInterval(() => document.hidden || void readWaiting(), READ_MS);
  return () => clearInterval(timer);
}
