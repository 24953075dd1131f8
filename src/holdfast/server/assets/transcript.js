// The conversation as it reads now: a fold of a page of messages and of the events after it. No DOM.

const DELTAS = { text_appended: "text", reasoning_appended: "reasoning" };
const ENDS = { run_completed: "completed", run_cancelled: "cancelled", run_failed: "failed", run_interrupted: "interrupted" };

export const KINDS = [
  "session_renamed", "session_cleared", "session_deleted", "turn_accepted", "turn_queued", "turn_dequeued",
  "turn_steered", "turns_undone", "run_started", "run_waiting", "run_resumed", ...Object.keys(ENDS),
  "recovery_pending", "recovery_finished", "model_step_started", "model_step_retried", ...Object.keys(DELTAS),
  "tool_arguments_appended", "message_settled", "tool_intended", "tool_started", "tool_output_appended",
  "tool_settled", "tool_in_doubt", "tool_resolved", "approval_requested", "approval_resolved",
];

export class Transcript {
  constructor() {
    this.entries = new Map();
    this.runs = new Map();
    this.changed = new Set(); // What to draw again: ids of entries.
    this.moved = false; // Whether one that was drawn has another place now.
    this.head = 0;
    this.before = null;
  }

  addPage(page) {
    for (const message of page.messages) this.put(message);
    for (const run of page.runs) this.runs.set(run.id, run);
    this.head = Math.max(this.head, page.head);
    this.before = page.before;
  }

  // One event; those that are known already change nothing.
  add(event) {
    if (event.seq <= this.head) return;
    this.head = event.seq;
    const { kind } = event;
    if (kind in DELTAS) this.write(event.message_id, DELTAS[kind], event.text);
    else if (kind in ENDS) this.end(event, ENDS[kind]);
    else this[kind]?.(event);
  }

  put(entry) {
    // What is said below a turn's last entry moves to the new one.
    if (!this.entries.has(entry.id)) this.touchTurn(entry.turn);
    this.entries.set(entry.id, entry);
    this.changed.add(entry.id);
  }

  // Entries in the order they are read in.
  ordered() {
    return [...this.entries.values()].sort((a, b) => a.turn - b.turn || a.place - b.place);
  }

  runOfTurn(turn) {
    return [...this.runs.values()].find((run) => run.turn === turn);
  }

  touch(id, changes) {
    const entry = this.entries.get(id);
    if (!entry) return;
    Object.assign(entry, changes);
    this.changed.add(id);
  }

  touchTurn(turn, changes = {}) {
    for (const entry of this.entries.values()) if (entry.turn === turn) this.touch(entry.id, changes);
  }

  write(id, type, text) {
    const entry = this.entries.get(id);
    if (!entry || entry.status !== "streaming") return;
    const last = entry.parts.at(-1);
    if (last?.type === type) last.text += text;
    else entry.parts.push({ type, text });
    this.changed.add(id);
  }

  run(event, changes) {
    const run = this.runs.get(event.run_id);
    if (!run) return;
    Object.assign(run, changes);
    this.touchTurn(run.turn);
  }

  end(event, status) {
    for (const entry of this.entries.values()) {
      if (entry.run_id === event.run_id && entry.status === "streaming") this.touch(entry.id, { status: "interrupted" });
    }
    this.run(event, { status, failure: event.failure ?? null, waiting: null });
    // Whether those behind it may begin is said with them.
    for (const run of this.runs.values()) if (run.status === "queued") this.touchTurn(run.turn);
    if (status === "interrupted") {
      const { message_id: id, turn, place, run_id, at } = event;
      this.put({ id, role: "notice", status, turn, place, run_id, at, live: true, late: false, parts: [] });
    }
  }

  turn_accepted(event) {
    const { message_id: id, turn, turn_id, run_id = null, at, parts } = event;
    this.put({ id, role: "user", status: "settled", turn, place: 0, turn_id, run_id, at, parts, live: true, late: false });
    if (run_id) this.runs.set(run_id, { id: run_id, turn, status: "accepted", failure: null, waiting: null });
  }

  turn_steered({ message_id: id, turn, place, run_id, at, parts, from_turn = 0 }) {
    // It waited as a turn of its own; from here on it is part of the one under way.
    for (const run of this.runs.values()) if (run.turn === from_turn) this.runs.delete(run.id);
    this.entries.delete(id);
    this.moved = true;
    this.put({ id, role: "user", status: "settled", turn, place, run_id, at, parts, live: true, late: false });
  }

  turn_queued(event) { this.run(event, { status: "queued" }); }
  turn_dequeued(event) { this.run(event, { status: "accepted" }); }
  run_started(event) { this.run(event, { status: "running" }); }
  run_resumed(event) { this.run(event, { status: "running", waiting: null, detail: "" }); }
  run_waiting(event) { this.run(event, { status: "waiting", waiting: event.reason, detail: event.detail ?? "" }); }
  model_step_retried(event) { this.run(event, { retrying: event.failure.detail }); }

  turns_undone({ from_turn }) {
    for (const { id, turn } of this.entries.values()) if (turn >= from_turn) this.touch(id, { live: false });
  }

  session_cleared({ through_turn }) {
    for (const { id, turn } of this.entries.values()) if (turn <= through_turn) this.touch(id, { live: false });
  }

  model_step_started({ message_id: id, turn, place, run_id, at, continues = null }) {
    this.run({ run_id }, { retrying: null });
    this.put({ id, role: "assistant", status: "streaming", turn, place, run_id, at, continues, parts: [], live: true, late: false });
  }

  tool_arguments_appended({ message_id, call_id, name, text }) {
    const entry = this.entries.get(message_id);
    if (!entry || entry.status !== "streaming") return;
    const call = entry.parts.find((part) => part.call_id === call_id);
    if (call) call.arguments += text;
    else entry.parts.push({ type: "tool_call", call_id, name, arguments: text });
    this.changed.add(message_id);
  }

  message_settled(event) {
    const { message_id: id, turn, place, role, parts, run_id = null, status = "settled", continues = null, late = false, at } = event;
    const live = this.entries.get(id)?.live ?? true;
    this.put({ id, role, status, turn, place, run_id, continues, late, at, parts, live });
  }

  tool_intended({ call_id: id, message_id, turn, place, run_id, name, at, arguments: written, edited }) {
    this.put({ id, role: "tool", status: "streaming", turn, place, run_id, message_id, name, at, written, arguments: edited ? written : undefined, state: "intended", parts: [], live: true, late: false });
  }

  tool_settled(event) {
    const { call_id: id, message_id, turn, place, name, outcome, parts, run_id = null, status = "settled", late = false, at, arguments: changed } = event;
    const { live = true, written } = this.entries.get(id) ?? {};
    this.put({ id, role: "tool", status, turn, place, run_id, message_id, name, outcome, at, parts, late, live, written, arguments: changed || undefined, state: "settled" });
  }

  tool_output_appended({ call_id, text }) { this.write(call_id, "text", text); }
  tool_started({ call_id }) { this.touch(call_id, { state: "started", status: "streaming" }); }
  tool_in_doubt({ call_id }) { this.touch(call_id, { state: "in_doubt" }); }
  tool_resolved({ call_id }) { this.touch(call_id, { state: "resolved" }); }
  approval_requested({ call_id, reason }) { this.touch(call_id, { approval: "requested", reason }); }
  approval_resolved({ call_id, decision }) { this.touch(call_id, { approval: decision }); }

  recovery_pending(event) { this.note(event, "pending"); }
  recovery_finished(event) { this.note(event, event.recovered ? "recovered" : "final"); }

  note({ turn, place, at }, status) {
    for (const entry of this.entries.values()) {
      if (entry.turn === turn && entry.place === place) this.touch(entry.id, { status, at });
    }
  }
}
