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
from holdfast.domain.limits import FEED_MARKS_MS, FEED_PENDING_MAX, FEED_RESYNC_S, FEED_ROUND_MS
from holdfast.http.schemas.responses import (
    FeedChanged,
    FeedRemoved,
    FeedSnapshot,
    SessionInfo,
    question_info,
    session_info,
)
from holdfast.http.sse.frames import feed_frame
from holdfast.store.ports import Store
from holdfast.store.session_status import SessionOverview, SessionStatus, SessionWatch

_READ_BATCH_SIZE = 100
"""So many are read in one go: no read of the store is long."""
_LAST_SENT_MAX = 5_000
"""Conversations whose last telling is kept, to be silent when nothing is different."""


class FeedReader:
    """What one connection has not taken yet. Of a conversation only the newest is kept."""

    def __init__(self, notify: Callable[[], None], request_snapshot: Callable[[], None]) -> None:
        self._notify = notify
        self._request_snapshot = request_snapshot
        self._frames: dict[SessionId, bytes] = {}
        self._snapshot: bytes | None = None
        self._has_overflowed = False
        self._is_ready = asyncio.Event()
        self.fault: BaseException | None = None
        """Why there is nothing more to come, if so."""
        self.needs_snapshot = True
        """For a snapshot; whatever changes before it comes is part of it."""

    async def wait_until_ready(self) -> None:
        """Return once the first snapshot is here. Raises what stands in its way."""
        await self._is_ready.wait()
        if self.fault is not None:
            raise self.fault

    def take(self) -> list[bytes]:
        """What there is to send now."""
        if self._has_overflowed:
            # Only now: for a reader who takes nothing, nothing is read.
            self._has_overflowed, self.needs_snapshot = False, True
            self._request_snapshot()
            return []
        snapshot, self._snapshot = self._snapshot, None
        frames = list(self._frames.values())
        self._frames.clear()
        return [snapshot, *frames] if snapshot is not None else frames

    def set_snapshot(self, snapshot: bytes) -> None:
        self._frames.clear()
        self._snapshot, self.needs_snapshot = snapshot, False
        self._is_ready.set()
        self._notify()

    def offer(self, session_id: SessionId, frame: bytes) -> None:
        if self.needs_snapshot or self._has_overflowed:
            return
        self._frames[session_id] = frame
        if len(self._frames) > FEED_PENDING_MAX:
            self._frames.clear()
            self._snapshot, self._has_overflowed = None, True
        self._notify()

    def fail(self, fault: BaseException) -> None:
        self.fault = fault
        self._is_ready.set()
        self._notify()


class Feed:
    """All feeds of the process. Belongs to one event loop; works only while somebody reads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: set[FeedReader] = set()
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def reader(self, notify: Callable[[], None]) -> Iterator[FeedReader]:
        """One more reader; `ring` is called when it has something to take, or has come to its end."""
        reader = FeedReader(notify, self._wakeup.set)
        self._readers.add(reader)
        if self._task is None:
            self._task = asyncio.create_task(_FeedPublisher(self._store, self._readers, self._wakeup).run())
            self._task.add_done_callback(self._on_task_done)
        self._wakeup.set()
        try:
            yield reader
        finally:
            self._readers.discard(reader)
            if not self._readers and self._task is not None:
                self._task.cancel()
                self._task = None

    def _on_task_done(self, task: "asyncio.Task[None]") -> None:
        if task.cancelled():
            return
        fault = task.exception()
        assert fault is not None, "it works until it is cancelled"
        if not isinstance(fault, HoldfastError):
            traceback.print_exception(fault)
        if self._task is task:
            self._task = None
        for reader in self._readers:
            reader.fail(fault)


class _FeedPublisher:
    """The task: what is different is read, put into words and handed to all."""

    def __init__(self, store: Store, readers: set[FeedReader], wakeup: asyncio.Event) -> None:
        self._store = store
        self._readers = readers
        self._wakeup = wakeup
        # Whatever is in here, every reader has: it was in its snapshot, or was handed to it since.
        self._last_sent: dict[SessionId, bytes] = {}
        self._marks_version = 0

    async def run(self) -> None:
        """Until cancelled, or a fault of the store: then everyone has to come back."""
        with self._store.watch(self._wakeup.set) as watch:
            self._marks_version, _ = await self._store.marks_moved_since(0)
            resync_at = _now() + FEED_RESYNC_S
            while True:
                await _wait(self._wakeup, FEED_MARKS_MS / 1000)
                # Asked of the bell itself: it may ring in the moment in which the waiting ends.
                was_woken = self._wakeup.is_set()
                self._wakeup.clear()
                if was_woken:
                    await self._publish_changes(watch)
                await self._publish_read_marks()
                if _now() >= resync_at:
                    resync_at = _now() + FEED_RESYNC_S
                    await self._resync()
                if was_woken:
                    # What comes meanwhile is told together.
                    await asyncio.sleep(FEED_ROUND_MS / 1000)

    async def _publish_changes(self, watch: SessionWatch) -> None:
        changed = watch.take_changed()
        if changed is None:
            await self._resync()
        elif any(reader.needs_snapshot for reader in self._readers):
            await self._publish_snapshot()
        await self._publish(list(changed or ()))

    async def _publish_read_marks(self) -> None:
        self._marks_version, moved = await self._store.marks_moved_since(self._marks_version)
        if moved is None:
            await self._resync()
        elif moved:
            await self._publish(list(moved))

    async def _resync(self) -> None:
        """At everything: a hint may be lost, a look may not."""
        seen = await self._publish_snapshot()
        await self._publish([session_id for session_id in self._last_sent if session_id not in seen])

    async def _publish_snapshot(self) -> frozenset[SessionId]:
        """Read what a feed begins with: all of it for those who wait for that, what is new for the others."""
        waiting = [reader for reader in self._readers if reader.needs_snapshot]
        survey = await self._store.overview()
        for status in survey.statuses:
            self._publish_one(status.row.id, status)
        snapshot = feed_frame("feed_snapshot", _snapshot_body(survey)) if waiting else b""
        for reader in waiting:
            reader.set_snapshot(snapshot)
        return frozenset(standing.row.id for standing in survey.statuses)

    async def _publish(self, session_ids: Sequence[SessionId]) -> None:
        for start in range(0, len(session_ids), _READ_BATCH_SIZE):
            batch = session_ids[start : start + _READ_BATCH_SIZE]
            statuses = await self._store.session_statuses(batch)
            for session_id in batch:
                self._publish_one(session_id, statuses.get(session_id))

    def _publish_one(self, session_id: SessionId, status: SessionStatus | None) -> None:
        if status is None:
            self._last_sent.pop(session_id, None)
            frame = feed_frame("feed_removed", msgspec.json.encode(FeedRemoved(session_id)))
        else:
            body = msgspec.json.encode(_feed_changed(status))
            if self._last_sent.get(session_id) == body:
                return
            if len(self._last_sent) >= _LAST_SENT_MAX:
                self._last_sent.clear()
            self._last_sent[session_id] = body
            frame = feed_frame("feed_changed", body)
        for reader in self._readers:
            reader.offer(session_id, frame)


def _feed_changed(status: SessionStatus) -> FeedChanged:
    session = _session_info(status)
    return FeedChanged(session, tuple(question_info(question) for question in status.questions))


def _session_info(status: SessionStatus) -> SessionInfo:
    return session_info(status.row, status.unread, status.pinned, opening=status.opening)


def _snapshot_body(survey: SessionOverview) -> bytes:
    sessions = tuple(_session_info(each) for each in survey.statuses)
    questions = tuple(question_info(question) for question in survey.questions)
    return msgspec.json.encode(FeedSnapshot(sessions, questions, survey.has_more))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _now() -> float:
    return asyncio.get_running_loop().time()
