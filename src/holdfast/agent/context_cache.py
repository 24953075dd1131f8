"""Conversations that are held ready: what the model is shown of each, for as long as it is what is stored.

The other half of a cached agent is in `registry`. Only so many conversations are held, and only so
many bytes of them; the longest unused goes first, and whatever nobody has used for a while. Nothing here is
locked: it belongs to one event loop, and what takes time (memory being told) happens after an entry is gone
from the table.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from holdfast.agent.cached_context import Entry, Read, Why
from holdfast.domain.clock import Clock
from holdfast.domain.events.facts import KINDS, SessionDeleted
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import (
    AGENT_CACHE_BYTES_MAX,
    AGENT_CACHE_IDLE_MS,
    AGENT_CACHE_SESSIONS_MAX,
    EVICT_S_MAX,
    EVICTIONS_AT_ONCE_MAX,
)
from holdfast.domain.state.changes import Change
from holdfast.domain.transcript.transcript import TranscriptFold

_DELETED = KINDS[SessionDeleted]
Evict = Callable[[SessionId], Awaitable[None]]
"""Tells memory what it is owed of a conversation that is let go. May take its time."""


async def tell_nobody(session_id: SessionId) -> None:
    """Let a conversation go where there is no memory."""


class Held:
    """A hold on a conversation, most often a run's. Nothing of it is let go before `release`."""

    def __init__(self, cache: "ContextCache", entry: Entry, is_run: bool) -> None:
        self._cache = cache
        self._entry = entry
        self._is_run = is_run
        self._is_held = True

    @property
    def is_overtaken(self) -> bool:
        """Whether it would have to be read back for what another process has changed."""
        return self._entry.is_overtaken

    async def fold(self, chars: int, read: Read) -> TranscriptFold:
        """The conversation, with all that this process adds from here on; `read` reads it back if need be.

        To be called once something of the run is committed: that is how it is noticed what others have done.
        """
        return await self._cache.fold(self._entry, chars, read, self._is_run)

    def release(self) -> None:
        if self._is_held:
            self._is_held = False
            self._cache.give_back(self._entry)


class ContextCache:
    """By session id. `evict` is called for whatever is let go, before that is given back."""

    def __init__(
        self,
        clock: Clock,
        evict: Evict = tell_nobody,
        sessions_max: int = AGENT_CACHE_SESSIONS_MAX,
        bytes_max: int = AGENT_CACHE_BYTES_MAX,
        idle_ms: int = AGENT_CACHE_IDLE_MS,
    ) -> None:
        self._clock = clock
        self._evict = evict
        self._sessions_max = sessions_max
        self._bytes_max = bytes_max
        self._idle_ms = idle_ms
        self._entries: OrderedDict[SessionId, Entry] = OrderedDict()
        self._gone: OrderedDict[SessionId, None] = OrderedDict()
        self._leaving: set[asyncio.Task[None]] = set()
        self._doorway = asyncio.Semaphore(EVICTIONS_AT_ONCE_MAX)
        self._rebuilds: Counter[str] = Counter()
        self.hits = 0
        self.size_bytes = 0
        """How much of conversations is held, as it is stored."""

    # What is counted.

    @property
    def rebuilds(self) -> Mapping[str, int]:
        return self._rebuilds

    @property
    def entries(self) -> int:
        return len(self._entries)

    def count(self, why: Why) -> None:
        """Something was built anew."""
        self._rebuilds[why] += 1

    # What runs do.

    def hold(self, session_id: SessionId, *, is_run: bool = True) -> Held:
        """Take hold of a conversation, known or not. It is of use to runs: only theirs is counted."""
        entry = self._entries.get(session_id)
        if entry is None:
            why: Why = "evicted" if session_id in self._gone else "new"
            self._gone.pop(session_id, None)
            entry = self._entries[session_id] = Entry(session_id, why)
        entry.users += 1
        self._entries.move_to_end(session_id)
        return Held(self, entry, is_run)

    def note(self, change: Change) -> None:
        """A change that this process has made. Told of all of them, in order, before anyone builds on one."""
        entry = self._entries.get(change.session_id)
        if entry is None:
            return
        size = entry.size_bytes
        entry.note(change)
        self.size_bytes += entry.size_bytes - size
        if any(isinstance(event.fact, SessionDeleted) for event in change.events if event.kind == _DELETED):
            self._remove(entry)

    async def fold(self, entry: Entry, chars: int, read: Read, is_run: bool) -> TranscriptFold:
        async with entry.building:
            why = entry.why_not(chars)
            if why is None:
                self.hits += is_run
            else:
                self.count(why)
                await self._build(entry, chars, read)
            return entry.fold

    async def _build(self, entry: Entry, chars: int, read: Read) -> None:
        if self._holds(entry):
            self.size_bytes -= entry.size_bytes
        try:
            await entry.build(chars, read)
        finally:
            if self._holds(entry):
                self.size_bytes += entry.size_bytes

    def give_back(self, entry: Entry) -> None:
        entry.users -= 1
        entry.used_at = self._clock.now_ms()
        if self._holds(entry):
            self._entries.move_to_end(entry.session_id)
        self._make_room()

    def _holds(self, entry: Entry) -> bool:
        return self._entries.get(entry.session_id) is entry

    # What is let go.

    async def sweep(self) -> None:
        """Let go of what nobody has used for a while. To be called now and then."""
        unused_since = self._clock.now_ms() - self._idle_ms
        for entry in list(self._entries.values()):
            if not entry.users and entry.used_at > unused_since:
                return  # All after it were used later.
            if not entry.users:
                self._let_go(entry)

    async def close(self, within_s: float = EVICT_S_MAX) -> None:
        """Give everything back, at most so long after. What memory is owed is not lost by that."""
        leaving = list(self._leaving)
        if leaving:
            await asyncio.wait(leaving, timeout=within_s)
        for task in leaving:
            task.cancel()
        await asyncio.gather(*leaving, return_exceptions=True)
        for entry in list(self._entries.values()):
            self._remove(entry)
            entry.close()

    def _make_room(self) -> None:
        while len(self._entries) > self._sessions_max or self.size_bytes > self._bytes_max:
            unused = next((entry for entry in self._entries.values() if not entry.users), None)
            if unused is None:
                return
            self._let_go(unused)

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry.session_id]
        self.size_bytes -= entry.size_bytes

    def _let_go(self, entry: Entry) -> None:
        self._remove(entry)
        self._gone[entry.session_id] = None
        while len(self._gone) > self._sessions_max:
            self._gone.popitem(last=False)
        task = asyncio.create_task(self._leave(entry))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)

    async def _leave(self, entry: Entry) -> None:
        async with self._doorway:
            try:
                await self._evict(entry.session_id)
            finally:
                # Whether or not there was anyone to tell, and however that went.
                entry.close()
