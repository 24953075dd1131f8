"""The `NoteRepository` port over SQLite."""

from collections.abc import Mapping, Sequence

from holdfast.domain.clock import Instant
from holdfast.domain.ids import IdGenerator
from holdfast.domain.memories import Memory, MemoryPage, NewNote, Origin
from holdfast.store.sqlite import notes
from holdfast.store.sqlite.access import SqliteAccess


class SqliteNoteStore(SqliteAccess):
    """Implement `NoteRepository` over one file."""

    async def add_notes(
        self,
        key: str,
        receipt: str,
        origin: Origin,
        scope: str,
        new_notes: Sequence[NewNote],
        said_at: Instant | None = None,
    ) -> tuple[str, Sequence[Memory]]:
        ids = IdGenerator(self._clock)
        return await self._transact(
            lambda tx: notes.add(tx, ids, key, receipt, origin, scope, new_notes, said_at)
        )

    async def note_receipt(self, key: str) -> str | None:
        return await self._readers.read(notes.receipt_of, key)

    async def notes(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        return await self._readers.read(notes.page, scope, words, cursor, limit)

    async def note(self, note_id: str) -> Memory:
        return await self._readers.read(notes.get, note_id)

    async def count_notes(self) -> int:
        return await self._readers.read(notes.count)

    async def find_notes(self, scope: str, text: str, limit: int) -> Sequence[Memory]:
        return await self._readers.read(notes.find, scope, text, limit)

    async def edit_note(self, note_id: str, text: str) -> Memory:
        return await self._transact(lambda tx: notes.edit(tx, note_id, text))

    async def forget_note(self, note_id: str) -> None:
        await self._transact(lambda tx: notes.forget(tx, note_id))

    async def forget_commit(self, key: str) -> int:
        return await self._transact(lambda tx: notes.forget_commit(tx, key))

    async def vectors(self, scope: str) -> Sequence[tuple[str, bytes | None]]:
        return await self._readers.read(notes.vectors, scope)

    async def put_vectors(self, vectors: Mapping[str, bytes]) -> None:
        await self._transact(lambda tx: notes.put_vectors(tx, vectors))
