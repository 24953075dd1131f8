// @vitest-environment node
import { expect, test } from "vitest";
import { age, clock, date, dayOf, shortTime } from "../src/core/format_time";

test("ages are formatted in the largest whole unit", () => {
  const now = Date.UTC(2026, 0, 10, 12);
  expect([0, 59_000, 60_000, 3_600_000, 26 * 3_600_000].map((ms) => age(now - ms, now))).toEqual(["now", "now", "1 min", "1 h", "1 d"]);
});

test("days begin at midnight in the reader's time zone", () => {
  const now = new Date(2026, 0, 10, 12).getTime();
  expect(dayOf(new Date(2026, 0, 10, 0, 0, 1).getTime(), now)).toBe("today");
  expect(dayOf(new Date(2026, 0, 9, 23, 59).getTime(), now)).toBe("yesterday");
  expect(dayOf(new Date(2026, 0, 8, 23, 59).getTime(), now)).toBe("earlier");
});

test("a moment today is formatted as a time, any other as a date", () => {
  const now = new Date(2026, 5, 10, 12).getTime();
  const earlier = new Date(2026, 5, 10, 9, 30).getTime();
  expect(shortTime(earlier, now)).toBe(clock(earlier));
  const before = new Date(2026, 4, 9).getTime();
  expect(shortTime(before, now)).toBe(date(before, now));
  expect(date(before, now)).not.toContain("2026");
  expect(date(new Date(2024, 4, 9).getTime(), now)).toContain("2024");
});
