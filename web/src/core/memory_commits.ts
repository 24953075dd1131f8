// What memory was told of a conversation, and what it still has to be told: stretches of completed turns, folded
// from events as the server folds them (tests/vectors/memory holds both to it).

import type { AnyEvent, TurnsRestoredEvent, WaitingMemory } from "./protocol";

/** As many turns as one stretch may grow to. */
const TURNS_MAX = 200;

export type StretchState = "owed" | "committing" | "paid" | "failed" | "in_doubt" | "dropped" | "void";

export interface Stretch {
  n: number;
  turns: number[];
  state: StretchState;
  /** Some of its turns were taken back after it was begun: memory is to let go of it. */
  retraction: "" | "wanted" | "done" | "cannot";
  owner: string;
  retry_at: number;
  detail: string;
  /** When it came to be as it is. */
  at: number;
}

/** What is told of the whole conversation, in order of how much it needs a person. */
export type Remembered = Pick<Stretch, "at" | "retry_at" | "detail"> & {
  state: "in_doubt" | "failed" | "waiting" | "committing" | "forgetting" | "dropped" | "remembered";
};

export class Remembering {
  readonly stretches = new Map<number, Stretch>();
  /** When it was remembered before what was seen of it here, if it was. */
  rememberedAt = 0;
  /** Whether the server has said what waits, and when it was remembered before. */
  isRead = false;
  private readonly turnOf = new Map<string, number>();
  private readonly undone = new Set<number>();
  private lastTurn = 0;
  /** Whether all of the journal was seen; else a new stretch is numbered below zero until the server says its number. */
  private isWhole = false;

  /** Take in what waits, as it was read after this conversation's newest page; events know better. */
  addWaiting(rows: readonly WaitingMemory[]): void {
    for (const row of rows) {
      if (this.stretches.has(row.segment)) continue;
      const turns = Array.from({ length: row.through_turn - row.from_turn + 1 }, (_, place) => row.from_turn + place);
      // What was guessed of the same turns, before their number was known, is this one.
      for (const each of [...this.stretches.values()]) if (each.n < 0 && each.turns.every((turn) => turns.includes(turn))) this.stretches.delete(each.n);
      const retracts = row.state === "retracting";
      this.put(row.segment, turns, row.since, {
        state: row.state === "retracting" ? "paid" : row.state, retraction: retracts ? "wanted" : "", detail: row.detail,
        retry_at: row.retry_at ?? 0,
      });
    }
  }

  /** Runs that a page tells of: their turns are needed once they are completed. */
  noteRun(run_id: string, turn: number): void {
    this.turnOf.set(run_id, turn);
    this.lastTurn = Math.max(this.lastTurn, turn);
  }

  add(event: AnyEvent): void {
    switch (event.kind) {
      case "session_created":
        this.isWhole = true;
        return;
      case "turn_accepted":
        this.lastTurn = Math.max(this.lastTurn, event.turn);
        if (event.run_id) this.turnOf.set(event.run_id, event.turn);
        return;
      case "run_completed":
        return event.owed ? this.mark(this.turnOf.get(event.run_id) ?? 0, event.owner ?? "", event.at) : undefined;
      case "turns_undone":
        return this.undo(event.from_turn, event.at);
      case "turns_restored":
        return this.restore(event);
      case "memory_commit_started":
        return this.change(event.segment, event.at, { state: "committing", turns: numbersIn(event.turns), owner: event.owner });
      case "memory_committed":
        return this.change(event.segment, event.at, { state: "paid", retry_at: 0, detail: "" });
      case "memory_commit_failed":
        return this.change(event.segment, event.at, {
          state: "failed", detail: event.failure.detail,
          retry_at: this.stretches.get(event.segment)?.retraction ? 0 : (event.retry_at ?? 0),
        });
      case "memory_in_doubt":
        return this.change(event.segment, event.at, { state: "in_doubt", retry_at: 0 });
      case "memory_resolved":
        return this.resolve(event.segment, event.decision, event.at);
      case "memory_forgotten":
        return this.forget(event.segment, event.outcome, event.at, event.failure?.detail ?? "", event.retry_at ?? 0);
    }
  }

  /** What is worth telling, if anything is. */
  told(): Remembered | null {
    const all = [...this.stretches.values()];
    const found = (state: Remembered["state"], isSo: (each: Stretch) => boolean) => {
      const last = all.findLast(isSo);
      return last ? { state, at: last.at, retry_at: last.retry_at, detail: last.detail } : null;
    };
    const is = (state: StretchState) => (each: Stretch) => each.state === state && each.retraction !== "wanted";
    return (
      found("in_doubt", is("in_doubt")) ?? found("failed", is("failed")) ?? found("committing", is("committing")) ??
      found("waiting", is("owed")) ?? found("forgetting", (each) => each.retraction === "wanted") ?? this.last(all)
    );
  }

  /** What became of the newest: what was let be is not remembered, whatever was before it. */
  private last(all: readonly Stretch[]): Remembered | null {
    const last = all.findLast((each) => each.state === "paid" || each.state === "dropped");
    if (last) return { state: last.state === "paid" ? "remembered" : "dropped", at: last.at, retry_at: 0, detail: last.detail };
    return this.rememberedAt ? { state: "remembered", at: this.rememberedAt, retry_at: 0, detail: "" } : null;
  }

  /** A turn was completed: the newest stretch grows by it, or it begins another. */
  private mark(turn: number, owner: string, at: number): void {
    const all = [...this.stretches.values()];
    if (!turn || all.some((each) => each.state !== "void" && each.turns.includes(turn))) return;
    const last = all.at(-1);
    if (last?.state === "owed" && last.owner === owner && last.turns.length < TURNS_MAX) Object.assign(last, { turns: [...last.turns, turn], at });
    else this.put(this.next(), [turn], at, { owner });
  }

  /** Removed turns are live again: those that memory neither has nor is to be told of are told again. */
  private restore(event: TurnsRestoredEvent): void {
    if (event.from_turn) this.undo(event.from_turn, event.at);
    for (const turn of [...this.undone]) if (event.turns.some(([first, last]) => first <= turn && turn <= last)) this.undone.delete(turn);
    for (const [turn, owner] of event.owed ?? []) this.mark(turn, owner, event.at);
  }

  private undo(from_turn: number, at: number): void {
    for (let turn = from_turn; turn <= this.lastTurn; turn++) this.undone.add(turn);
    this.rememberedAt = 0;
    for (const each of this.stretches.values()) {
      if ((each.turns.at(-1) ?? 0) < from_turn) continue;
      if (each.state === "owed") {
        const turns = each.turns.filter((turn) => turn < from_turn);
        Object.assign(each, turns.length ? { turns, at } : { state: "void", at });
      } else if (each.state !== "dropped" && each.state !== "void" && !each.retraction) Object.assign(each, { retraction: "wanted", retry_at: 0, at });
    }
  }

  private resolve(n: number, decision: "retry" | "done" | "drop", at: number): void {
    if (decision === "retry") this.change(n, at, { state: "failed", retry_at: 0 });
    else if (decision === "done") this.change(n, at, { state: "paid", retry_at: 0, detail: "" });
    else this.change(n, at, { state: "dropped", retraction: "", retry_at: 0 });
  }

  /** Memory has let go of it, or cannot: what still stands is to be remembered anew unless it is kept. */
  private forget(n: number, outcome: "done" | "failed" | "cannot", at: number, detail: string, retry_at: number): void {
    const stretch = this.stretches.get(n);
    if (!stretch) return; // Told of before what this page has seen.
    if (outcome === "failed") return this.change(n, at, { detail, retry_at });
    const isKept = outcome === "cannot" && stretch.state === "paid";
    this.change(n, at, { state: isKept ? "paid" : "void", retraction: outcome, retry_at: 0, detail });
    const standing = isKept ? [] : stretch.turns.filter((turn) => !this.undone.has(turn));
    if (standing.length) this.put(this.next(), standing, at, { owner: stretch.owner });
  }

  private next(): number {
    return this.isWhole ? Math.max(0, ...this.stretches.keys()) + 1 : Math.min(0, ...this.stretches.keys()) - 1;
  }

  private put(n: number, turns: number[], at: number, rest: Partial<Stretch>): Stretch {
    const made: Stretch = { n, turns, state: "owed", retraction: "", owner: "", retry_at: 0, detail: "", at, ...rest };
    this.stretches.set(n, made);
    return made;
  }

  private change(n: number, at: number, changes: Partial<Stretch>): void {
    Object.assign(this.stretches.get(n) ?? this.numbered(n, at), { at, ...changes });
  }

  /** The stretch that turns out to be the `n`th: the oldest that has no number yet, or one not seen before. */
  private numbered(n: number, at: number): Stretch {
    const guess = [...this.stretches.values()].find((each) => each.n < 0);
    if (guess) this.stretches.delete(guess.n);
    return this.put(n, guess?.turns ?? [], at, guess ? { owner: guess.owner } : {});
  }
}

function numbersIn(ranges: readonly (readonly [number, number])[]): number[] {
  return ranges.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, place) => first + place));
}
