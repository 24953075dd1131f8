"""The rows that projections keep: what the journal says about a session, in a form that can be looked up.

No row holds text of a conversation: a message row names the event that does (`body_seq`).
"""

from typing import Literal

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.events.facts import Effect, Failure, Ranges, ResumeMode, Role, Settlement, WaitReason
from holdfast.domain.ids import CallId, ProcessId, RunId, Seq, SessionId, TurnId
from holdfast.domain.usage import Usage

SessionStatus = Literal["idle", "working", "needs_you", "failed", "interrupted"]
RunStatus = Literal[
    "accepted", "queued", "running", "waiting", "completed", "cancelled", "failed", "interrupted"
]
TurnStatus = Literal["live", "undone", "cleared", "steered", "moved"]
"""`steered`: it was told to the run under way, and its message is part of that run's turn now. `moved`: it is
a turn of the session that the conversation goes on in."""
ToolState = Literal["intended", "started", "in_doubt", "resolved", "settled"]
MessageStatus = Literal["streaming", "pending", "final"] | Settlement
"""`pending` and `final` are said of a notice: more may still be found, or nothing more will be."""

QueuedCommitState = Literal["pending", "committing", "failed", "in_doubt", "committed", "dropped", "void"]
"""`void`: there is nothing left in it to tell, or what was told is forgotten."""
Retraction = Literal["", "wanted", "done", "cannot"]

Approval = Literal["", "requested", "approve", "deny", "asked", "answered", "closed"]
"""What a person was asked of a call and has said: whether it may run; the last three, what it asks them."""

TERMINAL_STATUSES: frozenset[RunStatus] = frozenset({"completed", "cancelled", "failed"})
"""Statuses that a run never leaves. An interrupted run can be resumed."""


class SessionRow(msgspec.Struct, frozen=True):
    """A session as the list shows it. Text never touches it; acceptance, tool settlement and run end do."""

    id: SessionId
    created_at: Instant
    updated_at: Instant
    title: str = ""
    title_by: Literal["", "user", "model"] = ""
    agent: str = ""
    model: str = ""
    workspace: str = ""
    resume: ResumeMode | None = None
    status: SessionStatus = "idle"
    run_id: RunId | None = None
    archived: bool = False
    deleted_at: Instant | None = None
    last_turn: int = 0
    live_turns: int = 0
    context_version: Seq = 0
    previous_session_id: SessionId | None = None
    parent_session_id: SessionId | None = None
    successor_session_id: SessionId | None = None
    usage: Usage = Usage()
    remember: bool = True


class TurnRow(msgspec.Struct, frozen=True):
    turn: int
    id: TurnId
    seq: Seq
    status: TurnStatus = "live"
    run_id: RunId | None = None
    key: str | None = None
    key_digest: str | None = None
    replaces: TurnId | None = None


class PendingRecovery(msgspec.Struct, frozen=True):
    """Whose output is still waited for, since when, and how many looks found nothing."""

    process_id: ProcessId
    since: Instant
    reads: int = 0


class RunRow(msgspec.Struct, frozen=True):
    """`place` is the last one given out in its turn. `attempts` counts resumptions after an interruption,
    `stalled` those since the last step that became durable or the last stop that was asked for.

    `steers` is the run that a queued one is to be told to, if that comes to another step. `allowances` is how
    many times the limits it may use: one, and one more each time that a person let it go on past one.
    `detail` is the limit that it waits at, as people read it."""

    id: RunId
    turn: int
    status: RunStatus = "accepted"
    place: int = 0
    steps: int = 0
    attempts: int = 0
    stalled: int = 0
    notice_place: int | None = None
    pending: PendingRecovery | None = None
    waiting: WaitReason | None = None
    failure: Failure | None = None
    usage: Usage = Usage()
    started_at: Instant | None = None
    ended_at: Instant | None = None
    steers: RunId | None = None
    allowances: int = 1
    detail: str = ""

    @property
    def is_finished(self) -> bool:
        return self.status in TERMINAL_STATUSES


class ToolRow(msgspec.Struct, frozen=True):
    id: CallId
    run_id: RunId | None
    turn: int
    place: int
    name: str
    effect: Effect
    state: ToolState = "intended"
    approval: Approval = ""


class MessageRow(msgspec.Struct, frozen=True):
    """A transcript row. Deltas of an unsettled message lie after `first_seq`; its body is at `body_seq`."""

    turn: int
    place: int
    id: str
    role: Role
    status: MessageStatus
    first_seq: Seq
    body_seq: Seq = 0
    run_id: RunId | None = None
    late: bool = False


class QueuedCommitRow(msgspec.Struct, frozen=True):
    """A stretch of completed turns that memory is owed, the `n`th of its session.

    It grows until it is begun: from then on its turns, its key and what is told (`digest`) stay. `owner` is
    the agent that tells it, if any does. `attempts` counts the tries and fences all but the last, which
    `process_id` made at `started_at`, with a provider that `takes_key` or does not. `queued_at` and
    `touched_at` are when its first and its last turn ended. `retraction`: some of its turns were undone
    after it was begun, and memory is to forget it.
    """

    n: int
    turns: Ranges
    through_turn: int
    queued_at: Instant
    touched_at: Instant
    state: QueuedCommitState = "pending"
    owner: str = ""
    key: str = ""
    digest: str = ""
    attempts: int = 0
    process_id: ProcessId | None = None
    started_at: Instant = 0
    retry_at: Instant = 0
    failure: Failure | None = None
    receipt: str = ""
    retraction: Retraction = ""
    takes_key: bool = False

    @property
    def from_turn(self) -> int:
        return self.turns[0][0]

    @property
    def is_open(self) -> bool:
        """Whether anything is left to be done for it."""
        return self.state in ("pending", "committing", "failed", "in_doubt") or self.retraction == "wanted"


class QueuedCommit(msgspec.Struct, frozen=True):
    """Something that memory is owed, and in which conversation. `buried`: that was deleted.

    `number` is the store's own for it, which tells conversations apart that had one id, one after another.
    """

    session_id: SessionId
    title: str
    agent: str
    buried: bool
    number: int
    row: QueuedCommitRow
