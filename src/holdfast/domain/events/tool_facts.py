"""Facts about tool calls: made, approved, run, settled; questions to a person; restored files."""

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
    """A person is asked something. Without choices it is answered in words, else by one of them.

    `multiple`: or by several.
    """

    run_id: RunId
    call_id: CallId
    question: str
    choices: tuple[str, ...] = ()
    multiple: bool = False


class QuestionAnswered(Fact, frozen=True):
    """The answer, in words or by choices; the call's result is settled with it.

    `key` names what it was given with, where that may be told twice.
    """

    run_id: RunId
    call_id: CallId
    text: str = ""
    choices: tuple[str, ...] = ()
    by: Actor = "user"
    key: str = ""


class QuestionClosed(Fact, frozen=True):
    """Nobody answers it any more: somebody would not, or its run has ended."""

    run_id: RunId
    call_id: CallId
    by: Actor = "user"
    reason: str = ""


class FilesRestored(Fact, frozen=True):
    """Files that a run had changed are as they were before it: `paths`, within the workspace."""

    run_id: RunId
    paths: tuple[str, ...]
    by: Actor = "user"


# Tool calls: the ledger of effects.


class ToolIntended(Fact, frozen=True):
    """A call is to be made, with these arguments. `edited`: a person changed them; this is said anew then."""

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
    """Durable before any tool that is not pure starts: intended without started has certainly not run."""

    run_id: RunId
    call_id: CallId


class ToolOutputAppended(Fact, frozen=True):
    run_id: RunId
    call_id: CallId
    text: str
    stream: Literal["stdout", "stderr"] = "stdout"


class ToolSettled(Fact, frozen=True):
    """A call's outcome and its whole output. `message_id` is the message that made the call.

    `arguments` is what it ran with, where a person changed what the model had written. `ms` is how long it
    ran, without what it waited for.
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
    """A yes or a no. `scope` is how far a yes reaches; `rule` is what it, or an earlier one, allows."""

    run_id: RunId
    call_id: CallId
    decision: Literal["approve", "deny"]
    by: Actor = "user"
    reason: str = ""
    scope: ApprovalScope = "once"
    rule: str = ""
