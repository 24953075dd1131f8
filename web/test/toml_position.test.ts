// @vitest-environment node
import { expect, test } from "vitest";
import { errorLine, lineRange } from "../src/core/toml_position";

const TEXT = 'description = "x"\nmodle = "y"\ntools = [\n  "read_file",\n  "fly",\n]\n\n[more]\nx = 1\n';

test.each([
  ["agents/a.toml: this is not TOML: Expected '=' after a key in a key/value pair (at line 2, column 3).", 2],
  ["agents/a.toml: this is not TOML: Unterminated string (at end of document).", 10],
  ["agents/a.toml: this is not TOML: Invalid value (at line 99, column 1).", 10],
  ["agents/a.toml: there is no 'modle'; there are: description, model.", 2],
  ["agents/a.toml: there is no 'more'; there are: description, model.", 8],
  ["agents/a.toml: description must be text.", 1],
  ["agents/a.toml: tools names 'fly', which is no tool; there are: shell.", 5],
  ["agents/a.toml: tools must be a list of at most 100 names of tools.", 3],
  ["agents/a.toml: this has more than 100 bytes.", 0],
  ["agents/a.toml: workspace must be the whole path of a folder.", 0],
])("%s", (problem, line) => {
  expect(errorLine(problem, TEXT)).toBe(line);
});

test("the range of a line contains its text", () => {
  expect(TEXT.slice(...lineRange(TEXT, 2))).toBe('modle = "y"');
  expect(TEXT.slice(...lineRange(TEXT, 1))).toBe('description = "x"');
  expect(lineRange(TEXT, 10)).toEqual([TEXT.length, TEXT.length]);
});
