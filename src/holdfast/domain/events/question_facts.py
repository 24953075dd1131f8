"""Facts about questions that the agent asks a person, and about files that were restored."""

from holdfast.domain.events.base import Actor, Fact
from holdfast.domain.ids import CallId, RunId


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
