"""Remember facts that the agent's own model extracts, as notes in Holdfast's store.

A segment is committed exactly once: one transaction stores its notes and its key, and a known key returns its
first receipt before any model call. A note may replace earlier ones. Search uses words, and embeddings if
they are configured.
"""

import asyncio
from collections.abc import Iterator, Sequence
from itertools import accumulate

from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError, NoSuchMemory
from holdfast.domain.ids import IdGenerator
from holdfast.domain.limits import EXTRACT_CHARS_MAX, EXTRACT_CHARS_MIN, EXTRACT_KNOWN_MAX, MEMORIES_MAX
from holdfast.domain.memories import Memory, MemoryPage, NewNote, NoteRepository, Origin
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.memory.extraction import (
    INSTRUCTIONS,
    conversation_chunks,
    format_known_note,
    format_prompt,
    last_user_message_at,
    parse_facts,
)
from holdfast.memory.ports import AskModel, EmbedTexts, Health, ModelInputTooLong, ProviderFailure, Segment
from holdfast.memory.vector_index import VectorIndex, merge_rankings

_QUERY_CHARS_MAX = 16_000
"""The newest user text of a segment, cut to this, finds the notes that it may replace."""


class NotesProvider:
    """The notes provider. Close it before the clients behind `ask` and `embed`."""

    def __init__(
        self,
        store: NoteRepository,
        ask: AskModel,
        ids: IdGenerator,
        clock: Clock,
        embed: EmbedTexts | None = None,
        mask: MaskFunction = no_mask,
        embedding_model: str = "",
    ) -> None:
        self._store = store
        self._ask = ask
        self._ids = ids
        self._mask = mask
        self._index = VectorIndex(store, embed, embedding_model, clock) if embed is not None else None

    @property
    def name(self) -> str:
        return "notes"

    @property
    def takes_key(self) -> bool:
        return True

    async def commit(self, segment: Segment) -> str:
        try:
            receipt = await self._store.note_receipt(segment.key)
            if receipt is None:
                receipt = await self._commit(segment)
        except ProviderFailure:
            raise
        except HoldfastError as error:
            raise _failure(error) from error
        return receipt

    async def retract(self, key: str, receipt: str) -> None:
        try:
            await self._store.forget_commit(key)
        except HoldfastError as error:
            raise _failure(error) from error
        self._refresh_index()

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        try:
            if self._index is None:
                return await self._store.find_notes(scope, query, limit)
            by_words, near = await asyncio.gather(
                self._store.find_notes(scope, query, limit), self._index.nearest(query, scope, limit)
            )
            by_meaning = [each for note_id in near if (each := await self._find_note(note_id))]
        except HoldfastError as error:
            raise _failure(error) from error
        return merge_rankings(by_words, by_meaning)[:limit]

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        """Remember `text` word for word. Also raises TooLarge."""
        fresh = (NewNote(self._cleaned(text)),)
        _, memories = await self._store.add_notes(key, self._ids.memory(), origin, scope, fresh)
        if not memories:
            raise ProviderFailure(detail="there is nothing to remember, or it was forgotten since")
        self._refresh_index(scope)
        return memories[0]

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        return await self._store.notes(scope, words, cursor, limit)

    async def edit(self, memory_id: str, text: str) -> Memory:
        memory = await self._store.edit_note(memory_id, self._cleaned(text))
        self._refresh_index()
        return memory

    async def forget(self, memory_id: str) -> None:
        await self._store.forget_note(memory_id)
        self._refresh_index()

    async def health(self) -> Health:
        try:
            count = await self._store.count_notes()
        except HoldfastError as error:
            return Health(False, str(error))
        search_status = ""
        if self._index is not None:
            last_error = self._index.last_error
            search_status = (
                f"; search by meaning fails: {last_error}" if last_error else ", searched by meaning too"
            )
        return Health(True, f"{count:,} of {MEMORIES_MAX:,} notes{search_status}")

    async def close(self) -> None:
        if self._index is not None:
            await self._index.close()

    async def _commit(self, segment: Segment) -> str:
        conversation = conversation_chunks(segment.messages)
        if conversation and await self._store.count_notes() >= MEMORIES_MAX:
            # Before a model call whose result could not be stored.
            raise ProviderFailure(detail=f"there are {MEMORIES_MAX} notes already; forget some of them")
        fresh = await self._extract_within(segment, EXTRACT_CHARS_MAX)
        first, last = (segment.turns[0][0], segment.turns[-1][1]) if segment.turns else (0, 0)
        origin = Origin("model", segment.session_id, first, last)
        receipt, _ = await self._store.add_notes(
            segment.key,
            self._ids.memory(),
            origin,
            segment.scope,
            fresh,
            last_user_message_at(segment.messages),
        )
        self._refresh_index(segment.scope)
        return receipt

    async def _extract_within(self, segment: Segment, chars_max: int) -> list[NewNote]:
        """Return the new notes of a segment; halve the chunk size while the model refuses it as too long."""
        while True:
            try:
                return await self._extract(
                    segment, conversation_chunks(segment.messages, chars_max), chars_max
                )
            except ModelInputTooLong:
                # Nothing is stored yet: extract again, in smaller chunks.
                chars_max //= 2
                if chars_max < EXTRACT_CHARS_MIN:
                    raise

    async def _extract(self, segment: Segment, conversation: Sequence[str], chars_max: int) -> list[NewNote]:
        """Return the new notes of all chunks; a chunk may replace notes of those before it."""
        known, ids, fresh = dict[str, str](), dict[str, str](), dict[str, NewNote]()
        if conversation:
            topic = "\n".join(
                message.text for message in reversed(segment.messages) if message.role == "user"
            )
            notes = await self._store.find_notes(segment.scope, topic[:_QUERY_CHARS_MAX], EXTRACT_KNOWN_MAX)
            # Numbers, because a small model may copy ids wrongly.
            said_at = last_user_message_at(segment.messages)
            known_texts = [(note.id, format_known_note(note, said_at)) for note in notes]
            fitting = [
                each
                for each, size in zip(known_texts, _cumulative_sizes(known_texts), strict=True)
                if size <= chars_max
            ]
            known = {f"k{n}": text for n, (_, text) in enumerate(fitting, 1)}
            ids = {f"k{n}": note_id for n, (note_id, _) in enumerate(fitting, 1)}
        for text in conversation:
            offered = frozenset(known)
            for fact in parse_facts(await self._ask(INSTRUCTIONS, format_prompt(known, text))):
                names = offered.intersection(fact.replaces)
                replaced = [fresh.pop(name) for name in sorted(names) if name in fresh]
                named = [ids[name] for name in sorted(names) if name in ids]
                named += [note_id for note in replaced for note_id in note.replaces]
                name = f"k{len(known) + 1}"
                known[name] = self._cleaned(fact.text)
                fresh[name] = NewNote(known[name], tuple(dict.fromkeys(named)))
        return list(fresh.values())

    def _cleaned(self, text: str) -> str:
        """Return `text` fit to store: masked, stripped, and without lone surrogates."""
        return self._mask(text.encode("utf-8", "replace").decode()).strip()

    async def _find_note(self, note_id: str) -> Memory | None:
        try:
            return await self._store.note(note_id)
        except NoSuchMemory:
            return None

    def _refresh_index(self, scope: str | None = None) -> None:
        if self._index is not None:
            self._index.refresh(scope)


def _cumulative_sizes(known_texts: Sequence[tuple[str, str]]) -> Iterator[int]:
    """Yield the total length of the texts up to each."""
    return accumulate(len(text) for _, text in known_texts)


def _failure(error: HoldfastError) -> ProviderFailure:
    return ProviderFailure(detail=str(error).rstrip("."))
