"""What goes over the wire as JSON about memory: bodies that are sent here, and what is answered."""

from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from holdfast.domain import memories
from holdfast.domain.clock import Instant
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import MEMORY_CHARS_MAX
from holdfast.domain.memories import Known, MemoryTold, RememberedBy, Telling
from holdfast.domain.state.rows import Debt
from holdfast.http.schemas.requests import Sent
from holdfast.memory.info import Decided

WaitingState = Literal["owed", "committing", "failed", "in_doubt", "retracting"]
MemoryText = Annotated[str, msgspec.Meta(max_length=MEMORY_CHARS_MAX)]


class NewMemory(Sent, frozen=True):
    """Something to remember, word for word."""

    text: MemoryText


class MemoryChange(Sent, frozen=True):
    """Other words for something that is remembered."""

    text: MemoryText


class WantedCommit(Sent, frozen=True):
    """The conversation that memory is to be told of; without one, all of them."""

    session_id: str | None = None


ALL_OF_THEM = WantedCommit()


class DebtDecided(Sent, frozen=True):
    """What is to become of it: tell memory again, take it as told (one in doubt), or never tell it.

    `deleted`: what waits of a deleted conversation is meant.
    """

    decision: Decided
    deleted: bool = False


class Memory(msgspec.Struct, frozen=True):
    """Something that is remembered: which turns of which conversation it comes from, and who said so.

    `title` is that conversation's, empty if it is gone; without a conversation a person wrote it here.
    """

    id: str
    text: str
    by: RememberedBy
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


class MemoryList(msgspec.Struct, frozen=True):
    """A page, the newest first; `cursor` asks for the next one. `provider` is `off` when there is none.

    `waiting` is how many stretches of conversation wait to be remembered, the oldest since
    `oldest_waiting_at`. Where the provider has no way to show what it knows, `shows` is false.
    """

    provider: str
    health: MemoryHealth
    memories: tuple[Memory, ...]
    cursor: str | None
    waiting: int
    oldest_waiting_at: Instant | None
    shows: bool


class WaitingMemory(msgspec.Struct, frozen=True):
    """A stretch of a conversation that waits to be remembered, or (retracting) to be forgotten.

    `retry_at` is when it is tried again; `detail` says what went wrong last. `deleted`: the conversation was.
    """

    session_id: str
    title: str
    segment: int
    from_turn: int
    through_turn: int
    state: WaitingState
    since: Instant
    attempts: int
    retry_at: Instant | None
    detail: str
    deleted: bool


class KeptMemory(msgspec.Struct, frozen=True):
    """A stretch of a conversation that was undone after memory was told of it, and that it cannot forget.

    It is shown until somebody decides `drop`: then it is known to stay.
    """

    session_id: str
    title: str
    segment: int
    from_turn: int
    through_turn: int
    detail: str


class WaitingList(msgspec.Struct, frozen=True):
    """What waits, the oldest first, and what cannot be forgotten, the newest first."""

    waiting: tuple[WaitingMemory, ...]
    kept: tuple[KeptMemory, ...] = ()


class CommitTold(msgspec.Struct, frozen=True):
    """What came of telling memory now, and of how many stretches it was told. `working`: it still goes on."""

    outcome: Telling
    paid: int
    detail: str


def memory_of(memory: memories.Memory, titles: Mapping[SessionId, str]) -> Memory:
    origin = memory.origin
    return Memory(
        memory.id, memory.text, origin.by, origin.session_id or None, titles.get(origin.session_id, ""),
        origin.from_turn, origin.through_turn, memory.made_at, memory.changed_at,
    )  # fmt: skip


def memory_list_of(known: Known) -> MemoryList:
    found = tuple(memory_of(each, known.titles) for each in known.page.memories)
    health, since = MemoryHealth(known.is_well, known.detail), known.waiting_since or None
    return MemoryList(known.provider, health, found, known.page.cursor, known.waiting, since, known.shows)


def waiting_of(debt: Debt) -> WaitingMemory:
    row = debt.row
    return WaitingMemory(
        debt.session_id, debt.title, row.n, row.from_turn, row.through_turn, _state_of(debt), row.owed_at,
        row.attempts, row.retry_at or None, row.failure.detail if row.failure is not None else "",
        debt.buried,
    )  # fmt: skip


def kept_of(debt: Debt) -> KeptMemory:
    row = debt.row
    detail = row.failure.detail if row.failure is not None else ""
    return KeptMemory(debt.session_id, debt.title, row.n, row.from_turn, row.through_turn, detail)


def told_of(told: MemoryTold) -> CommitTold:
    return CommitTold(told.outcome, told.paid, told.detail)


def _state_of(debt: Debt) -> WaitingState:
    state = debt.row.state
    if debt.row.retraction == "wanted":
        return "retracting"
    assert state in ("owed", "committing", "failed", "in_doubt"), f"nothing waits that is {state}"
    return state
