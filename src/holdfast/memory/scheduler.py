"""When memory is told: at the boundaries of a conversation, in the background, and never in anyone's way.

The store keeps the queue of turns to commit (domain/decisions/memory_queue.py). This module decides when to
commit: when a conversation is over for now, when an agent is evicted, after idle time, when a person asks, at
the server's start and at its stop. It holds no state that matters: the next process finds the same queue.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any

from holdfast.aio.keyed_locks import KeyedLocks
from holdfast.domain.clock import Clock, Instant
from holdfast.domain.decisions import memory_queue
from holdfast.domain.errors import HoldfastError, NoSuchDebt, NoSuchSession
from holdfast.domain.events.facts import AnyFact
from holdfast.domain.ids import Ids, SessionId
from holdfast.domain.limits import COMMIT_S_MAX, COMMITS_AT_ONCE_MAX, DEBTS_SHOWN_MAX, EVICT_S_MAX, OWNERS_MAX
from holdfast.domain.secrets import Masking, identity
from holdfast.domain.state.rows import Debt
from holdfast.domain.state.session_state import View
from holdfast.memory.active_owners import Handle, Roster
from holdfast.memory.backoff import Rests
from holdfast.memory.committer import InDoubt, Outcome, Sleep, Telling
from holdfast.memory.ports import Build, Ledger, Owner
from holdfast.memory.provider_calls import Calls
from holdfast.memory.provider_resolver import Owners, Tellers

STOP_MARGIN_S = 0.5
"""How much longer than asked a stop takes to write down what it has cut off."""
EVERY_S_MAX = 5.0


class Lifecycle:
    """Who is at hand to tell memory, and the occasions on which it is told. Belongs to one event loop.

    An empty or missing session id is nobody's: whatever is asked of it does nothing. `chance` gives a number
    from 0 to 1. What providers say goes through `mask` before it is kept.
    """

    def __init__(
        self,
        ledger: Ledger,
        build: Build,
        clock: Clock,
        ids: Ids,
        in_doubt: InDoubt,
        chance: Callable[[], float],
        mask: Masking = identity,
        sleep: Sleep = asyncio.sleep,
        handles_max: int = OWNERS_MAX,
        commit_s: float = COMMIT_S_MAX,
        evict_s: float = EVICT_S_MAX,
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._sleep = sleep
        self._evict_s = evict_s
        self._owners = Owners(ledger)
        self._roster = Roster(handles_max)
        self._rests = Rests(clock, chance)
        self._locks = KeyedLocks()
        calls = Calls(mask, COMMITS_AT_ONCE_MAX)
        self._tellers = tellers = Tellers(self._owners, build, calls)
        self._telling = Telling(ledger, tellers, clock, ids, in_doubt, self._rests, calls, sleep, commit_s)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._rounds: asyncio.Task[None] | None = None
        self._stopping = False

    @property
    def counts(self) -> Counter[str]:
        """How often each thing came of telling memory, since the start: paid, failed, in_doubt, no_owner;
        forget_done, forget_failed, forget_cannot."""
        return self._telling.counts

    @property
    def gone(self) -> Mapping[str, str]:
        """The owners that could not be made when they were last needed, by digest, and why."""
        return self._tellers.gone

    async def totals(self) -> tuple[int, Instant]:
        """How much is owed, and since when the oldest of it is; 0 when nothing is."""
        return await self._ledger.debt_totals()

    # Who is at hand.

    async def enrol(self, session_id: SessionId | str | None, owner: Owner) -> str:
        """`owner` tells memory of what is completed in this conversation from now on; returns its digest.

        What is owed already stays with whom it is owed by. Raises StoreFault.
        """
        if not session_id:
            return ""
        digest = await self._owners.keep(owner)
        for surplus in self._roster.put(SessionId(session_id), digest):
            self._spawn(self.evict(surplus))
        self._rests.succeeded("")  # What nobody could tell before, somebody may now.
        return digest

    def registered(self, session_id: SessionId | str | None) -> str:
        """The owner at hand, by its digest; empty if there is none."""
        handle = self._roster.get(SessionId(session_id or ""))
        return handle.owner if handle is not None else ""

    # Telling.

    async def settle(
        self, session_id: SessionId | str | None, owner: str = "", asked: bool = False
    ) -> Outcome:
        """Tell memory until nothing is owed or one try fails; what was undone is taken back first.

        Not `asked`, what failed lately waits until its time has come. A deleted conversation is found too.
        Raises StoreFault.
        """
        if not session_id:
            return Outcome("nothing")
        session_id = SessionId(session_id)
        paid, tried, failed = 0, set[tuple[int, int]](), Outcome("nothing")
        async with self._locks.lock(session_id):
            while True:
                at_hand = self.registered(session_id)
                taken = await self._telling.take_back(session_id, owner, at_hand, asked, tried)
                if taken is not None:
                    tried.add(taken[0])
                    failed = taken[1] if taken[1].status != "nothing" else failed
                    continue
                outcome = await self._telling.pay(session_id, owner, at_hand, asked)
                paid += outcome.paid
                if outcome.status != "paid":
                    return _in_all(paid, outcome, failed)

    def boundary(self, session_id: SessionId | str | None) -> None:
        """This conversation is over for now: tell memory in the background."""
        if session_id and not self._stopping:
            self._spawn(self._settle_quietly(SessionId(session_id)))

    async def resolve(
        self, session_id: SessionId | str | None, n: int, decision: str, buried: bool = False
    ) -> None:
        """A person's word on a stretch: retry, done or drop. Raises NoSuchDebt, DebtRefused, StoreFault.

        `buried`: of a deleted conversation, the first of them that has such a stretch. Without it the one
        that is there is meant, or the last that was.
        """
        if not session_id:
            return
        session_id = SessionId(session_id)
        owing = await self._ledger.owing(session_id)
        graves = [debt.number for debt in owing if debt.buried and debt.row.n == n]

        def decide(view: View) -> list[AnyFact]:
            if view.session() is None:
                raise NoSuchSession(session_id=session_id)
            return memory_queue.resolve(view, n, decision)

        if buried and not graves:
            raise NoSuchDebt(n=n)
        try:
            await self._ledger.change(session_id, decide, graves[0] if buried else 0)
        except NoSuchSession:
            await self._telling.write(session_id, decide, graves[-1] if graves else 0)
        if decision == "retry" and not self._stopping:
            self._spawn(self._settle_quietly(session_id, asked=True))

    async def evict(self, session_id: SessionId | str | None) -> None:
        """Let go of the agent at hand: tell memory, then forget the handle.

        Waits at most `evict_s` for memory; what is owed by then stays owed. The same handle leaves once,
        however often it is let go.
        """
        if not session_id:
            return
        session_id = SessionId(session_id)
        handle = self._roster.get(session_id)
        if handle is None:
            await self._settle_in_time(session_id)
            return
        if handle.leaving is None:
            handle.leaving = asyncio.create_task(self._let_go(session_id, handle))
            self._leaving.add(handle.leaving)
            handle.leaving.add_done_callback(self._leaving.discard)
        await asyncio.shield(handle.leaving)

    # From the server's start to its stop.

    async def start(self, idle_s: float) -> None:
        """Take up what is owed from before, then whatever becomes due; `idle_s` after its last answer a
        conversation is."""
        rounds = Rounds(self._ledger, self._clock, idle_s, self._rests.resting, self._take_up, self._sleep)
        self._rounds = asyncio.create_task(rounds.go())

    async def stop(self, within_s: float) -> None:
        """Wait for what is being told, then tell what is owed, at most `within_s`; the rest stays owed."""
        self._stopping = True
        if self._rounds is not None:
            self._rounds.cancel()
        ending: set[asyncio.Task[Any]] = {self._rounds} if self._rounds is not None else set()
        if within_s > 0:  # Without any time nothing is begun: it would only be cut off.
            draining = asyncio.create_task(self._drain())
            await asyncio.wait({draining}, timeout=within_s)
            ending.add(draining)
        ending |= self._tasks
        for task in ending:
            task.cancel()
        ending |= self._leaving
        done, _ = await asyncio.wait(ending, timeout=STOP_MARGIN_S) if ending else (set(), set())
        for task in done:
            if not task.cancelled():
                task.exception()  # Looked at: nobody is left to be told.

    async def _drain(self) -> None:
        """Each conversation that owes something once: those that failed lately are not waited for."""
        if self._tasks:
            await asyncio.wait(set(self._tasks))
        seen, limit = set[SessionId](), DEBTS_SHOWN_MAX
        while True:
            now = self._clock.now_ms()
            due = await self._ledger.due_debts(now, now, limit, self._rests.resting())
            fresh = {debt.session_id for debt in due} - seen
            if not fresh and len(due) < limit:
                return
            seen |= fresh
            # What could not be told stands in front of what was not tried.
            limit += DEBTS_SHOWN_MAX if not fresh else 0
            await asyncio.gather(*(self._spawn(self._settle_quietly(each)) for each in sorted(fresh)))

    # In the background.

    def _take_up(self, due: Sequence[Debt]) -> list["asyncio.Task[Outcome]"]:
        sessions = dict.fromkeys(debt.session_id for debt in due)
        free = [each for each in sessions if not self._locks.is_used(each)]
        return [self._spawn(self._settle_quietly(each)) for each in free]

    async def _settle_quietly(self, session_id: SessionId, asked: bool = False) -> Outcome:
        try:
            return await self.settle(session_id, asked=asked)
        except HoldfastError as error:
            # The store is away: what is owed is in it, and the next round finds it.
            return Outcome("failed", detail=str(error))

    async def _settle_in_time(self, session_id: SessionId) -> None:
        """It goes on in the background if it takes longer."""
        await asyncio.wait({self._spawn(self._settle_quietly(session_id))}, timeout=self._evict_s)

    async def _let_go(self, session_id: SessionId, handle: Handle) -> None:
        await self._settle_in_time(session_id)
        self._roster.drop(session_id, handle)

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _in_all(paid: int, last: Outcome, before: Outcome) -> Outcome:
    """What came of several tries: what did not go well is what is said."""
    bad = next((each for each in (last, before) if each.status not in ("paid", "nothing")), None)
    if bad is not None:
        return Outcome(bad.status, paid, bad.detail)
    return Outcome("paid" if paid else "nothing", paid)


TakeUp = Callable[[Sequence[Debt]], list["asyncio.Task[Outcome]"]]
"""Begins to pay what is owed in these conversations, in the background, where that is not being done."""


class Rounds:
    """Looks for what is due, again and again. `resting` are the owners who are left in peace for now."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        idle_s: float,
        resting: Callable[[], list[str]],
        take_up: TakeUp,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._idle_ms = int(idle_s * 1000)
        self._every_s = min(EVERY_S_MAX, idle_s / 2)
        self._began_at = clock.now_ms()
        self._resting = resting
        self._take_up = take_up
        self._sleep = sleep

    async def go(self) -> None:
        """Never ends by itself."""
        while True:
            try:
                goes_on = await self.one()
            except (HoldfastError, OSError):
                # A fault of the store is told to whoever asks it for something; here it is only waited out.
                goes_on = False
            if not goes_on:
                await self._sleep(self._every_s)

    async def one(self) -> bool:
        """Take up what is due; whether more may be due at once."""
        now = self._clock.now_ms()
        self._began_at = min(self._began_at, now)  # The clock may have been put back.
        # What was owed before this start waits for nobody: the conversation may never be gone on with.
        quiet_since = max(self._began_at, now - self._idle_ms)
        due = await self._ledger.due_debts(quiet_since, now, DEBTS_SHOWN_MAX, self._resting())
        tasks = self._take_up(due)
        if len(due) < DEBTS_SHOWN_MAX or not tasks:
            return False
        done, _ = await asyncio.wait(tasks, timeout=self._every_s)
        return any(not task.cancelled() and not task.exception() and task.result().paid for task in done)
