// Written by `make types` from the server's declarations. Do not edit.

export interface SessionInfo {
  readonly id: string;
  readonly title: string;
  readonly status: "failed" | "idle" | "interrupted" | "needs_you" | "working";
  readonly created_at: number;
  readonly updated_at: number;
  readonly archived: boolean;
  readonly turns: number;
  readonly agent: string;
  readonly model: string;
  readonly workspace: string;
  readonly resume: "ask" | "auto" | "never" | null;
  readonly run_id: string | null;
  readonly previous_session_id: string | null;
  readonly parent_session_id: string | null;
  readonly successor_session_id: string | null;
  readonly usage: UsageInfo;
  readonly unread: boolean;
  readonly pinned: boolean;
  readonly remember: boolean;
  readonly head: number | null;
  readonly remembered_at: number | null;
  readonly window_tokens: number | null;
  readonly answering: string | null;
  readonly opening: string;
  readonly notes: number | null;
}

export interface UsageInfo {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cached_tokens: number;
  readonly cost_micros: number | null;
  readonly written_tokens: number;
  readonly estimated_tokens: number;
}

export interface SessionInfoList {
  readonly sessions: readonly (SessionInfo)[];
  readonly cursor: string | null;
}

export interface MessageInfo {
  readonly id: string;
  readonly role: "assistant" | "notice" | "tool" | "user";
  readonly status: "final" | "pending" | "streaming" | "interrupted" | "recovered" | "settled";
  readonly turn: number;
  readonly place: number;
  readonly live: boolean;
  readonly late: boolean;
  readonly at: number;
  readonly run_id: string | null;
  readonly parts: readonly (TextPart | ReasoningPart | ToolCallPart | FilePart | ChangePart)[];
  readonly turn_id?: string | null;
  readonly continues?: string | null;
  readonly message_id?: string | null;
  readonly name?: string | null;
  readonly state?: "in_doubt" | "intended" | "resolved" | "settled" | "started" | null;
  readonly approval?: "answered" | "approve" | "asked" | "closed" | "deny" | "requested" | null;
  readonly outcome?: "denied" | "done" | "failed" | "not_run" | "unknown" | null;
  readonly arguments?: string | null;
  readonly reason?: string | null;
  readonly model?: string | null;
  readonly ms?: number | null;
  readonly memories?: readonly (string)[];
  readonly asked?: AgentQuestion | null;
  readonly context_tokens?: number | null;
  readonly began_at?: number | null;
  readonly versions?: readonly (string)[];
  readonly removed?: RemovedTurn | null;
}

export interface TextPart {
  readonly type: "text";
  readonly text: string;
}

export interface ReasoningPart {
  readonly type: "reasoning";
  readonly text: string;
  readonly signature?: string;
  readonly provider?: string;
}

export interface ToolCallPart {
  readonly type: "tool_call";
  readonly call_id: string;
  readonly name: string;
  readonly arguments: string;
}

export interface FilePart {
  readonly type: "file";
  readonly blob: string;
  readonly name: string;
  readonly media_type: string;
  readonly size_bytes: number;
  readonly anyway?: boolean;
}

export interface ChangePart {
  readonly type: "change";
  readonly path: string;
  readonly before?: string | null;
  readonly after?: string | null;
  readonly diff?: string;
  readonly added?: number;
  readonly removed?: number;
  readonly kept?: boolean;
  readonly workspace?: string;
}

export interface AgentQuestion {
  readonly question: string;
  readonly choices: readonly (string)[];
  readonly multiple: boolean;
}

export interface RemovedTurn {
  readonly seq: number;
  readonly replaced: boolean;
  readonly after: number;
}

export interface RunInfo {
  readonly id: string;
  readonly session_id: string;
  readonly turn: number;
  readonly status: "accepted" | "cancelled" | "completed" | "failed" | "interrupted" | "queued" | "running" | "waiting";
  readonly waiting: "approval" | "client_tool" | "in_doubt" | "limit" | "question" | null;
  readonly failure: Failure | null;
  readonly attempts: number;
  readonly started_at: number | null;
  readonly ended_at: number | null;
  readonly usage: UsageInfo;
  readonly steps: number;
  readonly detail: string;
  readonly steers: string | null;
}

export interface Failure {
  readonly code: string;
  readonly detail: string;
}

export interface MessageList {
  readonly messages: readonly (MessageInfo)[];
  readonly runs: readonly (RunInfo)[];
  readonly head: number;
  readonly before: string | null;
  readonly summary: Summary | null;
}

export interface Summary {
  readonly through_turn: number;
  readonly text: string;
  readonly at: number;
}

export interface TurnReceipt {
  readonly turn_id: string;
  readonly run_id: string | null;
  readonly seq: number;
  readonly session_id: string;
}

export interface MessageMatchList {
  readonly hits: readonly (MessageMatch)[];
}

export interface MessageMatch {
  readonly session_id: string;
  readonly title: string;
  readonly turn: number;
  readonly place: number;
  readonly message_id: string;
  readonly role: string;
  readonly at: number;
  readonly snippet: string;
  readonly marks: readonly (readonly [number, number])[];
}

export interface QuestionInfo {
  readonly session_id: string;
  readonly title: string;
  readonly workspace: string;
  readonly run_id: string;
  readonly kind: "approval" | "client_tool" | "in_doubt" | "limit" | "question";
  readonly asked_at: number;
  readonly reason: string;
  readonly call_id: string | null;
  readonly name: string | null;
  readonly arguments: string | null;
  readonly arguments_cut: boolean;
  readonly effect: "idempotent" | "pure" | "unsafe" | null;
  readonly may_have_run: boolean;
  readonly asked: AgentQuestion | null;
}

export interface FeedSnapshot {
  readonly sessions: readonly (SessionInfo)[];
  readonly questions: readonly (QuestionInfo)[];
  readonly more: boolean;
}

export interface FeedChanged {
  readonly session: SessionInfo;
  readonly questions: readonly (QuestionInfo)[];
}

export interface FeedRemoved {
  readonly session_id: string;
}

export interface UploadedFile {
  readonly id: string;
  readonly name: string;
  readonly media_type: string;
  readonly size_bytes: number;
}

export interface Draft {
  readonly text: string;
}

export interface ChangedFiles {
  readonly changes: readonly (ChangedFile)[];
  readonly left_out: number;
}

export interface ChangedFile {
  readonly path: string;
  readonly before: string | null;
  readonly after: string | null;
  readonly diff: string;
  readonly added: number;
  readonly removed: number;
  readonly kept: boolean;
  readonly workspace: string;
}

export interface RestoredFiles {
  readonly restored: readonly (string)[];
}
