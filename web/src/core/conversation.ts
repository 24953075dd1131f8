// The state of a conversation: a fold of message pages and of the events after them, the same as the server's.
// It knows neither the page nor the network. Text is stored once, and applying an event costs the same however
// long the conversation is.

import { SessionMeta } from "./session_meta";
import { newEntry, position, type Entry, type Turn } from "./transcript_types";
import type { AnyEvent, ApprovalResolvedEvent, MessageList, ToolCallPart, TurnsRestoredEvent } from "./protocol";
import { MemoryCommits } from "./memory_commits";
import { RunTracker } from "./run_tracker";
import { TurnStore } from "./turn_store";

const WAITING_APPROVALS = new Set<Entry["approval"]>(["requested", "asked"]);

export class Conversation {
  private readonly turnStore = new TurnStore();
  private readonly runTracker = new RunTracker(this.turnStore);
  readonly turns = this.turnStore.turns;
  readonly runs = this.runTracker.runs;
  readonly memoryCommits = new MemoryCommits();
  readonly meta = new SessionMeta();
  title = "";
  head = 0;
  earlierCursor: string | null = null;
  deleted = false;
  /** Increases with every event except those that append text. */
  structureVersion = 0;

  /** Return the turns in reading order. */
  orderedTurns(): readonly Turn[] {
    return this.turnStore.orderedTurns();
  }

  /** Return the calls that wait for a decision or an answer, in order. */
  waitingCalls(): Entry[] {
    const waitingRuns = [...this.runs.values()].filter((run) => run.status === "waiting");
    const entries = waitingRuns.flatMap((run) => this.turns.get(run.turn)?.entries ?? []);
    return entries.filter((entry) => entry.role === "tool" && WAITING_APPROVALS.has(entry.approval) && entry.state === "intended");
  }

  versionIds(turn: Turn): readonly string[] {
    return this.turnStore.versionIds(turn.id);
  }

  /** Return the turns that are shown, in reading order. */
  visibleTurns(): readonly Turn[] {
    return this.turnStore.orderedTurns().filter((turn) => this.turnStore.isVisible(turn));
  }

  entry(id: string): Entry | undefined {
    return this.turnStore.entry(id);
  }

  /** Return the call that a tool entry stands for, as the model wrote it. */
  findCall(entry: Entry): ToolCallPart | undefined {
    const parts = this.turnStore.entry(entry.message_id)?.parts ?? [];
    return parts.find((part): part is ToolCallPart => part.type === "tool_call" && part.call_id === entry.id);
  }

  /** Add a page of messages. Only the newest page moves `head`. Add a page before the events after its head. */
  addPage(page: MessageList): void {
    for (const message of page.messages) {
      const turn = this.turnStore.turn(message.turn);
      turn.live = message.live;
      if (message.place === 0) turn.removed = message.removed ?? null;
      if (message.versions) this.turnStore.putVersions(message.versions);
      if (message.turn_id) turn.id = message.turn_id;
      if (message.memories?.length) turn.memories = message.memories;
      this.turnStore.putEntry(newEntry({ ...message, parts: [...message.parts] }));
    }
    for (const run of page.runs) {
      this.runTracker.addRun(run);
      this.memoryCommits.noteRun(run.id, run.turn);
    }
    if (page.summary) this.meta.summary = page.summary;
    this.head = Math.max(this.head, page.head);
    this.earlierCursor = page.before;
    this.structureVersion += 1;
  }

  /** Apply the next event. A known event, or one of an unknown kind, changes nothing. */
  add(event: AnyEvent): void {
    if (event.seq <= this.head) return;
    this.head = event.seq;
    if (!event.kind.endsWith("_appended")) this.structureVersion += 1;
    this.memoryCommits.add(event);
    this.meta.add(event);
    switch (event.kind) {
      case "text_appended":
        return this.turnStore.appendText(event.message_id, "text", event.text);
      case "reasoning_appended":
        return this.turnStore.appendText(event.message_id, "reasoning", event.text);
      case "tool_output_appended":
        return this.turnStore.appendText(event.call_id, "text", event.text);
      case "tool_arguments_appended":
        return this.turnStore.appendArguments(event.message_id, event.call_id, event.name, event.text);
      case "session_created":
      case "session_renamed":
        this.title = event.title ?? "";
        return;
      case "session_deleted":
        this.deleted = true;
        return;
      case "turns_undone":
        return this.turnStore.removeTurns(event.from_turn, event.seq, (event.reason ?? "undo") !== "undo");
      case "turns_restored":
        return this.restoreTurns(event);
      case "session_cleared":
        return this.turnStore.clearTurns(event.through_turn);
      case "session_continued":
        return this.deleteQueuedFrom(event.from_turn || Infinity);
      default:
        this.addContent(event);
        this.runTracker.add(event);
    }
  }

  private addContent(event: AnyEvent): void {
    switch (event.kind) {
      case "turn_accepted": {
        const turn = this.turnStore.turn(event.turn);
        Object.assign(turn, { id: event.turn_id, run_id: event.run_id ?? null, live: true });
        if (event.replaces) this.turnStore.addVersion(event.turn_id, event.replaces);
        return this.turnStore.putEntry(newEntry({ ...position(event, 0), id: event.message_id, role: "user", parts: [...event.parts] }));
      }
      case "turn_steered":
        if (event.from_turn) this.deleteTurn(event.from_turn);
        return this.turnStore.putEntry(
          newEntry({ ...position(event), id: event.message_id, role: "user", parts: [...event.parts], run_id: event.run_id }),
        );
      case "model_step_started":
        return this.turnStore.putEntry(
          newEntry({
            ...position(event), id: event.message_id, role: "assistant", status: "streaming",
            run_id: event.run_id, continues: event.continues ?? null, model: event.model, began_at: event.at,
          }),
        );
      case "message_settled":
        return this.turnStore.putEntry(
          newEntry({
            ...position(event), id: event.message_id, role: event.role, status: event.status ?? "settled",
            parts: [...event.parts], run_id: event.run_id ?? null, late: event.late ?? false,
            continues: event.continues ?? null, model: event.model ?? "", context_tokens: event.weight?.[1] ?? 0,
            began_at: event.began_at ?? 0,
          }),
        );
      case "run_interrupted":
        return this.turnStore.putEntry(
          newEntry({ ...position(event), id: event.message_id, role: "notice", status: "interrupted", run_id: event.run_id }),
        );
      case "recovery_pending":
        return this.turnStore.updateNotice(event.turn, event.place, "pending", event.at);
      case "recovery_finished":
        return this.turnStore.updateNotice(event.turn, event.place, event.recovered ? "recovered" : "final", event.at);
      default:
        this.addTool(event);
    }
  }

  private addTool(event: AnyEvent): void {
    switch (event.kind) {
      case "tool_intended":
        return this.turnStore.putEntry(
          newEntry({
            ...position(event), id: event.call_id, role: "tool", status: "streaming", run_id: event.run_id,
            message_id: event.message_id, name: event.name, state: "intended", arguments: event.arguments,
            edited: event.edited ?? false,
          }),
        );
      case "tool_started":
        return this.turnStore.updateEntry(event.call_id, { state: "started" });
      case "tool_in_doubt":
        return this.turnStore.updateEntry(event.call_id, { state: "in_doubt" });
      case "tool_resolved":
        return this.turnStore.updateEntry(event.call_id, { state: "resolved" });
      case "approval_requested":
        return this.turnStore.updateEntry(event.call_id, { approval: "requested", reason: event.reason ?? "" });
      case "approval_resolved":
        return this.resolveApproval(event);
      case "question_asked": {
        const { question, choices = [], multiple = false } = event;
        return this.turnStore.updateEntry(event.call_id, { approval: "asked", asked: { question, choices, multiple } });
      }
      case "question_answered":
        return this.turnStore.updateEntry(event.call_id, { approval: "answered", asked: null });
      case "question_closed":
        return this.turnStore.updateEntry(event.call_id, { approval: "closed", asked: null });
      case "tool_settled": {
        const before = this.turnStore.entry(event.call_id);
        return this.turnStore.putEntry(
          newEntry({
            ...position(event), id: event.call_id, role: "tool", status: event.status ?? "settled",
            parts: [...event.parts], run_id: event.run_id ?? null, late: event.late ?? false,
            message_id: event.message_id, name: event.name, state: "settled", outcome: event.outcome,
            approval: before?.approval ?? null, reason: before?.reason ?? "",
            arguments: event.arguments || before?.arguments || "", edited: Boolean(event.arguments),
            ms: event.ms ?? 0,
          }),
        );
      }
    }
  }

  private resolveApproval(event: ApprovalResolvedEvent): void {
    this.turnStore.updateEntry(event.call_id, { approval: event.decision, ...(event.reason ? { reason: event.reason } : {}) });
  }

  private restoreTurns(event: TurnsRestoredEvent): void {
    const { seq, from_turn, turns } = event;
    if (from_turn) this.turnStore.removeTurns(from_turn, seq, event.reason === "version");
    this.turnStore.restoreTurns(turns);
  }

  private deleteTurn(number: number): void {
    const turn = this.turns.get(number);
    if (!turn) return;
    this.turnStore.deleteTurn(turn);
    if (turn.run_id) this.runs.delete(turn.run_id);
  }

  /** Remove the turns that were queued from there on: they are queued in the successor session instead. */
  private deleteQueuedFrom(first: number): void {
    for (const turn of [...this.turns.values()]) if (turn.live && turn.turn >= first) this.deleteTurn(turn.turn);
  }
}
