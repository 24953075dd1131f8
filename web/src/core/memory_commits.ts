// The memory commits of a conversation, pending and committed: segments of completed turns, folded from events
// as the server folds them (tests/vectors/memory tests both).

import type { AnyEvent, TurnsRestoredEvent, MemoryQueueEntry } from "./protocol";

/** The most turns in one segment. */
const SEGMENT_TURNS_MAX = 200;

export type SegmentState = "pending" | "committing" | "committed" | "failed" | "in_doubt" | "dropped" | "void";

export interface Segment {
  n: number;
  turns: number[];
  state: SegmentState;
  /** Some of its turns were removed after its commit had started: memory is to retract them. */
  retraction: "" | "wanted" | "done" | "cannot";
  owner: string;
  retry_at: number;
  detail: string;
  /** When it reached its state. */
  at: number;
}

/** The memory status of the whole conversation, most urgent first. */
export type MemoryStatus = Pick<Segment, "at" | "retry_at" | "detail"> & {
  state: "in_doubt" | "failed" | "waiting" | "committing" | "forgetting" | "dropped" | "remembered";
};

export class MemoryCommits {
  readonly segments = new Map<number, Segment>();
  /** When the conversation was committed before the events seen here; 0: never. */
  committedAt = 0;
  /** Whether the queue entries and the time of the earlier commit have been read from the server. */
  isLoaded = false;
  private readonly turnByRun = new Map<string, number>();
  private readonly undone = new Set<number>();
  private lastTurn = 0;
  /** Whether the whole journal was seen. Otherwise a new segment has a negative number until the server sends its number. */
  private isComplete = false;

  /** Add the queue entries, read after this conversation's newest page. Segments known from events are newer. */
  addQueueEntries(rows: readonly MemoryQueueEntry[]): void {
    for (const row of rows) {
      if (this.segments.has(row.segment)) continue;
      const turns = Array.from({ length: row.through_turn - row.from_turn + 1 }, (_, index) => row.from_turn + index);
      // A provisional segment of the same turns is this one.
      for (const each of [...this.segments.values()]) if (each.n < 0 && each.turns.every((turn) => turns.includes(turn))) this.segments.delete(each.n);
      const isRetracting = row.state === "retracting";
      this.put(row.segment, turns, row.since, {
        state: isRetracting ? "committed" : row.state === "owed" ? "pending" : row.state, retraction: isRetracting ? "wanted" : "", detail: row.detail,
        retry_at: row.retry_at ?? 0,
      });
    }
  }

  /** Note the turn of a run on a page: `run_completed` names only the run. */
  noteRun(run_id: string, turn: number): void {
    this.turnByRun.set(run_id, turn);
    this.lastTurn = Math.max(this.lastTurn, turn);
  }

  add(event: AnyEvent): void {
    switch (event.kind) {
      case "session_created":
        this.isComplete = true;
        return;
      case "turn_accepted":
        this.lastTurn = Math.max(this.lastTurn, event.turn);
        if (event.run_id) this.turnByRun.set(event.run_id, event.turn);
        return;
      case "run_completed":
        return event.owed ? this.addCompletedTurn(this.turnByRun.get(event.run_id) ?? 0, event.owner ?? "", event.at) : undefined;
      case "turns_undone":
        return this.undo(event.from_turn, event.at);
      case "turns_restored":
        return this.restore(event);
      case "memory_commit_started":
        return this.update(event.segment, event.at, { state: "committing", turns: expandRanges(event.turns), owner: event.owner });
      case "memory_committed":
        return this.update(event.segment, event.at, { state: "committed", retry_at: 0, detail: "" });
      case "memory_commit_failed":
        return this.update(event.segment, event.at, {
          state: "failed", detail: event.failure.detail,
          retry_at: this.segments.get(event.segment)?.retraction ? 0 : (event.retry_at ?? 0),
        });
      case "memory_in_doubt":
        return this.update(event.segment, event.at, { state: "in_doubt", retry_at: 0 });
      case "memory_resolved":
        return this.resolve(event.segment, event.decision, event.at);
      case "memory_forgotten":
        return this.applyRetraction(event.segment, event.outcome, event.at, event.failure?.detail ?? "", event.retry_at ?? 0);
    }
  }

  /** Return the most urgent status, or null if there is none. */
  status(): MemoryStatus | null {
    const segments = [...this.segments.values()];
    const latest = (state: MemoryStatus["state"], matches: (each: Segment) => boolean) => {
      const last = segments.findLast(matches);
      return last ? { state, at: last.at, retry_at: last.retry_at, detail: last.detail } : null;
    };
    const inState = (state: SegmentState) => (each: Segment) => each.state === state && each.retraction !== "wanted";
    return (
      latest("in_doubt", inState("in_doubt")) ?? latest("failed", inState("failed")) ?? latest("committing", inState("committing")) ??
      latest("waiting", inState("pending")) ?? latest("forgetting", (each) => each.retraction === "wanted") ?? this.lastResult(segments)
    );
  }

  /** Return the result of the newest finished segment. If it was dropped, earlier commits do not count. */
  private lastResult(segments: readonly Segment[]): MemoryStatus | null {
    const last = segments.findLast((each) => each.state === "committed" || each.state === "dropped");
    if (last) return { state: last.state === "committed" ? "remembered" : "dropped", at: last.at, retry_at: 0, detail: last.detail };
    return this.committedAt ? { state: "remembered", at: this.committedAt, retry_at: 0, detail: "" } : null;
  }

  /** Add a completed turn: to the newest segment, or to a new one. */
  private addCompletedTurn(turn: number, owner: string, at: number): void {
    const segments = [...this.segments.values()];
    if (!turn || segments.some((each) => each.state !== "void" && each.turns.includes(turn))) return;
    const last = segments.at(-1);
    if (last?.state === "pending" && last.owner === owner && last.turns.length < SEGMENT_TURNS_MAX) Object.assign(last, { turns: [...last.turns, turn], at });
    else this.put(this.nextNumber(), [turn], at, { owner });
  }

  /** Restore removed turns: those that are neither in memory nor pending become pending again. */
  private restore(event: TurnsRestoredEvent): void {
    if (event.from_turn) this.undo(event.from_turn, event.at);
    for (const turn of [...this.undone]) if (event.turns.some(([first, last]) => first <= turn && turn <= last)) this.undone.delete(turn);
    for (const [turn, owner] of event.owed ?? []) this.addCompletedTurn(turn, owner, event.at);
  }

  private undo(from_turn: number, at: number): void {
    for (let turn = from_turn; turn <= this.lastTurn; turn++) this.undone.add(turn);
    this.committedAt = 0;
    for (const each of this.segments.values()) {
      if ((each.turns.at(-1) ?? 0) < from_turn) continue;
      if (each.state === "pending") {
        const turns = each.turns.filter((turn) => turn < from_turn);
        Object.assign(each, turns.length ? { turns, at } : { state: "void", at });
      } else if (each.state !== "dropped" && each.state !== "void" && !each.retraction) Object.assign(each, { retraction: "wanted", retry_at: 0, at });
    }
  }

  private resolve(n: number, decision: "retry" | "done" | "drop", at: number): void {
    if (decision === "retry") this.update(n, at, { state: "failed", retry_at: 0 });
    else if (decision === "done") this.update(n, at, { state: "committed", retry_at: 0, detail: "" });
    else this.update(n, at, { state: "dropped", retraction: "", retry_at: 0 });
  }

  /** Apply the outcome of a retraction. Live turns of a retracted segment are committed again in a new one. */
  private applyRetraction(n: number, outcome: "done" | "failed" | "cannot", at: number, detail: string, retry_at: number): void {
    const segment = this.segments.get(n);
    if (!segment) return; // Committed before the events that this page has read.
    if (outcome === "failed") return this.update(n, at, { detail, retry_at });
    const isStillCommitted = outcome === "cannot" && segment.state === "committed";
    this.update(n, at, { state: isStillCommitted ? "committed" : "void", retraction: outcome, retry_at: 0, detail });
    const liveTurns = isStillCommitted ? [] : segment.turns.filter((turn) => !this.undone.has(turn));
    if (liveTurns.length) this.put(this.nextNumber(), liveTurns, at, { owner: segment.owner });
  }

  private nextNumber(): number {
    return this.isComplete ? Math.max(0, ...this.segments.keys()) + 1 : Math.min(0, ...this.segments.keys()) - 1;
  }

  private put(n: number, turns: number[], at: number, fields: Partial<Segment>): Segment {
    const segment: Segment = { n, turns, state: "pending", retraction: "", owner: "", retry_at: 0, detail: "", at, ...fields };
    this.segments.set(n, segment);
    return segment;
  }

  private update(n: number, at: number, changes: Partial<Segment>): void {
    Object.assign(this.segments.get(n) ?? this.assignNumber(n, at), { at, ...changes });
  }

  /** Give the number to the oldest segment that has none yet, or add a segment that was not seen before. */
  private assignNumber(n: number, at: number): Segment {
    const provisional = [...this.segments.values()].find((each) => each.n < 0);
    if (provisional) this.segments.delete(provisional.n);
    return this.put(n, provisional?.turns ?? [], at, provisional ? { owner: provisional.owner } : {});
  }
}

function expandRanges(ranges: readonly (readonly [number, number])[]): number[] {
  return ranges.flatMap(([first, last]) => Array.from({ length: last - first + 1 }, (_, offset) => first + offset));
}
