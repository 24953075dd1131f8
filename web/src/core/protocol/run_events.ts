// Written by `make types` from the server's declarations. Do not edit.

import type { Failure } from "./conversations";

export interface RunStartedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "run_started";
  readonly run_id: string;
}

export interface RunWaitingEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "run_waiting";
  readonly run_id: string;
  readonly reason: "approval" | "client_tool" | "in_doubt" | "limit" | "question";
  readonly detail?: string;
}

export interface RunResumedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "run_resumed";
  readonly run_id: string;
  readonly by: "model" | "policy" | "server" | "user";
  readonly attempt: number;
}

export interface RunCompletedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "run_completed";
  readonly run_id: string;
  readonly owed?: boolean;
  readonly owner?: string;
}

export interface RunCancelledEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "run_cancelled";
  readonly run_id: string;
  readonly by?: "model" | "policy" | "server" | "user";
}

export interface RunFailedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "run_failed";
  readonly run_id: string;
  readonly failure: Failure;
}

export interface RunInterruptedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "run_interrupted";
  readonly run_id: string;
  readonly turn: number;
  readonly place: number;
  readonly message_id: string;
  readonly asks?: boolean;
  readonly orderly?: boolean;
}

export interface RecoveryPendingEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "recovery_pending";
  readonly run_id: string;
  readonly turn: number;
  readonly place: number;
  readonly process_id?: string;
  readonly since?: number;
  readonly reads?: number;
}

export interface RecoveryFinishedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "recovery_finished";
  readonly run_id: string;
  readonly turn: number;
  readonly place: number;
  readonly recovered: boolean;
}

export interface ContextPreparedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "context_prepared";
  readonly run_id: string;
  readonly instructions_digest: string;
  readonly memories?: readonly (string)[];
}

export interface ModelStepStartedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "model_step_started";
  readonly run_id: string;
  readonly turn: number;
  readonly place: number;
  readonly message_id: string;
  readonly model: string;
  readonly continues?: string | null;
  readonly asked_tokens?: number;
  readonly rate?: Rate | null;
}

export interface Rate {
  readonly input: number;
  readonly output: number;
}

export interface ModelStepSettledEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "model_step_settled";
  readonly run_id: string;
  readonly message_id: string;
  readonly stop_reason: string;
  readonly usage?: Usage;
}

export interface Usage {
  readonly input_tokens?: number;
  readonly output_tokens?: number;
  readonly cached_tokens?: number;
  readonly cost_micros?: number | null;
  readonly written_tokens?: number;
  readonly estimated_tokens?: number;
}

export interface ModelStepRetriedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "model_step_retried";
  readonly run_id: string;
  readonly message_id: string;
  readonly failure: Failure;
  readonly delay_ms: number;
}

export interface FilesRestoredEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "files_restored";
  readonly run_id: string;
  readonly paths: readonly (string)[];
  readonly by?: "model" | "policy" | "server" | "user";
}
