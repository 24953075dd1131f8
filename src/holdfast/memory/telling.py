"""Telling memory of one stretch of turns: read, begun in the ledger, told outside of it, and written down.

The caller sees to it that a conversation is told of by one at a time in this process; between processes the
state of the debt does, and its attempts fence whoever was taken for lost.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Literal

import msgspec

from holdfast.domain import debts
from holdfast.domain.book import Decide, Facts, View
from holdfast.domain.clock import Clock, Instant
from holdfast.domain.errors import HoldfastError, NoSuchSession, ProviderCannot, StoreFault
from holdfast.domain.facts import AnyFact, Failure, MemoryCommitStarted
from holdfast.domain.ids import Ids, SessionId
from holdfast.domain.limits import COMMIT_S_MAX
from holdfast.domain.rows import DebtRow, SessionRow
from holdfast.memory.calling import Answer, Calls
from holdfast.memory.ports import Ledger, Said, Segment
from holdfast.memory.resting import Rests
from holdfast.memory.segments import digest_of, fitted, said_in
from holdfast.memory.tellers import Nobody, Teller, Tellers

Status = Literal["paid", "nothing", "failed", "no_owner", "in_doubt", "busy"]
InDoubt = Literal["ask", "retry"]
Sleep = Callable[[float], Awaitable[None]]

LOST_MS = COMMIT_S_MAX * 1000 + 60_000
"""A try that began so long ago will never say how it went, even if its process lives."""
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


class Found(msgspec.Struct, frozen=True):
    """A stretch, and whether its conversation was deleted."""

    row: DebtRow
    buried: bool


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
        self, session_id: SessionId, named: str, registered: str, asked: bool, tried: Collection[int]
    ) -> tuple[int, Outcome] | None:
        """Have memory forget one stretch that was undone, none of `tried`. None: there is none whose time has
        come. Returns its number too. Raises StoreFault."""
        for found in await self._wanted(session_id):
            row = found.row
            if row.n in tried or not (asked or self._is_due(row)):
                continue
            if row.state == "committing" and not await self._give_up(session_id, found):
                continue
            async with self._calls.slots:
                return row.n, await self._retract(session_id, found, (row.owner, named, registered))
        return None

    async def write(self, session_id: SessionId, decide: Decide, buried: bool) -> Facts:
        """Commit `decide` to the conversation, deleted or not. Nothing if it is not there any more.

        Raises StoreFault, and what `decide` raises.
        """
        for where in (buried, not buried):
            with suppress(NoSuchSession):
                return await self._ledger.change(session_id, decide, where)
        return ()

    # One try.

    async def _tell(self, session_id: SessionId, found: Found, teller: Teller) -> Outcome | None:
        """None: it is not as it was read any more."""
        row = found.row
        said = said_in(await self._ledger.told(session_id, row.turns, found.buried), row.turns)
        digest = digest_of(said)
        begun = await self._begin(session_id, found, teller, digest)
        if begun is None:
            return None
        started, session = begun
        if started.digest != digest:
            detail = "what was said is not what it was when memory was first told of it"
            return await self._failed(session_id, found.buried, started, Failure("memory_changed", detail))
        segment = _segment(session_id, started, session, said)
        try:
            answer = await self._calls.ask(lambda: teller.provider.commit(segment), self._commit_s)
        except asyncio.CancelledError:
            if teller.takes_key:
                # Best effort: if it cannot be written now, the next start finds the same by itself.
                with suppress(HoldfastError):
                    stopped = _fail(started, Failure("memory_failed", "the server stopped"), 0)
                    await self.write(session_id, stopped, found.buried)
            raise
        return await self._told(session_id, found.buried, started, teller, answer)

    async def _begin(
        self, session_id: SessionId, found: Found, teller: Teller, digest: str
    ) -> tuple[MemoryCommitStarted, SessionRow] | None:
        seen: list[SessionRow | None] = []
        row, key, own = found.row, self._ids.telling(), self._ledger.own_process
        owner, takes_key = teller.owner, teller.takes_key

        def decide(view: View) -> list[AnyFact]:
            seen[:] = [view.session()]
            return debts.start(view, row.n, row.turns, owner, key, digest, own, takes_key)

        try:
            facts = await self._ledger.change(session_id, decide, found.buried)
        except NoSuchSession:
            return None
        started, session = facts[0] if facts else None, seen[0]
        if isinstance(started, MemoryCommitStarted) and session is not None:
            return started, session
        return None

    async def _told(
        self,
        session_id: SessionId,
        buried: bool,
        started: MemoryCommitStarted,
        teller: Teller,
        answer: Answer,
    ) -> Outcome:
        """Write down what a provider answered: what is no receipt is no success."""
        n, attempt, failure = started.segment, started.attempt, answer.failure
        if failure is None and not isinstance(answer.value, str):
            kind = type(answer.value).__name__
            failure = Failure("memory_failed", f"it returned something that is no receipt ({kind})")
        if failure is None:
            self._rests.succeeded(teller.owner)
            receipt = self._calls.plain(str(answer.value))
            pay = partial(debts.pay, n=n, attempt=attempt, receipt=receipt)
            facts = await self._write_down(session_id, pay, buried)
            # Fenced: another process took this try for lost, and it is for that one to say.
            return self._count(Outcome("paid", 1)) if facts else Outcome("busy")
        self._rests.failed(teller.owner)
        if answer.cut_off and not teller.takes_key and self._in_doubt == "ask":
            lost = partial(_is_try, attempt=attempt)
            doubt = partial(debts.give_up, n=n, is_lost=lost, takes_key=False, failure=failure)
            await self._write_down(session_id, doubt, buried)
            return self._count(Outcome("in_doubt", detail=failure.detail))
        return await self._failed(session_id, buried, started, failure)

    async def _failed(
        self, session_id: SessionId, buried: bool, started: MemoryCommitStarted, failure: Failure
    ) -> Outcome:
        retry_at = self._rests.retry_at(started.attempt)
        await self._write_down(session_id, _fail(started, failure, retry_at), buried)
        return self._count(Outcome("failed", detail=failure.detail))

    async def _retract(self, session_id: SessionId, found: Found, candidates: tuple[str, ...]) -> Outcome:
        row, teller = found.row, await self._tellers.first(*candidates)
        if isinstance(teller, Nobody):
            self._rests.failed(row.owner)
            return self._count(Outcome("no_owner", detail=teller.detail))
        provider = teller.provider
        answer = await self._calls.ask(lambda: provider.retract(row.key, row.receipt), self._commit_s)
        return await self._forgotten(session_id, found, teller.owner, answer)

    async def _forgotten(self, session_id: SessionId, found: Found, owner: str, answer: Answer) -> Outcome:
        """Write down what came of taking a stretch back."""
        failure, outcome, retry_at = answer.failure, "done", 0
        if failure is None:
            self._rests.succeeded(owner)
        elif failure.code == ProviderCannot.code:
            outcome = "cannot"
        else:
            outcome, retry_at = "failed", self._rests.failed(owner)
        forget = partial(
            debts.forget, n=found.row.n, outcome=outcome, failure=failure, retry_at=retry_at
        )  # fmt: skip
        await self._write_down(session_id, forget, found.buried)
        self.counts[f"forget_{outcome}"] += 1
        detail = failure.detail if failure is not None else ""
        return Outcome("failed" if outcome == "failed" else "nothing", detail=detail)

    async def _give_up(self, session_id: SessionId, found: Found) -> bool:
        """Whether a try that is under way was lost; then it is told again, or is in doubt from now on."""
        row = found.row
        # This process is not at it: whoever asks here is the only one who could be.
        is_own = row.process_id == self._ledger.own_process
        is_dead = row.process_id is None or not self._ledger.is_alive(row.process_id)
        if not (is_own or is_dead or row.started_at <= self._clock.now_ms() - LOST_MS):
            return False
        # What its provider said of itself when it was told: it may not be there to be asked any more.
        again = self._in_doubt == "retry" or row.takes_key
        failure = Failure("memory_failed", "the server stopped while memory was being told")
        lost = partial(_is_try, attempt=row.attempts)
        give_up = partial(debts.give_up, n=row.n, is_lost=lost, takes_key=again, failure=failure)
        if await self.write(session_id, give_up, found.buried) and not again:
            self.counts["in_doubt"] += 1
        return True

    # Reading and writing.

    async def _oldest(self, session_id: SessionId) -> tuple[Found | None, bool]:
        """The stretch that is told next, and whether one is in doubt. What was deleted comes last."""
        doubtful = False
        for buried in (False, True):
            rows = await self._ledger.debts(session_id, buried)
            doubtful = doubtful or any(row.state == "in_doubt" for row in rows)
            row = debts.first_payable(rows)
            if row is not None:
                return Found(row, buried), doubtful
        return None, doubtful

    async def _wanted(self, session_id: SessionId) -> list[Found]:
        return [
            Found(row, buried)
            for buried in (False, True)
            for row in await self._ledger.debts(session_id, buried)
            if row.retraction == "wanted"
        ]

    def _is_due(self, row: DebtRow) -> bool:
        return row.retry_at <= self._clock.now_ms() and not (row.owner and self._rests.rests(row.owner))

    async def _write_down(self, session_id: SessionId, decide: Decide, buried: bool) -> Facts:
        """Write what a provider has answered; it would be a pity to forget it because the store stumbled."""
        for _ in range(WRITES_MAX - 1):
            with suppress(StoreFault):
                return await self.write(session_id, decide, buried)
            await self._sleep(WRITE_AGAIN_S)
        return await self.write(session_id, decide, buried)

    def _count(self, outcome: Outcome) -> Outcome:
        self.counts[outcome.status] += 1
        return outcome


def _segment(
    session_id: SessionId, started: MemoryCommitStarted, session: SessionRow, said: tuple[Said, ...]
) -> Segment:
    return Segment(started.key, session_id, session.title, session.agent, started.turns, fitted(said))


def _fail(started: MemoryCommitStarted, failure: Failure, retry_at: Instant) -> Decide:
    return partial(
        debts.fail, n=started.segment, attempt=started.attempt, failure=failure, retry_at=retry_at
    )  # fmt: skip


def _is_try(row: DebtRow, attempt: int) -> bool:
    return row.attempts == attempt


def _why(row: DebtRow) -> str:
    return row.failure.detail if row.failure is not None else "memory failed lately and is left in peace"
