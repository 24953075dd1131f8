// The conversation as it reads now: a fold of pages of messages and of the events after them, the same as the
// server's own. It knows neither the page nor the network. Text is kept once, and adding an event costs the
// same however long the conversation is.

import { Course } from "./course";
import { begun, fresh, isOpen, spot, workOf, type Entry, type Status, type Turn, type Work } from "./entries";
import type { AnyEvent, ApprovalResolvedEvent, MessageList, ToolCallPart, Usage } from "./protocol";
import { Remembering } from "./remembering";

const OVER = { run_completed: "completed", run_cancelled: "cancelled", run_failed: "failed" } as const;

export class Conversation {
  readonly turns = new Map<number, Turn>();
  readonly work = new Map<string, Work>();
  readonly memory = new Remembering();
  readonly course = new Course();
  title = "";
  head = 0;
  before: string | null = null;
  deleted = false;
  /** Grows with whatever happens, except that a text goes on. */
  shape = 0;
  private readonly places = new Map<string, Entry>();
  private order: Turn[] | null = null;
  private version = 0;

  /** Turns in the order they are read in. */
  ordered(): readonly Turn[] {
    this.order ??= [...this.turns.values()].sort((a, b) => a.turn - b.turn);
    return this.order;
  }

  entry(id: string): Entry | undefined {
    return this.places.get(id);
  }

  /** The call that a tool's entry stands for, as the model wrote it. */
  callOf(entry: Entry): ToolCallPart | undefined {
    const parts = this.places.get(entry.message_id)?.parts ?? [];
    return parts.find((part): part is ToolCallPart => part.type === "tool_call" && part.call_id === entry.id);
  }

  /** Take in a page; `head` moves only with the newest one. Pages come before the events after their head. */
  addPage(page: MessageList): void {
    for (const message of page.messages) {
      const turn = this.turn(message.turn);
      turn.live = message.live;
      if (message.turn_id) turn.id = message.turn_id;
      if (message.memories?.length) turn.memories = message.memories;
      this.put(fresh({ ...message, parts: [...message.parts] }));
    }
    for (const run of page.runs) {
      this.turn(run.turn).run_id = run.id;
      this.work.set(run.id, workOf(run));
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
        return this.write(event.message_id, "text", event.text);
      case "reasoning_appended":
        return this.write(event.message_id, "reasoning", event.text);
      case "tool_output_appended":
        return this.write(event.call_id, "text", event.text);
      case "tool_arguments_appended":
        return this.writeCall(event.message_id, event.call_id, event.name, event.text);
      case "session_created":
      case "session_renamed":
        this.title = event.title ?? "";
        return;
      case "session_deleted":
        this.deleted = true;
        return;
      case "turns_undone":
        return this.endTurns((turn) => turn >= event.from_turn);
      case "session_cleared":
        return this.endTurns((turn) => turn <= event.through_turn);
      case "session_continued":
        return this.leaveFrom(event.from_turn || Infinity);
      default:
        this.addContent(event);
        this.addWork(event);
    }
  }

  private addContent(event: AnyEvent): void {
    switch (event.kind) {
      case "turn_accepted": {
        const turn = this.turn(event.turn);
        Object.assign(turn, { id: event.turn_id, run_id: event.run_id ?? null, live: true });
        return this.put(fresh({ ...spot(event, 0), id: event.message_id, role: "user", parts: [...event.parts] }));
      }
      case "turn_steered":
        if (event.from_turn) this.drop(event.from_turn);
        return this.put(
          fresh({ ...spot(event), id: event.message_id, role: "user", parts: [...event.parts], run_id: event.run_id }),
        );
      case "model_step_started":
        return this.put(
          fresh({
            ...spot(event), id: event.message_id, role: "assistant", status: "streaming",
            run_id: event.run_id, continues: event.continues ?? null, model: event.model,
          }),
        );
      case "message_settled":
        return this.put(
          fresh({
            ...spot(event), id: event.message_id, role: event.role, status: event.status ?? "settled",
            parts: [...event.parts], run_id: event.run_id ?? null, late: event.late ?? false,
            continues: event.continues ?? null, model: event.model ?? "", context_tokens: event.weight?.[1] ?? 0,
          }),
        );
      case "run_interrupted":
        return this.put(
          fresh({ ...spot(event), id: event.message_id, role: "notice", status: "interrupted", run_id: event.run_id }),
        );
      case "recovery_pending":
        return this.note(event.turn, event.place, "pending", event.at);
      case "recovery_finished":
        return this.note(event.turn, event.place, event.recovered ? "recovered" : "final", event.at);
      default:
        this.addTool(event);
    }
  }

  private addTool(event: AnyEvent): void {
    switch (event.kind) {
      case "tool_intended":
        return this.put(
          fresh({
            ...spot(event), id: event.call_id, role: "tool", status: "streaming", run_id: event.run_id,
            message_id: event.message_id, name: event.name, state: "intended", arguments: event.arguments,
            edited: event.edited ?? false,
          }),
        );
      case "tool_started":
        return this.change(event.call_id, { state: "started" });
      case "tool_in_doubt":
        return this.change(event.call_id, { state: "in_doubt" });
      case "tool_resolved":
        return this.change(event.call_id, { state: "resolved" });
      case "approval_requested":
        return this.change(event.call_id, { approval: "requested", reason: event.reason ?? "" });
      case "approval_resolved":
        return this.resolve(event);
      case "question_asked": {
        const { question, choices = [], multiple = false } = event;
        return this.change(event.call_id, { approval: "asked", asked: { question, choices, multiple } });
      }
      case "question_answered":
        return this.change(event.call_id, { approval: "answered", asked: null });
      case "question_closed":
        return this.change(event.call_id, { approval: "closed", asked: null });
      case "tool_settled": {
        const before = this.places.get(event.call_id);
        return this.put(
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
    this.change(event.call_id, { approval: event.decision, ...(event.reason ? { reason: event.reason } : {}) });
  }

  private addWork(event: AnyEvent): void {
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

  private turn(number: number): Turn {
    let turn = this.turns.get(number);
    if (!turn) {
      turn = { turn: number, id: "", run_id: null, live: false, entries: [], memories: [], version: 0 };
      this.turns.set(number, turn);
      this.order = null;
    }
    return turn;
  }

  private put(entry: Entry): void {
    const turn = this.turn(entry.turn);
    entry.version = turn.version = ++this.version;
    const at = turn.entries.findIndex((other) => other.place >= entry.place);
    const there = at >= 0 ? turn.entries[at] : undefined;
    if (there && there.place === entry.place) {
      if (there.id !== entry.id) this.places.delete(there.id);
      turn.entries[at] = entry;
    } else if (at < 0) turn.entries.push(entry);
    else turn.entries.splice(at, 0, entry);
    this.places.set(entry.id, entry);
  }

  private drop(number: number): void {
    const turn = this.turns.get(number);
    if (!turn) return;
    for (const entry of turn.entries) this.places.delete(entry.id);
    if (turn.run_id) this.work.delete(turn.run_id);
    this.turns.delete(number);
    this.order = null;
  }

  /** What waited from there on waits in the conversation that this one went on in. */
  private leaveFrom(first: number): void {
    for (const turn of [...this.turns.values()]) if (turn.live && turn.turn >= first) this.drop(turn.turn);
  }

  private endTurns(isMeant: (turn: number) => boolean): void {
    for (const turn of this.turns.values()) {
      if (!turn.live || !isMeant(turn.turn)) continue;
      turn.live = false;
      turn.version = ++this.version;
    }
  }

  private change(id: string, changes: Partial<Entry>): void {
    const entry = this.places.get(id);
    if (!entry || (entry.role === "tool" && entry.state === "settled")) return;
    Object.assign(entry, changes);
    this.touch(entry);
  }

  private touch(entry: Entry): void {
    entry.version = this.turn(entry.turn).version = ++this.version;
  }

  private note(turn: number, place: number, status: Status, at: number): void {
    const entry = this.turns.get(turn)?.entries.find((each) => each.place === place);
    if (entry?.role !== "notice") return;
    Object.assign(entry, { status, at });
    this.touch(entry);
  }

  private write(id: string, type: "text" | "reasoning", text: string): void {
    const entry = this.places.get(id);
    if (!entry || !isOpen(entry) || !text) return;
    const last = entry.parts.at(-1);
    if (last?.type === type) entry.parts[entry.parts.length - 1] = { ...last, text: last.text + text };
    else entry.parts.push({ type, text });
    this.touch(entry);
  }

  private writeCall(id: string, call_id: string, name: string, text: string): void {
    const entry = this.places.get(id);
    if (!entry || !isOpen(entry)) return;
    const at = entry.parts.findIndex((part) => part.type === "tool_call" && part.call_id === call_id);
    const call = entry.parts[at] as ToolCallPart | undefined;
    if (call) entry.parts[at] = { ...call, arguments: call.arguments + text };
    else entry.parts.push({ type: "tool_call", call_id, name, arguments: text });
    this.touch(entry);
  }

  /** What a run was writing when it ended stays as far as it came. */
  private interrupt(run_id: string): void {
    const turn = this.turns.get(this.work.get(run_id)?.turn ?? 0);
    for (const entry of turn?.entries ?? []) {
      if (entry.run_id !== run_id || entry.status !== "streaming") continue;
      entry.status = "interrupted";
      this.touch(entry);
    }
  }

  private bring(run_id: string, memories: readonly string[]): void {
    const turn = this.turns.get(this.work.get(run_id)?.turn ?? 0);
    if (turn && memories.length) Object.assign(turn, { memories, version: ++this.version });
  }

  private move(run_id: string, changes: Partial<Work>): void {
    const work = this.work.get(run_id);
    if (!work) return;
    Object.assign(work, changes);
    const turn = this.turns.get(work.turn);
    if (turn) turn.version = ++this.version;
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
