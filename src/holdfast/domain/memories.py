"""Something that is remembered, and where it comes from."""

from typing import Literal

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.ids import SessionId

RememberedBy = Literal["model", "user"]


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


class NewNote(msgspec.Struct, frozen=True):
    """Something to remember, and the ids of what it stands in place of."""

    text: str
    replaces: tuple[str, ...] = ()
