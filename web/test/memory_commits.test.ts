import { readdirSync, readFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import type { AnyEvent, WaitingMemory } from "../src/core/protocol";
import { Remembering } from "../src/core/memory_commits";

const FOLDER = new URL("../../tests/vectors/memory/", import.meta.url);

interface Vector {
  about: string;
  events: AnyEvent[];
  stretches: { n: number; turns: [number, number][]; state: string; retraction: string; retry_at: number; detail: string }[];
  told: string;
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

function told(memory: Remembering) {
  return [...memory.stretches.values()].map(({ n, turns, state, retraction, retry_at, detail }) => ({ n, turns: ranges(turns), state, retraction, retry_at, detail }));
}

const VECTORS = readdirSync(FOLDER).map((name) => ({ name, ...(JSON.parse(readFileSync(new URL(name, FOLDER), "utf8")) as Vector) }));

for (const { name, about, events, stretches, told: state } of VECTORS) {
  test(`${name}: ${about}`, () => {
    const memory = new Remembering();
    for (const event of events) memory.add(event);
    expect(told(memory)).toEqual(stretches);
    expect(memory.told()?.state).toBe(state);
  });
}

describe("a conversation that is opened in the middle", () => {
  const begun = (segment: number, turn: number) => ({ kind: "memory_commit_started", segment, turns: [[turn, turn]], owner: "o_1", at: 40 }) as unknown as AnyEvent;
  const told = (segment: number) => ({ kind: "memory_committed", segment, at: 50 }) as unknown as AnyEvent;
  const completed = (run_id: string) => ({ kind: "run_completed", run_id, owed: true, owner: "o_1", at: 30 }) as unknown as AnyEvent;
  const row: WaitingMemory = {
    session_id: "s_1", title: "", segment: 7, from_turn: 8, through_turn: 9, state: "failed", since: 5, attempts: 1, retry_at: 99, detail: "Away.", deleted: false,
  };

  test("knows nothing until it is told", () => {
    expect(new Remembering().told()).toBeNull();
  });

  test("is what waits of it, and then what comes after that", () => {
    const memory = new Remembering();
    memory.addWaiting([row]);
    expect(memory.told()).toEqual({ state: "failed", at: 5, retry_at: 99, detail: "Away." });
    memory.add(begun(7, 8));
    memory.add(told(7));
    expect(memory.told()).toMatchObject({ state: "remembered", at: 50 });
  });

  test("does not go back to what was read before the last event", () => {
    const memory = new Remembering();
    memory.add(begun(7, 8));
    memory.add(told(7));
    memory.addWaiting([row]);
    expect(memory.told()?.state).toBe("remembered");
  });

  test("learns from the server which stretch a new turn is in", () => {
    const memory = new Remembering();
    memory.noteRun("r_9", 9);
    memory.add(completed("r_9"));
    expect(memory.told()?.state).toBe("waiting");
    memory.add(begun(5, 9));
    memory.add(told(5));
    expect(memory.told()?.state).toBe("remembered");
    expect([...memory.stretches.keys()]).toEqual([5]);
  });

  test("says when it was remembered before, until turns are taken back", () => {
    const memory = new Remembering();
    memory.rememberedAt = 40;
    expect(memory.told()).toMatchObject({ state: "remembered", at: 40 });
    memory.add({ kind: "memory_resolved", segment: 3, decision: "drop", at: 60 } as unknown as AnyEvent);
    expect(memory.told()?.state).toBe("dropped");
    const other = new Remembering();
    other.rememberedAt = 40;
    other.add({ kind: "turns_undone", from_turn: 1, at: 60 } as unknown as AnyEvent);
    expect(other.told()).toBeNull();
  });

  test("does not count a turn twice that the list of what waits has already", () => {
    const memory = new Remembering();
    memory.addWaiting([{ ...row, state: "owed", retry_at: null, detail: "" }]);
    memory.noteRun("r_9", 9);
    memory.add(completed("r_9"));
    expect([...memory.stretches.keys()]).toEqual([7]);
  });

  test("knows a turn again that it saw completed before it read what waits", () => {
    const memory = new Remembering();
    memory.noteRun("r_9", 9);
    memory.add(completed("r_9"));
    memory.addWaiting([{ ...row, state: "owed", retry_at: null, detail: "" }]);
    expect([...memory.stretches.keys()]).toEqual([7]);
    memory.add({ kind: "memory_resolved", segment: 7, decision: "drop", at: 60 } as unknown as AnyEvent);
    expect(memory.told()).toMatchObject({ state: "dropped" });
  });
});
