// Written by `make types` from the server's declarations. Do not edit.

export interface MemoryItem {
  readonly id: string;
  readonly text: string;
  readonly by: "model" | "user";
  readonly session_id: string | null;
  readonly title: string;
  readonly from_turn: number;
  readonly through_turn: number;
  readonly made_at: number;
  readonly changed_at: number;
}

export interface MemoryItemList {
  readonly provider: string;
  readonly health: MemoryHealth;
  readonly memories: readonly (MemoryItem)[];
  readonly cursor: string | null;
  readonly waiting: number;
  readonly oldest_waiting_at: number | null;
  readonly shows: boolean;
}

export interface MemoryHealth {
  readonly ok: boolean;
  readonly detail: string;
}

export interface MemoryQueueInfo {
  readonly waiting: readonly (MemoryQueueEntry)[];
  readonly kept: readonly (RetainedMemory)[];
}

export interface MemoryQueueEntry {
  readonly session_id: string;
  readonly title: string;
  readonly segment: number;
  readonly from_turn: number;
  readonly through_turn: number;
  readonly state: "committing" | "failed" | "in_doubt" | "owed" | "retracting";
  readonly since: number;
  readonly attempts: number;
  readonly retry_at: number | null;
  readonly detail: string;
  readonly deleted: boolean;
}

export interface RetainedMemory {
  readonly session_id: string;
  readonly title: string;
  readonly segment: number;
  readonly from_turn: number;
  readonly through_turn: number;
  readonly detail: string;
}

export interface MemoryCommitResult {
  readonly outcome: "failed" | "in_doubt" | "no_owner" | "nothing" | "paid" | "working";
  readonly paid: number;
  readonly detail: string;
}
