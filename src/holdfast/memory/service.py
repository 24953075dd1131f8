"""Let people list and change memories, and commit pending turns on request, each within a time limit."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.domain.clock import INSTANT_MAX
from holdfast.domain.errors import HoldfastError, MemoryOff, NoSuchQueuedCommit, NoSuchSession, TooLarge
from holdfast.domain.events.facts import Failure
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import (
    MEMORY_CHARS_MAX,
    MEMORY_WAIT_S_MAX,
    PROVIDER_HEALTH_S_MAX,
    PROVIDER_REQUEST_S_MAX,
    QUEUED_COMMITS_SHOWN_MAX,
)
from holdfast.domain.memories import CommitOutcome, CommitReport, Memory, MemoryOverview, MemoryPage, Origin
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.domain.state.rows import QueuedCommit
from holdfast.memory.committer import SegmentCommitResult
from holdfast.memory.ports import Health, MemoryQueue, Owner, Provider, ProviderCannot
from holdfast.memory.provider_calls import call_with_timeout
from holdfast.memory.provider_resolver import OwnerStore
from holdfast.memory.scheduler import CommitScheduler

LoadTitles = Callable[[Sequence[SessionId]], Awaitable[Mapping[SessionId, str]]]
"""Return the titles of those conversations that exist."""
SCOPE = ""
"""The scope that people see: that of the main agent, which every server has."""
_NUMBERS_END = 2**63
_SEVERITY_ORDER: tuple[CommitOutcome, ...] = (
    "failed",
    "in_doubt",
    "no_owner",
    "working",
    "committed",
    "nothing",
)
"""Several commits report the first of these outcomes that any of them had."""


class ProviderMemoryService:
    """The memory service over the current provider.

    `provider` returns the current one, None while memory is off. `owner` returns the current agent: in a
    requested commit it replaces owners that are gone. `recalls` returns the recall counts.
    """

    def __init__(
        self,
        scheduler: CommitScheduler,
        queue: MemoryQueue,
        provider: Callable[[], Provider | None],
        owner: Callable[[], Owner | None],
        titles: LoadTitles,
        recall_counts: Callable[[], Mapping[str, int]],
        ids: IdGenerator,
        mask: MaskFunction = no_mask,
        ask_s: float = PROVIDER_REQUEST_S_MAX,
        wait_s: float = MEMORY_WAIT_S_MAX,
    ) -> None:
        self._scheduler = scheduler
        self._queue = queue
        self._provider = provider
        self._owner = owner
        self._owners = OwnerStore(queue)
        self._titles = titles
        self._recalls = recall_counts
        self._ids = ids
        self._mask = mask
        self._ask_s = ask_s
        self._wait_s = wait_s
        self._commits: dict[SessionId | None, asyncio.Task[CommitReport]] = {}

    async def list_memories(self, words: str, cursor: str | None, limit: int) -> MemoryOverview:
        pending, since = await self._queue.pending_totals()
        provider = self._provider()
        if provider is None:
            return MemoryOverview("off", True, "", MemoryPage(()), {}, pending, since)
        health, (page, unsupported) = await asyncio.gather(
            self._health(provider), self._page(provider, words, cursor, limit)
        )
        titles = await self.titles(sorted({each.origin.session_id for each in page.memories} - {""}))
        detail = self._mask(unsupported if health.ok and unsupported else health.detail)
        return MemoryOverview(provider.name, health.ok, detail, page, titles, pending, since, not unsupported)

    async def add(self, text: str) -> Memory:
        key = self._ids.commit_key()
        provider, text = self._require_provider(), self._validated(text)
        call = call_with_timeout(
            Memory, lambda: provider.remember(text, SCOPE, Origin("user"), key), self._ask_s
        )
        return self._for_display(await call)

    async def edit(self, memory_id: str, text: str) -> Memory:
        provider, text = self._require_provider(), self._validated(text)
        return self._for_display(
            await call_with_timeout(Memory, lambda: provider.edit(memory_id, text), self._ask_s)
        )

    async def forget(self, memory_id: str) -> None:
        provider = self._require_provider()
        await call_with_timeout(type(None), lambda: provider.forget(memory_id), self._ask_s)

    async def titles(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, str]:
        return await self._titles(session_ids)

    async def pending(self) -> tuple[Sequence[QueuedCommit], Sequence[QueuedCommit]]:
        pending, not_retractable = await self._queue.entries_to_show(QUEUED_COMMITS_SHOWN_MAX)
        return [self._with_reason(entry) for entry in pending], not_retractable

    async def commit(self, session_id: SessionId | None) -> CommitReport:
        if session_id is not None:
            await self._check_session(session_id)
        task = self._commits.get(session_id)
        if task is None:
            work = self._commit_all() if session_id is None else self._commit_sessions([session_id])
            task = self._commits[session_id] = asyncio.create_task(work)
            task.add_done_callback(_retrieve_exception)
            task.add_done_callback(lambda done: self._commits.pop(session_id, None))
        # The task continues after this wait has timed out.
        done, _ = await asyncio.wait({task}, timeout=self._wait_s)
        return task.result() if done else CommitReport("working")

    async def resolve(
        self, session_id: SessionId, segment: int, decision: str, deleted: bool = False
    ) -> None:
        if not 0 < segment < _NUMBERS_END:
            raise NoSuchQueuedCommit(n=segment)
        await self._check_session(session_id)
        await self._scheduler.resolve(session_id, segment, decision, deleted)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        return {"commits": self._scheduler.counts, "recalls": self._recalls()}

    async def close(self) -> None:
        """Cancel requested commits that still run. What is not committed stays pending."""
        tasks = list(self._commits.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _require_provider(self) -> Provider:
        provider = self._provider()
        if provider is None:
            raise MemoryOff()
        return provider

    def _validated(self, text: str) -> str:
        text = self._mask(text)
        if len(text) > MEMORY_CHARS_MAX:
            raise TooLarge(what="the memory", size=len(text), limit=MEMORY_CHARS_MAX)
        return text

    def _for_display(self, memory: Memory) -> Memory:
        """Return `memory` with secrets masked and invalid times replaced by 0."""
        made_at, changed_at = (
            at if 0 <= at <= INSTANT_MAX else 0 for at in (memory.made_at, memory.changed_at)
        )
        return replace(memory, text=self._mask(memory.text), made_at=made_at, changed_at=changed_at)

    def _with_reason(self, entry: QueuedCommit) -> QueuedCommit:
        """Return `entry` with the reason why its owner is unavailable, even if no attempt was made."""
        why = self._scheduler.unavailable_owners.get(entry.row.owner, "") if entry.row.owner else ""
        if not why or entry.row.failure is not None or entry.row.state == "committing":
            return entry
        return replace(entry, row=replace(entry.row, failure=Failure("owner_gone", self._mask(why))))

    async def _check_session(self, session_id: SessionId) -> None:
        if session_id in await self.titles((session_id,)):
            return
        if not await self._queue.pending_for(session_id):
            raise NoSuchSession(session_id=session_id)

    async def _page(
        self, provider: Provider, words: str, cursor: str | None, limit: int
    ) -> tuple[MemoryPage, str]:
        try:
            list_page = partial(provider.list_, SCOPE, words, cursor, limit)
            page = await call_with_timeout(MemoryPage, list_page, self._ask_s, limit)
        except ProviderCannot as unsupported:
            return MemoryPage(()), str(unsupported)
        return MemoryPage(tuple(map(self._for_display, page.memories)), page.cursor), ""

    async def _health(self, provider: Provider) -> Health:
        try:
            return await call_with_timeout(
                Health, lambda: provider.health(), min(self._ask_s, PROVIDER_HEALTH_S_MAX)
            )
        except HoldfastError as error:
            return Health(False, str(error))

    async def _commit_all(self) -> CommitReport:
        """Commit each conversation with pending entries once, the oldest entries first."""
        results, tried, limit = [CommitReport("nothing")], set[SessionId](), QUEUED_COMMITS_SHOWN_MAX
        while True:
            pending = [entry.session_id for entry in await self._queue.pending_entries(limit)]
            fresh = [each for each in dict.fromkeys(pending) if each not in tried]
            if not fresh:
                return _merge_results(results)
            results.append(await self._commit_sessions(fresh))
            tried.update(fresh)
            # Entries that failed are still in front of those that were not tried.
            limit += QUEUED_COMMITS_SHOWN_MAX

    async def _commit_sessions(self, session_ids: Sequence[SessionId]) -> CommitReport:
        current_owner = self._owner()
        owner = await self._owners.save(current_owner) if current_owner is not None else ""
        commits = (self._scheduler.commit_pending(each, owner, requested=True) for each in session_ids)
        return _merge_results(_to_result(outcome) for outcome in await asyncio.gather(*commits))


def _to_result(outcome: SegmentCommitResult) -> CommitReport:
    return CommitReport(
        "working" if outcome.status == "busy" else outcome.status, outcome.committed, outcome.detail
    )


def _merge_results(results: Iterable[CommitReport]) -> CommitReport:
    """Return the worst outcome of `results` and the sum of their commits."""
    ranked = sorted(results, key=lambda each: _SEVERITY_ORDER.index(each.outcome))
    return CommitReport(ranked[0].outcome, sum(each.committed for each in ranked), ranked[0].detail)


def _retrieve_exception(task: "asyncio.Task[Any]") -> None:
    """Mark the task's exception as retrieved: other code has reported it."""
    if not task.cancelled():
        task.exception()
