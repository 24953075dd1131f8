import { expect, test } from "vitest";
import { hasEnded } from "../src/core/session_progress";

const of = (state: string, unread = true, turns = 1) => ({ state, unread, turns });

test("work has ended if it was active or waited for an answer, and is idle or failed now", () => {
  for (const before of ["working", "needs_you", "interrupted"]) {
    expect([hasEnded(of(before), of("idle")), hasEnded(of(before), of("failed"))]).toEqual([true, true]);
    expect([hasEnded(of(before), of("working")), hasEnded(of(before), of("needs_you"))]).toEqual([false, false]);
  }
});

test("work whose start was omitted has ended if there is something new to read", () => {
  expect(hasEnded(of("idle", false), of("idle", true))).toBe(true);
  expect(hasEnded(of("idle", true, 1), of("idle", true, 2))).toBe(true);
  expect(hasEnded(of("idle", true), of("idle", true))).toBe(false);
  expect(hasEnded(of("idle", true), of("idle", false))).toBe(false);
});
