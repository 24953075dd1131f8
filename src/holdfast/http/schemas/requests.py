"""JSON bodies of requests."""

from typing import Annotated, Any, Literal

import msgspec

from holdfast.domain.decisions.turns import BusyPolicy
from holdfast.domain.events.facts import ApprovalScope, ResumeMode, ToolDecision
from holdfast.domain.limits import ATTACHMENTS_MAX, RULE_CHARS_MAX

NAME_CHARS_MAX = 200
PATH_CHARS_MAX = 4_096
Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
Pattern = Annotated[str, msgspec.Meta(min_length=1, max_length=RULE_CHARS_MAX)]
FolderPath = Annotated[str, msgspec.Meta(max_length=PATH_CHARS_MAX)]


class RequestBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body that is sent here: what is not known is refused, not passed over."""


class NewSession(RequestBody, frozen=True):
    """A conversation to begin. Naming the previous one says that that one is over for now.

    Without `remember`, memory is told nothing of it.
    """

    title: str = ""
    agent: Name = ""
    model: Name = ""
    workspace: FolderPath = ""
    previous_session_id: str | None = None
    remember: bool = True


class SessionChange(RequestBody, frozen=True):
    """What is to be different; what is absent or null stays."""

    title: str | None = None
    archived: bool | None = None
    agent: Name | None = None
    model: Name | None = None
    workspace: FolderPath | None = None
    resume: ResumeMode | None = None
    pinned: bool | None = None
    remember: bool | None = None


class AttachmentRef(RequestBody, frozen=True):
    """A file that was sent before, by its id; without a name it gets one by its type.

    `anyway` sends an image also to a model that is not known to take images.
    """

    id: Annotated[str, msgspec.Meta(max_length=64)]
    name: str | None = None
    anyway: bool = False


Attachments = Annotated[tuple[AttachmentRef, ...], msgspec.Meta(max_length=ATTACHMENTS_MAX)]


class NewTurn(RequestBody, frozen=True):
    """A message. The same key again is the same message: it is kept once.

    `if_busy`: while the conversation is worked on, it waits for that (queue), is told to the model before its
    next step (steer), stops what is under way (interrupt), or is not kept (reject).
    """

    text: str = ""
    key: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    if_busy: BusyPolicy = "queue"
    attachments: Attachments = ()


class TurnSelection(RequestBody, frozen=True):
    """The turn that is meant; without one, the last."""

    turn_id: str | None = None


LAST_TURN = TurnSelection()


class EditedTurn(RequestBody, frozen=True):
    """Other words and files for a turn; without its id, for the last."""

    text: str = ""
    turn_id: str | None = None
    attachments: Attachments = ()


class ToolCallDecision(RequestBody, frozen=True):
    """A person's word on a tool call: `result` goes with mark_done, `reason` with deny, others with approve.

    `answer` goes with a question: in words (`text`), or where it offers choices by one of these (`choices`),
    or several where it takes several.

    `scope` makes a rule of it: for this conversation, or always. `rule` is what that allows: without it,
    exactly this; for commands, the words that they begin with and a last word `*`. `arguments` is what the
    call is to run with instead, as an object or as its JSON.
    """

    decision: ToolDecision | Literal["answer"]
    result: str | None = None
    reason: str | None = None
    scope: ApprovalScope | None = None
    rule: Pattern | None = None
    arguments: dict[str, Any] | str | None = None
    text: str | None = None
    choices: tuple[str, ...] | None = None


class NewRule(RequestBody, frozen=True):
    """What is allowed without asking: calls of `tool` that fit `pattern`, in one conversation or in all."""

    tool: Annotated[str, msgspec.Meta(min_length=1, max_length=NAME_CHARS_MAX)]
    pattern: Pattern
    session_id: str | None = None


class NewDraft(RequestBody, frozen=True):
    """What is being written; an empty text removes the draft."""

    text: str


class SeenUpTo(RequestBody, frozen=True):
    """The newest event that was read."""

    seq: Annotated[int, msgspec.Meta(ge=0, lt=10**18)]
