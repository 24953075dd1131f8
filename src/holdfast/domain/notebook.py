"""Where the built-in memory keeps what it remembers: a part of every store.

It stands here because the memory that needs it and the store that is it may not know each other.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from holdfast.domain.clock import Instant
from holdfast.domain.memories import Memory, MemoryPage, NewNote, Origin


class Notebook(Protocol):
    """What the built-in memory remembers; see `memories`."""

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

    async def forget_telling(self, key: str) -> int:
        """Take back what one key brought, and have what it replaced hold again; returns how many went.

        A note that a person has edited since stays, and so does what another key said too. From then on the
        key counts as told: whoever was still about to tell it brings nothing.
        """

    async def vectors(self, scope: str) -> Sequence[tuple[str, bytes | None]]:
        """Every note that holds, by its id, with where it lies in meaning, if that is known."""

    async def put_vectors(self, vectors: Mapping[str, bytes]) -> None:
        """Where notes lie in meaning; those that are no more are passed over."""
