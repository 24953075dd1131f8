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

from holdfast.domain.clock import Clock, Instant, has_come
from holdfast.domain.errors import HoldfastError, NoSuchMemory
from holdfast.domain.limits import EMBED_QUERY_MS_MAX, EMBED_REST_S, EMBED_TEXTS_MAX, MEMORY_CHARS_MAX
from holdfast.domain.memories import Memory, Notebook
from holdfast.memory.ports import Embedding, ProviderFailure

_TAG_BYTES = 8
_NUMBER_BYTES = 4
_NEAR_MAX = 256
"""Notes that are looked at closely."""
_READ_SLICE, _SIGN_SLICE, _LOOK_SLICE = 25, 200, 8
"""What is done of each before others get their turn: a millisecond or two."""
_STALE_MS = 10_000
"""How old what is known of the store's vectors may be: another process may have added some."""
_SCOPES_MAX = 16
_RANK_OFFSET = 60
"""How little the first place counts for more than the second, when two orders are made one."""


class _Place(msgspec.Struct, frozen=True):
    """A note, the signs of its numbers, and the numbers."""

    id: str
    signs: int
    numbers: bytes


class _Map(msgspec.Struct, frozen=True):
    """Where the notes of one scope lie, as the store said at `read_at`."""

    places: tuple[_Place, ...]
    read_at: Instant


class Meaning:
    """Belongs to one event loop. `name` is the embedding model's: what another one said is asked for anew."""

    def __init__(self, store: Notebook, embed: Embedding, name: str, clock: Clock) -> None:
        self._store = store
        self._embed = embed
        self._tag = hashlib.sha256(name.encode()).digest()[:_TAG_BYTES]
        self._clock = clock
        self._maps: dict[str, _Map] = {}
        self._learning: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()
        self._rests_until: Instant = 0
        self.trouble = ""
        """What was wrong the last time that a meaning was asked for; nothing if it was told."""

    async def near(self, query: str, scope: str, limit: int) -> list[str]:
        """The ids of the notes that lie nearest, the nearest first; none if that cannot be told in time.

        The first to ask is told nothing: the vectors are read from the store in the background.
        """
        if self._is_resting() or not query.strip():
            return []
        places = self._places(scope)
        try:
            async with asyncio.timeout(EMBED_QUERY_MS_MAX / 1000):
                if places:
                    (vector,) = await self._ask([query[:MEMORY_CHARS_MAX]])
                    return await _nearest(places, vector, limit)
        except TimeoutError:
            self._rest(f"no answer within {EMBED_QUERY_MS_MAX} ms")
        except HoldfastError as error:
            self._rest(str(error))
        return []

    def learn(self, scope: str | None = None) -> None:
        """Notes have changed: those that have no place yet get one, in the background."""
        for each in [scope] if scope is not None else list(self._maps):
            self._again.add(each)
            if each not in self._learning:
                self._learning[each] = asyncio.create_task(self._learn(each))

    async def learned(self) -> None:
        """Return once nothing is being learned."""
        while tasks := list(self._learning.values()):
            await asyncio.wait(tasks)

    async def close(self) -> None:
        tasks = list(self._learning.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _learn(self, scope: str) -> None:
        try:
            while scope in self._again and not self._is_resting():
                self._again.discard(scope)
                lacking = await self._read(scope)
                for start in range(0, len(lacking), EMBED_TEXTS_MAX):
                    await self._place(lacking[start : start + EMBED_TEXTS_MAX])
                if lacking:
                    await self._read(scope)
        except HoldfastError as error:
            self._rest(str(error))
        finally:
            del self._learning[scope]

    async def _place(self, note_ids: Sequence[str]) -> None:
        texts = await self._texts(note_ids)
        if not texts:
            return
        vectors = await self._ask(list(texts.values()))
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

    async def _ask(self, texts: Sequence[str]) -> list[bytes]:
        vectors = await self._embed(texts)
        if len(vectors) != len(texts) or not all(vectors):
            raise ProviderFailure(detail="the embedding server did not answer for every text")
        packed: list[bytes] = []
        for vector in vectors:
            packed.append(_packed(vector))
            await asyncio.sleep(0)
        self.trouble = ""
        return packed

    def _places(self, scope: str) -> Sequence[_Place]:
        """What is known of the scope's notes, which is read anew in the background when it is old."""
        map_ = self._maps.get(scope)
        if map_ is None or not 0 <= self._clock.now_ms() - map_.read_at <= _STALE_MS:
            self.learn(scope)
        return map_.places if map_ is not None else ()

    async def _read(self, scope: str) -> list[str]:
        """Take in where the notes of a scope lie; returns those of which that is not known."""
        at, known = self._clock.now_ms(), await self._store.vectors(scope)
        places: list[_Place] = []
        for n, (note_id, vector) in enumerate(known):
            if vector is not None and vector.startswith(self._tag):
                numbers = vector[_TAG_BYTES:]
                places.append(_Place(note_id, _signs(numbers), numbers))
            if n % _READ_SLICE == _READ_SLICE - 1:
                await asyncio.sleep(0)
        while len(self._maps) >= _SCOPES_MAX and scope not in self._maps:
            self._maps.pop(next(iter(self._maps)))
        self._maps[scope] = _Map(tuple(places), at)
        placed = {each.id for each in places}
        return [note_id for note_id, _ in known if note_id not in placed]

    def _is_resting(self) -> bool:
        return not has_come(self._rests_until, self._clock.now_ms(), EMBED_REST_S * 1000)

    def _rest(self, why: str) -> None:
        self.trouble = why.rstrip(".")
        self._rests_until = self._clock.now_ms() + EMBED_REST_S * 1000


def merged(*orders: Sequence[Memory]) -> list[Memory]:
    """Several orders as one: what stands high in more of them stands higher."""
    scores: dict[str, float] = {}
    found: dict[str, Memory] = {}
    for order in orders:
        for rank, memory in enumerate(order):
            scores[memory.id] = scores.get(memory.id, 0.0) + 1 / (_RANK_OFFSET + rank)
            found.setdefault(memory.id, memory)
    return [found[note_id] for note_id, _ in sorted(scores.items(), key=lambda each: -each[1])]


async def _nearest(places: Sequence[_Place], vector: bytes, limit: int) -> list[str]:
    signs, numbers = _signs(vector), _numbers(vector)
    alike: list[tuple[int, int]] = []
    for n, each in enumerate(places):
        if len(each.numbers) == len(vector):
            alike.append(((each.signs ^ signs).bit_count(), n))
        if n % _SIGN_SLICE == _SIGN_SLICE - 1:
            await asyncio.sleep(0)
    scored: list[tuple[float, str]] = []
    for n, each in enumerate(places[place] for _, place in sorted(alike)[:_NEAR_MAX]):
        scored.append((sum(map(mul, numbers, _numbers(each.numbers))), each.id))
        if n % _LOOK_SLICE == _LOOK_SLICE - 1:
            await asyncio.sleep(0)
    scored.sort(key=lambda each: -each[0])
    return [note_id for score, note_id in scored if score > 0][:limit]


def _packed(vector: Sequence[float]) -> bytes:
    """A vector of length one, as little-endian 32-bit numbers: of two of them, the product is the cosine."""
    length = math.sqrt(sum(map(mul, vector, vector))) or 1.0
    if not math.isfinite(length):
        raise ProviderFailure(detail="the embedding server answered with numbers that are none")
    return struct.pack(f"<{len(vector)}f", *(number / length for number in vector))


def _numbers(packed: bytes) -> Sequence[float]:
    return struct.unpack(f"<{len(packed) // _NUMBER_BYTES}f", packed)


def _signs(packed: bytes) -> int:
    """The sign of each number as one bit of a byte of its own."""
    highest = packed[_NUMBER_BYTES - 1 :: _NUMBER_BYTES]
    return int.from_bytes(highest) & int.from_bytes(b"\x80" * len(highest))
