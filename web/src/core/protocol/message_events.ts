// Written by `make types` from the server's declarations. Do not edit.

import type { ChangePart, FilePart, ReasoningPart, TextPart, ToolCallPart } from "./conversations";

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
  readonly parts: readonly (TextPart | ReasoningPart | ToolCallPart | FilePart | ChangePart)[];
  readonly digest: string;
  readonly run_id?: string | null;
  readonly status?: "interrupted" | "recovered" | "settled";
  readonly continues?: string | null;
  readonly late?: boolean;
  readonly pace?: readonly (number)[];
  readonly model?: string;
  readonly weight?: readonly (number)[];
  readonly began_at?: number;
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
  readonly parts: readonly (TextPart | ReasoningPart | ToolCallPart | FilePart | ChangePart)[];
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

export interface QuestionAskedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "question_asked";
  readonly run_id: string;
  readonly call_id: string;
  readonly question: string;
  readonly choices?: readonly (string)[];
  readonly multiple?: boolean;
}

export interface QuestionAnsweredEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "question_answered";
  readonly run_id: string;
  readonly call_id: string;
  readonly text?: string;
  readonly choices?: readonly (string)[];
  readonly by?: "model" | "policy" | "server" | "user";
  readonly key?: string;
}

export interface QuestionClosedEvent {
  readonly seq: number;
  readonly at: number;
  readonly kind: "question_closed";
  readonly run_id: string;
  readonly call_id: string;
  readonly by?: "model" | "policy" | "server" | "user";
  readonly reason?: string;
}
