"""Search notes by meaning, with vectors from an embedding model.

A search never fails: if the embedding server is slow or unreachable, it finds nothing and backs off. Missing
vectors are requested in the background. A first pass compares only the signs of the numbers to choose
candidates. Computation runs in slices, so that it does not block the event loop.
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
"""Notes that the second pass scores exactly."""
_READ_SLICE, _SIGN_SLICE, _SCORE_SLICE = 25, 200, 8
"""Items of each kind that are processed before yielding to the event loop: a millisecond or two."""
_STALE_MS = 10_000
"""The age at which a loaded index is stale: another process may have added vectors."""
_SCOPES_MAX = 16
_RANK_OFFSET = 60
"""The constant of reciprocal rank fusion: the larger, the less the first ranks count."""


class _IndexedNote(msgspec.Struct, frozen=True):
    """A note's vector and the signs of its numbers."""

    id: str
    signs: int
    packed_vector: bytes


class _ScopeIndex(msgspec.Struct, frozen=True):
    """The vectors of one scope, as the store had them at `read_at`."""

    notes: tuple[_IndexedNote, ...]
    read_at: Instant


class VectorIndex:
    """An index over stored vectors. Belongs to one event loop.

    `name` is the embedding model's: vectors of another model are requested again.
    """

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
        """The error of the last embedding request; empty if it succeeded."""

    async def nearest(self, query: str, scope: str, limit: int) -> list[str]:
        """Return the ids of the nearest notes, the nearest first; none if that takes too long.

        The first search of a scope returns nothing: the vectors are loaded in the background.
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
        """Request missing vectors in the background, after notes have changed."""
        for each in [scope] if scope is not None else list(self._scopes):
            self._stale_scopes.add(each)
            if each not in self._refresh_tasks:
                self._refresh_tasks[each] = asyncio.create_task(self._refresh(each))

    async def wait_until_refreshed(self) -> None:
        """Return once no refresh is running."""
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
        # A note that changed during the request must not keep the vector of its old text.
        embedded = {
            note_id: self._tag + vector
            for (note_id, text), vector in zip(texts.items(), vectors, strict=True)
            if now.get(note_id) == text
        }
        await self._store.put_vectors(embedded)

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
        """Return the scope's loaded notes; if they are stale, start a refresh."""
        scope_index = self._scopes.get(scope)
        if scope_index is None or not 0 <= self._clock.now_ms() - scope_index.read_at <= _STALE_MS:
            self.refresh(scope)
        return scope_index.notes if scope_index is not None else ()

    async def _load(self, scope: str) -> list[str]:
        """Load a scope's vectors; return the ids of notes without one."""
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
        embedded = {each.id for each in notes}
        return [note_id for note_id, _ in known if note_id not in embedded]

    def _is_backing_off(self) -> bool:
        return not is_due(self._retry_at, self._clock.now_ms(), EMBED_BACKOFF_S * 1000)

    def _back_off(self, reason: str) -> None:
        self.last_error = reason.rstrip(".")
        self._retry_at = self._clock.now_ms() + EMBED_BACKOFF_S * 1000


def merge_rankings(*orders: Sequence[Memory]) -> list[Memory]:
    """Merge several rankings by reciprocal rank fusion."""
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
        if len(each.packed_vector) == len(vector):
            candidates.append(((each.signs ^ signs).bit_count(), n))
        if n % _SIGN_SLICE == _SIGN_SLICE - 1:
            await asyncio.sleep(0)
    scored: list[tuple[float, str]] = []
    for n, each in enumerate(notes[place] for _, place in sorted(candidates)[:_CANDIDATES_MAX]):
        scored.append((sum(map(mul, numbers, _unpack(each.packed_vector))), each.id))
        if n % _SCORE_SLICE == _SCORE_SLICE - 1:
            await asyncio.sleep(0)
    scored.sort(key=lambda each: -each[0])
    return [note_id for score, note_id in scored if score > 0][:limit]


def _pack_normalized(vector: Sequence[float]) -> bytes:
    """Return the vector with length one, as little-endian 32-bit floats; a dot product is then the cosine."""
    length = math.sqrt(sum(map(mul, vector, vector))) or 1.0
    if not math.isfinite(length):
        raise ProviderFailure(detail="the embedding server answered with numbers that are none")
    return struct.pack(f"<{len(vector)}f", *(number / length for number in vector))


def _unpack(packed: bytes) -> Sequence[float]:
    return struct.unpack(f"<{len(packed) // _NUMBER_BYTES}f", packed)


def _signs(packed: bytes) -> int:
    """Return the sign of each number as one bit of its own byte."""
    highest = packed[_NUMBER_BYTES - 1 :: _NUMBER_BYTES]
    return int.from_bytes(highest) & int.from_bytes(b"\x80" * len(highest))
