import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { AnyEvent, MemoryQueueEntry } from "../src/core/protocol";
import { MemoryCommits } from "../src/core/memory_commits";

const FOLDER = new URL("../../tests/vectors/memory/", import.meta.url);

interface Vector {
  about: string;
  events: AnyEvent[];
  segments: { n: number; turns: [number, number][]; state: string; retraction: string; retry_at: number; detail: string }[];
  status: string;
}

function ranges(numbers: readonly number[]): [number, number][] {
  const found: [number, number][] = [];
  for (const number of numbers) {
    const last = found.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else found.push([number, number]);
  }
  return found;
}

function toVector(memory: MemoryCommits) {
  return [...memory.segments.values()].map(({ n, turns, state, retraction, retry_at, detail }) => ({ n, turns: ranges(turns), state, retraction, retry_at, detail }));
}

const VECTORS = readdirSync(FOLDER).map((name) => ({ name, ...(JSON.parse(readFileSync(new URL(name, FOLDER), "utf8")) as Vector) }));

for (const { name, about, events, segments, status } of VECTORS) {
  test(`${name}: ${about}`, () => {
    const memory = new MemoryCommits();
    for (const event of events) memory.add(event);
    expect(toVector(memory)).toEqual(segments);
    expect(memory.status()?.state).toBe(status);
  });
}

describe("a session whose earlier events are not loaded", () => {
  const started = (segment: number, turn: number) => ({ kind: "memory_commit_started", segment, turns: [[turn, turn]], owner: "o_1", at: 40 }) as unknown as AnyEvent;
  const committed = (segment: number) => ({ kind: "memory_committed", segment, at: 50 }) as unknown as AnyEvent;
  const completed = (run_id: string) => ({ kind: "run_completed", run_id, owed: true, owner: "o_1", at: 30 }) as unknown as AnyEvent;
  const row: MemoryQueueEntry = {
    session_id: "s_1", title: "", segment: 7, from_turn: 8, through_turn: 9, state: "failed", since: 5, attempts: 1, retry_at: 99, detail: "Away.", deleted: false,
  };

  test("has no status before any event", () => {
    expect(new MemoryCommits().status()).toBeNull();
  });

  test("has the status of its queue entries, and then of later events", () => {
    const memory = new MemoryCommits();
    memory.addQueueEntries([row]);
    expect(memory.status()).toEqual({ state: "failed", at: 5, retry_at: 99, detail: "Away." });
    memory.add(started(7, 8));
    memory.add(committed(7));
    expect(memory.status()).toMatchObject({ state: "remembered", at: 50 });
  });

  test("does not return to a queue entry read before the last event", () => {
    const memory = new MemoryCommits();
    memory.add(started(7, 8));
    memory.add(committed(7));
    memory.addQueueEntries([row]);
    expect(memory.status()?.state).toBe("remembered");
  });

  test("takes the number of a new turn's segment from the server", () => {
    const memory = new MemoryCommits();
    memory.noteRun("r_9", 9);
    memory.add(completed("r_9"));
    expect(memory.status()?.state).toBe("waiting");
    memory.add(started(5, 9));
    memory.add(committed(5));
    expect(memory.status()?.state).toBe("remembered");
    expect([...memory.segments.keys()]).toEqual([5]);
  });

  test("has the time of an earlier commit until turns are undone", () => {
    const memory = new MemoryCommits();
    memory.committedAt = 40;
    expect(memory.status()).toMatchObject({ state: "remembered", at: 40 });
    memory.add({ kind: "memory_resolved", segment: 3, decision: "drop", at: 60 } as unknown as AnyEvent);
    expect(memory.status()?.state).toBe("dropped");
    const other = new MemoryCommits();
    other.committedAt = 40;
    other.add({ kind: "turns_undone", from_turn: 1, at: 60 } as unknown as AnyEvent);
    expect(other.status()).toBeNull();
  });

  test("does not add a turn twice that a queue entry contains", () => {
    const memory = new MemoryCommits();
    memory.addQueueEntries([{ ...row, state: "owed", retry_at: null, detail: "" }]);
    memory.noteRun("r_9", 9);
    memory.add(completed("r_9"));
    expect([...memory.segments.keys()]).toEqual([7]);
  });

  test("matches a completed turn with a queue entry read later", () => {
    const memory = new MemoryCommits();
    memory.noteRun("r_9", 9);
    memory.add(completed("r_9"));
    memory.addQueueEntries([{ ...row, state: "owed", retry_at: null, detail: "" }]);
    expect([...memory.segments.keys()]).toEqual([7]);
    memory.add({ kind: "memory_resolved", segment: 7, decision: "drop", at: 60 } as unknown as AnyEvent);
    expect(memory.status()).toMatchObject({ state: "dropped" });
  });
});
