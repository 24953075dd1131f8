import { expect, test } from "vitest";
import { SessionMeta } from "../src/core/session_meta";
import { Conversation } from "../src/core/conversation";
import type { AnyEvent, MessageList } from "../src/core/protocol";

const compacted = (seq: number, through: number): AnyEvent => ({ seq, at: seq * 10, kind: "session_compacted", covers: [[1, 1], [3, through]], summary: `up to ${through}` });

test("the current summary is the newest one whose turns are all live, as on the server", () => {
  const meta = new SessionMeta();
  meta.add(compacted(1, 4));
  meta.add(compacted(2, 6));
  expect(meta.summary).toEqual({ through_turn: 6, text: "up to 6", at: 20 });
  meta.add({ seq: 3, at: 30, kind: "turns_undone", from_turn: 7 });
  expect(meta.summary?.through_turn).toBe(6);
  meta.add({ seq: 4, at: 40, kind: "turns_undone", from_turn: 6 });
  expect(meta.summary?.through_turn).toBe(4);
  meta.add({ seq: 5, at: 50, kind: "turns_undone", from_turn: 3 });
  expect(meta.summary).toBeNull();
  meta.add({ seq: 6, at: 60, kind: "turns_restored", turns: [[3, 4]], from_turn: 0 });
  expect(meta.summary?.through_turn).toBe(4);
  meta.add({ seq: 7, at: 70, kind: "turns_restored", turns: [[6, 7]], from_turn: 8 });
  expect(meta.summary?.through_turn).toBe(6);
  meta.add({ seq: 8, at: 80, kind: "turns_restored", turns: [[9, 9]], from_turn: 4 });
  expect(meta.summary).toBeNull();
});

test("a cleared session has no summary, and a continued one has a successor", () => {
  const meta = new SessionMeta();
  meta.add(compacted(1, 4));
  meta.add({ seq: 2, at: 20, kind: "session_cleared", through_turn: 5 });
  meta.add({ seq: 3, at: 30, kind: "session_continued", successor_session_id: "s_2" });
  expect([meta.summary, meta.successor]).toEqual([null, "s_2"]);
});

test("restored files are collected by their run", () => {
  const meta = new SessionMeta();
  meta.add({ seq: 1, at: 1, kind: "files_restored", run_id: "r_1", paths: ["a"] });
  meta.add({ seq: 2, at: 2, kind: "files_restored", run_id: "r_1", paths: ["b"] });
  expect([...(meta.restoredFiles.get("r_1") ?? [])]).toEqual(["a", "b"]);
});

test("the newest page sets the summary, and earlier pages keep it", () => {
  const conversation = new Conversation();
  const page: MessageList = { messages: [], runs: [], head: 9, before: null, summary: { through_turn: 2, text: "so far", at: 5 } };
  conversation.addPage(page);
  conversation.addPage({ ...page, head: 0, summary: null });
  expect(conversation.meta.summary?.text).toBe("so far");
});

test("a settled answer has the size of its context", () => {
  const conversation = new Conversation();
  conversation.add({ seq: 1, at: 1, kind: "turn_accepted", turn_id: "t_1", turn: 1, message_id: "m_1", parts: [], run_id: "r_1" });
  const used = { input_tokens: 900, output_tokens: 5, cached_tokens: 700 };
  conversation.add({ seq: 2, at: 2, kind: "message_settled", turn: 1, place: 1, message_id: "m_2", role: "assistant", parts: [], digest: "", weight: [1000, 900] });
  conversation.add({ seq: 3, at: 3, kind: "model_step_settled", run_id: "r_1", message_id: "m_2", stop_reason: "stop", usage: used });
  conversation.add({ seq: 4, at: 4, kind: "model_step_settled", run_id: "r_1", message_id: "m_2", stop_reason: "stop", usage: { ...used, cost_micros: 7, estimated_tokens: 905 } });
  expect(conversation.entry("m_2")?.context_tokens).toBe(900);
  expect(conversation.runs.get("r_1")).toMatchObject({ input_tokens: 1800, cached_tokens: 1400, cost_micros: 7, estimated_tokens: 905 });
});
