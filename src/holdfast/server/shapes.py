"""What goes over the wire as JSON: bodies that are sent here, and what is answered."""

from typing import Annotated, Literal

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.facts import Decision, Failure, Resume, Role, ToolOutcome, Waiting
from holdfast.domain.ids import Seq
from holdfast.domain.parts import AnyPart
from holdfast.domain.rows import MessageStatus, RunRow, RunStatus, SessionRow, SessionStatus, ToolState
from holdfast.domain.transcript import Entry, Turn
from holdfast.domain.usage import Usage
from holdfast.engine.verbs import Accepted

NAME_CHARS_MAX = 200
PATH_CHARS_MAX = 4_096
Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
FolderPath = Annotated[str, msgspec.Meta(max_length=PATH_CHARS_MAX)]
Words = Annotated[str, msgspec.Meta(min_length=1)]


class Sent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A body that is sent here: what is not known is refused, not passed over."""


class NewSession(Sent, frozen=True):
    """A conversation to begin. Naming the previous one says that that one is over for now."""

    title: str = ""
    agent: Name = ""
    model: Name = ""
    workspace: FolderPath = ""
    previous_session_id: str | None = None


class SessionChange(Sent, frozen=True):
    """What is to be different; what is absent or null stays."""

    title: str | None = None
    archived: bool | None = None
    model: Name | None = None
    workspace: FolderPath | None = None
    resume: Resume | None = None


class NewTurn(Sent, frozen=True):
    """A message. The same key again is the same message: it is kept once."""

    text: Words
    key: Annotated[str, msgspec.Meta(min_length=1)] | None = None


class ChosenTurn(Sent, frozen=True):
    """The turn that is meant; without one, the last."""

    turn_id: str | None = None


LAST_TURN = ChosenTurn()


class EditedTurn(Sent, frozen=True):
    """Other words for a turn; without its id, for the last."""

    text: Words
    turn_id: str | None = None


class Decided(Sent, frozen=True):
    """A person's word on a tool call. `result` goes with mark_done, `reason` with deny."""

    decision: Decision
    result: str | None = None
    reason: str | None = None


class Used(msgspec.Struct, frozen=True):
    """Tokens, and millionths of a US dollar where a price is known."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int
    cost_micros: int


class Session(msgspec.Struct, frozen=True):
    """A conversation. `head` is the number of its newest event; a list does not say it."""

    id: str
    title: str
    status: SessionStatus
    created_at: Instant
    updated_at: Instant
    archived: bool
    turns: int
    agent: str
    model: str
    workspace: str
    resume: Resume | None
    run_id: str | None
    previous_session_id: str | None
    parent_session_id: str | None
    successor_session_id: str | None
    usage: Used
    head: Seq | None = None


class SessionList(msgspec.Struct, frozen=True):
    """A page, the most recently active first. `cursor` asks for the next one; null: there is none."""

    sessions: tuple[Session, ...]
    cursor: str | None


class TurnReceipt(msgspec.Struct, frozen=True):
    """The message is on disk, as the event `seq`. The same key again gives the same receipt."""

    turn_id: str
    run_id: str | None
    seq: Seq


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """An entry of the conversation, as it reads at the page's `head`.

    A tool's entry has the call's id; `message_id` is the message that made the call.
    """

    id: str
    role: Role
    status: MessageStatus
    turn: int
    place: int
    live: bool
    late: bool
    at: Instant
    run_id: str | None
    parts: tuple[AnyPart, ...]
    turn_id: str | None = None
    continues: str | None = None
    message_id: str | None = None
    name: str | None = None
    state: ToolState | None = None
    approval: Literal["requested", "approve", "deny"] | None = None
    outcome: ToolOutcome | None = None


class Run(msgspec.Struct, frozen=True):
    """The work done for a turn."""

    id: str
    session_id: str
    turn: int
    status: RunStatus
    waiting: Waiting | None
    failure: Failure | None
    attempts: int
    started_at: Instant | None
    ended_at: Instant | None
    usage: Used


class MessageList(msgspec.Struct, frozen=True):
    """The newest page, oldest message first, and the runs of its turns.

    Follow the events after `head`; `before` asks for the page before this one.
    """

    messages: tuple[Message, ...]
    runs: tuple[Run, ...]
    head: Seq
    before: str | None


class Found(msgspec.Struct, frozen=True):
    """A message that holds the words; `marks` are the [start, end) of them within `snippet`."""

    session_id: str
    title: str
    turn: int
    place: int
    message_id: str
    role: str
    at: Instant
    snippet: str
    marks: tuple[tuple[int, int], ...]


class FoundList(msgspec.Struct, frozen=True):
    """The newest first."""

    hits: tuple[Found, ...]


class UsedModel(msgspec.Struct, frozen=True):
    """The model that answers, and why it is that one."""

    name: str
    why: str
    in_use: bool = True


class ModelList(msgspec.Struct, frozen=True):
    models: tuple[UsedModel, ...]


class Health(msgspec.Struct, frozen=True):
    status: Literal["live", "ready"]


def used(usage: Usage) -> Used:
    return Used(usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.cost_micros)


def session_of(row: SessionRow, head: Seq | None = None) -> Session:
    return Session(
        row.id, row.title, row.status, row.created_at, row.updated_at, row.archived, row.live_turns,
        row.agent, row.model, row.workspace, row.resume, row.run_id, row.previous_session_id,
        row.parent_session_id, row.successor_session_id, used(row.usage), head,
    )  # fmt: skip


def run_of(session_id: str, row: RunRow) -> Run:
    return Run(
        row.id, session_id, row.turn, row.status, row.waiting, row.failure, row.attempts, row.started_at,
        row.ended_at, used(row.usage),
    )  # fmt: skip


def receipt_of(accepted: Accepted) -> TurnReceipt:
    return TurnReceipt(accepted.turn_id, accepted.run_id, accepted.seq)


def message_of(
    turn: Turn, entry: Entry, approval: Literal["", "requested", "approve", "deny"] = ""
) -> Message:
    return Message(
        entry.id, entry.role, entry.status, entry.turn, entry.place, turn.live, entry.late, entry.at,
        entry.run_id or (turn.run_id if entry.role == "user" else None), entry.parts, turn.id or None,
        entry.continues, entry.message_id or None, entry.name or None, entry.state, approval or None,
        entry.outcome,
    )  # fmt: skip
