import { expect, test } from "vitest";
import { Course } from "../src/core/session_meta";
import { Conversation } from "../src/core/conversation";
import type { AnyEvent, MessageList } from "../src/core/protocol";

const summed = (seq: number, through: number): AnyEvent => ({ seq, at: seq * 10, kind: "session_compacted", covers: [[1, 1], [3, through]], summary: `up to ${through}` });

test("the newest summary whose turns are all live stands, as on the server", () => {
  const course = new Course();
  course.add(summed(1, 4));
  course.add(summed(2, 6));
  expect(course.summary).toEqual({ through_turn: 6, text: "up to 6", at: 20 });
  course.add({ seq: 3, at: 30, kind: "turns_undone", from_turn: 7 });
  expect(course.summary?.through_turn).toBe(6);
  course.add({ seq: 4, at: 40, kind: "turns_undone", from_turn: 6 });
  expect(course.summary?.through_turn).toBe(4);
  course.add({ seq: 5, at: 50, kind: "turns_undone", from_turn: 3 });
  expect(course.summary).toBeNull();
  course.add({ seq: 6, at: 60, kind: "turns_restored", turns: [[3, 4]], from_turn: 0 });
  expect(course.summary?.through_turn).toBe(4);
  course.add({ seq: 7, at: 70, kind: "turns_restored", turns: [[6, 7]], from_turn: 8 });
  expect(course.summary?.through_turn).toBe(6);
  course.add({ seq: 8, at: 80, kind: "turns_restored", turns: [[9, 9]], from_turn: 4 });
  expect(course.summary).toBeNull();
});

test("what was cleared has no summary, and where a conversation goes on is known", () => {
  const course = new Course();
  course.add(summed(1, 4));
  course.add({ seq: 2, at: 20, kind: "session_cleared", through_turn: 5 });
  course.add({ seq: 3, at: 30, kind: "session_continued", successor_session_id: "s_2" });
  expect([course.summary, course.successor]).toEqual([null, "s_2"]);
});

test("files that were put back are gathered by their run", () => {
  const course = new Course();
  course.add({ seq: 1, at: 1, kind: "files_restored", run_id: "r_1", paths: ["a"] });
  course.add({ seq: 2, at: 2, kind: "files_restored", run_id: "r_1", paths: ["b"] });
  expect([...(course.restored.get("r_1") ?? [])]).toEqual(["a", "b"]);
});

test("a page brings the summary that stands, and earlier pages leave it", () => {
  const conversation = new Conversation();
  const page: MessageList = { messages: [], runs: [], head: 9, before: null, summary: { through_turn: 2, text: "so far", at: 5 } };
  conversation.addPage(page);
  conversation.addPage({ ...page, head: 0, summary: null });
  expect(conversation.course.summary?.text).toBe("so far");
});

test("a settled answer says how much was read for it", () => {
  const conversation = new Conversation();
  conversation.add({ seq: 1, at: 1, kind: "turn_accepted", turn_id: "t_1", turn: 1, message_id: "m_1", parts: [], run_id: "r_1" });
  const used = { input_tokens: 900, output_tokens: 5, cached_tokens: 700 };
  conversation.add({ seq: 2, at: 2, kind: "message_settled", turn: 1, place: 1, message_id: "m_2", role: "assistant", parts: [], digest: "", weight: [1000, 900] });
  conversation.add({ seq: 3, at: 3, kind: "model_step_settled", run_id: "r_1", message_id: "m_2", stop_reason: "stop", usage: used });
  conversation.add({ seq: 4, at: 4, kind: "model_step_settled", run_id: "r_1", message_id: "m_2", stop_reason: "stop", usage: { ...used, cost_micros: 7, estimated_tokens: 905 } });
  expect(conversation.entry("m_2")?.context_tokens).toBe(900);
  expect(conversation.work.get("r_1")).toMatchObject({ input_tokens: 1800, cached_tokens: 1400, cost_micros: 7, estimated_tokens: 905 });
});
