// The types of a conversation's state, and their initial values.

import type { AnyPart, MessageInfo, RunInfo } from "./protocol";

export type MessageStatus = MessageInfo["status"];
export type ToolState = NonNullable<MessageInfo["state"]>;

/** The state of a message; `version` increases with every change, so that a view knows what to render again. */
export interface Entry {
  turn: number;
  place: number;
  id: string;
  role: MessageInfo["role"];
  status: MessageStatus;
  at: number;
  parts: AnyPart[];
  run_id: string | null;
  late: boolean;
  continues: string | null;
  message_id: string;
  name: string;
  state: ToolState | null;
  outcome: NonNullable<MessageInfo["outcome"]> | null;
  approval: NonNullable<MessageInfo["approval"]> | null;
  reason: string;
  /** The open question of a call. */
  asked: NonNullable<MessageInfo["asked"]> | null;
  /** The arguments that a call runs with, once it is in the ledger; its message has those that the model wrote. */
  arguments: string;
  edited: boolean;
  /** The model of an answer. */
  model: string;
  ms: number;
  /** How many tokens the model received for an answer, as its provider counted; 0: unknown. */
  context_tokens: number;
  /** When the answer was requested; 0: unknown. `at` is when it ended. */
  began_at: number;
  version: number;
}

/** The event that removed a turn, and whether another version took its place. */
export type Removed = NonNullable<MessageInfo["removed"]>;

export interface Turn {
  turn: number;
  id: string;
  run_id: string | null;
  live: boolean;
  /** Null if the turn is live, or if the context was cleared. */
  removed: Removed | null;
  /** In ascending order of place. */
  entries: Entry[];
  /** The memories that were added to its context. */
  memories: readonly string[];
  version: number;
}

/** A run, as far as events and pages report it. */
export interface RunProgress {
  id: string;
  turn: number;
  status: RunInfo["status"];
  waiting: RunInfo["waiting"];
  detail: string;
  failure: RunInfo["failure"];
  retrying: string;
  /** The run that this queued turn steers. */
  steers: string | null;
  started_at: number | null;
  ended_at: number | null;
  input_tokens: number;
  output_tokens: number;
  /** How many of the input tokens came from a cache and cost less. */
  cached_tokens: number;
  /** How many of the tokens were estimated, because the provider reported none. */
  estimated_tokens: number;
  /** The known cost; null: nothing is known. */
  cost_micros: number | null;
}

/** Return whether more may still be appended to it. */
export function isOpen(entry: Entry): boolean {
  return entry.role === "tool" ? entry.state !== "settled" : entry.status === "streaming" || entry.status === "interrupted";
}

export function position(event: { turn: number; place?: number; at: number }, place = event.place ?? 0): Pick<Entry, "turn" | "place" | "at"> {
  return { turn: event.turn, place, at: event.at };
}

type EntryFields = Pick<Entry, "turn" | "place" | "at" | "id" | "role"> & { [Name in keyof Entry]?: Entry[Name] | null };

export function newEntry(fields: EntryFields): Entry {
  const { turn, place, at, id, role, parts, status } = fields;
  return {
    turn, place, at, id, role, status: status ?? "settled", parts: parts ?? [], run_id: fields.run_id ?? null,
    late: fields.late ?? false, continues: fields.continues ?? null, message_id: fields.message_id ?? "",
    name: fields.name ?? "", state: fields.state ?? (role === "tool" ? "settled" : null),
    outcome: fields.outcome ?? null, approval: fields.approval ?? null, reason: fields.reason ?? "",
    asked: fields.asked ?? null,
    arguments: fields.arguments ?? "", edited: fields.edited ?? Boolean(fields.outcome && fields.arguments),
    model: fields.model ?? "", ms: fields.ms ?? 0, context_tokens: fields.context_tokens ?? 0,
    began_at: fields.began_at ?? 0, version: 0,
  };
}

export function newRunInfo(id: string, turn: number): RunProgress {
  return {
    id, turn, status: "accepted", waiting: null, detail: "", failure: null, retrying: "", steers: null, started_at: null,
    ended_at: null, input_tokens: 0, output_tokens: 0, cached_tokens: 0, estimated_tokens: 0, cost_micros: null,
  };
}

export function runInfo(run: RunInfo): RunProgress {
  const { id, turn, status, waiting, failure, detail, steers, started_at, ended_at, usage } = run;
  return { ...newRunInfo(id, turn), status, waiting, failure, detail, steers, started_at, ended_at, ...usage };
}
