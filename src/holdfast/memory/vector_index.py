"""Finding notes by what they mean: where each lies, as an embedding model says, and which lie near a query.

Nothing here fails anyone: where the server that knows meanings is slow or away, there is nothing near, and it
is let rest. Meanings of notes that lack one are asked for in the background. The signs of a vector's numbers
alone tell which notes are worth a closer look; what is computed goes in slices, so that nobody waits for it.
"""

import asyncio
import hashlib
import math
import struct
from collections.abc import Sequence
from operator import mul

import msgspec

from holdfast.domain.clock import Clock, Instant, is_due
from holdfast.domain.errors import HoldfastError, NoSuchMemory
from holdfast.domain.limits import EMBED_BACKOFF_S, EMBED_QUERY_MS_MAX, EMBED_TEXTS_MAX, MEMORY_CHARS_MAX
from holdfast.domain.memories import Memory, NoteRepository
from holdfast.memory.ports import EmbedTexts, ProviderFailure

_TAG_BYTES = 8
_NUMBER_BYTES = 4
_CANDIDATES_MAX = 256
"""Notes that are looked at closely."""
_READ_SLICE, _SIGN_SLICE, _SCORE_SLICE = 25, 200, 8
"""What is done of each before others get their turn: a millisecond or two."""
_STALE_MS = 10_000
"""How old what is known of the store's vectors may be: another process may have added some."""
_SCOPES_MAX = 16
_RANK_OFFSET = 60
"""How little the first place counts for more than the second, when two orders are made one."""


class _IndexedNote(msgspec.Struct, frozen=True):
    """A note, the signs of its numbers, and the numbers."""

    id: str
    signs: int
    numbers: bytes


class _ScopeIndex(msgspec.Struct, frozen=True):
    """Where the notes of one scope lie, as the store said at `read_at`."""

    notes: tuple[_IndexedNote, ...]
    read_at: Instant


class VectorIndex:
    """Belongs to one event loop. `name` is the embedding model's: what another one said is asked for anew."""

    def __init__(self, store: NoteRepository, embed: EmbedTexts, name: str, clock: Clock) -> None:
        self._store = store
        self._embed = embed
        self._tag = hashlib.sha256(name.encode()).digest()[:_TAG_BYTES]
        self._clock = clock
        self._scopes: dict[str, _ScopeIndex] = {}
        self._refresh_tasks: dict[str, asyncio.Task[None]] = {}
        self._stale_scopes: set[str] = set()
        self._retry_at: Instant = 0
        self.last_error = ""
        """What was wrong the last time that a meaning was asked for; nothing if it was told."""

    async def nearest(self, query: str, scope: str, limit: int) -> list[str]:
        """The ids of the notes that lie nearest, the nearest first; none if that cannot be told in time.

        The first to ask is told nothing: the vectors are read from the store in the background.
        """
        if self._is_backing_off() or not query.strip():
            return []
        notes = self._indexed_notes(scope)
        try:
            async with asyncio.timeout(EMBED_QUERY_MS_MAX / 1000):
                if notes:
                    (vector,) = await self._embed_texts([query[:MEMORY_CHARS_MAX]])
                    return await _nearest(notes, vector, limit)
        except TimeoutError:
            self._back_off(f"no answer within {EMBED_QUERY_MS_MAX} ms")
        except HoldfastError as error:
            self._back_off(str(error))
        return []

    def refresh(self, scope: str | None = None) -> None:
        """Notes have changed: those that have no place yet get one, in the background."""
        for each in [scope] if scope is not None else list(self._scopes):
            self._stale_scopes.add(each)
            if each not in self._refresh_tasks:
                self._refresh_tasks[each] = asyncio.create_task(self._refresh(each))

    async def wait_until_refreshed(self) -> None:
        """Return once nothing is being learned."""
        while tasks := list(self._refresh_tasks.values()):
            await asyncio.wait(tasks)

    async def close(self) -> None:
        tasks = list(self._refresh_tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _refresh(self, scope: str) -> None:
        try:
            while scope in self._stale_scopes and not self._is_backing_off():
                self._stale_scopes.discard(scope)
                missing = await self._load(scope)
                for start in range(0, len(missing), EMBED_TEXTS_MAX):
                    await self._embed_notes(missing[start : start + EMBED_TEXTS_MAX])
                if missing:
                    await self._load(scope)
        except HoldfastError as error:
            self._back_off(str(error))
        finally:
            del self._refresh_tasks[scope]

    async def _embed_notes(self, note_ids: Sequence[str]) -> None:
        texts = await self._texts(note_ids)
        if not texts:
            return
        vectors = await self._embed_texts(list(texts.values()))
        now = await self._texts(list(texts))
        # One that was changed while its meaning was asked for would lie where it lay before.
        placed = {
            note_id: self._tag + vector
            for (note_id, text), vector in zip(texts.items(), vectors, strict=True)
            if now.get(note_id) == text
        }
        await self._store.put_vectors(placed)

    async def _texts(self, note_ids: Sequence[str]) -> dict[str, str]:
        texts: dict[str, str] = {}
        for note_id in note_ids:
            try:
                texts[note_id] = (await self._store.note(note_id)).text
            except NoSuchMemory:
                continue
        return texts

    async def _embed_texts(self, texts: Sequence[str]) -> list[bytes]:
        vectors = await self._embed(texts)
        if len(vectors) != len(texts) or not all(vectors):
            raise ProviderFailure(detail="the embedding server did not answer for every text")
        packed: list[bytes] = []
        for vector in vectors:
            packed.append(_pack_normalized(vector))
            await asyncio.sleep(0)
        self.last_error = ""
        return packed

    def _indexed_notes(self, scope: str) -> Sequence[_IndexedNote]:
        """What is known of the scope's notes, which is read anew in the background when it is old."""
        scope_index = self._scopes.get(scope)
        if scope_index is None or not 0 <= self._clock.now_ms() - scope_index.read_at <= _STALE_MS:
            self.refresh(scope)
        return scope_index.notes if scope_index is not None else ()

    async def _load(self, scope: str) -> list[str]:
        """Take in where the notes of a scope lie; returns those of which that is not known."""
        at, known = self._clock.now_ms(), await self._store.vectors(scope)
        notes: list[_IndexedNote] = []
        for n, (note_id, vector) in enumerate(known):
            if vector is not None and vector.startswith(self._tag):
                numbers = vector[_TAG_BYTES:]
                notes.append(_IndexedNote(note_id, _signs(numbers), numbers))
            if n % _READ_SLICE == _READ_SLICE - 1:
                await asyncio.sleep(0)
        while len(self._scopes) >= _SCOPES_MAX and scope not in self._scopes:
            self._scopes.pop(next(iter(self._scopes)))
        self._scopes[scope] = _ScopeIndex(tuple(notes), at)
        placed = {each.id for each in notes}
        return [note_id for note_id, _ in known if note_id not in placed]

    def _is_backing_off(self) -> bool:
        return not is_due(self._retry_at, self._clock.now_ms(), EMBED_BACKOFF_S * 1000)

    def _back_off(self, reason: str) -> None:
        self.last_error = reason.rstrip(".")
        self._retry_at = self._clock.now_ms() + EMBED_BACKOFF_S * 1000


def merge_rankings(*orders: Sequence[Memory]) -> list[Memory]:
    """Several orders as one: what stands high in more of them stands higher."""
    scores: dict[str, float] = {}
    found: dict[str, Memory] = {}
    for order in orders:
        for rank, memory in enumerate(order):
            scores[memory.id] = scores.get(memory.id, 0.0) + 1 / (_RANK_OFFSET + rank)
            found.setdefault(memory.id, memory)
    return [found[note_id] for note_id, _ in sorted(scores.items(), key=lambda each: -each[1])]


async def _nearest(notes: Sequence[_IndexedNote], vector: bytes, limit: int) -> list[str]:
    signs, numbers = _signs(vector), _unpack(vector)
    candidates: list[tuple[int, int]] = []
    for n, each in enumerate(notes):
        if len(each.numbers) == len(vector):
            candidates.append(((each.signs ^ signs).bit_count(), n))
        if n % _SIGN_SLICE == _SIGN_SLICE - 1:
            await asyncio.sleep(0)
    scored: list[tuple[float, str]] = []
    for n, each in enumerate(notes[place] for _, place in sorted(candidates)[:_CANDIDATES_MAX]):
        scored.append((sum(map(mul, numbers, _unpack(each.numbers))), each.id))
        if n % _SCORE_SLICE == _SCORE_SLICE - 1:
            await asyncio.sleep(0)
    scored.sort(key=lambda each: -each[0])
    return [note_id for score, note_id in scored if score > 0][:limit]


def _pack_normalized(vector: Sequence[float]) -> bytes:
    """A vector of length one, as little-endian 32-bit numbers: of two of them, the product is the cosine."""
    length = math.sqrt(sum(map(mul, vector, vector))) or 1.0
    if not math.isfinite(length):
        raise ProviderFailure(detail="the embedding server answered with numbers that are none")
    return struct.pack(f"<{len(vector)}f", *(number / length for number in vector))


def _unpack(packed: bytes) -> Sequence[float]:
    return struct.unpack(f"<{len(packed) // _NUMBER_BYTES}f", packed)


def _signs(packed: bytes) -> int:
    """The sign of each number as one bit of a byte of its own."""
    highest = packed[_NUMBER_BYTES - 1 :: _NUMBER_BYTES]
    return int.from_bytes(highest) & int.from_bytes(b"\x80" * len(highest))
