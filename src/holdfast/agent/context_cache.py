"""Cache the contexts of conversations, each for as long as it matches the store.

The cached agents are in `registry`. The cache is limited in conversations and bytes, and evicts the least
recently used first, and those unused for a while. It needs no lock: it belongs to one event loop, and slow
work (the memory commit) runs after an entry has left the table.
"""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Mapping

from holdfast.agent.cached_context import CachedContext, LoadContext, RebuildReason
from holdfast.domain.clock import Clock
from holdfast.domain.events.facts import KINDS, SessionDeleted
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import (
    CONTEXT_CACHE_BYTES_MAX,
    CONTEXT_CACHE_IDLE_MS,
    CONTEXT_CACHE_SESSIONS_MAX,
    EVICT_S_MAX,
    EVICTIONS_AT_ONCE_MAX,
)
from holdfast.domain.state.changes import CommittedChange
from holdfast.domain.transcript.transcript import TranscriptFold

_DELETED = KINDS[SessionDeleted]
OnEvict = Callable[[SessionId], Awaitable[None]]
"""Commit the queued turns of an evicted conversation to memory. May take long."""


async def no_eviction_hook(session_id: SessionId) -> None:
    """Do nothing, where there is no memory."""


class ContextHandle:
    """A hold on a conversation, usually a run's. The cache evicts nothing of it before `release`."""

    def __init__(self, cache: "ContextCache", entry: CachedContext, is_run: bool) -> None:
        self._cache = cache
        self._entry = entry
        self._is_run = is_run
        self._is_open = True

    @property
    def is_changed_elsewhere(self) -> bool:
        """Return whether another process has changed the conversation since it was read."""
        return self._entry.is_changed_elsewhere

    async def fold(self, chars: int, read: LoadContext) -> TranscriptFold:
        """Return the conversation with every later change of this process; call `read` if it must be read.

        Call it after the run's first commit: that commit reveals changes of other processes.
        """
        return await self._cache.fold(self._entry, chars, read, self._is_run)

    def release(self) -> None:
        if self._is_open:
            self._is_open = False
            self._cache.release(self._entry)


class ContextCache:
    """Cached contexts by session id. Calls `on_evict` for each evicted one before releasing it."""

    def __init__(
        self,
        clock: Clock,
        on_evict: OnEvict = no_eviction_hook,
        sessions_max: int = CONTEXT_CACHE_SESSIONS_MAX,
        bytes_max: int = CONTEXT_CACHE_BYTES_MAX,
        idle_ms: int = CONTEXT_CACHE_IDLE_MS,
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
        """Stored size of all cached conversations."""

    @property
    def rebuilds(self) -> Mapping[str, int]:
        return self._rebuilds

    @property
    def entry_count(self) -> int:
        return len(self._entries)

    def count_rebuild(self, reason: RebuildReason) -> None:
        """Count a rebuild."""
        self._rebuilds[reason] += 1

    def acquire(self, session_id: SessionId, *, is_run: bool = True) -> ContextHandle:
        """Acquire a conversation's context. Only a run's use counts as a hit or a rebuild."""
        entry = self._entries.get(session_id)
        if entry is None:
            reason: RebuildReason = "evicted" if session_id in self._evicted else "new"
            self._evicted.pop(session_id, None)
            entry = self._entries[session_id] = CachedContext(session_id, reason)
        entry.users += 1
        self._entries.move_to_end(session_id)
        return ContextHandle(self, entry, is_run)

    def on_change(self, change: CommittedChange) -> None:
        """Apply a change of this process. The store passes every change, in order."""
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

    async def evict_idle(self) -> None:
        """Evict what nothing has used for a while. Call this periodically."""
        unused_since = self._clock.now_ms() - self._idle_ms
        for entry in list(self._entries.values()):
            if not entry.users and entry.used_at > unused_since:
                return  # All after it were used later.
            if not entry.users:
                self._start_eviction(entry)

    async def close(self, timeout_s: float = EVICT_S_MAX) -> None:
        """Release everything within `timeout_s`. The memory queue loses nothing by that."""
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
                # Whether the memory commit succeeds or not.
                entry.close()
