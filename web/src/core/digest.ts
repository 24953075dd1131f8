// What somebody may want to look at in a conversation, gathered from its turns.

import type { Entry, Turn, Work } from "./transcript_types";
import type { ChangePart, FilePart } from "./protocol";

/** How much was changed in a file by all calls of a turn. */
export interface Changed {
  readonly path: string;
  readonly added: number;
  readonly removed: number;
}

/** The files that the work on a turn changed, in the order in which it came to them. */
export function changedIn(turn: Turn): Changed[] {
  const found = new Map<string, Changed>();
  for (const { path, added = 0, removed = 0 } of turn.entries.flatMap(({ parts }) => parts.filter((part): part is ChangePart => part.type === "change"))) {
    const before = found.get(path);
    found.set(path, { path, added: added + (before?.added ?? 0), removed: removed + (before?.removed ?? 0) });
  }
  return [...found.values()];
}

/** The files that people attached, each once. */
export function attachedTo(turns: readonly Turn[]): FilePart[] {
  const files = turns.flatMap((turn) => (turn.live ? turn.entries : [])).flatMap((entry) => (entry.role === "user" ? entry.parts : []));
  return [...new Map(files.flatMap((part) => (part.type === "file" ? [[part.blob, part]] : []))).values()];
}

/** The calls of a turn, in their order. */
export function callsOf(turn: Turn): Entry[] {
  return turn.entries.filter((entry) => entry.role === "tool");
}

/** Whether a command was run for it, or may have been: what that changed nobody has noted. */
export function ranCommand(turn: Turn): boolean {
  return callsOf(turn).some(({ name, state, outcome }) => name === "shell" && state !== "intended" && outcome !== "denied" && outcome !== "not_run");
}

/** What is being worked on: its turn, and the calls that run. */
export function underWay(work: Iterable<Work>, turns: ReadonlyMap<number, Turn>): { work: Work; turn: Turn; running: Entry[] } | null {
  for (const each of work) {
    if (!["accepted", "running", "waiting"].includes(each.status)) continue;
    const turn = turns.get(each.turn);
    if (turn) return { work: each, turn, running: callsOf(turn).filter((entry) => entry.state === "started" && !entry.outcome) };
  }
  return null;
}
