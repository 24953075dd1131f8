// Written by `make types` from the server's declarations. Do not edit.

import type { ChangePart, FilePart, ReasoningPart, TextPart, ToolCallPart } from "./conversations";
import type { DeliveryInDoubtEvent, MemoryCommitFailedEvent, MemoryCommitStartedEvent, MemoryCommittedEvent, MemoryForgottenEvent, MemoryInDoubtEvent, MemoryResolvedEvent } from "./memory_events";
import type { ApprovalRequestedEvent, ApprovalResolvedEvent, MessageSettledEvent, QuestionAnsweredEvent, QuestionAskedEvent, QuestionClosedEvent, ReasoningAppendedEvent, TextAppendedEvent, ToolArgumentsAppendedEvent, ToolInDoubtEvent, ToolIntendedEvent, ToolOutputAppendedEvent, ToolResolvedEvent, ToolSettledEvent, ToolStartedEvent } from "./message_events";
import type { ContextPreparedEvent, FilesRestoredEvent, ModelStepRetriedEvent, ModelStepSettledEvent, ModelStepStartedEvent, RecoveryFinishedEvent, RecoveryPendingEvent, RunCancelledEvent, RunCompletedEvent, RunFailedEvent, RunInterruptedEvent, RunResumedEvent, RunStartedEvent, RunWaitingEvent } from "./run_events";
import type { SessionArchivedEvent, SessionClearedEvent, SessionCompactedEvent, SessionConfiguredEvent, SessionContinuedEvent, SessionCreatedEvent, SessionDeletedEvent, SessionForkedEvent, SessionRenamedEvent, TurnAcceptedEvent, TurnDequeuedEvent, TurnQueuedEvent, TurnSteeredEvent, TurnsRestoredEvent, TurnsUndoneEvent } from "./session_events";

export type AnyPart =
  TextPart | ReasoningPart | ToolCallPart | FilePart | ChangePart;

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
  | TurnsRestoredEvent
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
  | QuestionAskedEvent
  | QuestionAnsweredEvent
  | QuestionClosedEvent
  | MemoryCommitStartedEvent
  | MemoryCommittedEvent
  | MemoryCommitFailedEvent
  | MemoryInDoubtEvent
  | MemoryResolvedEvent
  | MemoryForgottenEvent
  | DeliveryInDoubtEvent
  | FilesRestoredEvent;

export type Kind =
  AnyEvent["kind"];

export type * from "./conversations";
export type * from "./server";
export type * from "./agents";
export type * from "./memory";
export type * from "./session_events";
export type * from "./run_events";
export type * from "./message_events";
export type * from "./memory_events";
