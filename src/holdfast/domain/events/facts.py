"""The closed union of facts: everything that can happen in a session.

A fact is immutable and named in the past tense. A stored fact is an event: `codec.Event` adds its number and
its time. A kind is the class's name in snake case. Changing a field's meaning raises `version`; adding an
optional field does not.
"""

import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, get_args

from holdfast.domain.clock import Instant
from holdfast.domain.events.base import (
    Actor,
    ApprovalScope,
    Effect,
    Fact,
    Failure,
    PaceSamples,
    Ranges,
    RequestTokens,
    ResumeMode,
    Role,
    Settlement,
    ToolDecision,
    ToolOutcome,
    WaitReason,
)
from holdfast.domain.events.memory_facts import (
    MemoryCommitFailed,
    MemoryCommitStarted,
    MemoryCommitted,
    MemoryForgotten,
    MemoryInDoubt,
    MemoryResolved,
)
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.events.tool_facts import (
    ApprovalRequested,
    ApprovalResolved,
    FilesRestored,
    QuestionAnswered,
    QuestionAsked,
    QuestionClosed,
    ToolInDoubt,
    ToolIntended,
    ToolOutputAppended,
    ToolResolved,
    ToolSettled,
    ToolStarted,
)
from holdfast.domain.ids import CallId, MessageId, ProcessId, RunId, Seq, SessionId, TurnId
from holdfast.domain.usage import Rate, Usage

__all__ = (
    "Actor",
    "ApprovalRequested",
    "ApprovalResolved",
    "ApprovalScope",
    "Effect",
    "Fact",
    "Failure",
    "FilesRestored",
    "MemoryCommitFailed",
    "MemoryCommitStarted",
    "MemoryCommitted",
    "MemoryForgotten",
    "MemoryInDoubt",
    "MemoryResolved",
    "PaceSamples",
    "QuestionAnswered",
    "QuestionAsked",
    "QuestionClosed",
    "Ranges",
    "RequestTokens",
    "ResumeMode",
    "Role",
    "Settlement",
    "ToolDecision",
    "ToolInDoubt",
    "ToolIntended",
    "ToolOutcome",
    "ToolOutputAppended",
    "ToolResolved",
    "ToolSettled",
    "ToolStarted",
    "WaitReason",
)  # fmt: skip
"""Re-exported, so that callers import all facts from one module."""


# The session itself.


class SessionCreated(Fact, frozen=True):
    title: str = ""
    agent: str = ""
    model: str = ""
    workspace: str = ""
    previous_session_id: SessionId | None = None
    remember: bool = True


class SessionRenamed(Fact, frozen=True):
    title: str
    by: Literal["user", "model"]


class SessionConfigured(Fact, frozen=True):
    """Settings that changed; None means unchanged. `remember`: turns from now on join the memory queue."""

    agent: str | None = None
    model: str | None = None
    workspace: str | None = None
    resume: ResumeMode | None = None
    remember: bool | None = None


class SessionForked(Fact, frozen=True):
    """This session is a copy of another's live, settled turns up to `source_turn`."""

    source_session_id: SessionId
    source_seq: Seq
    source_turn: int


class SessionCleared(Fact, frozen=True):
    """The model no longer sees turns up to `through_turn`; people can still read them."""

    through_turn: int


class SessionCompacted(Fact, frozen=True):
    """`summary` replaces the turns in `covers` (inclusive ranges) while all of them are live."""

    covers: Ranges
    summary: str


class SessionContinued(Fact, frozen=True):
    """The conversation continues in another session. Turns queued from `from_turn` on moved there."""

    successor_session_id: SessionId
    from_turn: int = 0


class SessionArchived(Fact, frozen=True):
    archived: bool = True


class SessionDeleted(Fact, frozen=True):
    """The session was deleted and is no longer committed to memory. `notes`: so were its saved notes."""

    notes: bool = False


# Turns: a person's messages.


class TurnAccepted(Fact, frozen=True):
    """A message was accepted. Without a run it is a copy, and nothing runs for it.

    `steers` is the current run that the message is for. That run gets it before its next step; if there is no
    next step, the message is an ordinary queued turn.
    """

    turn_id: TurnId
    turn: int
    message_id: MessageId
    parts: tuple[AnyPart, ...]
    run_id: RunId | None = None
    key: str | None = None
    replaces: TurnId | None = None
    steers: RunId | None = None


class TurnQueued(Fact, frozen=True):
    turn: int
    run_id: RunId


class TurnDequeued(Fact, frozen=True):
    turn: int
    run_id: RunId


class TurnSteered(Fact, frozen=True):
    """A message for the current run, which the model sees before its next step.

    It was the queued turn `from_turn`, which no longer exists: its message is at (`turn`, `place`) now.
    """

    run_id: RunId
    turn: int
    place: int
    message_id: MessageId
    parts: tuple[AnyPart, ...]
    key: str | None = None
    from_turn: int = 0


class TurnsUndone(Fact, frozen=True):
    """All live turns from `from_turn` on were undone; they stay readable."""

    from_turn: int
    reason: Literal["undo", "edit", "retry"] = "undo"


class TurnsRestored(Fact, frozen=True):
    """`turns` are live again; every other live turn from `from_turn` on (0: none) is not.

    With the reason `version`, both are versions of the same message. `owed` names the restored turns that
    join the memory queue again, each with its owner.
    """

    turns: Ranges
    from_turn: int = 0
    reason: Literal["undo", "version"] = "undo"
    owed: tuple[tuple[int, str], ...] = ()


# Runs: the work done for a turn.


class RunStarted(Fact, frozen=True):
    run_id: RunId


class RunWaiting(Fact, frozen=True):
    """The run waits for a person; `detail` names the limit that it reached, if any."""

    run_id: RunId
    reason: WaitReason
    detail: str = ""


class RunResumed(Fact, frozen=True):
    """The run continues after an interruption or a person's answer. Only the first counts as an attempt."""

    run_id: RunId
    by: Actor
    attempt: int


class RunCompleted(Fact, frozen=True):
    """The run completed. `owed`: its turn joined the memory queue, for the agent that `owner` names."""

    run_id: RunId
    owed: bool = False
    owner: str = ""


class RunCancelled(Fact, frozen=True):
    run_id: RunId
    by: Actor = "user"


class RunFailed(Fact, frozen=True):
    run_id: RunId
    failure: Failure


class RunInterrupted(Fact, frozen=True):
    """The run's process is gone. A notice stands at (`turn`, `place`).

    `asks`: a person decides whether the run continues. `orderly`: the process was asked to stop, which says
    nothing against the run.
    """

    run_id: RunId
    turn: int
    place: int
    message_id: MessageId
    asks: bool = False
    orderly: bool = False


class RecoveryPending(Fact, frozen=True):
    """More output of an interrupted run may still arrive from its process.

    `reads` counts the reads that found nothing after that process was gone.
    """

    run_id: RunId
    turn: int
    place: int
    process_id: ProcessId = ProcessId("")
    since: Instant = 0
    reads: int = 0


class RecoveryFinished(Fact, frozen=True):
    """The recovery ended; `recovered` says whether it found anything."""

    run_id: RunId
    turn: int
    place: int
    recovered: bool


class ContextPrepared(Fact, frozen=True):
    """The context of a run besides the transcript, so that a resumed run sees the same."""

    run_id: RunId
    instructions_digest: str
    memories: tuple[str, ...] = ()


# Model steps and what they stream.


class ModelStepStarted(Fact, frozen=True):
    """A model step started. Its estimated tokens and rate give the usage if the answer breaks off."""

    run_id: RunId
    turn: int
    place: int
    message_id: MessageId
    model: str
    continues: MessageId | None = None
    asked_tokens: int = 0
    rate: Rate | None = None


class ModelStepSettled(Fact, frozen=True):
    run_id: RunId
    message_id: MessageId
    stop_reason: str
    usage: Usage = Usage()


class ModelStepRetried(Fact, frozen=True):
    run_id: RunId
    message_id: MessageId
    failure: Failure
    delay_ms: int


class TextAppended(Fact, frozen=True):
    run_id: RunId
    message_id: MessageId
    text: str


class ReasoningAppended(Fact, frozen=True):
    run_id: RunId
    message_id: MessageId
    text: str


class ToolArgumentsAppended(Fact, frozen=True):
    run_id: RunId
    message_id: MessageId
    call_id: CallId
    name: str
    text: str


class MessageSettled(Fact, frozen=True):
    """The whole body of a message; it replaces what a reader had of it.

    `late` output arrived after its run had continued without it: it is shown folded and hidden from the
    model. `model` is the one that wrote it; `weight` is the estimated tokens of its request and the
    provider's count. `began_at` is when that model was asked; 0: unknown.
    """

    turn: int
    place: int
    message_id: MessageId
    role: Role
    parts: tuple[AnyPart, ...]
    digest: str
    run_id: RunId | None = None
    status: Settlement = "settled"
    continues: MessageId | None = None
    late: bool = False
    pace: PaceSamples = ()
    model: str = ""
    weight: RequestTokens = ()
    began_at: Instant = 0


# Deliveries.


class DeliveryInDoubt(Fact, frozen=True):
    channel: str
    message_id: MessageId


AnyFact = (
    SessionCreated | SessionRenamed | SessionConfigured | SessionForked | SessionCleared
    | SessionCompacted | SessionContinued | SessionArchived | SessionDeleted
    | TurnAccepted | TurnQueued | TurnDequeued | TurnSteered | TurnsUndone | TurnsRestored
    | RunStarted | RunWaiting | RunResumed | RunCompleted | RunCancelled | RunFailed | RunInterrupted
    | RecoveryPending | RecoveryFinished | ContextPrepared
    | ModelStepStarted | ModelStepSettled | ModelStepRetried
    | TextAppended | ReasoningAppended | ToolArgumentsAppended | MessageSettled
    | ToolIntended | ToolStarted | ToolOutputAppended | ToolSettled | ToolInDoubt | ToolResolved
    | ApprovalRequested | ApprovalResolved | QuestionAsked | QuestionAnswered | QuestionClosed
    | MemoryCommitStarted | MemoryCommitted | MemoryCommitFailed | MemoryInDoubt | MemoryResolved
    | MemoryForgotten | DeliveryInDoubt | FilesRestored
)  # fmt: skip

Delta = TextAppended | ReasoningAppended | ToolArgumentsAppended | ToolOutputAppended
"""Facts that stream: the writer joins them while they wait, and they are pruned once their body is settled.

"""
Body = TurnAccepted | TurnSteered | MessageSettled | ToolSettled
"""Facts that hold the content of a transcript row."""


def _kind(cls: type[Fact]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


FACTS_BY_KIND: Mapping[str, type[AnyFact]] = MappingProxyType({_kind(cls): cls for cls in get_args(AnyFact)})
KINDS: Mapping[type, str] = MappingProxyType({cls: kind for kind, cls in FACTS_BY_KIND.items()})
DELTA_KINDS = frozenset(KINDS[cls] for cls in get_args(Delta))
BODY_KINDS = frozenset(KINDS[cls] for cls in get_args(Body))
