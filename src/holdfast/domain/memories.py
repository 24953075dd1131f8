"""Memories with their origins, and the port to the repository of the built-in notes."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.ids import SessionId

MemoryAuthor = Literal["model", "user"]
CommitOutcome = Literal["committed", "nothing", "failed", "no_owner", "in_doubt", "working"]
"""The outcome of a commit to memory. `working`: it is still under way."""


class Origin(msgspec.Struct, frozen=True):
    """The origin of a memory: turns of a conversation, or a person."""

    by: MemoryAuthor
    session_id: SessionId = SessionId("")
    from_turn: int = 0
    through_turn: int = 0


class Memory(msgspec.Struct, frozen=True):
    """A remembered note. `key` names the commit that added it."""

    id: str
    text: str
    origin: Origin
    made_at: Instant = 0
    changed_at: Instant = 0
    key: str = ""


class MemoryPage(msgspec.Struct, frozen=True):
    """A page of memories, newest first. `cursor` leads to the next page."""

    memories: tuple[Memory, ...]
    cursor: str | None = None


class RecalledMemory(msgspec.Struct, frozen=True):
    """A recalled memory with a description of its source."""

    text: str
    source: str


class NewNote(msgspec.Struct, frozen=True):
    """A note to add, and the ids of the notes that it replaces."""

    text: str
    replaces: tuple[str, ...] = ()


class MemoryOverview(msgspec.Struct, frozen=True):
    """An overview of memory: its notes, its health and its queue.

    `titles` are those of the notes' conversations. `provider` is `off` without one. `pending` counts the
    queued commits, the oldest of them from `pending_since`. `can_list`: the provider can list what it knows.
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
    """The result of an immediate commit: how many segments were committed, and what prevented the rest."""

    outcome: CommitOutcome
    committed: int = 0
    detail: str = ""


class NoteRepository(Protocol):
    """Store the built-in notes."""

    async def add_notes(
        self,
        key: str,
        receipt: str,
        origin: Origin,
        scope: str,
        new_notes: Sequence[NewNote],
        said_at: Instant | None = None,
    ) -> tuple[str, Sequence[Memory]]:
        """Add the notes of one commit, once per key, and return its receipt with those notes that remain.

        A repeated key changes nothing and returns the first receipt. A replaced note no longer applies. The
        same text is the same note. What a person forgot or edited after `said_at`, if given, stays so. Raises
        TooLarge.
        """

    async def note_receipt(self, key: str) -> str | None:
        """Return the receipt of the first commit under this key; None if there was none."""

    async def count_notes(self) -> int:
        """Return the number of current notes in all scopes."""

    async def notes(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        """Return current notes, newest first; with `words`, only those that contain all. Raises BadCursor."""

    async def note(self, note_id: str) -> Memory:
        """Return a current note. Raises NoSuchMemory."""

    async def find_notes(self, scope: str, text: str, limit: int) -> Sequence[Memory]:
        """Return notes that share words with `text`, best first: rare words count for more."""

    async def edit_note(self, note_id: str, text: str) -> Memory:
        """Replace a note's text; its author is a person then. Raises NoSuchMemory, TooLarge."""

    async def forget_note(self, note_id: str) -> None:
        """Remove a note and all that it replaced; digests of their texts remain. Raises NoSuchMemory."""

    async def forget_commit(self, key: str) -> int:
        """Retract the notes of one commit and reinstate those that they replaced; return how many it removed.

        A note that a person has edited since stays, and so does one that another commit also added. From then
        on the key counts as committed: a commit still under way adds nothing.
        """

    async def vectors(self, scope: str) -> Sequence[tuple[str, bytes | None]]:
        """Return the id of every current note with its embedding, if known."""

    async def put_vectors(self, vectors: Mapping[str, bytes]) -> None:
        """Store embeddings of notes; ids that no longer exist are skipped."""
