"""Facts about tool calls: intended, approved, started, settled; questions to a person; restored files."""

from typing import Literal

from holdfast.domain.events.base import (
    Actor,
    ApprovalScope,
    Effect,
    Fact,
    PaceSamples,
    Settlement,
    ToolDecision,
    ToolOutcome,
)
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.ids import CallId, MessageId, RunId


class QuestionAsked(Fact, frozen=True):
    """The agent asked a person. Without choices the answer is text, else one of the choices.

    `multiple`: the answer may name several choices.
    """

    run_id: RunId
    call_id: CallId
    question: str
    choices: tuple[str, ...] = ()
    multiple: bool = False


class QuestionAnswered(Fact, frozen=True):
    """A person answered, by text or choices; the same append settles the call.

    `key` identifies the answer if its source may repeat it.
    """

    run_id: RunId
    call_id: CallId
    text: str = ""
    choices: tuple[str, ...] = ()
    by: Actor = "user"
    key: str = ""


class QuestionClosed(Fact, frozen=True):
    """The question was closed: a person declined it, or its run ended."""

    run_id: RunId
    call_id: CallId
    by: Actor = "user"
    reason: str = ""


class FilesRestored(Fact, frozen=True):
    """The files `paths`, relative to the workspace, were restored to their content before the run."""

    run_id: RunId
    paths: tuple[str, ...]
    by: Actor = "user"


# Tool calls: the ledger of effects.


class ToolIntended(Fact, frozen=True):
    """A call is to be made, with these arguments. `edited`: a person changed them, and this is a repeat."""

    run_id: RunId
    turn: int
    place: int
    message_id: MessageId
    call_id: CallId
    name: str
    arguments: str
    effect: Effect
    edited: bool = False


class ToolStarted(Fact, frozen=True):
    """A call started. Durable before any tool that is not pure runs: without it, the call has not run."""

    run_id: RunId
    call_id: CallId


class ToolOutputAppended(Fact, frozen=True):
    run_id: RunId
    call_id: CallId
    text: str
    stream: Literal["stdout", "stderr"] = "stdout"


class ToolSettled(Fact, frozen=True):
    """A call's outcome and its whole output. `message_id` is the message that made the call.

    `arguments` is set if a person changed what the model had written. `ms` is the run time, without waiting.
    """

    turn: int
    place: int
    message_id: MessageId
    call_id: CallId
    name: str
    outcome: ToolOutcome
    parts: tuple[AnyPart, ...]
    digest: str
    run_id: RunId | None = None
    status: Settlement = "settled"
    late: bool = False
    pace: PaceSamples = ()
    arguments: str = ""
    ms: int = 0


class ToolInDoubt(Fact, frozen=True):
    run_id: RunId
    call_id: CallId


class ToolResolved(Fact, frozen=True):
    run_id: RunId
    call_id: CallId
    decision: ToolDecision
    by: Actor = "user"


class ApprovalRequested(Fact, frozen=True):
    run_id: RunId
    call_id: CallId
    reason: str = ""


class ApprovalResolved(Fact, frozen=True):
    """A person or a rule decided.

    `scope` is how far an approval reaches; `rule` is the pattern that allows it.
    """

    run_id: RunId
    call_id: CallId
    decision: Literal["approve", "deny"]
    by: Actor = "user"
    reason: str = ""
    scope: ApprovalScope = "once"
    rule: str = ""
