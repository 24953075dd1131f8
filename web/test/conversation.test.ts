import { readdirSync, readFileSync } from "node:fs";
import { expect, test } from "vitest";
import type { Entry } from "../src/core/transcript_types";
import { Conversation } from "../src/core/conversation";
import type { AnyEvent } from "../src/core/protocol";

const FOLDER = new URL("../../tests/vectors/transcript/", import.meta.url);

interface Vector {
  about: string;
  events: AnyEvent[];
  transcript: { turns: { turn: number; live: boolean; id?: string; run_id?: string; entries: Record<string, unknown>[] }[] };
}

/** Return an entry as the vectors write it, without empty fields. */
function toVector(entry: Entry): Record<string, unknown> {
  const { turn, place, id, role, status, at } = entry;
  const rest: Record<string, unknown> = {
    parts: entry.parts, run_id: entry.run_id, late: entry.late, continues: entry.continues,
    message_id: entry.message_id, name: entry.name, state: entry.state, outcome: entry.outcome, model: entry.model, ms: entry.ms, began_at: entry.began_at,
  };
  const empty = (value: unknown) => value === null || value === "" || value === 0 || value === false || (Array.isArray(value) && !value.length);
  return { turn, place, id, role, status, at, ...Object.fromEntries(Object.entries(rest).filter(([, value]) => !empty(value))) };
}

for (const name of readdirSync(FOLDER)) {
  const vector = JSON.parse(readFileSync(new URL(name, FOLDER), "utf8")) as Vector;
  test(`${name}: ${vector.about}`, () => {
    const conversation = new Conversation();
    for (const event of vector.events) conversation.add(event);
    const turns = conversation.orderedTurns().map((turn) => ({
      turn: turn.turn, live: turn.live, ...(turn.id ? { id: turn.id } : {}), ...(turn.run_id ? { run_id: turn.run_id } : {}),
      entries: turn.entries.map(toVector),
    }));
    expect(turns).toEqual(vector.transcript.turns.map((turn) => ({ ...turn, entries: turn.entries.map(({ arguments: _, ...rest }) => rest) })));
  });
}

test("a call has its question while the question is open, and not afterwards", () => {
  const vector = JSON.parse(readFileSync(new URL("questions_asked_and_answered.json", FOLDER), "utf8")) as Vector;
  const conversation = new Conversation();
  for (const event of vector.events) conversation.add(event);
  const calls = conversation.orderedTurns().flatMap((turn) => turn.entries).filter((entry) => entry.role === "tool");
  expect(calls.map((entry) => [entry.approval, entry.asked])).toEqual([
    ["answered", null],
    ["closed", null],
    ["asked", { question: "Why?", choices: [], multiple: false }],
  ]);
});

test("a removed turn has the event that removed it, and whether another version replaced it", () => {
  const vector = JSON.parse(readFileSync(new URL("another_version_chosen.json", FOLDER), "utf8")) as Vector;
  const conversation = new Conversation();
  const seen = () => conversation.orderedTurns().map((turn) => [turn.id, turn.removed, conversation.versionIds(turn)]);
  for (const event of vector.events.slice(0, 11)) conversation.add(event);
  expect(seen()).toEqual([
    ["t_1", { seq: 8, replaced: true, after: 0 }, ["t_1", "t_3"]],
    ["t_2", { seq: 8, replaced: true, after: 0 }, []],
    ["t_3", null, ["t_1", "t_3"]],
  ]);
  for (const event of vector.events.slice(11)) conversation.add(event);
  expect(seen()).toEqual([
    ["t_1", null, ["t_1", "t_3"]],
    ["t_2", null, []],
    ["t_3", { seq: 12, replaced: true, after: 0 }, ["t_1", "t_3"]],
    ["t_4", null, []],
  ]);
});

test("undone and restored turns are not replaced ones", () => {
  const vector = JSON.parse(readFileSync(new URL("undone_turns_restored.json", FOLDER), "utf8")) as Vector;
  const conversation = new Conversation();
  for (const event of vector.events) conversation.add(event);
  expect(conversation.orderedTurns().map((turn) => turn.removed)).toEqual([null, null, { seq: 12, replaced: false, after: 0 }]);
});

test("clearing the context leaves nothing to restore", () => {
  const vector = JSON.parse(readFileSync(new URL("undone_turns_restored.json", FOLDER), "utf8")) as Vector;
  const conversation = new Conversation();
  for (const event of vector.events.slice(0, 11)) conversation.add(event);
  conversation.add({ seq: 12, at: 120, kind: "session_cleared", through_turn: 3 });
  expect(conversation.orderedTurns().map((turn) => [turn.live, turn.removed])).toEqual([[false, null], [false, null], [false, null]]);
});

test("a removed turn without a version that leads to it is shown below the turn that it followed", () => {
  const conversation = new Conversation();
  const accepted = (seq: number, turn: number, replaces?: string): AnyEvent => ({
    seq, at: seq, kind: "turn_accepted", turn_id: `t_${turn}`, turn, message_id: `m_${turn}`, parts: [], run_id: `r_${turn}`, ...(replaces ? { replaces } : {}),
  });
  const seen = () => conversation.visibleTurns().map((turn) => `${turn.turn}${turn.live ? "" : " removed"}`);
  conversation.add(accepted(1, 1));
  conversation.add(accepted(2, 2));
  conversation.add({ seq: 3, at: 3, kind: "turns_undone", from_turn: 2 });
  conversation.add(accepted(4, 3));
  expect(seen()).toEqual(["1", "2 removed", "3"]);
  conversation.add({ seq: 5, at: 5, kind: "turns_undone", from_turn: 1, reason: "retry" });
  conversation.add(accepted(6, 4, "t_1"));
  expect(seen()).toEqual(["4"]); // The turns after the first version are behind the version switch.
  conversation.add({ seq: 7, at: 7, kind: "turns_restored", turns: [[1, 2]], from_turn: 4, reason: "version" });
  expect(seen()).toEqual(["1", "2", "3 removed"]);
  expect(conversation.orderedTurns()[2]?.removed).toEqual({ seq: 5, replaced: false, after: 1 });
});
