"""The closed union of facts: everything that can have happened in a session.

A fact is immutable and in the past tense. Stored, it becomes an event: `codec.Event` adds its number and
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
"""What is declared elsewhere and read here: whoever needs facts needs them by one name."""


# A session's own life.


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
    """Settings that changed; what is None stays. `remember`: turns from now on are owed to memory."""

    agent: str | None = None
    model: str | None = None
    workspace: str | None = None
    resume: ResumeMode | None = None
    remember: bool | None = None


class SessionForked(Fact, frozen=True):
    """This session began as a copy of another's live, settled turns up to `source_turn`."""

    source_session_id: SessionId
    source_seq: Seq
    source_turn: int


class SessionCleared(Fact, frozen=True):
    """Turns up to `through_turn` are no longer shown to the model; they stay readable."""

    through_turn: int


class SessionCompacted(Fact, frozen=True):
    """`summary` stands for the turns in `covers` (inclusive ranges) as long as all of them are live."""

    covers: Ranges
    summary: str


class SessionContinued(Fact, frozen=True):
    """The conversation goes on in another session. What waited here from `from_turn` on waits there now."""

    successor_session_id: SessionId
    from_turn: int = 0


class SessionArchived(Fact, frozen=True):
    archived: bool = True


class SessionDeleted(Fact, frozen=True):
    """Memory is not told of the session any more. With `notes`, the notes saved from it are deleted too."""

    notes: bool = False


# Turns: what a person asked for.


class TurnAccepted(Fact, frozen=True):
    """A message is kept. Without a run it is a copy: nothing is to be done for it.

    `steers` is the run under way that it is meant for; it is told to that run before its next step, and is an
    ordinary queued turn if there is none.
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
    """A message for the run under way, shown to the model before its next step.

    It was the queued turn `from_turn`, which is no more: its message is at (`turn`, `place`) now.
    """

    run_id: RunId
    turn: int
    place: int
    message_id: MessageId
    parts: tuple[AnyPart, ...]
    key: str | None = None
    from_turn: int = 0


class TurnsUndone(Fact, frozen=True):
    """Every live turn from `from_turn` on is no longer live; it stays readable."""

    from_turn: int
    reason: Literal["undo", "edit", "retry"] = "undo"


class TurnsRestored(Fact, frozen=True):
    """`turns` are live again; every other live turn from `from_turn` on (0: none) is no longer live.

    With the reason `version`, the two are versions of the same message. `owed` names the restored turns that
    memory is owed again, each with the agent that commits it.
    """

    turns: Ranges
    from_turn: int = 0
    reason: Literal["undo", "version"] = "undo"
    owed: tuple[tuple[int, str], ...] = ()


# Runs: the work done for a turn.


class RunStarted(Fact, frozen=True):
    run_id: RunId


class RunWaiting(Fact, frozen=True):
    """The run needs someone; `detail` says which limit it has reached, where it is one."""

    run_id: RunId
    reason: WaitReason
    detail: str = ""


class RunResumed(Fact, frozen=True):
    """Work goes on after an interruption, or after a person answered. Only the first is an attempt."""

    run_id: RunId
    by: Actor
    attempt: int


class RunCompleted(Fact, frozen=True):
    """The run came to its end. `owed`: memory is to be told of its turn, by the agent that `owner` names."""

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
    """The process that worked on the run is gone. Leaves a notice at (`turn`, `place`).

    `asks`: whether it goes on is put to a person. `orderly`: the process was asked to end, which says nothing
    against the run.
    """

    run_id: RunId
    turn: int
    place: int
    message_id: MessageId
    asks: bool = False
    orderly: bool = False


class RecoveryPending(Fact, frozen=True):
    """More output of an interrupted run may still arrive, from the process that worked on it.

    `reads` counts the looks that found nothing after that process was gone.
    """

    run_id: RunId
    turn: int
    place: int
    process_id: ProcessId = ProcessId("")
    since: Instant = 0
    reads: int = 0


class RecoveryFinished(Fact, frozen=True):
    """The looking has ended; `recovered` says whether anything was found."""

    run_id: RunId
    turn: int
    place: int
    recovered: bool


class ContextPrepared(Fact, frozen=True):
    """What a run was given beside the transcript, so that a resumed run sees the same."""

    run_id: RunId
    instructions_digest: str
    memories: tuple[str, ...] = ()


# Model steps and what they stream.


class ModelStepStarted(Fact, frozen=True):
    """A model is asked, with about so many tokens, at that rate: what is counted if the answer breaks off."""

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
    """The whole body of a message; it replaces whatever a reader had of it.

    `late` output arrived after its run had gone on without it: shown folded away, kept from the model.
    `model` is the one that wrote it; `weight` is how many tokens its request was thought to have, and how
    many the provider counted. `began_at` is when that model was asked; 0: nobody has said.
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
"""Facts that stream: joined while they wait, pruned once their body is settled."""
Body = TurnAccepted | TurnSteered | MessageSettled | ToolSettled
"""Facts that hold a transcript row's content."""


def _kind(cls: type[Fact]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


FACTS_BY_KIND: Mapping[str, type[AnyFact]] = MappingProxyType({_kind(cls): cls for cls in get_args(AnyFact)})
KINDS: Mapping[type, str] = MappingProxyType({cls: kind for kind, cls in FACTS_BY_KIND.items()})
DELTA_KINDS = frozenset(KINDS[cls] for cls in get_args(Delta))
BODY_KINDS = frozenset(KINDS[cls] for cls in get_args(Body))
