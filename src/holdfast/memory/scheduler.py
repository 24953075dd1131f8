"""Schedule memory commits in the background, without delaying a conversation.

The store keeps the queue of turns to commit (domain/decisions/memory_queue.py). The scheduler commits a
conversation at its boundaries, at its owner's eviction, after idle time, on request, and at the server's
start and stop. It holds no durable state: the next process finds the same queue.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from holdfast.aio.keyed_locks import KeyedLocks
from holdfast.domain.clock import Clock, Instant
from holdfast.domain.decisions import memory_queue
from holdfast.domain.errors import HoldfastError, NoSuchQueuedCommit, NoSuchSession
from holdfast.domain.events.facts import AnyFact
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import (
    ACTIVE_OWNERS_MAX,
    COMMIT_S_MAX,
    COMMITS_AT_ONCE_MAX,
    EVICT_S_MAX,
    QUEUED_COMMITS_SHOWN_MAX,
)
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.domain.state.rows import QueuedCommit
from holdfast.domain.state.session_state import SessionStateView
from holdfast.memory.active_owners import ActiveOwner, ActiveOwners
from holdfast.memory.backoff import OwnerBackoff
from holdfast.memory.committer import InDoubtPolicy, MemoryCommitter, SegmentCommitResult, Sleep
from holdfast.memory.ports import BuildProvider, MemoryQueue, Owner
from holdfast.memory.provider_calls import ProviderCaller
from holdfast.memory.provider_resolver import OwnerStore, ProviderResolver

STOP_MARGIN_S = 0.5
"""Extra time that a stop takes to record what it cancelled."""
POLL_S_MAX = 5.0


class CommitScheduler:
    """The active owners and the commits of all conversations. Belongs to one event loop.

    A method does nothing for an empty or missing session id. `rng` returns a number from 0 to 1. The texts of
    providers pass through `mask` before they are stored.
    """

    def __init__(
        self,
        queue: MemoryQueue,
        build: BuildProvider,
        clock: Clock,
        ids: IdGenerator,
        in_doubt: InDoubtPolicy,
        rng: Callable[[], float],
        mask: MaskFunction = no_mask,
        sleep: Sleep = asyncio.sleep,
        owners_max: int = ACTIVE_OWNERS_MAX,
        commit_s: float = COMMIT_S_MAX,
        evict_s: float = EVICT_S_MAX,
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._sleep = sleep
        self._evict_s = evict_s
        self._owners = OwnerStore(queue)
        self._active_owners = ActiveOwners(owners_max)
        self._backoff = OwnerBackoff(clock, rng)
        self._locks = KeyedLocks()
        caller = ProviderCaller(mask, COMMITS_AT_ONCE_MAX)
        self._resolver = resolver = ProviderResolver(self._owners, build, caller)
        self._committer = MemoryCommitter(
            queue, resolver, clock, ids, in_doubt, self._backoff, caller, sleep, commit_s
        )
        self._tasks: set[asyncio.Task[Any]] = set()
        self._evictions: set[asyncio.Task[None]] = set()
        self._poller_task: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def counts(self) -> Counter[str]:
        """Return the counts since the start by outcome: committed, failed, in_doubt, no_owner; forget_done,
        forget_failed, forget_cannot."""
        return self._committer.counts

    @property
    def unavailable_owners(self) -> Mapping[str, str]:
        """Return the reason for each owner, by digest, whose provider could not be built the last time."""
        return self._resolver.unavailable

    async def pending_totals(self) -> tuple[int, Instant]:
        """Return the number of pending entries, and the time of the oldest; 0 if there is none."""
        return await self._queue.pending_totals()

    # Active owners.

    async def register_owner(self, session_id: SessionId | str | None, owner: Owner) -> str:
        """Make `owner` commit the turns that complete in this conversation from now on; return its digest.

        Entries that are already pending keep their owner. Raises StoreFault.
        """
        if not session_id:
            return ""
        digest = await self._owners.save(owner)
        for surplus in self._active_owners.put(SessionId(session_id), digest):
            self._spawn(self.evict(surplus))
        self._backoff.record_success("")  # The new owner may commit entries that had none.
        return digest

    def active_owner(self, session_id: SessionId | str | None) -> str:
        """Return the digest of the active owner; empty if there is none."""
        handle = self._active_owners.get(SessionId(session_id or ""))
        return handle.owner if handle is not None else ""

    # Committing.

    async def commit_pending(
        self, session_id: SessionId | str | None, fallback_owner: str = "", requested: bool = False
    ) -> SegmentCommitResult:
        """Retract what was undone, then commit until nothing is pending or one attempt fails.

        Unless `requested`, failed entries wait for their retry time. Works for deleted conversations too.
        Raises StoreFault.
        """
        if not session_id:
            return SegmentCommitResult("nothing")
        session_id = SessionId(session_id)
        committed, tried, failed = 0, set[tuple[int, int]](), SegmentCommitResult("nothing")
        async with self._locks.lock(session_id):
            while True:
                active_owner = self.active_owner(session_id)
                retraction = await self._committer.retract_next(
                    session_id, fallback_owner, active_owner, requested, tried
                )
                if retraction is not None:
                    tried.add(retraction[0])
                    failed = retraction[1] if retraction[1].status != "nothing" else failed
                    continue
                outcome = await self._committer.commit_next(
                    session_id, fallback_owner, active_owner, requested
                )
                committed += outcome.committed
                if outcome.status != "committed":
                    return _combine_outcomes(committed, outcome, failed)

    def schedule_commit(self, session_id: SessionId | str | None) -> None:
        """Commit a conversation's pending turns in the background."""
        if session_id and not self._is_stopping:
            self._spawn(self._commit_quietly(SessionId(session_id)))

    async def resolve(
        self, session_id: SessionId | str | None, n: int, decision: str, deleted: bool = False
    ) -> None:
        """Apply a person's decision to segment `n`: retry, done or drop.

        With `deleted`, the first deleted conversation with such a segment is meant. Otherwise the existing
        one is, or the last deleted one. Raises NoSuchQueuedCommit, CommitDecisionRefused, StoreFault.
        """
        if not session_id:
            return
        session_id = SessionId(session_id)
        pending = await self._queue.pending_for(session_id)
        deleted_numbers = [entry.number for entry in pending if entry.is_deleted and entry.row.n == n]

        def decide(view: SessionStateView) -> list[AnyFact]:
            if view.session() is None:
                raise NoSuchSession(session_id=session_id)
            return memory_queue.resolve(view, n, decision)

        if deleted and not deleted_numbers:
            raise NoSuchQueuedCommit(n=n)
        try:
            await self._queue.change(session_id, decide, deleted_numbers[0] if deleted else 0)
        except NoSuchSession:
            await self._committer.change_if_exists(
                session_id, decide, deleted_numbers[-1] if deleted_numbers else 0
            )
        if decision == "retry" and not self._is_stopping:
            self._spawn(self._commit_quietly(session_id, requested=True))

    async def evict(self, session_id: SessionId | str | None) -> None:
        """Commit what is pending, then remove the active owner.

        Waits at most `evict_s` for the commit; the rest stays pending. Concurrent calls share one eviction.
        """
        if not session_id:
            return
        session_id = SessionId(session_id)
        handle = self._active_owners.get(session_id)
        if handle is None:
            await self._commit_in_time(session_id)
            return
        if handle.eviction is None:
            handle.eviction = asyncio.create_task(self._evict(session_id, handle))
            self._evictions.add(handle.eviction)
            handle.eviction.add_done_callback(self._evictions.discard)
        await asyncio.shield(handle.eviction)

    # From the server's start to its stop.

    async def start(self, idle_s: float) -> None:
        """Commit what is pending from before, then poll. A conversation is due after `idle_s` idle."""
        poller = DuePoller(
            self._queue, self._clock, idle_s, self._backoff.owners_in_backoff, self._start_due, self._sleep
        )
        self._poller_task = asyncio.create_task(poller.run())

    async def stop(self, within_s: float) -> None:
        """Wait for running commits, then commit what is due, for at most `within_s`."""
        self._is_stopping = True
        if self._poller_task is not None:
            self._poller_task.cancel()
        ending: set[asyncio.Task[Any]] = {self._poller_task} if self._poller_task is not None else set()
        if within_s > 0:  # With no time left, a new commit would only be cancelled.
            draining = asyncio.create_task(self._drain())
            await asyncio.wait({draining}, timeout=within_s)
            ending.add(draining)
        ending |= self._tasks
        for task in ending:
            task.cancel()
        ending |= self._evictions
        done, _ = await asyncio.wait(ending, timeout=STOP_MARGIN_S) if ending else (set(), set())
        for task in done:
            if not task.cancelled():
                task.exception()  # Retrieved, so that asyncio does not warn.

    async def _drain(self) -> None:
        """Commit each conversation with due entries once; those in backoff are skipped."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        seen, limit = set[SessionId](), QUEUED_COMMITS_SHOWN_MAX
        while True:
            now = self._clock.now_ms()
            due = await self._queue.due_entries(now, now, limit, self._backoff.owners_in_backoff())
            fresh = {entry.session_id for entry in due} - seen
            if not fresh and len(due) < limit:
                return
            seen |= fresh
            # Entries that failed are in front of those that were not tried.
            limit += QUEUED_COMMITS_SHOWN_MAX if not fresh else 0
            await asyncio.gather(*(self._spawn(self._commit_quietly(each)) for each in sorted(fresh)))

    # In the background.

    def _start_due(self, due: Sequence[QueuedCommit]) -> list["asyncio.Task[SegmentCommitResult]"]:
        sessions = dict.fromkeys(entry.session_id for entry in due)
        free = [each for each in sessions if not self._locks.is_used(each)]
        return [self._spawn(self._commit_quietly(each)) for each in free]

    async def _commit_quietly(self, session_id: SessionId, requested: bool = False) -> SegmentCommitResult:
        try:
            return await self.commit_pending(session_id, requested=requested)
        except HoldfastError as error:
            # The store failed: the entry is still pending in it, and the next poll finds it.
            return SegmentCommitResult("failed", detail=str(error))

    async def _commit_in_time(self, session_id: SessionId) -> None:
        """Commit within `evict_s`; a slower commit continues in the background."""
        await asyncio.wait({self._spawn(self._commit_quietly(session_id))}, timeout=self._evict_s)

    async def _evict(self, session_id: SessionId, handle: ActiveOwner) -> None:
        await self._commit_in_time(session_id)
        self._active_owners.remove(session_id, handle)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _combine_outcomes(
    committed: int, last: SegmentCommitResult, before: SegmentCommitResult
) -> SegmentCommitResult:
    """Return the outcome of several attempts; a failure takes precedence."""
    bad = next((each for each in (last, before) if each.status not in ("committed", "nothing")), None)
    if bad is not None:
        return SegmentCommitResult(bad.status, committed, bad.detail)
    return SegmentCommitResult("committed" if committed else "nothing", committed)


StartCommits = Callable[[Sequence[QueuedCommit]], list["asyncio.Task[SegmentCommitResult]"]]
"""Start background commits of these conversations, except where one is running."""


class DuePoller:
    """Poll the queue for due entries, skipping `owners_in_backoff`."""

    def __init__(
        self,
        queue: MemoryQueue,
        clock: Clock,
        idle_s: float,
        owners_in_backoff: Callable[[], list[str]],
        start_commits: StartCommits,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._queue = queue
        self._clock = clock
        self._idle_ms = int(idle_s * 1000)
        self._poll_s = min(POLL_S_MAX, idle_s / 2)
        self._started_at = clock.now_ms()
        self._owners_in_backoff = owners_in_backoff
        self._start_commits = start_commits
        self._sleep = sleep

    async def run(self) -> None:
        """Poll until cancelled."""
        while True:
            try:
                has_more = await self.poll_once()
            except (HoldfastError, OSError):
                # The store reports its faults to its other callers; the poller only waits.
                has_more = False
            if not has_more:
                await self._sleep(self._poll_s)

    async def poll_once(self) -> bool:
        """Start commits of due entries; return whether to poll again at once."""
        now = self._clock.now_ms()
        self._started_at = min(self._started_at, now)  # The clock may have been put back.
        # Entries from before this start are due at once: their conversation may never continue.
        quiet_since = max(self._started_at, now - self._idle_ms)
        due = await self._queue.due_entries(
            quiet_since, now, QUEUED_COMMITS_SHOWN_MAX, self._owners_in_backoff()
        )
        tasks = self._start_commits(due)
        if len(due) < QUEUED_COMMITS_SHOWN_MAX or not tasks:
            return False
        done, _ = await asyncio.wait(tasks, timeout=self._poll_s)
        return any(not task.cancelled() and not task.exception() and task.result().committed for task in done)
