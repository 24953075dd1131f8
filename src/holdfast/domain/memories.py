"""Memories: one remembered thing and its origin, and the store of the built-in notes as a port."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.ids import SessionId

MemoryAuthor = Literal["model", "user"]
CommitOutcome = Literal["committed", "nothing", "failed", "no_owner", "in_doubt", "working"]
"""What came of telling memory what it is owed. `working`: it still goes on."""


class Origin(msgspec.Struct, frozen=True):
    """Where a memory comes from: which turns of which conversation, or a person's own hand."""

    by: MemoryAuthor
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


class RecalledMemory(msgspec.Struct, frozen=True):
    """Something that is remembered, and in words where it comes from."""

    text: str
    source: str


class NewNote(msgspec.Struct, frozen=True):
    """Something to remember, and the ids of what it stands in place of."""

    text: str
    replaces: tuple[str, ...] = ()


class MemoryOverview(msgspec.Struct, frozen=True):
    """What memory says that it knows, and how it is; `titles` are those of the conversations it comes from.

    `provider` is `off` when there is none. `waiting` is how much it is owed, the oldest of it since
    `waiting_since`. `shows`: it has a way to show what it knows.
    """

    provider: str
    is_healthy: bool
    detail: str
    page: MemoryPage
    titles: Mapping[SessionId, str]
    pending: int
    pending_since: Instant
    can_list: bool = True


class CommitReport(msgspec.Struct, frozen=True):
    """What came of telling memory now: of how many stretches it was told, and what was in the way."""

    outcome: CommitOutcome
    committed: int = 0
    detail: str = ""


class NoteRepository(Protocol):
    """The store of the built-in notes."""

    async def add_notes(
        self,
        key: str,
        receipt: str,
        origin: Origin,
        scope: str,
        fresh: Sequence[NewNote],
        said_at: Instant | None = None,
    ) -> tuple[str, Sequence[Memory]]:
        """Keep what was learned, once for each key: the same key again changes nothing, and gives the receipt
        of the first time with what is left of what it brought.

        What a new note replaces no longer holds. The same words again are the same note. What a person has
        forgotten or changed since `said_at`, if that is given, stays so. Raises TooLarge.
        """

    async def note_receipt(self, key: str) -> str | None:
        """The receipt of the first time that this key was told; None if it never was."""

    async def count_notes(self) -> int:
        """How many hold, of all scopes."""

    async def notes(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        """Those that hold, the newest first; with `words`, those that have them all. Raises BadCursor."""

    async def note(self, note_id: str) -> Memory:
        """One that holds. Raises NoSuchMemory."""

    async def find_notes(self, scope: str, text: str, limit: int) -> Sequence[Memory]:
        """Those that share words with `text`, the best first: rare words count for more."""

    async def edit_note(self, note_id: str, text: str) -> Memory:
        """Other words for it. It was said by a person then. Raises NoSuchMemory, TooLarge."""

    async def forget_note(self, note_id: str) -> None:
        """Remove it and all that it replaced; of their words a digest stays. Raises NoSuchMemory."""

    async def forget_commit(self, key: str) -> int:
        """Take back what one key brought, and have what it replaced hold again; returns how many went.

        A note that a person has edited since stays, and so does what another key said too. From then on the
        key counts as told: whoever was still about to tell it brings nothing.
        """

    async def vectors(self, scope: str) -> Sequence[tuple[str, bytes | None]]:
        """Every note that holds, by its id, with where it lies in meaning, if that is known."""

    async def put_vectors(self, vectors: Mapping[str, bytes]) -> None:
        """Where notes lie in meaning; those that are no more are passed over."""
