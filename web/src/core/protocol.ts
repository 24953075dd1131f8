// Written by `make types` from the server's declarations. Do not edit.

export interface Session {
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
  readonly usage: Used;
  readonly unread: boolean;
  readonly pinned: boolean;
  readonly head: number | null;
}

export interface Used {
  readonly input_tokens: number;
  readonly output_tokens: number;
  readonly cached_tokens: number;
  readonly cost_micros: number;
}

export interface SessionList {
  readonly sessions: readonly (Session)[];
  readonly cursor: string | null;
}

export interface Message {
  readonly id: string;
  readonly role: "assistant" | "notice" | "tool" | "user";
  readonly status: "final" | "pending" | "streaming" | "interrupted" | "recovered" | "settled";
  readonly turn: number;
  readonly place: number;
  readonly live: boolean;
  readonly late: boolean;
  readonly at: number;
  readonly run_id: string | null;
  readonly parts: readonly (TextPart | ReasoningPart | ToolCallPart | FilePart)[];
  readonly turn_id?: string | null;
  readonly continues?: string | null;
  readonly message_id?: string | null;
  readonly name?: string | null;
  readonly state?: "in_doubt" | "intended" | "resolved" | "settled" | "started" | null;
  readonly approval?: "approve" | "deny" | "requested" | null;
  readonly outcome?: "denied" | "done" | "failed" | "not_run" | "unknown" | null;
  readonly arguments?: string | null;
  readonly reason?: string | null;
  readonly model?: string | null;
  readonly ms?: number | null;
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
}

export interface Run {
  readonly id: string;
  readonly session_id: string;
  readonly turn: number;
  readonly status: "accepted" | "cancelled" | "completed" | "failed" | "interrupted" | "queued" | "running" | "waiting";
  readonly waiting: "approval" | "client_tool" | "in_doubt" | "limit" | "question" | null;
  readonly failure: Failure | null;
  readonly attempts: number;
  readonly started_at: number | null;
  readonly ended_at: number | null;
  readonly usage: Used;
  readonly steps: number;
  readonly detail: string;
}

export interface Failure {
  readonly code: string;
  readonly detail: string;
}

export interface MessageList {
  readonly messages: readonly (Message)[];
  readonly runs: readonly (Run)[];
  readonly head: number;
  readonly before: string | null;
}

export interface TurnReceipt {
  readonly turn_id: string;
  readonly run_id: string | null;
  readonly seq: number;
}

export interface FoundList {
  readonly hits: readonly (Found)[];
}

export interface Found {
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

export interface ModelList {
  readonly models: readonly (UsedModel)[];
}

export interface UsedModel {
  readonly name: string;
  readonly why: string;
  readonly in_use: boolean;
  readonly takes: readonly ("image" | "pdf" | "text")[];
}

export interface Question {
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
}

export interface FeedSnapshot {
  readonly sessions: readonly (Session)[];
  readonly questions: readonly (Question)[];
  readonly more: boolean;
}

export interface FeedChanged {
  readonly session: Session;
  readonly questions: readonly (Question)[];
}

export interface FeedRemoved {
  readonly session_id: string;
}

export interface StoredFile {
  readonly id: string;
  readonly name: string;
  readonly media_type: string;
  readonly size_bytes: number;
}

export interface Me {
  readonly signed_in: boolean;
  readonly name: string;
  readonly rights: readonly ("admin" | "approve" | "read" | "write")[];
  readonly browser: boolean;
}

export interface Entered {
  readonly signed_in: boolean;
  readonly name: string;
  readonly rights: readonly ("admin" | "approve" | "read" | "write")[];
  readonly browser: boolean;
  readonly page_key: string;
}

export interface Draft {
  readonly text: string;
}

export interface RuleList {
  readonly rules: readonly (Rule)[];
}

export interface Rule {
  readonly id: string;
  readonly tool: string;
  readonly pattern: string;
  readonly session_id: string | null;
  readonly created_at: number;
}

export interface TokenList {
  readonly tokens: readonly (TokenTold)[];
}

export interface TokenTold {
  readonly id: string;
  readonly name: string;
  readonly rights: readonly ("admin" | "approve" | "read" | "write")[];
  readonly created_at: number;
  readonly last_used_at: number | null;
}

export interface TokenMade {
  readonly token: TokenTold;
  readonly secret: string;
}

export interface PasswordTold {
  readonly is_set: boolean;
  readonly set_at: number | null;
}

export interface SignInList {
  readonly sign_ins: readonly (SignInTold)[];
}

export interface SignInTold {
  readonly id: string;
  readonly created_at: number;
  readonly expires_at: number;
  readonly current: boolean;
}

export interface SettingList {
  readonly settings: readonly (SettingTold)[];
}

export interface SettingTold {
  readonly name: string;
  readonly value: string | number | readonly (string)[];
  readonly default: string;
  readonly help: string;
  readonly allowed: string;
  readonly source: "command line" | "default" | "environment" | "file";
  readonly changeable: boolean;
}

export interface Tried {
  readonly ok: boolean;
  readonly detail: string;
  readonly models: readonly (string)[];
}

export interface BackupList {
  readonly backups: readonly (BackupTold)[];
}

export interface BackupTold {
  readonly name: string;
  readonly size_bytes: number;
  readonly made_at: number;
  readonly restore: string;
}

export interface About {
  readonly version: string;
  readonly data: string;
  readonly durability: string;
  readonly sessions: number;
  readonly events: number;
  readonly store_bytes: number;
  readonly model: string;
  readonly why: string;
  readonly confinement: string;
  readonly unprotected: readonly (string)[];
  readonly addresses: readonly (string)[];
  readonly started_at: number;
  readonly uptime_s: number;
}

export interface ChannelList {
  readonly channels: readonly (ChannelTold)[];
}

export interface ChannelTold {
  readonly name: string;
  readonly connected: boolean;
  readonly fixed: boolean;
  readonly serving: boolean;
  readonly last_seen_at: number;
  readonly last_error: string;
  readonly last_error_at: number;
  readonly received: number;
  readonly waiting: number;
  readonly delivered: Readonly<Record<string, number>>;
}

export interface ChannelTried {
  readonly ok: boolean;
  readonly detail: string;
}

export interface StrangerList {
  readonly waiting: readonly (StrangerTold)[];
}

export interface StrangerTold {
  readonly channel: string;
  readonly sender: string;
  readonly name: string;
  readonly asked_at: number;
  readonly expires_at: number;
}

export interface SenderList {
  readonly senders: readonly (SenderTold)[];
}

export interface SenderTold {
  readonly channel: string;
  readonly sender: string;
  readonly name: string;
  readonly allowed_at: number;
}

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
}

export interface TurnAcceptedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "turn_accepted";
  readonly turn_id: string;
  readonly turn: number;
  readonly message_id: string;
  readonly parts: readonly (TextPart | ReasoningPart | ToolCallPart | FilePart)[];
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
  readonly parts: readonly (TextPart | ReasoningPart | ToolCallPart | FilePart)[];
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
  readonly cost_micros?: number;
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

export interface TextAppendedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "text_appended";
  readonly run_id: string;
  readonly message_id: string;
  readonly text: string;
}

export interface ReasoningAppendedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "reasoning_appended";
  readonly run_id: string;
  readonly message_id: string;
  readonly text: string;
}

export interface ToolArgumentsAppendedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "tool_arguments_appended";
  readonly run_id: string;
  readonly message_id: string;
  readonly call_id: string;
  readonly name: string;
  readonly text: string;
}

export interface MessageSettledEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "message_settled";
  readonly turn: number;
  readonly place: number;
  readonly message_id: string;
  readonly role: "assistant" | "notice" | "tool" | "user";
  readonly parts: readonly (TextPart | ReasoningPart | ToolCallPart | FilePart)[];
  readonly digest: string;
  readonly run_id?: string | null;
  readonly status?: "interrupted" | "recovered" | "settled";
  readonly continues?: string | null;
  readonly late?: boolean;
  readonly pace?: readonly (number)[];
  readonly model?: string;
}

export interface ToolIntendedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "tool_intended";
  readonly run_id: string;
  readonly turn: number;
  readonly place: number;
  readonly message_id: string;
  readonly call_id: string;
  readonly name: string;
  readonly arguments: string;
  readonly effect: "idempotent" | "pure" | "unsafe";
  readonly edited?: boolean;
}

export interface ToolStartedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "tool_started";
  readonly run_id: string;
  readonly call_id: string;
}

export interface ToolOutputAppendedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "tool_output_appended";
  readonly run_id: string;
  readonly call_id: string;
  readonly text: string;
  readonly stream?: "stderr" | "stdout";
}

export interface ToolSettledEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "tool_settled";
  readonly turn: number;
  readonly place: number;
  readonly message_id: string;
  readonly call_id: string;
  readonly name: string;
  readonly outcome: "denied" | "done" | "failed" | "not_run" | "unknown";
  readonly parts: readonly (TextPart | ReasoningPart | ToolCallPart | FilePart)[];
  readonly digest: string;
  readonly run_id?: string | null;
  readonly status?: "interrupted" | "recovered" | "settled";
  readonly late?: boolean;
  readonly pace?: readonly (number)[];
  readonly arguments?: string;
  readonly ms?: number;
}

export interface ToolInDoubtEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "tool_in_doubt";
  readonly run_id: string;
  readonly call_id: string;
}

export interface ToolResolvedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "tool_resolved";
  readonly run_id: string;
  readonly call_id: string;
  readonly decision: "approve" | "deny" | "mark_done" | "rerun" | "skip";
  readonly by?: "model" | "policy" | "server" | "user";
}

export interface ApprovalRequestedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "approval_requested";
  readonly run_id: string;
  readonly call_id: string;
  readonly reason?: string;
}

export interface ApprovalResolvedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "approval_resolved";
  readonly run_id: string;
  readonly call_id: string;
  readonly decision: "approve" | "deny";
  readonly by?: "model" | "policy" | "server" | "user";
  readonly reason?: string;
  readonly scope?: "always" | "once" | "session";
  readonly rule?: string;
}

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

export type AnyPart =
  TextPart | ReasoningPart | ToolCallPart | FilePart;

export type AnyEvent =
  SessionCreatedEvent
  | SessionRenamedEvent
  | SessionConfiguredEvent
  | SessionForkedEvent
  | SessionClearedEvent
  | SessionCompactedEvent
  | SessionContinuedEvent
  | SessionArchivedEvent
  | SessionDeletedEvent
  | TurnAcceptedEvent
  | TurnQueuedEvent
  | TurnDequeuedEvent
  | TurnSteeredEvent
  | TurnsUndoneEvent
  | RunStartedEvent
  | RunWaitingEvent
  | RunResumedEvent
  | RunCompletedEvent
  | RunCancelledEvent
  | RunFailedEvent
  | RunInterruptedEvent
  | RecoveryPendingEvent
  | RecoveryFinishedEvent
  | ContextPreparedEvent
  | ModelStepStartedEvent
  | ModelStepSettledEvent
  | ModelStepRetriedEvent
  | TextAppendedEvent
  | ReasoningAppendedEvent
  | ToolArgumentsAppendedEvent
  | MessageSettledEvent
  | ToolIntendedEvent
  | ToolStartedEvent
  | ToolOutputAppendedEvent
  | ToolSettledEvent
  | ToolInDoubtEvent
  | ToolResolvedEvent
  | ApprovalRequestedEvent
  | ApprovalResolvedEvent
  | MemoryCommitStartedEvent
  | MemoryCommittedEvent
  | MemoryCommitFailedEvent
  | MemoryInDoubtEvent
  | MemoryResolvedEvent
  | MemoryForgottenEvent
  | DeliveryInDoubtEvent;

export type Kind =
  AnyEvent["kind"];

export const KINDS: readonly Kind[] = [
  "session_created",
  "session_renamed",
  "session_configured",
  "session_forked",
  "session_cleared",
  "session_compacted",
  "session_continued",
  "session_archived",
  "session_deleted",
  "turn_accepted",
  "turn_queued",
  "turn_dequeued",
  "turn_steered",
  "turns_undone",
  "run_started",
  "run_waiting",
  "run_resumed",
  "run_completed",
  "run_cancelled",
  "run_failed",
  "run_interrupted",
  "recovery_pending",
  "recovery_finished",
  "context_prepared",
  "model_step_started",
  "model_step_settled",
  "model_step_retried",
  "text_appended",
  "reasoning_appended",
  "tool_arguments_appended",
  "message_settled",
  "tool_intended",
  "tool_started",
  "tool_output_appended",
  "tool_settled",
  "tool_in_doubt",
  "tool_resolved",
  "approval_requested",
  "approval_resolved",
  "memory_commit_started",
  "memory_committed",
  "memory_commit_failed",
  "memory_in_doubt",
  "memory_resolved",
  "memory_forgotten",
  "delivery_in_doubt",
];
