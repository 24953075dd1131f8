import { expect, test } from "vitest";
import { conversation as texts } from "../src/view/text/conversation";
import { details } from "../src/view/text/details";

test("a price is formatted in cents, or finer if it is less; zero is free", () => {
  expect([1.5, 0.0125, 0.0042, 0].map(texts.price)).toEqual(["$1.50", "$0.01", "$0.0042", "free"]);
});

test("cached and estimated tokens are marked", () => {
  expect(texts.tokens(12_000, 50, 9_000)).toBe("12,000 in (9,000 cached), 50 out");
  expect(texts.tokens(12, 50, 0)).toBe("12 in, 50 out");
  expect(texts.tokens(12, 50, 0, 62)).toBe("about 12 in, 50 out (estimated)");
});

test("a start just now is not formatted as an age", () => {
  expect(["now", "3 min"].map(details.since)).toEqual(["Begun just now", "Begun 3 min ago"]);
});

test("a permanent permission names what it covers", () => {
  expect(texts.allowedNow("uname", true)).toBe("Allowed everywhere: uname. Undo in Settings › Always allowed.");
  expect(texts.allowedNow(texts.everyUse("write_file"), false)).toContain("Allowed in this conversation: writing files.");
});
