import { expect, test } from "vitest";
import { parseReason, isWarningDue } from "../src/core/approval_reason";

test("a reason is parsed into the folder, the detail of the call, and the warning about commands", () => {
  const [folder, warning] = ["/a. Folder", "It runs as root. Beware."];
  expect(parseReason(`It works in ${folder}. ${warning}`, folder)).toEqual({ folder, detail: "", warning });
  expect(parseReason(`It works in /a b/s_1.2. ${warning}`, "")).toEqual({ folder: "/a b/s_1.2", detail: "", warning });
  expect(parseReason("It works in /a.", "")).toEqual({ folder: "/a", detail: "", warning: "" });
  expect(parseReason("A tool of the server notes.", "/a")).toEqual({ folder: "/a", detail: "A tool of the server notes.", warning: "" });
});

test("a warning is shown once a day, and a different one at once", () => {
  const items = new Map<string, string>();
  const store = { getItem: (key: string) => items.get(key) ?? null, setItem: (key: string, value: string) => void items.set(key, value) };
  const due = (warning: string, call: string, day: string) => isWarningDue(warning, call, day, store);
  expect(due("root", "call_1", "Monday")).toBe(true);
  expect(due("root", "call_2", "Monday")).toBe(false);
  // The card that it was first shown on keeps it.
  expect(due("root", "call_1", "Monday")).toBe(true);
  expect(due("disks", "call_3", "Monday")).toBe(true);
  expect(due("disks", "call_4", "Tuesday")).toBe(true);
});
