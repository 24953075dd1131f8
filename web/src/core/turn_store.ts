// Where everything that was said stands: turns with their entries, by number and by name. It is told what to write
// where, and knows neither events nor runs.

import { isOpen, type Entry, type Removed, type Status, type Turn } from "./transcript_types";
import type { ToolCallPart } from "./protocol";

export class Turns {
  readonly turns = new Map<number, Turn>();
  private readonly places = new Map<string, Entry>();
  private readonly versions = new Map<string, readonly string[]>();
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
      turn = { turn: number, id: "", run_id: null, live: false, removed: null, entries: [], memories: [], version: 0 };
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

  /** Remove every live turn from one on, all by the same event. */
  removeTurns(from_turn: number, seq: number, replaced: boolean): void {
    const live = this.ordered().filter((turn) => turn.live);
    const removed: Removed = { seq, replaced, after: live.findLast((turn) => turn.turn < from_turn)?.turn ?? 0 };
    for (const turn of live) if (turn.turn >= from_turn) this.set(turn, { live: false, removed });
  }

  /** The context was cleared: these turns are live no more, and those that were removed before cannot be restored. */
  clearTurns(through: number): void {
    for (const turn of this.turns.values()) {
      if (turn.turn <= through && (turn.live || turn.removed)) this.set(turn, { live: false, removed: null });
    }
  }

  /** Make turns live again. Others that were removed with them are now removed for themselves: no version leads to them. */
  restoreTurns(ranges: readonly (readonly [number, number])[]): void {
    const back = this.ordered().filter(({ turn }) => ranges.some(([first, last]) => first <= turn && turn <= last));
    const last = new Map(back.flatMap(({ turn, removed }) => (removed ? [[removed.seq, turn] as const] : [])));
    for (const turn of back) this.set(turn, { live: true, removed: null });
    for (const turn of this.turns.values()) {
      const after = turn.removed ? last.get(turn.removed.seq) : undefined;
      if (turn.removed && after) this.set(turn, { removed: { ...turn.removed, replaced: false, after } });
    }
  }

  /** Whether a turn is shown, live or as a row that says that it was removed: only below the turn that it followed. */
  isShown({ removed }: Turn): boolean {
    return !removed || (!removed.replaced && (this.turns.get(removed.after)?.live ?? true));
  }

  private set(turn: Turn, changes: Partial<Turn>): void {
    Object.assign(turn, changes);
    this.redraw(turn);
  }

  /** The turns of all versions of a message, oldest first; empty where there is only one. */
  versionsOf(id: string): readonly string[] {
    return this.versions.get(id) ?? [];
  }

  /** A turn is another version of the one that it replaces, and of whatever that one replaced. */
  addVersion(id: string, replaces: string): void {
    this.putVersions([...(this.versions.get(replaces) ?? [replaces]), id]);
  }

  putVersions(ids: readonly string[]): void {
    for (const id of ids) this.versions.set(id, ids);
    for (const turn of this.turns.values()) if (ids.includes(turn.id)) this.redraw(turn);
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
