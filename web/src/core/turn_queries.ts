// Queries over a conversation's turns.

import type { Entry, Turn, RunProgress } from "./transcript_types";
import type { ChangePart, FilePart } from "./protocol";

/** How many lines all calls of a turn added to a file and removed from it. */
export interface FileChangeTotals {
  readonly path: string;
  readonly added: number;
  readonly removed: number;
}

/** Return the files that a turn changed, in the order of their first change. */
export function fileChanges(turn: Turn): FileChangeTotals[] {
  const totals = new Map<string, FileChangeTotals>();
  for (const { path, added = 0, removed = 0 } of turn.entries.flatMap(({ parts }) => parts.filter((part): part is ChangePart => part.type === "change"))) {
    const before = totals.get(path);
    totals.set(path, { path, added: added + (before?.added ?? 0), removed: removed + (before?.removed ?? 0) });
  }
  return [...totals.values()];
}

/** Return the files that users attached, each once. */
export function attachedFiles(turns: readonly Turn[]): FilePart[] {
  const files = turns.flatMap((turn) => (turn.live ? turn.entries : [])).flatMap((entry) => (entry.role === "user" ? entry.parts : []));
  return [...new Map(files.flatMap((part) => (part.type === "file" ? [[part.blob, part]] : []))).values()];
}

/** Return the calls of a turn in order. */
export function toolCalls(turn: Turn): Entry[] {
  return turn.entries.filter((entry) => entry.role === "tool");
}

/** Return whether a command ran or may have run: what commands change is not recorded. */
export function ranCommand(turn: Turn): boolean {
  return toolCalls(turn).some(({ name, state, outcome }) => name === "shell" && state !== "intended" && outcome !== "denied" && outcome !== "not_run");
}

/** Return the active run, its turn and its running calls; null if there is none. */
export function findActiveRun(runs: Iterable<RunProgress>, turns: ReadonlyMap<number, Turn>): { work: RunProgress; turn: Turn; running: Entry[] } | null {
  for (const run of runs) {
    if (!["accepted", "running", "waiting"].includes(run.status)) continue;
    const turn = turns.get(run.turn);
    if (turn) return { work: run, turn, running: toolCalls(turn).filter((entry) => entry.state === "started" && !entry.outcome) };
  }
  return null;
}
