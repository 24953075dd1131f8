"""Telling memory of one stretch of turns: read, begun in the ledger, told outside of it, and written down.

The caller sees to it that a conversation is told of by one at a time in this process; between processes the
state of the debt does, and its attempts fence whoever was taken for lost.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from itertools import groupby
from typing import Literal

import msgspec

from holdfast.domain.clock import Clock, Instant, has_come
from holdfast.domain.decisions import memory_queue
from holdfast.domain.errors import HoldfastError, NoSuchSession, ProviderCannot, StoreFault
from holdfast.domain.events.facts import AnyFact, Failure, MemoryCommitStarted
from holdfast.domain.ids import Ids, SessionId
from holdfast.domain.limits import COMMIT_RETRY_MS_MAX, COMMIT_S_MAX
from holdfast.domain.ranges import numbers_in, ranges_of
from holdfast.domain.state.rows import Debt, DebtRow, SessionRow
from holdfast.domain.state.session_state import Decide, Facts, View
from holdfast.memory.backoff import Rests
from holdfast.memory.ports import Ledger, Said, Segment
from holdfast.memory.provider_calls import Answer, Calls
from holdfast.memory.provider_resolver import Nobody, Teller, Tellers
from holdfast.memory.segments import digest_of, fitted, said_in

Status = Literal["paid", "nothing", "failed", "no_owner", "in_doubt", "busy"]
InDoubt = Literal["ask", "retry"]
Sleep = Callable[[float], Awaitable[None]]
Named = tuple[int, int]
"""A stretch: the store's number for its conversation, and its own in there."""

LOST_MS = COMMIT_S_MAX * 1000 + 60_000
"""A try that began so long ago will never say how it went, even if its process lives."""
TURNS_AT_ONCE = 20
"""How many turns of a stretch are read at once: each may be a megabyte and more."""
LOOKS_MAX = 8
"""How often a stretch that changes while it is looked at is looked at again."""
WRITES_MAX = 3
"""How often it is tried to write down what a provider has answered."""
WRITE_AGAIN_S = 1.0


class Outcome(msgspec.Struct, frozen=True):
    """What came of telling memory: `paid` is how many stretches it was told of."""

    status: Status
    paid: int = 0
    detail: str = ""


class Telling:
    """Pays stretches and takes them back, one at a time. `counts` is how often each thing came of it."""

    def __init__(
        self,
        ledger: Ledger,
        tellers: Tellers,
        clock: Clock,
        ids: Ids,
        in_doubt: InDoubt,
        rests: Rests,
        calls: Calls,
        sleep: Sleep,
        commit_s: float,
    ) -> None:
        self._ledger = ledger
        self._tellers = tellers
        self._clock = clock
        self._ids = ids
        self._in_doubt = in_doubt
        self._rests = rests
        self._calls = calls
        self._sleep = sleep
        self._commit_s = commit_s
        self.counts: Counter[str] = Counter()

    async def pay(self, session_id: SessionId, named: str, registered: str, asked: bool) -> Outcome:
        """Tell memory of the oldest stretch, by its own owner, else by `named` or, if it never had one, by
        `registered`. Not `asked`, it waits until its time has come. Raises StoreFault."""
        for _ in range(LOOKS_MAX):
            found, doubtful = await self._oldest(session_id)
            if found is None:
                return Outcome("in_doubt") if doubtful else Outcome("nothing")
            if found.row.state == "committing":
                if not await self._give_up(session_id, found):
                    return Outcome("busy", detail="it is being told")
                continue
            candidates = (found.row.owner, named) if found.row.owner else (named or registered,)
            async with self._calls.slots:
                # Looked at again with a slot in hand: whoever was before us may have met a failure.
                if not asked and not self._is_due(found.row):
                    return Outcome("failed", detail=_why(found.row))
                teller = await self._tellers.first(*candidates)
                if isinstance(teller, Nobody):
                    self._rests.failed(found.row.owner)
                    return self._count(Outcome("no_owner", detail=teller.detail))
                outcome = await self._tell(session_id, found, teller)
            if outcome is not None:
                return outcome
        return Outcome("busy", detail="it changes all the time")

    async def take_back(
        self, session_id: SessionId, named: str, registered: str, asked: bool, tried: Collection[Named]
    ) -> tuple[Named, Outcome] | None:
        """Have memory forget one stretch that was undone, none of `tried`. None: there is none whose time has
        come. Returns which one it was too. Raises StoreFault."""
        for found in await self._wanted(session_id):
            row = found.row
            named_so = (found.number, row.n)
            if named_so in tried or not (asked or self._is_due(row)):
                continue
            if row.state == "committing" and not await self._give_up(session_id, found):
                continue
            async with self._calls.slots:
                return named_so, await self._retract(session_id, found, (row.owner, named, registered))
        return None

    async def write(self, session_id: SessionId, decide: Decide, number: int) -> Facts:
        """Commit `decide` to the conversation of that number, deleted meanwhile or not.

        Nothing if it is not there any more. Raises StoreFault, and what `decide` raises.
        """
        with suppress(NoSuchSession):
            return await self._ledger.change(session_id, decide, number)
        return ()

    # One try.

    async def _tell(self, session_id: SessionId, found: Debt, teller: Teller) -> Outcome | None:
        """None: it is not as it was read any more."""
        said, digest = await self._said(session_id, found)
        begun = await self._begin(session_id, found, teller, digest)
        if begun is None:
            return None
        started, session = begun
        if started.digest != digest:
            detail = "what was said is not what it was when memory was first told of it"
            return await self._failed(session_id, found.number, started, Failure("memory_changed", detail))
        messages = await asyncio.to_thread(fitted, said)
        segment = _segment(session_id, started, session, messages)
        try:
            answer = await self._calls.ask(lambda: teller.provider.commit(segment), self._commit_s)
        except asyncio.CancelledError:
            if teller.takes_key:
                # Best effort: if it cannot be written now, the next start finds the same by itself.
                with suppress(HoldfastError):
                    stopped = _fail(started, Failure("memory_failed", "the server stopped"), 0)
                    await self.write(session_id, stopped, found.number)
            raise
        return await self._told(session_id, found.number, started, teller, answer)

    async def _said(self, session_id: SessionId, found: Debt) -> tuple[tuple[Said, ...], str]:
        """What was said in a stretch, and its digest. A long one takes a while: nobody else waits for it."""
        said: list[Said] = []
        numbers = numbers_in(found.row.turns)
        for first in range(0, len(numbers), TURNS_AT_ONCE):
            turns = ranges_of(numbers[first : first + TURNS_AT_ONCE])
            pages = await self._ledger.told(session_id, turns, found.number)
            said += await asyncio.to_thread(said_in, pages, turns)
        return tuple(said), await asyncio.to_thread(digest_of, said)

    async def _begin(
        self, session_id: SessionId, found: Debt, teller: Teller, digest: str
    ) -> tuple[MemoryCommitStarted, SessionRow] | None:
        seen: list[SessionRow | None] = []
        row, key, own = found.row, self._ids.telling(), self._ledger.own_process
        owner, takes_key = teller.owner, teller.takes_key

        def decide(view: View) -> list[AnyFact]:
            seen[:] = [view.session()]
            return memory_queue.start(view, row.n, row.turns, owner, key, digest, own, takes_key)

        try:
            facts = await self._ledger.change(session_id, decide, found.number)
        except NoSuchSession:
            return None
        started, session = facts[0] if facts else None, seen[0]
        if isinstance(started, MemoryCommitStarted) and session is not None:
            return started, session
        return None

    async def _told(
        self,
        session_id: SessionId,
        number: int,
        started: MemoryCommitStarted,
        teller: Teller,
        answer: Answer,
    ) -> Outcome:
        """Write down what a provider answered: what is no receipt is no success."""
        n, attempt, failure = started.segment, started.attempt, answer.failure
        if failure is None and not isinstance(answer.value, str):
            kind = type(answer.value).__name__
            failure = Failure("memory_failed", f"it returned something that is no receipt ({kind})")
            answer = Answer(failure=failure, cut_off=True)
        if failure is None:
            self._rests.succeeded(teller.owner)
            receipt = self._calls.plain(str(answer.value))
            pay = partial(memory_queue.pay, n=n, attempt=attempt, receipt=receipt)
            facts = await self._write_down(session_id, pay, number)
            # Fenced: another process took this try for lost, and it is for that one to say.
            return self._count(Outcome("paid", 1)) if facts else Outcome("busy")
        self._rests.failed(teller.owner)
        if answer.cut_off and not teller.takes_key and self._in_doubt == "ask":
            lost = partial(_is_try, attempt=attempt)
            doubt = partial(memory_queue.give_up, n=n, is_lost=lost, takes_key=False, failure=failure)
            await self._write_down(session_id, doubt, number)
            return self._count(Outcome("in_doubt", detail=failure.detail))
        return await self._failed(session_id, number, started, failure)

    async def _failed(
        self, session_id: SessionId, number: int, started: MemoryCommitStarted, failure: Failure
    ) -> Outcome:
        retry_at = self._rests.retry_at(started.attempt)
        await self._write_down(session_id, _fail(started, failure, retry_at), number)
        return self._count(Outcome("failed", detail=failure.detail))

    async def _retract(self, session_id: SessionId, found: Debt, candidates: tuple[str, ...]) -> Outcome:
        row, teller = found.row, await self._tellers.first(*candidates)
        if isinstance(teller, Nobody):
            self._rests.failed(row.owner)
            return self._count(Outcome("no_owner", detail=teller.detail))
        provider = teller.provider
        answer = await self._calls.ask(lambda: provider.retract(row.key, row.receipt), self._commit_s)
        return await self._forgotten(session_id, found, teller.owner, answer)

    async def _forgotten(self, session_id: SessionId, found: Debt, owner: str, answer: Answer) -> Outcome:
        """Write down what came of taking a stretch back."""
        failure, outcome, retry_at = answer.failure, "done", 0
        if failure is None:
            self._rests.succeeded(owner)
        elif failure.code == ProviderCannot.code:
            outcome = "cannot"
        else:
            outcome, retry_at = "failed", self._rests.failed(owner)
        forget = partial(
            memory_queue.forget, n=found.row.n, outcome=outcome, failure=failure, retry_at=retry_at
        )  # fmt: skip
        await self._write_down(session_id, forget, found.number)
        self.counts[f"forget_{outcome}"] += 1
        detail = failure.detail if failure is not None else ""
        return Outcome("failed" if outcome == "failed" else "nothing", detail=detail)

    async def _give_up(self, session_id: SessionId, found: Debt) -> bool:
        """Whether a try that is under way was lost; then it is told again, or is in doubt from now on."""
        row = found.row
        # This process is not at it: whoever asks here is the only one who could be.
        is_own = row.process_id == self._ledger.own_process
        is_dead = row.process_id is None or not self._ledger.is_alive(row.process_id)
        if not (is_own or is_dead or has_come(row.started_at + LOST_MS, self._clock.now_ms(), LOST_MS)):
            return False
        # What its provider said of itself when it was told: it may not be there to be asked any more.
        again = self._in_doubt == "retry" or row.takes_key
        failure = Failure("memory_failed", "the server stopped while memory was being told")
        lost = partial(_is_try, attempt=row.attempts)
        give_up = partial(memory_queue.give_up, n=row.n, is_lost=lost, takes_key=again, failure=failure)
        if await self.write(session_id, give_up, found.number) and not again:
            self.counts["in_doubt"] += 1
        return True

    # Reading and writing.

    async def _oldest(self, session_id: SessionId) -> tuple[Debt | None, bool]:
        """The stretch that is told next, and whether one is in doubt. What was deleted comes last."""
        doubtful = False
        owing = await self._ledger.owing(session_id)
        for _, those in groupby(owing, lambda debt: debt.number):
            of_one = {debt.row.n: debt for debt in those}
            rows = [debt.row for debt in of_one.values()]
            doubtful = doubtful or any(row.state == "in_doubt" for row in rows)
            row = memory_queue.first_payable(rows)
            if row is not None:
                return of_one[row.n], doubtful
        return None, doubtful

    async def _wanted(self, session_id: SessionId) -> list[Debt]:
        return [debt for debt in await self._ledger.owing(session_id) if debt.row.retraction == "wanted"]

    def _is_due(self, row: DebtRow) -> bool:
        is_time = has_come(row.retry_at, self._clock.now_ms(), COMMIT_RETRY_MS_MAX)
        return is_time and not (row.owner and self._rests.rests(row.owner))

    async def _write_down(self, session_id: SessionId, decide: Decide, number: int) -> Facts:
        """Write what a provider has answered; it would be a pity to forget it because the store stumbled."""
        for _ in range(WRITES_MAX - 1):
            with suppress(StoreFault):
                return await self.write(session_id, decide, number)
            await self._sleep(WRITE_AGAIN_S)
        return await self.write(session_id, decide, number)

    def _count(self, outcome: Outcome) -> Outcome:
        self.counts[outcome.status] += 1
        return outcome


def _segment(
    session_id: SessionId, started: MemoryCommitStarted, session: SessionRow, said: tuple[Said, ...]
) -> Segment:
    return Segment(started.key, session_id, session.title, session.agent, started.turns, said)


def _fail(started: MemoryCommitStarted, failure: Failure, retry_at: Instant) -> Decide:
    return partial(
        memory_queue.fail, n=started.segment, attempt=started.attempt, failure=failure, retry_at=retry_at
    )  # fmt: skip


def _is_try(row: DebtRow, attempt: int) -> bool:
    return row.attempts == attempt


def _why(row: DebtRow) -> str:
    return row.failure.detail if row.failure is not None else "memory failed lately and is left in peace"
