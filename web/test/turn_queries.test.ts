import { describe, expect, test } from "vitest";
import { newEntry, type Turn } from "../src/core/transcript_types";
import { createFinder } from "../src/core/text_search";
import { Conversation } from "../src/core/conversation";
import { attachedFiles, toolCalls, fileChanges, ranCommand, findActiveRun } from "../src/core/turn_queries";
import type { AnyEvent, AnyPart } from "../src/core/protocol";
import { paneAfterSwipe, swipeDirection } from "../src/core/swipe";

describe("a swipe", () => {
  const from = { x: 200, y: 400, ms: 0 };
  const to = (x: number, y: number, ms = 200) => swipeDirection(from, { x, y, ms }, 390);

  test("has a direction if it is long and fast enough", () => {
    expect([to(300, 410), to(100, 380)]).toEqual(["right", "left"]);
    expect([to(240, 400), to(300, 400, 900)]).toEqual(["", ""]);
  });

  test("that moves vertically as well is a scroll", () => {
    expect([to(300, 480), to(100, 300)]).toEqual(["", ""]);
  });

  test("that begins at the edge belongs to the browser", () => {
    expect(swipeDirection({ x: 4, y: 0, ms: 0 }, { x: 200, y: 0, ms: 100 }, 390)).toBe("");
    expect(swipeDirection({ x: 388, y: 0, ms: 0 }, { x: 200, y: 0, ms: 100 }, 390)).toBe("");
  });

  test("shows and hides the list and the details", () => {
    expect(paneAfterSwipe("conversation", "right", true)).toBe("list");
    expect(paneAfterSwipe("list", "left", true)).toBe("conversation");
    expect(paneAfterSwipe("conversation", "left", true)).toBe("details");
    expect(paneAfterSwipe("details", "right", true)).toBe("conversation");
    expect([paneAfterSwipe("list", "right", true), paneAfterSwipe("details", "left", true), paneAfterSwipe("list", "", true)]).toEqual(["list", "details", "list"]);
    expect(paneAfterSwipe("conversation", "left", false)).toBe("conversation");
  });
});

describe("searched words", () => {
  const found = (query: string, text: string) => createFinder(query)(text).map(([start, end]) => text.slice(start, end));

  test("match whole words, the last one also as a prefix", () => {
    expect(found("the heron", "The other herons, the heron.")).toEqual(["The", "heron", "the", "heron"]);
    expect(found('"heron"', "herons and a heron")).toEqual(["heron"]);
  });

  test("match inside longer words only if they occur nowhere alone", () => {
    expect(found("name x", "getUserName x")).toEqual(["Name", "x"]);
    expect(found("name x", "username, name x")).toEqual(["name", "x"]);
  });

  test("match without regard to case and accents, at their original offsets", () => {
    expect(found("cafe strasse", "Das Café in der Straße")).toEqual(["Café", "Straße"]);
    expect(found("ぎんこう", "はいぎんこうです")).toEqual(["ぎんこう"]);
    expect(found("かき", "かぎ かき")).toEqual(["かき"]);
    expect(found("x", "😀 x")).toEqual(["x"]);
  });

  test("in quotation marks match as one phrase", () => {
    expect(found('"third file"', "the third, file and a third one")).toEqual(["third, file"]);
    expect(found("third.py", "see third.py there")).toEqual(["third.py"]);
  });

  test("match nothing in a query without words", () => {
    expect(found(" . ", "any . text")).toEqual([]);
  });
});

function turnOf(number: number, run: string, ...parts: AnyPart[][]): Turn {
  const [asked = [], ...results] = parts;
  const user = newEntry({ turn: number, place: 0, at: 1, id: `m${number}`, role: "user", parts: asked });
  const calls = results.map((each, place) => newEntry({ turn: number, place: place + 2, at: 1, id: `c${number}.${place}`, role: "tool", outcome: "done", parts: each }));
  return { turn: number, id: `t${number}`, run_id: run, live: true, removed: null, entries: [user, ...calls], memories: [], version: 1 };
}

describe("queries over turns", () => {
  const file: AnyPart = { type: "file", blob: "b1", name: "a.txt", media_type: "text/plain", size_bytes: 3 };
  const change = (path: string, added: number): AnyPart => ({ type: "change", path, added, removed: 1 });

  test("a file that several calls changed is counted once", () => {
    const turn = turnOf(1, "r1", [], [change("a.py", 2)], [change("b.py", 1)], [change("a.py", 3)]);
    expect(fileChanges(turn)).toEqual([{ path: "a.py", added: 5, removed: 2 }, { path: "b.py", added: 1, removed: 1 }]);
    expect(toolCalls(turn).length).toBe(3);
  });

  test("attached files are the user's, each once", () => {
    const turns = [turnOf(1, "r1", [file], [{ ...file, blob: "b2" }]), turnOf(2, "r2", [file]), { ...turnOf(3, "r3", [{ ...file, blob: "b3" }]), live: false }];
    expect(attachedFiles(turns).map((each) => each.blob)).toEqual(["b1"]);
  });

  test("the active run has its running calls", () => {
    const turn = turnOf(1, "r1", [], []);
    const call = newEntry({ turn: 1, place: 9, at: 1, id: "c9", role: "tool", state: "started" });
    turn.entries.push(call);
    const work = { status: "running", turn: 1 } as Parameters<typeof findActiveRun>[0] extends Iterable<infer Each> ? Each : never;
    expect(findActiveRun([work], new Map([[1, turn]]))?.running).toEqual([call]);
    expect(findActiveRun([{ ...work, status: "completed" }], new Map([[1, turn]]))).toBeNull();
  });
});

test("a queued turn changes when the run before it has ended", () => {
  const conversation = new Conversation();
  const events = [
    { kind: "turn_accepted", turn: 1, turn_id: "t1", message_id: "m1", run_id: "r1", parts: [] },
    { kind: "turn_accepted", turn: 2, turn_id: "t2", message_id: "m2", run_id: "r2", parts: [] },
    { kind: "turn_queued", run_id: "r2" },
  ];
  for (const [place, event] of events.entries()) conversation.add({ seq: place + 1, at: 1, ...event } as AnyEvent);
  const before = conversation.turns.get(2)?.version ?? 0;
  conversation.add({ seq: 4, at: 1, kind: "run_cancelled", run_id: "r1" });
  expect(conversation.turns.get(2)?.version).toBeGreaterThan(before);
});

test("the structure version changes with every event except appended text", () => {
  const conversation = new Conversation();
  let seq = 0;
  const add = (event: object) => {
    conversation.add({ seq: ++seq, at: 1, ...event } as AnyEvent);
    return conversation.structureVersion;
  };
  add({ kind: "turn_accepted", turn: 1, turn_id: "t", message_id: "m", run_id: "r", parts: [] });
  const before = add({ kind: "model_step_started", run_id: "r", turn: 1, place: 1, message_id: "a", model: "x" });
  expect(add({ kind: "text_appended", run_id: "r", message_id: "a", text: "one " })).toBe(before);
  expect(add({ kind: "reasoning_appended", run_id: "r", message_id: "a", text: "two " })).toBe(before);
  expect(add({ kind: "run_completed", run_id: "r" })).toBeGreaterThan(before);
});

test("a command ran, or may have run, unless it was denied or not started", () => {
  const turn = (name: string, state: "intended" | "in_doubt" | "settled", outcome: "done" | "failed" | "denied" | null): Turn => ({
    turn: 1, id: "t", run_id: "r", live: true, removed: null, memories: [], version: 0,
    entries: [newEntry({ turn: 1, place: 1, at: 1, id: "c", role: "tool", name, state, outcome })],
  });
  expect([turn("shell", "settled", "done"), turn("shell", "settled", "failed"), turn("shell", "in_doubt", null)].map(ranCommand)).toEqual([true, true, true]);
  expect([turn("shell", "intended", null), turn("shell", "settled", "denied"), turn("write_file", "settled", "done")].map(ranCommand)).toEqual([false, false, false]);
});
