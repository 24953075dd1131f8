"""Natural group commit: while one transaction is being made durable, the next one gathers.

Appends come from the event loop and are carried out, in order, by one thread. Nothing waits on purpose:
alone, an append costs one sync; under load, the batches grow by themselves. Deltas of one message that wait
together become one event, so the journal's rows follow the commits, not the tokens.
"""

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, get_args

from msgspec.structs import replace

from holdfast.domain.errors import StoreClosed
from holdfast.domain.events.facts import Delta
from holdfast.domain.events.tool_facts import ToolOutputAppended
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import DELTA_BYTES_MAX, PENDING_APPENDS_MAX
from holdfast.domain.state.changes import Change
from holdfast.store.commit_metrics import CommitMeter
from holdfast.store.hub import News
from holdfast.store.ports import Append, Receipt

_DELTAS = frozenset(get_args(Delta))
HEAVY_PER_BATCH_MAX = 8
"""Tickets in one transaction that are more than a piece of text; each costs as much as many of those."""

SWITCH_S = 0.002

Work = Callable[[object], object]
"""Something else to do inside a transaction; it gets the store's own transaction object."""


class Ticket:
    """One thing to commit, and who waits for it."""

    __slots__ = ("_delta", "_joined", "_size", "appends", "future", "weight", "work")

    def __init__(
        self, future: "asyncio.Future[Any]", appends: tuple[Append, ...] = (), work: Work | None = None
    ) -> None:
        self.future = future
        self.appends = appends
        self.work = work
        self.weight = 1
        self._delta: Delta | None = None
        self._joined: list[str] = []
        self._size = 0
        if len(appends) == 1 and appends[0].expect is None and not callable(appends[0].facts):
            facts = appends[0].facts
            if len(facts) == 1 and type(facts[0]) in _DELTAS:
                delta = facts[0]
                assert isinstance(delta, Delta)
                self._delta = delta
                self._size = _size(delta.text)

    @property
    def is_delta(self) -> bool:
        return self._delta is not None

    def joins(self, other: "Ticket") -> bool:
        """Whether `other` continues what this one streams; if so it is now part of this one."""
        mine, theirs = self._delta, other._delta
        if mine is None or theirs is None or not _continues(mine, theirs):
            return False
        if self.appends[0].fence != other.appends[0].fence or self._size + other._size > DELTA_BYTES_MAX:
            return False
        self._joined.append(theirs.text)
        self._size += other._size
        self.weight += 1
        return True

    def sealed(self) -> tuple[Append, ...]:
        """The appends, with everything joined in. Called once, by the thread, after gathering."""
        if self._joined and self._delta is not None:
            text = "".join((self._delta.text, *self._joined))
            return (replace(self.appends[0], facts=(replace(self._delta, text=text),)),)
        return self.appends


def _size(text: str) -> int:
    """Bytes; text that cannot be encoded is refused later, where a refusal has someone to answer to."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _continues(first: Delta, next_: Delta) -> bool:
    if type(first) is not type(next_) or first.run_id != next_.run_id:
        return False
    if isinstance(first, ToolOutputAppended):
        assert isinstance(next_, ToolOutputAppended)
        return first.call_id == next_.call_id and first.stream == next_.stream
    assert not isinstance(next_, ToolOutputAppended)
    same_call = getattr(first, "call_id", None) == getattr(next_, "call_id", None)
    return first.message_id == next_.message_id and same_call


class Committer(Protocol):
    """The store's half: one transaction for a batch. Called only by the writer's thread."""

    def commit(self, tickets: Sequence[Ticket]) -> tuple[Sequence[object], News]:
        """Each ticket's result or the exception that refused it, and what is new in the journal."""

    def chores(self, idle: bool) -> bool:
        """Called between batches, and when nothing came for a while: a slice of housekeeping.

        Returns whether more is left to do.
        """

    def idle_s(self) -> float:
        """How long the thread may sleep before it is to look for other processes' commits."""

    def close(self) -> None: ...


def favour_threads() -> None:
    """Let a thread that waits for the interpreter have it soon. For a program's start, once.

    By default a busy thread keeps it for 5 ms; the writer needs it for some microseconds before and after
    each sync, and a hundred readers wait for that.
    """
    sys.setswitchinterval(SWITCH_S)


class Writer:
    """Gathers on the loop, commits on a thread, answers on the loop."""

    def __init__(self, committer: Committer, publish: Callable[[News], None]) -> None:
        self._committer = committer
        self._publish = publish
        self.notes: list[Callable[[Change], None]] = []
        """Told of each change, in order, before those who made it go on."""
        self.meter = CommitMeter()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._pending: list[Ticket] = []
        self._last: dict[SessionId, Ticket] = {}
        self._weight = 0
        self._heavy = 0
        self._roomless: list[asyncio.Future[None]] = []
        # A bare lock: taken by the thread to sleep, let go by whoever wakes it.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._asleep = False
        self._closing = False
        self._ended = self._loop.create_future()
        self._thread = threading.Thread(target=self._work, name="holdfast-writer", daemon=True)
        self._thread.start()

    def submit(self, *appends: Append) -> "asyncio.Future[tuple[Receipt, ...]]":
        """Hand over appends for one transaction; the future ends with their receipts.

        Several deltas may share one future, so do not cancel it.
        """
        ticket = Ticket(self._loop.create_future(), appends)
        with self._lock:
            self._refuse_if_closing()
            if len(appends) == 1:
                last = self._last.get(appends[0].session_id)
                if last is not None and last.joins(ticket):
                    self._weight += 1
                    return last.future
            for append in appends:
                self._last[append.session_id] = ticket
            self._enqueue(ticket)
        return ticket.future

    async def perform(self, work: Work) -> Any:
        """Carry out `work` inside a transaction and return what it returned, once that is durable."""
        ticket = Ticket(self._loop.create_future(), work=work)
        with self._lock:
            self._refuse_if_closing()
            # Text that was submitted before this must not end up in an event after it.
            self._last.clear()
            self._enqueue(ticket)
        return await asyncio.shield(ticket.future)

    @property
    def has_room(self) -> bool:
        return self._weight < PENDING_APPENDS_MAX

    async def room(self) -> None:
        while not self.has_room:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._roomless.append(waiter)
            await waiter

    async def close(self) -> None:
        """Commit what was submitted, then end the thread."""
        with self._lock:
            self._closing = True
            self._ring()
        await asyncio.shield(self._ended)

    def _refuse_if_closing(self) -> None:
        if self._closing:
            raise StoreClosed()

    def _enqueue(self, ticket: Ticket) -> None:
        self._pending.append(ticket)
        self._heavy += not ticket.is_delta
        self._weight += 1
        if self._asleep:
            self._ring()

    def _ring(self) -> None:
        """Wake the thread. Called with the lock held; ringing twice wakes once."""
        self._asleep = False
        if self._bell.locked():
            self._bell.release()

    def _take(self) -> list[Ticket]:
        """The next batch: all there is, but only so much that is more than text.

        What streams overtakes the rest, except in its own session, whose order is kept: a hundred messages
        that settle together must not hold up a hundred others that are being written.
        """
        pending, self._pending = self._pending, []
        self._last.clear()
        if self._heavy <= HEAVY_PER_BATCH_MAX:
            self._heavy = 0
            return pending
        batch: list[Ticket] = []
        held: set[SessionId] = set()
        heavy = 0
        for ticket in pending:
            sessions = [append.session_id for append in ticket.appends]
            if held.intersection(sessions) or (not ticket.is_delta and heavy == HEAVY_PER_BATCH_MAX):
                held.update(sessions)
                self._pending.append(ticket)
            else:
                heavy += not ticket.is_delta
                batch.append(ticket)
        self._heavy -= heavy
        return batch

    def _work(self) -> None:
        more = False
        try:
            while True:
                with self._lock:
                    batch = self._take()
                    self._asleep = not batch and not self._closing
                    done = not batch and self._closing
                if done:
                    return
                if batch:
                    self._carry_out(batch)
                    more = self._committer.chores(idle=False)
                elif more or not self._bell.acquire(timeout=self._committer.idle_s()):
                    more = self._committer.chores(idle=True)
        finally:
            with self._lock:
                self._closing = True
                left, self._pending = self._pending, []
            self._committer.close()
            self._loop.call_soon_threadsafe(self._end, left)

    def _end(self, left: list[Ticket]) -> None:
        # Nothing is left unless the thread failed; then nobody may wait for ever.
        self._answer(left, [StoreClosed() for _ in left], ())
        self._ended.set_result(None)

    def _carry_out(self, batch: list[Ticket]) -> None:
        began = time.perf_counter()
        results, news = self._committer.commit(batch)
        self.meter.add(time.perf_counter() - began)
        self.meter.deltas += sum(ticket.weight for ticket in batch if ticket.is_delta)
        self._loop.call_soon_threadsafe(self._answer, batch, results, news)

    def _answer(self, batch: list[Ticket], results: Sequence[object], news: News) -> None:
        self._publish(news)
        for ticket, result in zip(batch, results, strict=True):
            self._weight -= ticket.weight
            if ticket.future.done():
                continue
            if isinstance(result, BaseException):
                ticket.future.set_exception(result)
                # Looked at here: whoever streams, or was cancelled, need not come back for a refusal.
                ticket.future.exception()
            else:
                ticket.future.set_result(result)
        if self._roomless and self._weight < PENDING_APPENDS_MAX:
            waiting, self._roomless = self._roomless, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
        if self.notes:
            # Whoever was answered above goes on after this. Last, so that they do even if a note fails.
            for change in changes_of(results, news):
                for note in self.notes:
                    note(change)


def changes_of(results: Sequence[object], news: News) -> Iterator[Change]:
    """What a batch has done to each session, in order. What nobody has a receipt for came by an import."""
    at = 0
    for receipt in (each for result in results if isinstance(result, tuple) for each in result):
        if not isinstance(receipt, Receipt) or receipt.repeated is not None:
            continue
        count = receipt.last_seq - receipt.first_seq + 1
        start = at
        while count and (news[at][0] != receipt.session_id or news[at][1].seq != receipt.first_seq):
            at += 1
        yield from _imported(news[start:at])
        events = [event for _, event in news[at : at + count]]
        at += count
        yield Change(
            receipt.session_id, receipt.first_seq, receipt.last_seq,
            receipt.context_before, receipt.context_after, events, receipt.incarnation,
        )  # fmt: skip
    yield from _imported(news[at:])


def _imported(news: News) -> Iterator[Change]:
    for session_id, event in news:
        yield Change(session_id, event.seq, event.seq, None, None, (event,))
