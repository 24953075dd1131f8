"""The feed: every conversation's state and every waiting question, first all of it and then what changes.

One task reads for all feeds of the process: each change once, from the store, after its commit. What it has
read is put into words once and handed to every reader. It reads one thing after the other, so nobody is told
something older than what they know already.
"""

import asyncio
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import FEED_LOOK_S, FEED_MARKS_MS, FEED_PENDING_MAX, FEED_ROUND_MS
from holdfast.http.schemas.responses import (
    FeedChanged,
    FeedRemoved,
    FeedSnapshot,
    Session,
    question_of,
    session_of,
)
from holdfast.http.sse.frames import of_feed
from holdfast.store.ports import Store
from holdfast.store.session_status import Standing, Survey, Watch

_READ_SESSIONS = 100
"""So many are read in one go: no read of the store is long."""
_TOLD_MAX = 5_000
"""Conversations whose last telling is kept, to be silent when nothing is different."""


class FeedReader:
    """What one connection has not taken yet. Of a conversation only the newest is kept."""

    def __init__(self, ring: Callable[[], None], call: Callable[[], None]) -> None:
        self._ring = ring
        self._call = call
        self._frames: dict[SessionId, bytes] = {}
        self._snapshot: bytes | None = None
        self._overrun = False
        self._answered = asyncio.Event()
        self.fault: BaseException | None = None
        """Why there is nothing more to come, if so."""
        self.waits = True
        """For a snapshot; whatever changes before it comes is part of it."""

    async def begun(self) -> None:
        """Return once the first snapshot is here. Raises what stands in its way."""
        await self._answered.wait()
        if self.fault is not None:
            raise self.fault

    def take(self) -> list[bytes]:
        """What there is to send now."""
        if self._overrun:
            # Only now: for a reader who takes nothing, nothing is read.
            self._overrun, self.waits = False, True
            self._call()
            return []
        snapshot, self._snapshot = self._snapshot, None
        frames = list(self._frames.values())
        self._frames.clear()
        return [snapshot, *frames] if snapshot is not None else frames

    def greet(self, snapshot: bytes) -> None:
        self._frames.clear()
        self._snapshot, self.waits = snapshot, False
        self._answered.set()
        self._ring()

    def offer(self, session_id: SessionId, frame: bytes) -> None:
        if self.waits or self._overrun:
            return
        self._frames[session_id] = frame
        if len(self._frames) > FEED_PENDING_MAX:
            self._frames.clear()
            self._snapshot, self._overrun = None, True
        self._ring()

    def end(self, fault: BaseException) -> None:
        self.fault = fault
        self._answered.set()
        self._ring()


class Feed:
    """All feeds of the process. Belongs to one event loop; works only while somebody reads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: set[FeedReader] = set()
        self._bell = asyncio.Event()
        self._working: asyncio.Task[None] | None = None

    @contextmanager
    def reader(self, ring: Callable[[], None]) -> Iterator[FeedReader]:
        """One more reader; `ring` is called when it has something to take, or has come to its end."""
        reader = FeedReader(ring, self._bell.set)
        self._readers.add(reader)
        if self._working is None:
            self._working = asyncio.create_task(_Telling(self._store, self._readers, self._bell).run())
            self._working.add_done_callback(self._ended)
        self._bell.set()
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            if not self._readers and self._working is not None:
                self._working.cancel()
                self._working = None

    def _ended(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        fault = task.exception()
        assert fault is not None, "it works until it is cancelled"
        if not isinstance(fault, HoldfastError):
            traceback.print_exception(fault)
        if self._working is task:
            self._working = None
        for reader in self._readers:
            reader.end(fault)


class _Telling:
    """The task: what is different is read, put into words and handed to all."""

    def __init__(self, store: Store, readers: set[FeedReader], bell: asyncio.Event) -> None:
        self._store = store
        self._readers = readers
        self._bell = bell
        # Whatever is in here, every reader has: it was in its snapshot, or was handed to it since.
        self._told: dict[SessionId, bytes] = {}
        self._moves = 0

    async def run(self) -> None:
        """Until cancelled, or a fault of the store: then everyone has to come back."""
        with self._store.watch(self._bell.set) as watch:
            self._moves, _ = await self._store.seen_since(0)
            look_at = _now() + FEED_LOOK_S
            while True:
                await _wait(self._bell, FEED_MARKS_MS / 1000)
                # Asked of the bell itself: it may ring in the moment in which the waiting ends.
                rung = self._bell.is_set()
                self._bell.clear()
                if rung:
                    await self._round(watch)
                await self._tell_marks()
                if _now() >= look_at:
                    look_at = _now() + FEED_LOOK_S
                    await self._look()
                if rung:
                    # What comes meanwhile is told together.
                    await asyncio.sleep(FEED_ROUND_MS / 1000)

    async def _round(self, watch: Watch) -> None:
        changed = watch.take()
        if changed is None:
            await self._look()
        elif any(reader.waits for reader in self._readers):
            await self._tell_all()
        await self._tell(list(changed or ()))

    async def _tell_marks(self) -> None:
        self._moves, moved = await self._store.seen_since(self._moves)
        if moved is None:
            await self._look()
        elif moved:
            await self._tell(list(moved))

    async def _look(self) -> None:
        """At everything: a hint may be lost, a look may not."""
        seen = await self._tell_all()
        await self._tell([session_id for session_id in self._told if session_id not in seen])

    async def _tell_all(self) -> frozenset[SessionId]:
        """Read what a feed begins with: all of it for those who wait for that, what is new for the others."""
        waiting = [reader for reader in self._readers if reader.waits]
        survey = await self._store.survey()
        for standing in survey.standings:
            self._tell_one(standing.row.id, standing)
        snapshot = of_feed("feed_snapshot", _snapshot(survey)) if waiting else b""
        for reader in waiting:
            reader.greet(snapshot)
        return frozenset(standing.row.id for standing in survey.standings)

    async def _tell(self, session_ids: Sequence[SessionId]) -> None:
        for start in range(0, len(session_ids), _READ_SESSIONS):
            named = session_ids[start : start + _READ_SESSIONS]
            found = await self._store.standings(named)
            for session_id in named:
                self._tell_one(session_id, found.get(session_id))

    def _tell_one(self, session_id: SessionId, standing: Standing | None) -> None:
        if standing is None:
            self._told.pop(session_id, None)
            frame = of_feed("feed_removed", msgspec.json.encode(FeedRemoved(session_id)))
        else:
            body = msgspec.json.encode(_changed(standing))
            if self._told.get(session_id) == body:
                return
            if len(self._told) >= _TOLD_MAX:
                self._told.clear()
            self._told[session_id] = body
            frame = of_feed("feed_changed", body)
        for reader in self._readers:
            reader.offer(session_id, frame)


def _changed(standing: Standing) -> FeedChanged:
    session = _session_of(standing)
    return FeedChanged(session, tuple(question_of(question) for question in standing.questions))


def _session_of(standing: Standing) -> Session:
    return session_of(standing.row, standing.unread, standing.pinned, opening=standing.opening)


def _snapshot(survey: Survey) -> bytes:
    sessions = tuple(_session_of(each) for each in survey.standings)
    questions = tuple(question_of(question) for question in survey.questions)
    return msgspec.json.encode(FeedSnapshot(sessions, questions, survey.more))


async def _wait(bell: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await bell.wait()


def _now() -> float:
    return asyncio.get_running_loop().time()
