// What a conversation is made of, and how each thing begins.

import type { AnyPart, Message, Run } from "./protocol";

export type Status = Message["status"];
export type State = NonNullable<Message["state"]>;

/** A message as it reads now; `version` grows with every change, so that a view knows what to draw again. */
export interface Entry {
  turn: number;
  place: number;
  id: string;
  role: Message["role"];
  status: Status;
  at: number;
  parts: AnyPart[];
  run_id: string | null;
  late: boolean;
  continues: string | null;
  message_id: string;
  name: string;
  state: State | null;
  outcome: NonNullable<Message["outcome"]> | null;
  approval: NonNullable<Message["approval"]> | null;
  reason: string;
  /** What a call asks a person, while it does. */
  asked: NonNullable<Message["asked"]> | null;
  /** What a call runs with, once it is in the ledger; the model's own words stand in its message. */
  arguments: string;
  edited: boolean;
  /** Which model writes an answer; how long a call ran. */
  model: string;
  ms: number;
  /** How many tokens the model was sent for an answer, as its provider counted; 0: it has not said. */
  context_tokens: number;
  /** When an answer was asked for; 0: nobody has said. `at` is when it ended. */
  began_at: number;
  version: number;
}

/** The event that removed a turn, and whether another version took its place. */
export type Removed = NonNullable<Message["removed"]>;

export interface Turn {
  turn: number;
  id: string;
  run_id: string | null;
  live: boolean;
  /** Null while it is live, and where the context was cleared. */
  removed: Removed | null;
  /** Ascending by place. */
  entries: Entry[];
  /** What memory brought to it. */
  memories: readonly string[];
  version: number;
}

/** The work on a turn, as far as events and pages tell. */
export interface Work {
  id: string;
  turn: number;
  status: Run["status"];
  waiting: Run["waiting"];
  detail: string;
  failure: Run["failure"];
  retrying: string;
  /** The run that this one is to be told to, while it waits. */
  steers: string | null;
  started_at: number | null;
  ended_at: number | null;
  input_tokens: number;
  output_tokens: number;
  /** How many of those that it read had been read before, and cost less. */
  cached_tokens: number;
  /** How many of all were counted here, because the provider told none. */
  estimated_tokens: number;
  /** What is known of it; null: nothing is. */
  cost_micros: number | null;
}

/** Whether more may still be written to it. */
export function isOpen(entry: Entry): boolean {
  return entry.role === "tool" ? entry.state !== "settled" : entry.status === "streaming" || entry.status === "interrupted";
}

export function spot(event: { turn: number; place?: number; at: number }, place = event.place ?? 0): Pick<Entry, "turn" | "place" | "at"> {
  return { turn: event.turn, place, at: event.at };
}

type Known = Pick<Entry, "turn" | "place" | "at" | "id" | "role"> & { [Name in keyof Entry]?: Entry[Name] | null };

export function fresh(known: Known): Entry {
  const { turn, place, at, id, role, parts, status } = known;
  return {
    turn, place, at, id, role, status: status ?? "settled", parts: parts ?? [], run_id: known.run_id ?? null,
    late: known.late ?? false, continues: known.continues ?? null, message_id: known.message_id ?? "",
    name: known.name ?? "", state: known.state ?? (role === "tool" ? "settled" : null),
    outcome: known.outcome ?? null, approval: known.approval ?? null, reason: known.reason ?? "",
    asked: known.asked ?? null,
    arguments: known.arguments ?? "", edited: known.edited ?? Boolean(known.outcome && known.arguments),
    model: known.model ?? "", ms: known.ms ?? 0, context_tokens: known.context_tokens ?? 0,
    began_at: known.began_at ?? 0, version: 0,
  };
}

export function begun(id: string, turn: number): Work {
  return {
    id, turn, status: "accepted", waiting: null, detail: "", failure: null, retrying: "", steers: null, started_at: null,
    ended_at: null, input_tokens: 0, output_tokens: 0, cached_tokens: 0, estimated_tokens: 0, cost_micros: null,
  };
}

export function workOf(run: Run): Work {
  const { id, turn, status, waiting, failure, detail, steers, started_at, ended_at, usage } = run;
  return { ...begun(id, turn), status, waiting, failure, detail, steers, started_at, ended_at, ...usage };
}
