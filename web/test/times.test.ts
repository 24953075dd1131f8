// @vitest-environment node
import { expect, test } from "vitest";
import { age, dayOf } from "../src/core/times";

test("ages read as people say them", () => {
  const now = Date.UTC(2026, 0, 10, 12);
  expect([0, 59_000, 60_000, 3_600_000, 26 * 3_600_000].map((ms) => age(now - ms, now))).toEqual(["now", "now", "1 min", "1 h", "1 d"]);
});

test("days begin at midnight where the reader is", () => {
  const now = new Date(2026, 0, 10, 12).getTime();
  expect(dayOf(new Date(2026, 0, 10, 0, 0, 1).getTime(), now)).toBe("today");
  expect(dayOf(new Date(2026, 0, 9, 23, 59).getTime(), now)).toBe("yesterday");
  expect(dayOf(new Date(2026, 0, 8, 23, 59).getTime(), now)).toBe("earlier");
});
