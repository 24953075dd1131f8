import { expect, test } from "vitest";
import { conversation as words } from "../src/view/text/conversation";
import { details } from "../src/view/text/details";

test("a price is told in cents, or finer where it is less; nothing is free", () => {
  expect([1.5, 0.0125, 0.0042, 0].map(words.price)).toEqual(["$1.50", "$0.01", "$0.0042", "free"]);
});

test("tokens that were read before are told apart", () => {
  expect(words.tokens(12_000, 50, 9_000)).toBe("12,000 in (9,000 cached), 50 out");
  expect(words.tokens(12, 50, 0)).toBe("12 in, 50 out");
  expect(words.tokens(12, 50, 0, 62)).toBe("about 12 in, 50 out (estimated)");
});

test("what has just begun did not begin some time ago", () => {
  expect(["now", "3 min"].map(details.since)).toEqual(["Begun just now", "Begun 3 min ago"]);
});

test("a lasting yes is told with what it reaches", () => {
  expect(words.allowedNow("uname", true)).toBe("Allowed everywhere: uname. Undo in Settings › Always allowed.");
  expect(words.allowedNow(words.everyUse("write_file"), false)).toContain("Allowed in this conversation: writing files.");
});
