"""The rows that projections maintain: what the journal says about a session, ready for lookup.

No row holds conversation text: a message row names the event that does (`body_seq`).
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
"""`steered`: the current run took the message, which is part of that run's turn now.

`moved`: the turn belongs to the session in which the conversation continues.
"""
ToolState = Literal["intended", "started", "in_doubt", "resolved", "settled"]
MessageStatus = Literal["streaming", "pending", "final"] | Settlement
"""`pending` and `final` apply to notices: more output may still be found, or none will be."""

QueuedCommitState = Literal["pending", "committing", "failed", "in_doubt", "committed", "dropped", "void"]
"""`void`: no turn is left in it to commit, or memory forgot what was committed."""
Retraction = Literal["", "wanted", "done", "cannot"]

Approval = Literal["", "requested", "approve", "deny", "asked", "answered", "closed"]
"""The approval of a call. The last three states apply to a call that asks a person a question."""

TERMINAL_STATUSES: frozenset[RunStatus] = frozenset({"completed", "cancelled", "failed"})
"""The statuses that a run never leaves. An interrupted run can be resumed."""


class SessionRow(msgspec.Struct, frozen=True):
    """A session as the list shows it. Messages, settled tool calls and run ends update it; text does not."""

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
    """The process whose output may still arrive, since when, and how many reads found nothing."""

    process_id: ProcessId
    since: Instant
    reads: int = 0


class RunRow(msgspec.Struct, frozen=True):
    """A run and its progress. `place` is the last place that it used in its turn.

    `attempts` counts resumptions after an interruption; `stalled` counts those since the last durable step or
    orderly stop. `steers` is the run that a queued one wants to steer, if that run takes another step.
    `allowances` is how many times its limits the run may use: one, plus one for each time a person let it
    continue past a limit. `detail` is the limit at which it waits, as people read it.
    """

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
    """A transcript row. Deltas of an unsettled message follow `first_seq`; its body is at `body_seq`."""

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
    """A segment of completed turns to commit to memory, the `n`th of its session.

    It grows until its first commit starts; from then on its turns, its key and its content (`digest`) are
    fixed. `owner` is the agent that commits it, if any. `attempts` counts the tries and fences all but the
    last, which `process_id` started at `started_at`; `takes_key` says whether its provider accepts
    idempotency keys. `queued_at` and `touched_at` are when its first and its last turn ended. `retraction`:
    some of its turns were undone after the first commit started, and memory must forget it.
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
        """Return whether it still has to be committed, retracted or resolved."""
        return self.state in ("pending", "committing", "failed", "in_doubt") or self.retraction == "wanted"


class QueuedCommit(msgspec.Struct, frozen=True):
    """An entry of the memory queue, with its conversation. `buried`: the conversation was deleted.

    `number` is the store's own number of the conversation; it distinguishes conversations that reused an id.
    """

    session_id: SessionId
    title: str
    agent: str
    is_deleted: bool
    number: int
    row: QueuedCommitRow
