// The runs of a conversation: status, what each waits for, and its usage. A change of a run marks its turn as
// changed. When a run ends, its unfinished messages keep the text that they have.

import { newRunInfo, runInfo, type RunProgress } from "./transcript_types";
import type { AnyEvent, RunInfo, Usage } from "./protocol";
import type { TurnStore } from "./turn_store";

const END_STATUSES = { run_completed: "completed", run_cancelled: "cancelled", run_failed: "failed" } as const;

export class RunTracker {
  readonly runs = new Map<string, RunProgress>();

  constructor(private readonly turnStore: TurnStore) {}

  /** Add a run of a page. */
  addRun(run: RunInfo): void {
    this.turnStore.turn(run.turn).run_id = run.id;
    this.runs.set(run.id, runInfo(run));
  }

  add(event: AnyEvent): void {
    switch (event.kind) {
      case "turn_accepted":
        if (event.run_id) this.runs.set(event.run_id, { ...newRunInfo(event.run_id, event.turn), steers: event.steers ?? null });
        return;
      case "turn_queued":
        return this.update(event.run_id, { status: "queued" });
      case "turn_dequeued":
        return this.update(event.run_id, { status: "accepted" });
      case "run_started":
        return this.update(event.run_id, { status: "running", started_at: event.at });
      case "run_resumed":
        return this.update(event.run_id, { status: "running", waiting: null, detail: "" });
      case "run_waiting":
        return this.update(event.run_id, { status: "waiting", waiting: event.reason, detail: event.detail ?? "" });
      case "context_prepared":
        return this.setMemories(event.run_id, event.memories ?? []);
      case "model_step_started":
        return this.update(event.run_id, { retrying: "" });
      case "model_step_retried":
        return this.update(event.run_id, { retrying: event.failure.detail });
      case "files_restored":
        return this.update(event.run_id, {});
      case "model_step_settled":
        return this.addUsage(event.run_id, event.usage ?? {});
      default:
        this.end(event);
    }
  }

  private end(event: AnyEvent): void {
    switch (event.kind) {
      case "run_interrupted":
        this.interrupt(event.run_id);
        this.update(event.run_id, { status: "interrupted", waiting: null });
        return this.refreshQueued();
      case "run_completed":
      case "run_cancelled":
      case "run_failed":
        this.interrupt(event.run_id);
        this.update(event.run_id, {
          status: END_STATUSES[event.kind], waiting: null, retrying: "", ended_at: event.at,
          failure: event.kind === "run_failed" ? event.failure : null,
        });
        return this.refreshQueued();
    }
  }

  private interrupt(run_id: string): void {
    this.turnStore.interruptRun(this.runs.get(run_id)?.turn ?? 0, run_id);
  }

  private setMemories(run_id: string, memories: readonly string[]): void {
    const turn = this.turnStore.turns.get(this.runs.get(run_id)?.turn ?? 0);
    if (!turn || !memories.length) return;
    turn.memories = memories;
    this.turnStore.markTurnChanged(turn);
  }

  private update(run_id: string, changes: Partial<RunProgress>): void {
    const run = this.runs.get(run_id);
    if (!run) return;
    Object.assign(run, changes);
    const turn = this.turnStore.turns.get(run.turn);
    if (turn) this.turnStore.markTurnChanged(turn);
  }

  /** Mark queued turns as changed: their text depends on the runs ahead of them. */
  private refreshQueued(): void {
    for (const run of this.runs.values()) if (run.status === "queued") this.update(run.id, {});
  }

  private addUsage(run_id: string, usage: Usage): void {
    const run = this.runs.get(run_id);
    if (!run) return;
    this.update(run_id, {
      input_tokens: run.input_tokens + (usage.input_tokens ?? 0),
      output_tokens: run.output_tokens + (usage.output_tokens ?? 0),
      cached_tokens: run.cached_tokens + (usage.cached_tokens ?? 0),
      estimated_tokens: run.estimated_tokens + (usage.estimated_tokens ?? 0),
      cost_micros: usage.cost_micros == null ? run.cost_micros : (run.cost_micros ?? 0) + usage.cost_micros,
    });
  }
}
