"""JSON bodies of requests and responses about memory."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from holdfast.domain import memories
from holdfast.domain.clock import Instant
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import MEMORY_CHARS_MAX
from holdfast.domain.memories import CommitReport, MemoryAuthor, MemoryOverview
from holdfast.domain.state.rows import QueuedCommit
from holdfast.http.schemas.requests import RequestBody
from holdfast.memory.info import SegmentDecision

# The API says "owed" and "paid" where the rest of the program says "pending" and "committed": clients know
# these values.
MemoryQueueState = Literal["owed", "committing", "failed", "in_doubt", "retracting"]
MemoryCommitOutcome = Literal["paid", "nothing", "failed", "no_owner", "in_doubt", "working"]
MemoryText = Annotated[str, msgspec.Meta(max_length=MEMORY_CHARS_MAX)]


class NewMemory(RequestBody, frozen=True):
    """Something to remember, word for word."""

    text: MemoryText


class MemoryChange(RequestBody, frozen=True):
    """Other words for something that is remembered."""

    text: MemoryText


class MemoryCommitRequest(RequestBody, frozen=True):
    """The conversation that memory is to be told of; without one, all of them."""

    session_id: str | None = None


COMMIT_ALL = MemoryCommitRequest()


class QueueEntryDecision(RequestBody, frozen=True):
    """What is to become of it: tell memory again, take it as told (one in doubt), or never tell it.

    `deleted`: what waits of a deleted conversation is meant.
    """

    decision: SegmentDecision
    deleted: bool = False


class MemoryItem(msgspec.Struct, frozen=True):
    """Something that is remembered: which turns of which conversation it comes from, and who said so.

    `title` is that conversation's, empty if it is gone; without a conversation a person wrote it here.
    """

    id: str
    text: str
    by: MemoryAuthor
    session_id: str | None
    title: str
    from_turn: int
    through_turn: int
    made_at: Instant
    changed_at: Instant


class MemoryHealth(msgspec.Struct, frozen=True):
    """How the provider is; `detail` says what is wrong, what it cannot do, or more of it."""

    ok: bool
    detail: str


class MemoryItemList(msgspec.Struct, frozen=True):
    """A page, the newest first; `cursor` asks for the next one. `provider` is `off` when there is none.

    `waiting` is how many stretches of conversation wait to be remembered, the oldest since
    `oldest_waiting_at`. Where the provider has no way to show what it knows, `shows` is false.
    """

    provider: str
    health: MemoryHealth
    memories: tuple[MemoryItem, ...]
    cursor: str | None
    waiting: int
    oldest_waiting_at: Instant | None
    shows: bool


class MemoryQueueEntry(msgspec.Struct, frozen=True):
    """A stretch of a conversation that waits to be remembered, or (retracting) to be forgotten.

    `retry_at` is when it is tried again; `detail` says what went wrong last. `deleted`: the conversation was.
    """

    session_id: str
    title: str
    segment: int
    from_turn: int
    through_turn: int
    state: MemoryQueueState
    since: Instant
    attempts: int
    retry_at: Instant | None
    detail: str
    deleted: bool


class RetainedMemory(msgspec.Struct, frozen=True):
    """A stretch of a conversation that was undone after memory was told of it, and that it cannot forget.

    It is shown until somebody decides `drop`: then it is known to stay.
    """

    session_id: str
    title: str
    segment: int
    from_turn: int
    through_turn: int
    detail: str


class MemoryQueueInfo(msgspec.Struct, frozen=True):
    """What waits, the oldest first, and what cannot be forgotten, the newest first."""

    waiting: tuple[MemoryQueueEntry, ...]
    kept: tuple[RetainedMemory, ...] = ()


class MemoryCommitResult(msgspec.Struct, frozen=True):
    """What came of telling memory now, and of how many stretches it was told. `working`: it still goes on."""

    outcome: MemoryCommitOutcome
    paid: int
    detail: str


def memory_item(memory: memories.Memory, titles: Mapping[SessionId, str]) -> MemoryItem:
    origin = memory.origin
    return MemoryItem(
        memory.id, memory.text, origin.by, origin.session_id or None, titles.get(origin.session_id, ""),
        origin.from_turn, origin.through_turn, memory.made_at, memory.changed_at,
    )  # fmt: skip


def memory_item_list(listing: MemoryOverview) -> MemoryItemList:
    items = tuple(memory_item(each, listing.titles) for each in listing.page.memories)
    health, since = MemoryHealth(listing.is_healthy, listing.detail), listing.pending_since or None
    return MemoryItemList(
        listing.provider, health, items, listing.page.cursor, listing.pending, since, listing.can_list
    )


def queue_entry(entry: QueuedCommit) -> MemoryQueueEntry:
    row = entry.row
    return MemoryQueueEntry(
        entry.session_id, entry.title, row.n, row.from_turn, row.through_turn, _queue_state(entry),
        row.queued_at, row.attempts, row.retry_at or None,
        row.failure.detail if row.failure is not None else "",
        entry.is_deleted,
    )  # fmt: skip


def retained_memory(entry: QueuedCommit) -> RetainedMemory:
    row = entry.row
    detail = row.failure.detail if row.failure is not None else ""
    return RetainedMemory(entry.session_id, entry.title, row.n, row.from_turn, row.through_turn, detail)


def commit_result(result: CommitReport) -> MemoryCommitResult:
    outcome = "paid" if result.outcome == "committed" else result.outcome
    return MemoryCommitResult(outcome, result.committed, result.detail)


def _queue_state(entry: QueuedCommit) -> MemoryQueueState:
    state = entry.row.state
    if entry.row.retraction == "wanted":
        return "retracting"
    if state == "pending":
        return "owed"
    assert state in ("committing", "failed", "in_doubt"), (
        f"segment {entry.row.n} is {state}: it is not waiting"
    )
    return state
