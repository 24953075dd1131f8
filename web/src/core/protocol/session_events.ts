// Written by `make types` from the server's declarations. Do not edit.

import type { ChangePart, FilePart, ReasoningPart, TextPart, ToolCallPart } from "./conversations";

export interface SessionCreatedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "session_created";
  readonly title?: string;
  readonly agent?: string;
  readonly model?: string;
  readonly workspace?: string;
  readonly previous_session_id?: string | null;
  readonly remember?: boolean;
}

export interface SessionRenamedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "session_renamed";
  readonly title: string;
  readonly by: "model" | "user";
}

export interface SessionConfiguredEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "session_configured";
  readonly agent?: string | null;
  readonly model?: string | null;
  readonly workspace?: string | null;
  readonly resume?: "ask" | "auto" | "never" | null;
  readonly remember?: boolean | null;
}

export interface SessionForkedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "session_forked";
  readonly source_session_id: string;
  readonly source_seq: number;
  readonly source_turn: number;
}

export interface SessionClearedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "session_cleared";
  readonly through_turn: number;
}

export interface SessionCompactedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "session_compacted";
  readonly covers: readonly (readonly [number, number])[];
  readonly summary: string;
}

export interface SessionContinuedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "session_continued";
  readonly successor_session_id: string;
  readonly from_turn?: number;
}

export interface SessionArchivedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "session_archived";
  readonly archived?: boolean;
}

export interface SessionDeletedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "session_deleted";
  readonly notes?: boolean;
}

export interface TurnAcceptedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "turn_accepted";
  readonly turn_id: string;
  readonly turn: number;
  readonly message_id: string;
  readonly parts: readonly (TextPart | ReasoningPart | ToolCallPart | FilePart | ChangePart)[];
  readonly run_id?: string | null;
  readonly key?: string | null;
  readonly replaces?: string | null;
  readonly steers?: string | null;
}

export interface TurnQueuedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "turn_queued";
  readonly turn: number;
  readonly run_id: string;
}

export interface TurnDequeuedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "turn_dequeued";
  readonly turn: number;
  readonly run_id: string;
}

export interface TurnSteeredEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "turn_steered";
  readonly run_id: string;
  readonly turn: number;
  readonly place: number;
  readonly message_id: string;
  readonly parts: readonly (TextPart | ReasoningPart | ToolCallPart | FilePart | ChangePart)[];
  readonly key?: string | null;
  readonly from_turn?: number;
}

export interface TurnsUndoneEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "turns_undone";
  readonly from_turn: number;
  readonly reason?: "edit" | "retry" | "undo";
}

export interface TurnsRestoredEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "turns_restored";
  readonly turns: readonly (readonly [number, number])[];
  readonly from_turn?: number;
  readonly reason?: "undo" | "version";
  readonly owed?: readonly (readonly [number, string])[];
}
