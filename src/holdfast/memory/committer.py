"""Commit one segment of turns to a provider: record the start, call the provider, record the outcome.

Within this process the caller runs one commit per conversation at a time. Between processes the state of the
queue entry does, and its attempt number fences a process that was presumed lost.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Literal

import msgspec

from holdfast.domain.clock import Clock, Instant, is_due
from holdfast.domain.decisions import memory_queue
from holdfast.domain.errors import HoldfastError, NoSuchSession, ProviderCannot, StoreFault
from holdfast.domain.events.facts import AnyFact, Failure, MemoryCommitStarted
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import COMMIT_RETRY_MS_MAX, COMMIT_S_MAX
from holdfast.domain.ranges import expand_ranges, to_ranges
from holdfast.domain.state.rows import QueuedCommit, QueuedCommitRow, SessionRow
from holdfast.domain.state.session_state import Decide, Facts, SessionStateView
from holdfast.memory.backoff import OwnerBackoff
from holdfast.memory.ports import MemoryQueue, Segment, SegmentMessage
from holdfast.memory.provider_calls import ProviderCaller, ProviderCallResult
from holdfast.memory.provider_resolver import NoProvider, ProviderResolver, ResolvedProvider
from holdfast.memory.segments import fit_messages, messages_digest, messages_in

CommitStatus = Literal["committed", "nothing", "failed", "no_owner", "in_doubt", "busy"]
InDoubtPolicy = Literal["ask", "retry"]
Sleep = Callable[[float], Awaitable[None]]
EntryKey = tuple[int, int]
"""A segment: the store's number of its conversation, and its own number in it."""

LOST_MS = COMMIT_S_MAX * 1000 + 60_000
"""An attempt that started this long ago is lost, even if its process lives."""
TURNS_PER_READ = 20
"""Turns of a segment that one read loads: each may exceed a megabyte."""
REREADS_MAX = 8
"""Reads of an entry that keeps changing, before the committer gives up."""
WRITE_ATTEMPTS_MAX = 3
"""Attempts to record a provider's answer."""
WRITE_RETRY_S = 1.0


class SegmentCommitResult(msgspec.Struct, frozen=True):
    """The outcome of a commit; `committed` counts segments."""

    status: CommitStatus
    committed: int = 0
    detail: str = ""


class MemoryCommitter:
    """Commit and retract segments, one at a time. `counts` counts outcomes."""

    def __init__(
        self,
        queue: MemoryQueue,
        resolver: ProviderResolver,
        clock: Clock,
        ids: IdGenerator,
        in_doubt: InDoubtPolicy,
        backoff: OwnerBackoff,
        caller: ProviderCaller,
        sleep: Sleep,
        commit_s: float,
    ) -> None:
        self._queue = queue
        self._resolver = resolver
        self._clock = clock
        self._ids = ids
        self._in_doubt = in_doubt
        self._backoff = backoff
        self._caller = caller
        self._sleep = sleep
        self._commit_s = commit_s
        self.counts: Counter[str] = Counter()

    async def commit_next(
        self, session_id: SessionId, fallback_owner: str, active_owner: str, requested: bool
    ) -> SegmentCommitResult:
        """Commit the oldest pending segment. Raises StoreFault.

        Its own owner commits it, else `fallback_owner`; if it never had an owner, `fallback_owner` or else
        `active_owner`. Unless `requested`, it must be due.
        """
        for _ in range(REREADS_MAX):
            entry, has_doubt = await self._next_entry(session_id)
            if entry is None:
                return SegmentCommitResult("in_doubt") if has_doubt else SegmentCommitResult("nothing")
            if entry.row.state == "committing":
                if not await self._recover_if_lost(session_id, entry):
                    return SegmentCommitResult("busy", detail="it is being told")
                continue
            candidates = (
                (entry.row.owner, fallback_owner) if entry.row.owner else (fallback_owner or active_owner,)
            )
            async with self._caller.slots:
                # Checked again once a slot is free: an earlier commit may have started a backoff.
                if not requested and not self._is_due(entry.row):
                    return SegmentCommitResult("failed", detail=_failure_detail(entry.row))
                resolved = await self._resolver.resolve_first(*candidates)
                if isinstance(resolved, NoProvider):
                    self._backoff.record_failure(entry.row.owner)
                    return self._count(SegmentCommitResult("no_owner", detail=resolved.detail))
                outcome = await self._commit(session_id, entry, resolved)
            if outcome is not None:
                return outcome
        return SegmentCommitResult("busy", detail="it changes all the time")

    async def retract_next(
        self,
        session_id: SessionId,
        fallback_owner: str,
        active_owner: str,
        requested: bool,
        tried: Collection[EntryKey],
    ) -> tuple[EntryKey, SegmentCommitResult] | None:
        """Retract one undone segment that is not in `tried`, if one is due. Raises StoreFault.

        Returns its key and the outcome; None if none is due.
        """
        for entry in await self._pending_retractions(session_id):
            row = entry.row
            entry_key = (entry.number, row.n)
            if entry_key in tried or not (requested or self._is_due(row)):
                continue
            if row.state == "committing" and not await self._recover_if_lost(session_id, entry):
                continue
            async with self._caller.slots:
                return entry_key, await self._retract(
                    session_id, entry, (row.owner, fallback_owner, active_owner)
                )
        return None

    async def change_if_exists(self, session_id: SessionId, decide: Decide, number: int) -> Facts:
        """Commit `decide` to the conversation of that number, even if it was deleted.

        Returns no facts if it no longer exists. Raises StoreFault, and what `decide` raises.
        """
        with suppress(NoSuchSession):
            return await self._queue.change(session_id, decide, number)
        return ()

    # One attempt.

    async def _commit(
        self, session_id: SessionId, entry: QueuedCommit, resolved: ResolvedProvider
    ) -> SegmentCommitResult | None:
        """Make one attempt; return None if the entry changed since it was read."""
        full_messages, digest = await self._read_messages(session_id, entry)
        begun = await self._begin(session_id, entry, resolved, digest)
        if begun is None:
            return None
        started, session = begun
        if started.digest != digest:
            detail = "what was said is not what it was when memory was first told of it"
            return await self._record_failure(
                session_id, entry.number, started, Failure("memory_changed", detail)
            )
        messages = await asyncio.to_thread(fit_messages, full_messages)
        segment = _segment(session_id, started, session, messages)
        try:
            answer = await self._caller.call(lambda: resolved.provider.commit(segment), self._commit_s)
        except asyncio.CancelledError:
            if resolved.takes_key:
                # Best effort: if this write fails, the next start recovers the entry.
                with suppress(HoldfastError):
                    stopped = _failure_decision(started, Failure("memory_failed", "the server stopped"), 0)
                    await self.change_if_exists(session_id, stopped, entry.number)
            raise
        return await self._record_answer(session_id, entry.number, started, resolved, answer)

    async def _read_messages(
        self, session_id: SessionId, entry: QueuedCommit
    ) -> tuple[tuple[SegmentMessage, ...], str]:
        """Return a segment's messages and their digest. Reads in batches and hashes in a thread."""
        messages: list[SegmentMessage] = []
        numbers = expand_ranges(entry.row.turns)
        for first in range(0, len(numbers), TURNS_PER_READ):
            turns = to_ranges(numbers[first : first + TURNS_PER_READ])
            pages = await self._queue.turn_messages(session_id, turns, entry.number)
            messages += await asyncio.to_thread(messages_in, pages, turns)
        return tuple(messages), await asyncio.to_thread(messages_digest, messages)

    async def _begin(
        self, session_id: SessionId, entry: QueuedCommit, resolved: ResolvedProvider, digest: str
    ) -> tuple[MemoryCommitStarted, SessionRow] | None:
        seen: list[SessionRow | None] = []
        row, key, own = entry.row, self._ids.commit_key(), self._queue.own_process
        owner, takes_key = resolved.owner, resolved.takes_key

        def decide(view: SessionStateView) -> list[AnyFact]:
            seen[:] = [view.session()]
            return memory_queue.start(view, row.n, row.turns, owner, key, digest, own, takes_key)

        try:
            facts = await self._queue.change(session_id, decide, entry.number)
        except NoSuchSession:
            return None
        started, session = facts[0] if facts else None, seen[0]
        if isinstance(started, MemoryCommitStarted) and session is not None:
            return started, session
        return None

    async def _record_answer(
        self,
        session_id: SessionId,
        number: int,
        started: MemoryCommitStarted,
        resolved: ResolvedProvider,
        answer: ProviderCallResult,
    ) -> SegmentCommitResult:
        """Record a provider's answer. Only a receipt is a success."""
        n, attempt, failure = started.segment, started.attempt, answer.failure
        if failure is None and not isinstance(answer.value, str):
            kind = type(answer.value).__name__
            failure = Failure("memory_failed", f"it returned something that is no receipt ({kind})")
            answer = ProviderCallResult(failure=failure, cut_off=True)
        if failure is None:
            self._backoff.record_success(resolved.owner)
            receipt = self._caller.safe_text(str(answer.value))
            commit = partial(memory_queue.complete, n=n, attempt=attempt, receipt=receipt)
            facts = await self._change_with_retry(session_id, commit, number)
            # Fenced: another process presumed this attempt lost, and reports it.
            return self._count(SegmentCommitResult("committed", 1)) if facts else SegmentCommitResult("busy")
        self._backoff.record_failure(resolved.owner)
        if answer.cut_off and not resolved.takes_key and self._in_doubt == "ask":
            is_lost = partial(_is_attempt, attempt=attempt)
            mark_in_doubt = partial(
                memory_queue.abandon_lost_attempt, n=n, is_lost=is_lost, takes_key=False, failure=failure
            )
            await self._change_with_retry(session_id, mark_in_doubt, number)
            return self._count(SegmentCommitResult("in_doubt", detail=failure.detail))
        return await self._record_failure(session_id, number, started, failure)

    async def _record_failure(
        self, session_id: SessionId, number: int, started: MemoryCommitStarted, failure: Failure
    ) -> SegmentCommitResult:
        retry_at = self._backoff.retry_at(started.attempt)
        await self._change_with_retry(session_id, _failure_decision(started, failure, retry_at), number)
        return self._count(SegmentCommitResult("failed", detail=failure.detail))

    async def _retract(
        self, session_id: SessionId, entry: QueuedCommit, candidates: tuple[str, ...]
    ) -> SegmentCommitResult:
        row, resolved = entry.row, await self._resolver.resolve_first(*candidates)
        if isinstance(resolved, NoProvider):
            self._backoff.record_failure(row.owner)
            return self._count(SegmentCommitResult("no_owner", detail=resolved.detail))
        provider = resolved.provider
        answer = await self._caller.call(lambda: provider.retract(row.key, row.receipt), self._commit_s)
        return await self._record_retraction(session_id, entry, resolved.owner, answer)

    async def _record_retraction(
        self, session_id: SessionId, entry: QueuedCommit, owner: str, answer: ProviderCallResult
    ) -> SegmentCommitResult:
        """Record the outcome of a retraction."""
        failure, outcome, retry_at = answer.failure, "done", 0
        if failure is None:
            self._backoff.record_success(owner)
        elif failure.code == ProviderCannot.code:
            outcome = "cannot"
        else:
            outcome, retry_at = "failed", self._backoff.record_failure(owner)
        forget = partial(
            memory_queue.record_retraction, n=entry.row.n, outcome=outcome, failure=failure, retry_at=retry_at
        )  # fmt: skip
        await self._change_with_retry(session_id, forget, entry.number)
        self.counts[f"forget_{outcome}"] += 1
        detail = failure.detail if failure is not None else ""
        return SegmentCommitResult("failed" if outcome == "failed" else "nothing", detail=detail)

    async def _recover_if_lost(self, session_id: SessionId, entry: QueuedCommit) -> bool:
        """Return whether a running attempt was lost; if so, schedule a retry or mark it in doubt."""
        row = entry.row
        # This process is not running it: the caller holds the conversation's lock.
        is_own = row.process_id == self._queue.own_process
        is_dead = row.process_id is None or not self._queue.is_alive(row.process_id)
        if not (is_own or is_dead or is_due(row.started_at + LOST_MS, self._clock.now_ms(), LOST_MS)):
            return False
        # Recorded at the start: the provider may no longer exist.
        may_retry = self._in_doubt == "retry" or row.takes_key
        failure = Failure("memory_failed", "the server stopped while memory was being told")
        is_lost = partial(_is_attempt, attempt=row.attempts)
        give_up = partial(
            memory_queue.abandon_lost_attempt, n=row.n, is_lost=is_lost, takes_key=may_retry, failure=failure
        )
        if await self.change_if_exists(session_id, give_up, entry.number) and not may_retry:
            self.counts["in_doubt"] += 1
        return True

    # Reading and writing.

    async def _next_entry(self, session_id: SessionId) -> tuple[QueuedCommit | None, bool]:
        """Return the entry to commit next, and whether one is in doubt. Deleted conversations come last."""
        has_doubt = False
        pending = await self._queue.pending_for(session_id)
        for _, entries in groupby(pending, lambda entry: entry.number):
            by_number = {entry.row.n: entry for entry in entries}
            rows = [entry.row for entry in by_number.values()]
            has_doubt = has_doubt or any(row.state == "in_doubt" for row in rows)
            row = memory_queue.first_pending(rows)
            if row is not None:
                return by_number[row.n], has_doubt
        return None, has_doubt

    async def _pending_retractions(self, session_id: SessionId) -> list[QueuedCommit]:
        return [
            entry for entry in await self._queue.pending_for(session_id) if entry.row.retraction == "wanted"
        ]

    def _is_due(self, row: QueuedCommitRow) -> bool:
        is_time = is_due(row.retry_at, self._clock.now_ms(), COMMIT_RETRY_MS_MAX)
        return is_time and not (row.owner and self._backoff.is_backing_off(row.owner))

    async def _change_with_retry(self, session_id: SessionId, decide: Decide, number: int) -> Facts:
        """Record a provider's answer; retry, so that a brief fault of the store does not lose it."""
        for _ in range(WRITE_ATTEMPTS_MAX - 1):
            with suppress(StoreFault):
                return await self.change_if_exists(session_id, decide, number)
            await self._sleep(WRITE_RETRY_S)
        return await self.change_if_exists(session_id, decide, number)

    def _count(self, outcome: SegmentCommitResult) -> SegmentCommitResult:
        self.counts[outcome.status] += 1
        return outcome


def _segment(
    session_id: SessionId,
    started: MemoryCommitStarted,
    session: SessionRow,
    messages: tuple[SegmentMessage, ...],
) -> Segment:
    return Segment(started.key, session_id, session.title, session.agent, started.turns, messages)


def _failure_decision(started: MemoryCommitStarted, failure: Failure, retry_at: Instant) -> Decide:
    return partial(
        memory_queue.fail, n=started.segment, attempt=started.attempt, failure=failure, retry_at=retry_at
    )  # fmt: skip


def _is_attempt(row: QueuedCommitRow, attempt: int) -> bool:
    return row.attempts == attempt


def _failure_detail(row: QueuedCommitRow) -> str:
    return row.failure.detail if row.failure is not None else "memory failed lately and is left in peace"
