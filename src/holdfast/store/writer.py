"""Group commit: while one transaction becomes durable, the next one gathers.

Appends come from the event loop; one thread executes them in order. Nothing waits on purpose: a single append
costs one sync, and batches grow with the load. Deltas of one message that wait together become one event, so
the number of journal rows follows the commits, not the tokens.
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
from holdfast.domain.state.changes import CommittedChange
from holdfast.store.commit_metrics import CommitMetrics
from holdfast.store.hub import CommittedEvents
from holdfast.store.ports import Append, AppendReceipt

_DELTAS = frozenset(get_args(Delta))
HEAVY_PER_BATCH_MAX = 8
"""Limit of writes other than deltas in one transaction; each costs as much as many deltas."""

SWITCH_INTERVAL_S = 0.002

TransactionWork = Callable[[object], object]
"""Other work to do inside a transaction; it gets the store's own transaction object."""


class PendingWrite:
    """A write that waits for its commit, and the future of its caller."""

    __slots__ = ("_delta", "_merged_texts", "_size", "appends", "future", "weight", "work")

    def __init__(
        self,
        future: "asyncio.Future[Any]",
        appends: tuple[Append, ...] = (),
        work: TransactionWork | None = None,
    ) -> None:
        self.future = future
        self.appends = appends
        self.work = work
        self.weight = 1
        self._delta: Delta | None = None
        self._merged_texts: list[str] = []
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

    def try_merge(self, other: "PendingWrite") -> bool:
        """Merge `other` into this write if it continues the same stream; return whether it did."""
        mine, theirs = self._delta, other._delta
        if mine is None or theirs is None or not _continues(mine, theirs):
            return False
        if self.appends[0].fence != other.appends[0].fence or self._size + other._size > DELTA_BYTES_MAX:
            return False
        self._merged_texts.append(theirs.text)
        self._size += other._size
        self.weight += 1
        return True

    def merged_appends(self) -> tuple[Append, ...]:
        """Return the appends with all merged text. The thread calls this once, after gathering."""
        if self._merged_texts and self._delta is not None:
            text = "".join((self._delta.text, *self._merged_texts))
            return (replace(self.appends[0], facts=(replace(self._delta, text=text),)),)
        return self.appends


def _size(text: str) -> int:
    """Return the size in bytes. The store refuses unencodable text later, where it can answer the caller."""
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
    """The store's side of the writer. Only the writer's thread calls it."""

    def commit(self, writes: Sequence[PendingWrite]) -> tuple[Sequence[object], CommittedEvents]:
        """Commit a batch; return each write's result or its refusal, and the new events."""

    def housekeep(self, idle: bool) -> bool:
        """Do a slice of housekeeping; return whether more is left.

        The writer calls this between batches, and when it has been idle for a while.
        """

    def poll_interval_s(self) -> float:
        """Return how long the thread may sleep before it must poll for other processes' commits."""

    def close(self) -> None: ...


def shorten_thread_switches() -> None:
    """Let a waiting thread get the interpreter sooner. Call this once, when the program starts.

    By default a busy thread keeps the interpreter for 5 ms. The writer needs it for some microseconds before
    and after each sync, and a hundred readers wait for that.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)


class Writer:
    """Gather writes on the loop, commit them on a thread, resolve their futures on the loop."""

    def __init__(self, committer: Committer, publish: Callable[[CommittedEvents], None]) -> None:
        self._committer = committer
        self._publish = publish
        self.change_listeners: list[Callable[[CommittedChange], None]] = []
        """Called with each change, in order, before the callers that made it continue."""
        self.metrics = CommitMetrics()
        self._loop = asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._pending: list[PendingWrite] = []
        self._last: dict[SessionId, PendingWrite] = {}
        self._weight = 0
        self._heavy = 0
        self._capacity_waiters: list[asyncio.Future[None]] = []
        # A plain lock used as a wakeup: the thread acquires it to sleep, and a submitter releases it.
        self._wakeup = threading.Lock()
        self._wakeup.acquire()
        self._asleep = False
        self._closing = False
        self._finished = self._loop.create_future()
        self._thread = threading.Thread(target=self._run, name="holdfast-writer", daemon=True)
        self._thread.start()

    def submit(self, *appends: Append) -> "asyncio.Future[tuple[AppendReceipt, ...]]":
        """Submit appends for one transaction; return the future of their receipts.

        Several deltas may share one future, so do not cancel it.
        """
        write = PendingWrite(self._loop.create_future(), appends)
        with self._lock:
            self._refuse_if_closing()
            if len(appends) == 1:
                last = self._last.get(appends[0].session_id)
                if last is not None and last.try_merge(write):
                    self._weight += 1
                    return last.future
            for append in appends:
                self._last[append.session_id] = write
            self._enqueue(write)
        return write.future

    async def run_in_transaction(self, work: TransactionWork) -> Any:
        """Run `work` inside a transaction and return its result once that is durable."""
        write = PendingWrite(self._loop.create_future(), work=work)
        with self._lock:
            self._refuse_if_closing()
            # Text submitted before this work must not end up in an event after it.
            self._last.clear()
            self._enqueue(write)
        return await asyncio.shield(write.future)

    @property
    def has_capacity(self) -> bool:
        return self._weight < PENDING_APPENDS_MAX

    async def wait_for_capacity(self) -> None:
        while not self.has_capacity:
            waiter: asyncio.Future[None] = self._loop.create_future()
            self._capacity_waiters.append(waiter)
            await waiter

    async def close(self) -> None:
        """Commit what was submitted, then end the thread."""
        with self._lock:
            self._closing = True
            self._wake()
        await asyncio.shield(self._finished)

    def _refuse_if_closing(self) -> None:
        if self._closing:
            raise StoreClosed()

    def _enqueue(self, write: PendingWrite) -> None:
        self._pending.append(write)
        self._heavy += not write.is_delta
        self._weight += 1
        if self._asleep:
            self._wake()

    def _wake(self) -> None:
        """Wake the thread; repeated calls wake it once. Call this with the lock held."""
        self._asleep = False
        if self._wakeup.locked():
            self._wakeup.release()

    def _next_batch(self) -> list[PendingWrite]:
        """Return the next batch: every pending write, but a limited number of heavy ones.

        Deltas overtake the rest, except in their own session, whose order this keeps. A hundred messages that
        settle together must not delay a hundred others that stream.
        """
        pending, self._pending = self._pending, []
        self._last.clear()
        if self._heavy <= HEAVY_PER_BATCH_MAX:
            self._heavy = 0
            return pending
        batch: list[PendingWrite] = []
        delayed: set[SessionId] = set()
        heavy = 0
        for write in pending:
            sessions = [append.session_id for append in write.appends]
            if delayed.intersection(sessions) or (not write.is_delta and heavy == HEAVY_PER_BATCH_MAX):
                delayed.update(sessions)
                self._pending.append(write)
            else:
                heavy += not write.is_delta
                batch.append(write)
        self._heavy -= heavy
        return batch

    def _run(self) -> None:
        more = False
        try:
            while True:
                with self._lock:
                    batch = self._next_batch()
                    self._asleep = not batch and not self._closing
                    done = not batch and self._closing
                if done:
                    return
                if batch:
                    self._commit(batch)
                    more = self._committer.housekeep(idle=False)
                elif more or not self._wakeup.acquire(timeout=self._committer.poll_interval_s()):
                    more = self._committer.housekeep(idle=True)
        finally:
            with self._lock:
                self._closing = True
                unfinished, self._pending = self._pending, []
            self._committer.close()
            self._loop.call_soon_threadsafe(self._finish, unfinished)

    def _finish(self, unfinished: list[PendingWrite]) -> None:
        # Writes are left only if the thread failed; no caller may wait for ever then.
        self._resolve(unfinished, [StoreClosed() for _ in unfinished], ())
        self._finished.set_result(None)

    def _commit(self, batch: list[PendingWrite]) -> None:
        started = time.perf_counter()
        results, events = self._committer.commit(batch)
        self.metrics.record(time.perf_counter() - started)
        self.metrics.deltas += sum(write.weight for write in batch if write.is_delta)
        self._loop.call_soon_threadsafe(self._resolve, batch, results, events)

    def _resolve(self, batch: list[PendingWrite], results: Sequence[object], events: CommittedEvents) -> None:
        self._publish(events)
        for write, result in zip(batch, results, strict=True):
            self._weight -= write.weight
            if write.future.done():
                continue
            if isinstance(result, BaseException):
                write.future.set_exception(result)
                # Retrieve the exception, or asyncio would log it: a stream or a cancelled caller may never
                # await it.
                write.future.exception()
            else:
                write.future.set_result(result)
        if self._capacity_waiters and self._weight < PENDING_APPENDS_MAX:
            waiting, self._capacity_waiters = self._capacity_waiters, []
            for waiter in waiting:
                if not waiter.done():
                    waiter.set_result(None)
        if self.change_listeners:
            # The callers resolved above continue after this. It comes last, so they do even if a listener
            # fails.
            for change in changes_in(results, events):
                for listener in self.change_listeners:
                    listener(change)


def changes_in(results: Sequence[object], new_events: CommittedEvents) -> Iterator[CommittedChange]:
    """Yield the change of each session in a batch, in order. Events without a receipt come from an import."""
    at = 0
    for receipt in (each for result in results if isinstance(result, tuple) for each in result):
        if not isinstance(receipt, AppendReceipt) or receipt.repeated_turn is not None:
            continue
        count = receipt.last_seq - receipt.first_seq + 1
        start = at
        while count and (
            new_events[at][0] != receipt.session_id or new_events[at][1].seq != receipt.first_seq
        ):
            at += 1
        yield from _imported_changes(new_events[start:at])
        events = [event for _, event in new_events[at : at + count]]
        at += count
        yield CommittedChange(
            receipt.session_id, receipt.first_seq, receipt.last_seq,
            receipt.context_before, receipt.context_after, events, receipt.incarnation,
        )  # fmt: skip
    yield from _imported_changes(new_events[at:])


def _imported_changes(events: CommittedEvents) -> Iterator[CommittedChange]:
    for session_id, event in events:
        yield CommittedChange(session_id, event.seq, event.seq, None, None, (event,))
