"""What people see and change of memory, and having it told now. Nobody waits for it longer than a limit."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec.structs import replace

from holdfast.domain.clock import INSTANT_MAX
from holdfast.domain.errors import HoldfastError, MemoryOff, NoSuchDebt, NoSuchSession, TooLarge
from holdfast.domain.events.facts import Failure
from holdfast.domain.ids import Ids, SessionId
from holdfast.domain.limits import (
    DEBTS_SHOWN_MAX,
    MEMORY_CHARS_MAX,
    MEMORY_WAIT_S_MAX,
    PROVIDER_ASK_S_MAX,
    PROVIDER_HEALTH_S_MAX,
)
from holdfast.domain.memories import Known, Memory, MemoryPage, MemoryTold, Origin, Telling
from holdfast.domain.secrets import Masking, identity
from holdfast.domain.state.rows import Debt
from holdfast.memory.committer import Outcome
from holdfast.memory.ports import Health, Ledger, Owner, Provider, ProviderCannot
from holdfast.memory.provider_calls import in_time
from holdfast.memory.provider_resolver import Owners
from holdfast.memory.scheduler import Lifecycle

Titles = Callable[[Sequence[SessionId]], Awaitable[Mapping[SessionId, str]]]
"""The titles of those conversations that are there."""
SCOPE = ""
"""Whose memory people see: that of the agent that every server has."""
_NUMBERS_END = 2**63
_WORST: tuple[Telling, ...] = ("failed", "in_doubt", "no_owner", "working", "paid", "nothing")
"""What is told of several, if it came of one of them."""


class Desk:
    """`provider` is the present one, None while memory is off. `owner` is the present agent, which tells what
    nobody else is left to tell when a person asks for that. `recalls` is how often memory was asked.
    """

    def __init__(
        self,
        lifecycle: Lifecycle,
        ledger: Ledger,
        provider: Callable[[], Provider | None],
        owner: Callable[[], Owner | None],
        titles: Titles,
        recalls: Callable[[], Mapping[str, int]],
        ids: Ids,
        mask: Masking = identity,
        ask_s: float = PROVIDER_ASK_S_MAX,
        wait_s: float = MEMORY_WAIT_S_MAX,
    ) -> None:
        self._lifecycle = lifecycle
        self._ledger = ledger
        self._provider = provider
        self._owner = owner
        self._owners = Owners(ledger)
        self._titles = titles
        self._recalls = recalls
        self._ids = ids
        self._mask = mask
        self._ask_s = ask_s
        self._wait_s = wait_s
        self._at_work: dict[SessionId | None, asyncio.Task[MemoryTold]] = {}

    async def known(self, words: str, cursor: str | None, limit: int) -> Known:
        waiting, since = await self._ledger.debt_totals()
        provider = self._provider()
        if provider is None:
            return Known("off", True, "", MemoryPage(()), {}, waiting, since)
        health, (page, cannot) = await asyncio.gather(
            self._health(provider), self._page(provider, words, cursor, limit)
        )
        titles = await self.titles(sorted({each.origin.session_id for each in page.memories} - {""}))
        detail = self._mask(cannot if health.ok and cannot else health.detail)
        return Known(provider.name, health.ok, detail, page, titles, waiting, since, not cannot)

    async def add(self, text: str) -> Memory:
        key = self._ids.telling()
        provider, text = self._present(), self._checked(text)
        asked = in_time(Memory, lambda: provider.remember(text, SCOPE, Origin("user"), key), self._ask_s)
        return self._shown(await asked)

    async def edit(self, memory_id: str, text: str) -> Memory:
        provider, text = self._present(), self._checked(text)
        return self._shown(await in_time(Memory, lambda: provider.edit(memory_id, text), self._ask_s))

    async def forget(self, memory_id: str) -> None:
        provider = self._present()
        await in_time(type(None), lambda: provider.forget(memory_id), self._ask_s)

    async def titles(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, str]:
        return await self._titles(session_ids)

    async def waiting(self) -> tuple[Sequence[Debt], Sequence[Debt]]:
        waiting, kept = await self._ledger.shown_debts(DEBTS_SHOWN_MAX)
        return [self._explained(debt) for debt in waiting], kept

    async def commit(self, session_id: SessionId | None) -> MemoryTold:
        if session_id is not None:
            await self._check_session(session_id)
        task = self._at_work.get(session_id)
        if task is None:
            work = self._tell_all() if session_id is None else self._tell([session_id])
            task = self._at_work[session_id] = asyncio.create_task(work)
            task.add_done_callback(_hear)
            task.add_done_callback(lambda done: self._at_work.pop(session_id, None))
        # It goes on when nobody waits for it any more.
        done, _ = await asyncio.wait({task}, timeout=self._wait_s)
        return task.result() if done else MemoryTold("working")

    async def resolve(
        self, session_id: SessionId, segment: int, decision: str, deleted: bool = False
    ) -> None:
        if not 0 < segment < _NUMBERS_END:
            raise NoSuchDebt(n=segment)
        await self._check_session(session_id)
        await self._lifecycle.resolve(session_id, segment, decision, deleted)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        return {"commits": self._lifecycle.counts, "recalls": self._recalls()}

    async def close(self) -> None:
        """Stop what was asked for and still goes on. What is not told stays owed."""
        tasks = list(self._at_work.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _present(self) -> Provider:
        provider = self._provider()
        if provider is None:
            raise MemoryOff()
        return provider

    def _checked(self, text: str) -> str:
        text = self._mask(text)
        if len(text) > MEMORY_CHARS_MAX:
            raise TooLarge(what="the memory", size=len(text), limit=MEMORY_CHARS_MAX)
        return text

    def _shown(self, memory: Memory) -> Memory:
        """A memory as people are shown it, whatever a provider says: no secrets, no time that is none."""
        made_at, changed_at = (
            at if 0 <= at <= INSTANT_MAX else 0 for at in (memory.made_at, memory.changed_at)
        )
        return replace(memory, text=self._mask(memory.text), made_at=made_at, changed_at=changed_at)

    def _explained(self, debt: Debt) -> Debt:
        """What nobody can tell says why, also where nobody has begun to."""
        why = self._lifecycle.gone.get(debt.row.owner, "") if debt.row.owner else ""
        if not why or debt.row.failure is not None or debt.row.state == "committing":
            return debt
        return replace(debt, row=replace(debt.row, failure=Failure("owner_gone", self._mask(why))))

    async def _check_session(self, session_id: SessionId) -> None:
        if session_id in await self.titles((session_id,)):
            return
        if not await self._ledger.owing(session_id):
            raise NoSuchSession(session_id=session_id)

    async def _page(
        self, provider: Provider, words: str, cursor: str | None, limit: int
    ) -> tuple[MemoryPage, str]:
        try:
            listed = partial(provider.list_, SCOPE, words, cursor, limit)
            page = await in_time(MemoryPage, listed, self._ask_s, limit)
        except ProviderCannot as cannot:
            return MemoryPage(()), str(cannot)
        return MemoryPage(tuple(map(self._shown, page.memories)), page.cursor), ""

    async def _health(self, provider: Provider) -> Health:
        try:
            return await in_time(Health, lambda: provider.health(), min(self._ask_s, PROVIDER_HEALTH_S_MAX))
        except HoldfastError as error:
            return Health(False, str(error))

    async def _tell_all(self) -> MemoryTold:
        """Each conversation that owes something once, the oldest debts first."""
        told, tried, limit = [MemoryTold("nothing")], set[SessionId](), DEBTS_SHOWN_MAX
        while True:
            owing = [debt.session_id for debt in await self._ledger.open_debts(limit)]
            fresh = [each for each in dict.fromkeys(owing) if each not in tried]
            if not fresh:
                return _merged(told)
            told.append(await self._tell(fresh))
            tried.update(fresh)
            # What could not be told is still in front of what was not tried.
            limit += DEBTS_SHOWN_MAX

    async def _tell(self, session_ids: Sequence[SessionId]) -> MemoryTold:
        present = self._owner()
        owner = await self._owners.keep(present) if present is not None else ""
        settling = (self._lifecycle.settle(each, owner, asked=True) for each in session_ids)
        return _merged(_told(outcome) for outcome in await asyncio.gather(*settling))


def _told(outcome: Outcome) -> MemoryTold:
    return MemoryTold("working" if outcome.status == "busy" else outcome.status, outcome.paid, outcome.detail)


def _merged(told: Iterable[MemoryTold]) -> MemoryTold:
    """Of several, the worst that came of any, and all that was done."""
    ranked = sorted(told, key=lambda each: _WORST.index(each.outcome))
    return MemoryTold(ranked[0].outcome, sum(each.paid for each in ranked), ranked[0].detail)


def _hear(task: "asyncio.Task[Any]") -> None:
    """What came of it, once nobody waits for it: that is told elsewhere."""
    if not task.cancelled():
        task.exception()
