// Where everything that was said stands: turns with their entries, by number and by name. It is told what to write
// where, and knows neither events nor runs.

import { isOpen, type Entry, type Removed, type Status, type Turn } from "./entries";
import type { ToolCallPart } from "./protocol";

export class Turns {
  readonly turns = new Map<number, Turn>();
  private readonly places = new Map<string, Entry>();
  private order: Turn[] | null = null;
  private version = 0;

  /** Turns in the order they are read in. */
  ordered(): readonly Turn[] {
    this.order ??= [...this.turns.values()].sort((a, b) => a.turn - b.turn);
    return this.order;
  }

  entry(id: string): Entry | undefined {
    return this.places.get(id);
  }

  turn(number: number): Turn {
    let turn = this.turns.get(number);
    if (!turn) {
      turn = { turn: number, id: "", run_id: null, live: false, removed: null, versions: [], entries: [], memories: [], version: 0 };
      this.turns.set(number, turn);
      this.order = null;
    }
    return turn;
  }

  put(entry: Entry): void {
    const turn = this.turn(entry.turn);
    entry.version = turn.version = ++this.version;
    const at = turn.entries.findIndex((other) => other.place >= entry.place);
    const there = at >= 0 ? turn.entries[at] : undefined;
    if (there && there.place === entry.place) {
      if (there.id !== entry.id) this.places.delete(there.id);
      turn.entries[at] = entry;
    } else if (at < 0) turn.entries.push(entry);
    else turn.entries.splice(at, 0, entry);
    this.places.set(entry.id, entry);
  }

  drop(turn: Turn): void {
    for (const entry of turn.entries) this.places.delete(entry.id);
    this.turns.delete(turn.turn);
    this.order = null;
  }

  endTurns(isMeant: (turn: number) => boolean, removed: Removed): void {
    for (const turn of this.turns.values()) {
      if (!turn.live || !isMeant(turn.turn)) continue;
      Object.assign(turn, { live: false, removed });
      this.redraw(turn);
    }
  }

  /** The context was cleared: these turns are live no more, and those that were removed before cannot be restored. */
  clearTurns(through: number): void {
    for (const turn of this.turns.values()) {
      if (turn.turn > through || !(turn.live || turn.removed)) continue;
      Object.assign(turn, { live: false, removed: null });
      this.redraw(turn);
    }
  }

  restoreTurns(ranges: readonly (readonly [number, number])[]): void {
    for (const turn of this.turns.values()) {
      if (!ranges.some(([first, last]) => first <= turn.turn && turn.turn <= last)) continue;
      Object.assign(turn, { live: true, removed: null });
      this.redraw(turn);
    }
  }

  /** A turn is another version of the one that it replaces, and of whatever that one replaced. */
  addVersion(id: string, replaces: string): void {
    const known = [...this.turns.values()].find((turn) => turn.id === replaces)?.versions ?? [];
    const versions = [...(known.length ? known : [replaces]), id];
    for (const turn of this.turns.values()) {
      if (!versions.includes(turn.id)) continue;
      turn.versions = versions;
      this.redraw(turn);
    }
  }

  /** Something about a turn reads differently, though none of its entries does. */
  redraw(turn: Turn): void {
    turn.version = ++this.version;
  }

  change(id: string, changes: Partial<Entry>): void {
    const entry = this.places.get(id);
    if (!entry || (entry.role === "tool" && entry.state === "settled")) return;
    Object.assign(entry, changes);
    this.touch(entry);
  }

  note(turn: number, place: number, status: Status, at: number): void {
    const entry = this.turns.get(turn)?.entries.find((each) => each.place === place);
    if (entry?.role !== "notice") return;
    Object.assign(entry, { status, at });
    this.touch(entry);
  }

  write(id: string, type: "text" | "reasoning", text: string): void {
    const entry = this.places.get(id);
    if (!entry || !isOpen(entry) || !text) return;
    const last = entry.parts.at(-1);
    if (last?.type === type) entry.parts[entry.parts.length - 1] = { ...last, text: last.text + text };
    else entry.parts.push({ type, text });
    this.touch(entry);
  }

  writeCall(id: string, call_id: string, name: string, text: string): void {
    const entry = this.places.get(id);
    if (!entry || !isOpen(entry)) return;
    const at = entry.parts.findIndex((part) => part.type === "tool_call" && part.call_id === call_id);
    const call = entry.parts[at] as ToolCallPart | undefined;
    if (call) entry.parts[at] = { ...call, arguments: call.arguments + text };
    else entry.parts.push({ type: "tool_call", call_id, name, arguments: text });
    this.touch(entry);
  }

  /** What a run was writing in a turn when it ended stays as far as it came. */
  interrupt(number: number, run_id: string): void {
    for (const entry of this.turns.get(number)?.entries ?? []) {
      if (entry.run_id !== run_id || entry.status !== "streaming") continue;
      entry.status = "interrupted";
      this.touch(entry);
    }
  }

  private touch(entry: Entry): void {
    entry.version = this.turn(entry.turn).version = ++this.version;
  }
}
