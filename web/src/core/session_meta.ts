// The course that a conversation takes beside its messages: summed up, gone on elsewhere, its files put back.

import type { AnyEvent, Summary } from "./protocol";

export class Course {
  /** Every summary that was seen, and whether the last turn that it covers is live: then all of them are. */
  private summaries: { readonly summary: Summary; isLive: boolean }[] = [];
  /** Where the conversation goes on, if it does in another. */
  successor = "";
  /** The files that were put back as they were before a run, by the run. */
  readonly restored = new Map<string, ReadonlySet<string>>();

  /** The summary that the model is sent in place of older turns. */
  get summary(): Summary | null {
    return this.summaries.findLast((each) => each.isLive)?.summary ?? null;
  }

  set summary(summary: Summary | null) {
    this.summaries = summary ? [{ summary, isLive: true }] : [];
  }

  add(event: AnyEvent): void {
    switch (event.kind) {
      case "session_compacted":
        this.summaries.push({ summary: { through_turn: event.covers.at(-1)?.[1] ?? 0, text: event.summary, at: event.at }, isLive: true });
        return;
      case "turns_undone":
        return this.remove(event.from_turn);
      case "turns_restored":
        if (event.from_turn) this.remove(event.from_turn);
        for (const each of this.summaries) {
          if (event.turns.some(([first, last]) => first <= each.summary.through_turn && each.summary.through_turn <= last)) each.isLive = true;
        }
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

  private remove(from_turn: number): void {
    for (const each of this.summaries) if (each.summary.through_turn >= from_turn) each.isLive = false;
  }
}
