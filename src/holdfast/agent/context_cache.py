"""Conversations that are held ready: what the model is shown of each, for as long as it is what is stored.

The other half of a cached agent is in `registry`. Only so many conversations are held, and only so
many bytes of them; the longest unused goes first, and whatever nobody has used for a while. Nothing here is
locked: it belongs to one event loop, and what takes time (memory being told) happens after an entry is gone
from the table.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from holdfast.agent.cached_context import CachedContext, LoadContext, RebuildReason
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
from holdfast.domain.state.changes import CommittedChange
from holdfast.domain.transcript.transcript import TranscriptFold

_DELETED = KINDS[SessionDeleted]
OnEvict = Callable[[SessionId], Awaitable[None]]
"""Tells memory what it is owed of a conversation that is let go. May take its time."""


async def no_eviction_hook(session_id: SessionId) -> None:
    """Let a conversation go where there is no memory."""


class ContextHandle:
    """A hold on a conversation, most often a run's. Nothing of it is let go before `release`."""

    def __init__(self, cache: "ContextCache", entry: CachedContext, is_run: bool) -> None:
        self._cache = cache
        self._entry = entry
        self._is_run = is_run
        self._is_open = True

    @property
    def is_changed_elsewhere(self) -> bool:
        """Whether it would have to be read back for what another process has changed."""
        return self._entry.is_changed_elsewhere

    async def fold(self, chars: int, read: LoadContext) -> TranscriptFold:
        """The conversation, with all that this process adds from here on; `read` reads it back if need be.

        To be called once something of the run is committed: that is how it is noticed what others have done.
        """
        return await self._cache.fold(self._entry, chars, read, self._is_run)

    def release(self) -> None:
        if self._is_open:
            self._is_open = False
            self._cache.release(self._entry)


class ContextCache:
    """By session id. `evict` is called for whatever is let go, before that is given back."""

    def __init__(
        self,
        clock: Clock,
        on_evict: OnEvict = no_eviction_hook,
        sessions_max: int = AGENT_CACHE_SESSIONS_MAX,
        bytes_max: int = AGENT_CACHE_BYTES_MAX,
        idle_ms: int = AGENT_CACHE_IDLE_MS,
    ) -> None:
        self._clock = clock
        self._on_evict = on_evict
        self._sessions_max = sessions_max
        self._bytes_max = bytes_max
        self._idle_ms = idle_ms
        self._entries: OrderedDict[SessionId, CachedContext] = OrderedDict()
        self._evicted: OrderedDict[SessionId, None] = OrderedDict()
        self._evictions: set[asyncio.Task[None]] = set()
        self._eviction_slots = asyncio.Semaphore(EVICTIONS_AT_ONCE_MAX)
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

    def count_rebuild(self, reason: RebuildReason) -> None:
        """Something was built anew."""
        self._rebuilds[reason] += 1

    # What runs do.

    def acquire(self, session_id: SessionId, *, is_run: bool = True) -> ContextHandle:
        """Take hold of a conversation, known or not. It is of use to runs: only theirs is counted."""
        entry = self._entries.get(session_id)
        if entry is None:
            reason: RebuildReason = "evicted" if session_id in self._evicted else "new"
            self._evicted.pop(session_id, None)
            entry = self._entries[session_id] = CachedContext(session_id, reason)
        entry.users += 1
        self._entries.move_to_end(session_id)
        return ContextHandle(self, entry, is_run)

    def on_change(self, change: CommittedChange) -> None:
        """A change that this process has made. Told of all of them, in order, before anyone builds on one."""
        entry = self._entries.get(change.session_id)
        if entry is None:
            return
        size = entry.size_bytes
        entry.on_change(change)
        self.size_bytes += entry.size_bytes - size
        if any(isinstance(event.fact, SessionDeleted) for event in change.events if event.kind == _DELETED):
            self._remove(entry)

    async def fold(self, entry: CachedContext, chars: int, read: LoadContext, is_run: bool) -> TranscriptFold:
        async with entry.build_lock:
            reason = entry.rebuild_reason(chars)
            if reason is None:
                self.hits += is_run
            else:
                self.count_rebuild(reason)
                await self._build(entry, chars, read)
            return entry.fold

    async def _build(self, entry: CachedContext, chars: int, read: LoadContext) -> None:
        if self._contains(entry):
            self.size_bytes -= entry.size_bytes
        try:
            await entry.build(chars, read)
        finally:
            if self._contains(entry):
                self.size_bytes += entry.size_bytes

    def release(self, entry: CachedContext) -> None:
        entry.users -= 1
        entry.used_at = self._clock.now_ms()
        if self._contains(entry):
            self._entries.move_to_end(entry.session_id)
        self._enforce_limits()

    def _contains(self, entry: CachedContext) -> bool:
        return self._entries.get(entry.session_id) is entry

    # What is let go.

    async def evict_idle(self) -> None:
        """Let go of what nobody has used for a while. To be called now and then."""
        unused_since = self._clock.now_ms() - self._idle_ms
        for entry in list(self._entries.values()):
            if not entry.users and entry.used_at > unused_since:
                return  # All after it were used later.
            if not entry.users:
                self._start_eviction(entry)

    async def close(self, timeout_s: float = EVICT_S_MAX) -> None:
        """Give everything back, at most so long after. What memory is owed is not lost by that."""
        evictions = list(self._evictions)
        if evictions:
            await asyncio.wait(evictions, timeout=timeout_s)
        for task in evictions:
            task.cancel()
        await asyncio.gather(*evictions, return_exceptions=True)
        for entry in list(self._entries.values()):
            self._remove(entry)
            entry.close()

    def _enforce_limits(self) -> None:
        while len(self._entries) > self._sessions_max or self.size_bytes > self._bytes_max:
            unused = next((entry for entry in self._entries.values() if not entry.users), None)
            if unused is None:
                return
            self._start_eviction(unused)

    def _remove(self, entry: CachedContext) -> None:
        del self._entries[entry.session_id]
        self.size_bytes -= entry.size_bytes

    def _start_eviction(self, entry: CachedContext) -> None:
        self._remove(entry)
        self._evicted[entry.session_id] = None
        while len(self._evicted) > self._sessions_max:
            self._evicted.popitem(last=False)
        task = asyncio.create_task(self._finish_eviction(entry))
        self._evictions.add(task)
        task.add_done_callback(self._evictions.discard)

    async def _finish_eviction(self, entry: CachedContext) -> None:
        async with self._eviction_slots:
            try:
                await self._on_evict(entry.session_id)
            finally:
                # Whether or not there was anyone to tell, and however that went.
                entry.close()
