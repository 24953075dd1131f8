// Where in a text something is wrong, by what the server says of it.

/** The number of the line that `problem` is about, from 1; 0 where it names none. */
export function lineOf(problem: string, text: string): number {
  const lines = text.split("\n");
  const told = /\bat line (\d+)/.exec(problem)?.[1];
  if (told) return Math.min(Number(told), lines.length);
  if (/\bat end of document/.test(problem)) return lines.length;
  const quoted = /'([^']+)'/.exec(problem)?.[1];
  const key = /: ([a-z_]+) (?:must be|names)\b/.exec(problem)?.[1] ?? (/: there is no '/.test(problem) ? quoted : undefined);
  if (!key) return 0;
  const begins = lines.findIndex((line) => keyOf(line) === key);
  if (begins < 0 || !quoted || quoted === key) return begins + 1;
  // A list may go on for several lines: the one that holds what is wrong.
  const holds = lines.findIndex((line, at) => at >= begins && line.includes(quoted));
  return (holds < 0 ? begins : holds) + 1;
}

/** The key that a line of TOML gives a value, or the table that it begins. */
function keyOf(line: string): string {
  return /^\s*(?:\[+\s*)?["']?([\w-]+)["']?\s*(?:=|\.|\])/.exec(line)?.[1] ?? "";
}

/** Where a line begins and ends in `text`. */
export function rangeOf(text: string, line: number): [number, number] {
  const lines = text.split("\n");
  const begins = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return [begins, begins + (lines[line - 1]?.length ?? 0)];
}
