// Written by `make types` from the server's declarations. Do not edit.

import type { Failure } from "./conversations";

export interface MemoryCommitStartedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "memory_commit_started";
  readonly segment: number;
  readonly key: string;
  readonly turns: readonly (readonly [number, number])[];
  readonly owner: string;
  readonly digest: string;
  readonly attempt: number;
  readonly process_id: string;
  readonly takes_key?: boolean;
}

export interface MemoryCommittedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "memory_committed";
  readonly segment: number;
  readonly key: string;
  readonly from_turn: number;
  readonly through_turn: number;
  readonly receipt?: string;
}

export interface MemoryCommitFailedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "memory_commit_failed";
  readonly segment: number;
  readonly key: string;
  readonly from_turn: number;
  readonly through_turn: number;
  readonly failure: Failure;
  readonly retry_at?: number;
}

export interface MemoryInDoubtEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "memory_in_doubt";
  readonly segment: number;
  readonly key: string;
  readonly from_turn: number;
  readonly through_turn: number;
}

export interface MemoryResolvedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "memory_resolved";
  readonly segment: number;
  readonly decision: "done" | "drop" | "retry";
  readonly by?: "model" | "policy" | "server" | "user";
}

export interface MemoryForgottenEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "memory_forgotten";
  readonly segment: number;
  readonly key: string;
  readonly outcome: "cannot" | "done" | "failed";
  readonly failure?: Failure | null;
  readonly retry_at?: number;
}

export interface DeliveryInDoubtEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "delivery_in_doubt";
  readonly channel: string;
  readonly message_id: string;
}
