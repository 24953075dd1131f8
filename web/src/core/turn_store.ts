// The turns of a conversation with their entries, by number and by id. It knows neither events nor runs.

import { isOpen, type Entry, type Removed, type MessageStatus, type Turn } from "./transcript_types";
import type { ToolCallPart } from "./protocol";

export class TurnStore {
  readonly turns = new Map<number, Turn>();
  private readonly entriesById = new Map<string, Entry>();
  private readonly versions = new Map<string, readonly string[]>();
  private order: Turn[] | null = null;
  private version = 0;

  /** Return the turns in reading order. */
  orderedTurns(): readonly Turn[] {
    this.order ??= [...this.turns.values()].sort((a, b) => a.turn - b.turn);
    return this.order;
  }

  entry(id: string): Entry | undefined {
    return this.entriesById.get(id);
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

  putEntry(entry: Entry): void {
    const turn = this.turn(entry.turn);
    entry.version = turn.version = ++this.version;
    const index = turn.entries.findIndex((other) => other.place >= entry.place);
    const existing = index >= 0 ? turn.entries[index] : undefined;
    if (existing && existing.place === entry.place) {
      if (existing.id !== entry.id) this.entriesById.delete(existing.id);
      turn.entries[index] = entry;
    } else if (index < 0) turn.entries.push(entry);
    else turn.entries.splice(index, 0, entry);
    this.entriesById.set(entry.id, entry);
  }

  deleteTurn(turn: Turn): void {
    for (const entry of turn.entries) this.entriesById.delete(entry.id);
    this.turns.delete(turn.turn);
    this.order = null;
  }

  /** Remove every live turn from `from_turn` on, all by the same event. */
  removeTurns(from_turn: number, seq: number, replaced: boolean): void {
    const live = this.orderedTurns().filter((turn) => turn.live);
    const removed: Removed = { seq, replaced, after: live.findLast((turn) => turn.turn < from_turn)?.turn ?? 0 };
    for (const turn of live) if (turn.turn >= from_turn) this.updateTurn(turn, { live: false, removed });
  }

  /** Clear the context: these turns are not live any more, and removed ones among them cannot be restored. */
  clearTurns(through: number): void {
    for (const turn of this.turns.values()) {
      if (turn.turn <= through && (turn.live || turn.removed)) this.updateTurn(turn, { live: false, removed: null });
    }
  }

  /** Make turns live again. Others that the same event removed become removed for themselves: no version leads to them. */
  restoreTurns(ranges: readonly (readonly [number, number])[]): void {
    const restored = this.orderedTurns().filter(({ turn }) => ranges.some(([first, last]) => first <= turn && turn <= last));
    const last = new Map(restored.flatMap(({ turn, removed }) => (removed ? [[removed.seq, turn] as const] : [])));
    for (const turn of restored) this.updateTurn(turn, { live: true, removed: null });
    for (const turn of this.turns.values()) {
      const after = turn.removed ? last.get(turn.removed.seq) : undefined;
      if (turn.removed && after) this.updateTurn(turn, { removed: { ...turn.removed, replaced: false, after } });
    }
  }

  /** Return whether a turn is shown, live or as a "removed" row: a removed one only below the live turn that it followed. */
  isVisible({ removed }: Turn): boolean {
    return !removed || (!removed.replaced && (this.turns.get(removed.after)?.live ?? true));
  }

  private updateTurn(turn: Turn, changes: Partial<Turn>): void {
    Object.assign(turn, changes);
    this.markTurnChanged(turn);
  }

  /** Return the turns of all versions of a message, oldest first; empty if there is only one. */
  versionIds(id: string): readonly string[] {
    return this.versions.get(id) ?? [];
  }

  /** Add a version of a message: it joins the versions of the turn that it replaces. */
  addVersion(id: string, replaces: string): void {
    this.putVersions([...(this.versions.get(replaces) ?? [replaces]), id]);
  }

  putVersions(ids: readonly string[]): void {
    for (const id of ids) this.versions.set(id, ids);
    for (const turn of this.turns.values()) if (ids.includes(turn.id)) this.markTurnChanged(turn);
  }

  /** Mark a turn as changed although none of its entries is. */
  markTurnChanged(turn: Turn): void {
    turn.version = ++this.version;
  }

  updateEntry(id: string, changes: Partial<Entry>): void {
    const entry = this.entriesById.get(id);
    if (!entry || (entry.role === "tool" && entry.state === "settled")) return;
    Object.assign(entry, changes);
    this.markEntryChanged(entry);
  }

  updateNotice(turn: number, place: number, status: MessageStatus, at: number): void {
    const entry = this.turns.get(turn)?.entries.find((each) => each.place === place);
    if (entry?.role !== "notice") return;
    Object.assign(entry, { status, at });
    this.markEntryChanged(entry);
  }

  appendText(id: string, type: "text" | "reasoning", text: string): void {
    const entry = this.entriesById.get(id);
    if (!entry || !isOpen(entry) || !text) return;
    const last = entry.parts.at(-1);
    if (last?.type === type) entry.parts[entry.parts.length - 1] = { ...last, text: last.text + text };
    else entry.parts.push({ type, text });
    this.markEntryChanged(entry);
  }

  appendArguments(id: string, call_id: string, name: string, text: string): void {
    const entry = this.entriesById.get(id);
    if (!entry || !isOpen(entry)) return;
    const index = entry.parts.findIndex((part) => part.type === "tool_call" && part.call_id === call_id);
    const call = entry.parts[index] as ToolCallPart | undefined;
    if (call) entry.parts[index] = { ...call, arguments: call.arguments + text };
    else entry.parts.push({ type: "tool_call", call_id, name, arguments: text });
    this.markEntryChanged(entry);
  }

  /** Mark the messages that a run was writing as interrupted. They keep their text. */
  interruptRun(number: number, run_id: string): void {
    for (const entry of this.turns.get(number)?.entries ?? []) {
      if (entry.run_id !== run_id || entry.status !== "streaming") continue;
      entry.status = "interrupted";
      this.markEntryChanged(entry);
    }
  }

  private markEntryChanged(entry: Entry): void {
    entry.version = this.turn(entry.turn).version = ++this.version;
  }
}
