// The conversation as it reads now: a fold of pages of messages and of the events after them, the same as the
// server's own. It knows neither the page nor the network. Text is kept once, and adding an event costs the
// same however long the conversation is.

import { Course } from "./session_meta";
import { fresh, spot, type Entry, type Turn } from "./transcript_types";
import type { AnyEvent, ApprovalResolvedEvent, MessageList, ToolCallPart, TurnsRestoredEvent } from "./protocol";
import { Remembering } from "./memory_commits";
import { Runs } from "./run_tracker";
import { Turns } from "./turn_store";

const WAITS = new Set<Entry["approval"]>(["requested", "asked"]);

export class Conversation {
  private readonly told = new Turns();
  private readonly runs = new Runs(this.told);
  readonly turns = this.told.turns;
  readonly work = this.runs.work;
  readonly memory = new Remembering();
  readonly course = new Course();
  title = "";
  head = 0;
  before: string | null = null;
  deleted = false;
  /** Grows with whatever happens, except that a text goes on. */
  shape = 0;

  /** Turns in the order they are read in. */
  ordered(): readonly Turn[] {
    return this.told.ordered();
  }

  /** The calls that wait for somebody's decision or answer, in their order. */
  asked(): Entry[] {
    const waiting = [...this.work.values()].filter((work) => work.status === "waiting");
    const entries = waiting.flatMap((work) => this.turns.get(work.turn)?.entries ?? []);
    return entries.filter((entry) => entry.role === "tool" && WAITS.has(entry.approval) && entry.state === "intended");
  }

  versionsOf(turn: Turn): readonly string[] {
    return this.told.versionsOf(turn.id);
  }

  /** Those of them that are shown. */
  shown(): readonly Turn[] {
    return this.told.ordered().filter((turn) => this.told.isShown(turn));
  }

  entry(id: string): Entry | undefined {
    return this.told.entry(id);
  }

  /** The call that a tool's entry stands for, as the model wrote it. */
  callOf(entry: Entry): ToolCallPart | undefined {
    const parts = this.told.entry(entry.message_id)?.parts ?? [];
    return parts.find((part): part is ToolCallPart => part.type === "tool_call" && part.call_id === entry.id);
  }

  /** Take in a page; `head` moves only with the newest one. Pages come before the events after their head. */
  addPage(page: MessageList): void {
    for (const message of page.messages) {
      const turn = this.told.turn(message.turn);
      turn.live = message.live;
      if (message.place === 0) turn.removed = message.removed ?? null;
      if (message.versions) this.told.putVersions(message.versions);
      if (message.turn_id) turn.id = message.turn_id;
      if (message.memories?.length) turn.memories = message.memories;
      this.told.put(fresh({ ...message, parts: [...message.parts] }));
    }
    for (const run of page.runs) {
      this.runs.put(run);
      this.memory.noteRun(run.id, run.turn);
    }
    if (page.summary) this.course.summary = page.summary;
    this.head = Math.max(this.head, page.head);
    this.before = page.before;
    this.shape += 1;
  }

  /** Take in the next event; one that is known already, or of a kind that is not, changes nothing. */
  add(event: AnyEvent): void {
    if (event.seq <= this.head) return;
    this.head = event.seq;
    if (!event.kind.endsWith("_appended")) this.shape += 1;
    this.memory.add(event);
    this.course.add(event);
    switch (event.kind) {
      case "text_appended":
        return this.told.write(event.message_id, "text", event.text);
      case "reasoning_appended":
        return this.told.write(event.message_id, "reasoning", event.text);
      case "tool_output_appended":
        return this.told.write(event.call_id, "text", event.text);
      case "tool_arguments_appended":
        return this.told.writeCall(event.message_id, event.call_id, event.name, event.text);
      case "session_created":
      case "session_renamed":
        this.title = event.title ?? "";
        return;
      case "session_deleted":
        this.deleted = true;
        return;
      case "turns_undone":
        return this.told.removeTurns(event.from_turn, event.seq, (event.reason ?? "undo") !== "undo");
      case "turns_restored":
        return this.restore(event);
      case "session_cleared":
        return this.told.clearTurns(event.through_turn);
      case "session_continued":
        return this.leaveFrom(event.from_turn || Infinity);
      default:
        this.addContent(event);
        this.runs.add(event);
    }
  }

  private addContent(event: AnyEvent): void {
    switch (event.kind) {
      case "turn_accepted": {
        const turn = this.told.turn(event.turn);
        Object.assign(turn, { id: event.turn_id, run_id: event.run_id ?? null, live: true });
        if (event.replaces) this.told.addVersion(event.turn_id, event.replaces);
        return this.told.put(fresh({ ...spot(event, 0), id: event.message_id, role: "user", parts: [...event.parts] }));
      }
      case "turn_steered":
        if (event.from_turn) this.drop(event.from_turn);
        return this.told.put(
          fresh({ ...spot(event), id: event.message_id, role: "user", parts: [...event.parts], run_id: event.run_id }),
        );
      case "model_step_started":
        return this.told.put(
          fresh({
            ...spot(event), id: event.message_id, role: "assistant", status: "streaming",
            run_id: event.run_id, continues: event.continues ?? null, model: event.model, began_at: event.at,
          }),
        );
      case "message_settled":
        return this.told.put(
          fresh({
            ...spot(event), id: event.message_id, role: event.role, status: event.status ?? "settled",
            parts: [...event.parts], run_id: event.run_id ?? null, late: event.late ?? false,
            continues: event.continues ?? null, model: event.model ?? "", context_tokens: event.weight?.[1] ?? 0,
            began_at: event.began_at ?? 0,
          }),
        );
      case "run_interrupted":
        return this.told.put(
          fresh({ ...spot(event), id: event.message_id, role: "notice", status: "interrupted", run_id: event.run_id }),
        );
      case "recovery_pending":
        return this.told.note(event.turn, event.place, "pending", event.at);
      case "recovery_finished":
        return this.told.note(event.turn, event.place, event.recovered ? "recovered" : "final", event.at);
      default:
        this.addTool(event);
    }
  }

  private addTool(event: AnyEvent): void {
    switch (event.kind) {
      case "tool_intended":
        return this.told.put(
          fresh({
            ...spot(event), id: event.call_id, role: "tool", status: "streaming", run_id: event.run_id,
            message_id: event.message_id, name: event.name, state: "intended", arguments: event.arguments,
            edited: event.edited ?? false,
          }),
        );
      case "tool_started":
        return this.told.change(event.call_id, { state: "started" });
      case "tool_in_doubt":
        return this.told.change(event.call_id, { state: "in_doubt" });
      case "tool_resolved":
        return this.told.change(event.call_id, { state: "resolved" });
      case "approval_requested":
        return this.told.change(event.call_id, { approval: "requested", reason: event.reason ?? "" });
      case "approval_resolved":
        return this.resolve(event);
      case "question_asked": {
        const { question, choices = [], multiple = false } = event;
        return this.told.change(event.call_id, { approval: "asked", asked: { question, choices, multiple } });
      }
      case "question_answered":
        return this.told.change(event.call_id, { approval: "answered", asked: null });
      case "question_closed":
        return this.told.change(event.call_id, { approval: "closed", asked: null });
      case "tool_settled": {
        const before = this.told.entry(event.call_id);
        return this.told.put(
          fresh({
            ...spot(event), id: event.call_id, role: "tool", status: event.status ?? "settled",
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

  private resolve(event: ApprovalResolvedEvent): void {
    this.told.change(event.call_id, { approval: event.decision, ...(event.reason ? { reason: event.reason } : {}) });
  }

  private restore(event: TurnsRestoredEvent): void {
    const { seq, from_turn, turns } = event;
    if (from_turn) this.told.removeTurns(from_turn, seq, event.reason === "version");
    this.told.restoreTurns(turns);
  }

  private drop(number: number): void {
    const turn = this.turns.get(number);
    if (!turn) return;
    this.told.drop(turn);
    if (turn.run_id) this.work.delete(turn.run_id);
  }

  /** What waited from there on waits in the conversation that this one went on in. */
  private leaveFrom(first: number): void {
    for (const turn of [...this.turns.values()]) if (turn.live && turn.turn >= first) this.drop(turn.turn);
  }
}
