import { describe, expect, test } from "vitest";
import { fresh, type Turn } from "../src/core/transcript_types";
import { finderOf } from "../src/core/text_search";
import { Conversation } from "../src/core/conversation";
import { attachedTo, callsOf, changedIn, ranCommand, underWay } from "../src/core/digest";
import type { AnyEvent, AnyPart } from "../src/core/protocol";
import { shownAfter, wayOf } from "../src/core/swipe";

describe("a finger", () => {
  const from = { x: 200, y: 400, ms: 0 };
  const to = (x: number, y: number, ms = 200) => wayOf(from, { x, y, ms }, 390);

  test("that goes far enough across, and soon enough, goes that way", () => {
    expect([to(300, 410), to(100, 380)]).toEqual(["right", "left"]);
    expect([to(240, 400), to(300, 400, 900)]).toEqual(["", ""]);
  });

  test("that goes up or down as well scrolls", () => {
    expect([to(300, 480), to(100, 300)]).toEqual(["", ""]);
  });

  test("that begins at the edge is the browser's", () => {
    expect(wayOf({ x: 4, y: 0, ms: 0 }, { x: 200, y: 0, ms: 100 }, 390)).toBe("");
    expect(wayOf({ x: 388, y: 0, ms: 0 }, { x: 200, y: 0, ms: 100 }, 390)).toBe("");
  });

  test("brings the list from the left and the details from the right, and takes them back", () => {
    expect(shownAfter("conversation", "right", true)).toBe("list");
    expect(shownAfter("list", "left", true)).toBe("conversation");
    expect(shownAfter("conversation", "left", true)).toBe("details");
    expect(shownAfter("details", "right", true)).toBe("conversation");
    expect([shownAfter("list", "right", true), shownAfter("details", "left", true), shownAfter("list", "", true)]).toEqual(["list", "details", "list"]);
    expect(shownAfter("conversation", "left", false)).toBe("conversation");
  });
});

describe("words that are looked for", () => {
  const found = (query: string, text: string) => finderOf(query)(text).map(([start, end]) => text.slice(start, end));

  test("are found whole, the last also unfinished", () => {
    expect(found("the heron", "The other herons, the heron.")).toEqual(["The", "heron", "the", "heron"]);
    expect(found('"heron"', "herons and a heron")).toEqual(["heron"]);
  });

  test("are found inside longer ones only where they stand nowhere alone", () => {
    expect(found("name x", "getUserName x")).toEqual(["Name", "x"]);
    expect(found("name x", "username, name x")).toEqual(["name", "x"]);
  });

  test("are found whatever their case and accents, at the place where they stand", () => {
    expect(found("cafe strasse", "Das Café in der Straße")).toEqual(["Café", "Straße"]);
    expect(found("ぎんこう", "はいぎんこうです")).toEqual(["ぎんこう"]);
    expect(found("かき", "かぎ かき")).toEqual(["かき"]);
    expect(found("x", "😀 x")).toEqual(["x"]);
  });

  test("that belong together are one", () => {
    expect(found('"third file"', "the third, file and a third one")).toEqual(["third, file"]);
    expect(found("third.py", "see third.py there")).toEqual(["third.py"]);
  });

  test("are none where none is asked for", () => {
    expect(found(" . ", "any . text")).toEqual([]);
  });
});

function turnOf(number: number, run: string, ...parts: AnyPart[][]): Turn {
  const [asked = [], ...results] = parts;
  const user = fresh({ turn: number, place: 0, at: 1, id: `m${number}`, role: "user", parts: asked });
  const calls = results.map((each, place) => fresh({ turn: number, place: place + 2, at: 1, id: `c${number}.${place}`, role: "tool", outcome: "done", parts: each }));
  return { turn: number, id: `t${number}`, run_id: run, live: true, removed: null, entries: [user, ...calls], memories: [], version: 1 };
}

describe("what is looked at", () => {
  const file: AnyPart = { type: "file", blob: "b1", name: "a.txt", media_type: "text/plain", size_bytes: 3 };
  const change = (path: string, added: number): AnyPart => ({ type: "change", path, added, removed: 1 });

  test("a file that several calls changed is one", () => {
    const turn = turnOf(1, "r1", [], [change("a.py", 2)], [change("b.py", 1)], [change("a.py", 3)]);
    expect(changedIn(turn)).toEqual([{ path: "a.py", added: 5, removed: 2 }, { path: "b.py", added: 1, removed: 1 }]);
    expect(callsOf(turn).length).toBe(3);
  });

  test("attached files are people's, and each is told once", () => {
    const turns = [turnOf(1, "r1", [file], [{ ...file, blob: "b2" }]), turnOf(2, "r2", [file]), { ...turnOf(3, "r3", [{ ...file, blob: "b3" }]), live: false }];
    expect(attachedTo(turns).map((each) => each.blob)).toEqual(["b1"]);
  });

  test("of what is under way, the calls that run", () => {
    const turn = turnOf(1, "r1", [], []);
    const call = fresh({ turn: 1, place: 9, at: 1, id: "c9", role: "tool", state: "started" });
    turn.entries.push(call);
    const work = { status: "running", turn: 1 } as Parameters<typeof underWay>[0] extends Iterable<infer Each> ? Each : never;
    expect(underWay([work], new Map([[1, turn]]))?.running).toEqual([call]);
    expect(underWay([{ ...work, status: "completed" }], new Map([[1, turn]]))).toBeNull();
  });
});

test("a turn that waits is drawn again when the one before it has ended", () => {
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

test("a conversation keeps its shape while a text grows, and changes it with everything else", () => {
  const conversation = new Conversation();
  let seq = 0;
  const add = (event: object) => {
    conversation.add({ seq: ++seq, at: 1, ...event } as AnyEvent);
    return conversation.shape;
  };
  add({ kind: "turn_accepted", turn: 1, turn_id: "t", message_id: "m", run_id: "r", parts: [] });
  const before = add({ kind: "model_step_started", run_id: "r", turn: 1, place: 1, message_id: "a", model: "x" });
  expect(add({ kind: "text_appended", run_id: "r", message_id: "a", text: "one " })).toBe(before);
  expect(add({ kind: "reasoning_appended", run_id: "r", message_id: "a", text: "two " })).toBe(before);
  expect(add({ kind: "run_completed", run_id: "r" })).toBeGreaterThan(before);
});

test("what a command changes is not known where one ran, or may have", () => {
  const turn = (name: string, state: "intended" | "in_doubt" | "settled", outcome: "done" | "failed" | "denied" | null): Turn => ({
    turn: 1, id: "t", run_id: "r", live: true, removed: null, memories: [], version: 0,
    entries: [fresh({ turn: 1, place: 1, at: 1, id: "c", role: "tool", name, state, outcome })],
  });
  expect([turn("shell", "settled", "done"), turn("shell", "settled", "failed"), turn("shell", "in_doubt", null)].map(ranCommand)).toEqual([true, true, true]);
  expect([turn("shell", "intended", null), turn("shell", "settled", "denied"), turn("write_file", "settled", "done")].map(ranCommand)).toEqual([false, false, false]);
});
