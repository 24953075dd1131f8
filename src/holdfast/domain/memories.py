"""Something that is remembered, and where it comes from."""

from collections.abc import Mapping
from typing import Literal

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.ids import SessionId

RememberedBy = Literal["model", "user"]
Telling = Literal["paid", "nothing", "failed", "no_owner", "in_doubt", "working"]
"""What came of telling memory what it is owed. `working`: it still goes on."""


class Origin(msgspec.Struct, frozen=True):
    """Where a memory comes from: which turns of which conversation, or a person's own hand."""

    by: RememberedBy
    session_id: SessionId = SessionId("")
    from_turn: int = 0
    through_turn: int = 0


class Memory(msgspec.Struct, frozen=True):
    """Something that is remembered. `key` names the telling that brought it."""

    id: str
    text: str
    origin: Origin
    made_at: Instant = 0
    changed_at: Instant = 0
    key: str = ""


class MemoryPage(msgspec.Struct, frozen=True):
    """The newest first. `cursor` asks for those after these."""

    memories: tuple[Memory, ...]
    cursor: str | None = None


class Recollection(msgspec.Struct, frozen=True):
    """Something that is remembered, and in words where it comes from."""

    text: str
    source: str


class NewNote(msgspec.Struct, frozen=True):
    """Something to remember, and the ids of what it stands in place of."""

    text: str
    replaces: tuple[str, ...] = ()


class Known(msgspec.Struct, frozen=True):
    """What memory says that it knows, and how it is; `titles` are those of the conversations it comes from.

    `provider` is `off` when there is none. `waiting` is how much it is owed, the oldest of it since
    `waiting_since`. `shows`: it has a way to show what it knows.
    """

    provider: str
    is_well: bool
    detail: str
    page: MemoryPage
    titles: Mapping[SessionId, str]
    waiting: int
    waiting_since: Instant
    shows: bool = True


class MemoryTold(msgspec.Struct, frozen=True):
    """What came of telling memory now: of how many stretches it was told, and what was in the way."""

    outcome: Telling
    paid: int = 0
    detail: str = ""
