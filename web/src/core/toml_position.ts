// Find the place of an error in a TOML text from the server's message.

/** Return the line that `problem` is about, from 1; 0 if the message names none. */
export function errorLine(problem: string, text: string): number {
  const lines = text.split("\n");
  const lineNumber = /\bat line (\d+)/.exec(problem)?.[1];
  if (lineNumber) return Math.min(Number(lineNumber), lines.length);
  if (/\bat end of document/.test(problem)) return lines.length;
  const quoted = /'([^']+)'/.exec(problem)?.[1];
  const key = /: ([a-z_]+) (?:must be|names)\b/.exec(problem)?.[1] ?? (/: there is no '/.test(problem) ? quoted : undefined);
  if (!key) return 0;
  const keyLine = lines.findIndex((line) => tomlKey(line) === key);
  if (keyLine < 0 || !quoted || quoted === key) return keyLine + 1;
  // A list may span several lines: return the line with the wrong value.
  const valueLine = lines.findIndex((line, index) => index >= keyLine && line.includes(quoted));
  return (valueLine < 0 ? keyLine : valueLine) + 1;
}

/** Return the key that a line of TOML sets, or the table that it begins. */
function tomlKey(line: string): string {
  return /^\s*(?:\[+\s*)?["']?([\w-]+)["']?\s*(?:=|\.|\])/.exec(line)?.[1] ?? "";
}

/** Return the offsets of a line's start and end in `text`. */
export function lineRange(text: string, line: number): [number, number] {
  const lines = text.split("\n");
  const start = lines.slice(0, line - 1).reduce((sum, each) => sum + each.length + 1, 0);
  return [start, start + (lines[line - 1]?.length ?? 0)];
}
