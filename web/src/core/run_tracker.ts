// The work on turns: how far each run is, what it waits for and what it has used. A turn whose work has moved reads
// differently, and what a run was writing when it ended stays as far as it came.

import { begun, workOf, type Work } from "./transcript_types";
import type { AnyEvent, Run, Usage } from "./protocol";
import type { Turns } from "./turn_store";

const OVER = { run_completed: "completed", run_cancelled: "cancelled", run_failed: "failed" } as const;

export class Runs {
  readonly work = new Map<string, Work>();

  constructor(private readonly told: Turns) {}

  /** Take in a run as a page has it. */
  put(run: Run): void {
    this.told.turn(run.turn).run_id = run.id;
    this.work.set(run.id, workOf(run));
  }

  add(event: AnyEvent): void {
    switch (event.kind) {
      case "turn_accepted":
        if (event.run_id) this.work.set(event.run_id, { ...begun(event.run_id, event.turn), steers: event.steers ?? null });
        return;
      case "turn_queued":
        return this.move(event.run_id, { status: "queued" });
      case "turn_dequeued":
        return this.move(event.run_id, { status: "accepted" });
      case "run_started":
        return this.move(event.run_id, { status: "running", started_at: event.at });
      case "run_resumed":
        return this.move(event.run_id, { status: "running", waiting: null, detail: "" });
      case "run_waiting":
        return this.move(event.run_id, { status: "waiting", waiting: event.reason, detail: event.detail ?? "" });
      case "context_prepared":
        return this.bring(event.run_id, event.memories ?? []);
      case "model_step_started":
        return this.move(event.run_id, { retrying: "" });
      case "model_step_retried":
        return this.move(event.run_id, { retrying: event.failure.detail });
      case "files_restored":
        return this.move(event.run_id, {});
      case "model_step_settled":
        return this.count(event.run_id, event.usage ?? {});
      default:
        this.end(event);
    }
  }

  private end(event: AnyEvent): void {
    switch (event.kind) {
      case "run_interrupted":
        this.interrupt(event.run_id);
        this.move(event.run_id, { status: "interrupted", waiting: null });
        return this.moveUp();
      case "run_completed":
      case "run_cancelled":
      case "run_failed":
        this.interrupt(event.run_id);
        this.move(event.run_id, {
          status: OVER[event.kind], waiting: null, retrying: "", ended_at: event.at,
          failure: event.kind === "run_failed" ? event.failure : null,
        });
        return this.moveUp();
    }
  }

  private interrupt(run_id: string): void {
    this.told.interrupt(this.work.get(run_id)?.turn ?? 0, run_id);
  }

  private bring(run_id: string, memories: readonly string[]): void {
    const turn = this.told.turns.get(this.work.get(run_id)?.turn ?? 0);
    if (!turn || !memories.length) return;
    turn.memories = memories;
    this.told.redraw(turn);
  }

  private move(run_id: string, changes: Partial<Work>): void {
    const work = this.work.get(run_id);
    if (!work) return;
    Object.assign(work, changes);
    const turn = this.told.turns.get(work.turn);
    if (turn) this.told.redraw(turn);
  }

  /** What waits for others reads differently once one of them has ended. */
  private moveUp(): void {
    for (const work of this.work.values()) if (work.status === "queued") this.move(work.id, {});
  }

  private count(run_id: string, used: Usage): void {
    const work = this.work.get(run_id);
    if (!work) return;
    this.move(run_id, {
      input_tokens: work.input_tokens + (used.input_tokens ?? 0),
      output_tokens: work.output_tokens + (used.output_tokens ?? 0),
      cached_tokens: work.cached_tokens + (used.cached_tokens ?? 0),
      estimated_tokens: work.estimated_tokens + (used.estimated_tokens ?? 0),
      cost_micros: used.cost_micros == null ? work.cost_micros : (work.cost_micros ?? 0) + used.cost_micros,
    });
  }
}
