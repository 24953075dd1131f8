// The course that a conversation takes beside its messages: summed up, gone on elsewhere, its files put back.

import type { AnyEvent, Summary } from "./protocol";

export class Course {
  /** What stands for older turns when the model is asked. */
  summary: Summary | null = null;
  /** Where the conversation goes on, if it does in another. */
  successor = "";
  /** The files that were put back as they were before a run, by the run. */
  readonly restored = new Map<string, ReadonlySet<string>>();

  add(event: AnyEvent): void {
    switch (event.kind) {
      case "session_compacted":
        this.summary = { through_turn: event.covers.at(-1)?.[1] ?? 0, text: event.summary, at: event.at };
        return;
      case "turns_undone":
      case "turns_restored":
        // Whatever stood for a turn that was taken back stands no more.
        if (event.from_turn && event.from_turn <= (this.summary?.through_turn ?? 0)) this.summary = null;
        return;
      case "session_cleared":
        this.summary = null;
        return;
      case "session_continued":
        this.successor = event.successor_session_id;
        return;
      case "files_restored":
        this.restored.set(event.run_id, new Set([...(this.restored.get(event.run_id) ?? []), ...event.paths]));
        return;
    }
  }
}
