// Conversations that the feed does not begin with: older ones, and those that were put away. They are read in
// pages, by whoever scrolls down to them.

import { batch } from "@preact/signals";
import { Refused } from "../../core/api";
import type { SessionList } from "../../core/protocol";
import { api, hasArchived, rest, sessions, type Shelf } from "../app/store";

const PAGE = 100;
const reading = { now: false };

/** See whether anything was put away, so that the way there is offered. */
export async function lookForArchived(): Promise<void> {
  if (rest.value.archive === "" && !hasArchived.value) await read("archive", "", 1);
}

/** Read the next page of what the list lacks; nothing, when it has it all. */
export async function readOlder(shelf: Shelf): Promise<void> {
  const from = rest.value[shelf];
  if (from !== null) await read(shelf, from, PAGE);
}

async function read(shelf: Shelf, from: string, limit: number): Promise<void> {
  if (reading.now) return;
  reading.now = true;
  try {
    const after = from && `&cursor=${encodeURIComponent(from)}`;
    const page = await api.get<SessionList>(`api/sessions?limit=${limit}&archived=${shelf === "archive"}${after}`);
    if (rest.value[shelf] !== from) return; // The feed has begun anew.
    batch(() => {
      // What the feed told meanwhile is newer.
      sessions.value = new Map([...page.sessions.map((row) => [row.id, row] as const), ...sessions.value]);
      // After a mere look all of it is still to be read.
      if (limit > 1 || !page.cursor) rest.value = { ...rest.value, [shelf]: page.cursor };
    });
  } catch (error) {
    if (!(error instanceof Refused)) throw error; // Told by the line; read when somebody scrolls on.
  } finally {
    reading.now = false;
  }
}
