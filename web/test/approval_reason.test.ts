import { expect, test } from "vitest";
import { divide, isDue } from "../src/core/approval_reason";

test("a reason is divided into what is said of this call and what holds for every command", () => {
  const [folder, caution] = ["/a. Folder", "It runs as root. Beware."];
  expect(divide(`It works in ${folder}. ${caution}`, folder)).toEqual({ folder, own: "", caution });
  expect(divide(`It works in /a b/s_1.2. ${caution}`, "")).toEqual({ folder: "/a b/s_1.2", own: "", caution });
  expect(divide("It works in /a.", "")).toEqual({ folder: "/a", own: "", caution: "" });
  expect(divide("A tool of the server notes.", "/a")).toEqual({ folder: "/a", own: "A tool of the server notes.", caution: "" });
});

test("a caution is shown once a day, and another one at once", () => {
  const kept = new Map<string, string>();
  const store = { getItem: (key: string) => kept.get(key) ?? null, setItem: (key: string, value: string) => void kept.set(key, value) };
  const due = (caution: string, call: string, day: string) => isDue(caution, call, day, store);
  expect(due("root", "call_1", "Monday")).toBe(true);
  expect(due("root", "call_2", "Monday")).toBe(false);
  // The card that it was first shown on keeps it.
  expect(due("root", "call_1", "Monday")).toBe(true);
  expect(due("disks", "call_3", "Monday")).toBe(true);
  expect(due("disks", "call_4", "Tuesday")).toBe(true);
});
