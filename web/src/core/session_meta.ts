// The state of a session beside its messages: summaries, its successor, restored files.

import type { AnyEvent, Summary } from "./protocol";

export class SessionMeta {
  /** Every summary seen, and whether the last turn that it covers is live; then all of its turns are. */
  private summaries: { readonly summary: Summary; isLive: boolean }[] = [];
  /** The session that continues this one, if any. */
  successor = "";
  /** Paths of restored files by the run that had changed them. */
  readonly restoredFiles = new Map<string, ReadonlySet<string>>();

  /** The summary that the model receives in place of older turns. */
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
        return this.endSummaries(event.from_turn);
      case "turns_restored":
        if (event.from_turn) this.endSummaries(event.from_turn);
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
        this.restoredFiles.set(event.run_id, new Set([...(this.restoredFiles.get(event.run_id) ?? []), ...event.paths]));
        return;
    }
  }

  private endSummaries(from_turn: number): void {
    for (const each of this.summaries) if (each.summary.through_turn >= from_turn) each.isLive = false;
  }
}
