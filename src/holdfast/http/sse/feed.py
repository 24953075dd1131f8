"""Send the feed: a snapshot of all conversations and open questions, then each change.

One task reads for all feeds of the process: each change once, from the store, after its commit. It encodes a
change once and hands it to every reader. It reads sequentially, so no reader receives a state older than one
that it has already received.
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
"""The most sessions that one read of the store covers, to keep reads short."""
_LAST_SENT_MAX = 5_000
"""The most conversations whose last frame is cached, so that an unchanged one is not sent again."""


class FeedReader:
    """The frames that one connection has not sent yet; it keeps only the newest of each conversation."""

    def __init__(self, notify: Callable[[], None], request_snapshot: Callable[[], None]) -> None:
        self._notify = notify
        self._request_snapshot = request_snapshot
        self._frames: dict[SessionId, bytes] = {}
        self._snapshot: bytes | None = None
        self._has_overflowed = False
        self._is_ready = asyncio.Event()
        self.fault: BaseException | None = None
        """The error that ended the feed, if any."""
        self.needs_snapshot = True
        """True until the next snapshot, which contains all changes before it."""

    async def wait_until_ready(self) -> None:
        """Wait for the first snapshot. Raises the error that prevents it."""
        await self._is_ready.wait()
        if self.fault is not None:
            raise self.fault

    def take(self) -> list[bytes]:
        """Remove and return the frames to send now."""
        if self._has_overflowed:
            # Requested only now: the store is not read for a reader that takes nothing.
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
    """All feeds of one event loop; its task runs only while there is a reader."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: set[FeedReader] = set()
        self._wakeup = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextmanager
    def reader(self, notify: Callable[[], None]) -> Iterator[FeedReader]:
        """Yield a new reader; `notify` is called when it has frames to take, or has failed."""
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
    """The task that reads changes, encodes them and hands them to all readers."""

    def __init__(self, store: Store, readers: set[FeedReader], wakeup: asyncio.Event) -> None:
        self._store = store
        self._readers = readers
        self._wakeup = wakeup
        # Every reader has all of these: from its snapshot, or from a later change.
        self._last_sent: dict[SessionId, bytes] = {}
        self._marks_version = 0

    async def run(self) -> None:
        """Publish until cancelled or until the store fails; readers then have to reconnect."""
        with self._store.watch(self._wakeup.set) as watch:
            self._marks_version, _ = await self._store.mark_changes_since(0)
            resync_at = _now() + FEED_RESYNC_S
            while True:
                await _wait(self._wakeup, FEED_MARKS_MS / 1000)
                # Ask the event itself: it may be set at the moment at which the wait times out.
                was_woken = self._wakeup.is_set()
                self._wakeup.clear()
                if was_woken:
                    await self._publish_changes(watch)
                await self._publish_read_marks()
                if _now() >= resync_at:
                    resync_at = _now() + FEED_RESYNC_S
                    await self._resync()
                if was_woken:
                    # Changes during this pause are published together.
                    await asyncio.sleep(FEED_ROUND_MS / 1000)

    async def _publish_changes(self, watch: SessionWatch) -> None:
        changed = watch.take_changed()
        if changed is None:
            await self._resync()
        elif any(reader.needs_snapshot for reader in self._readers):
            await self._publish_snapshot()
        await self._publish(list(changed or ()))

    async def _publish_read_marks(self) -> None:
        self._marks_version, moved = await self._store.mark_changes_since(self._marks_version)
        if moved is None:
            await self._resync()
        elif moved:
            await self._publish(list(moved))

    async def _resync(self) -> None:
        """Compare everything with the store, since notifications may be lost."""
        seen = await self._publish_snapshot()
        await self._publish([session_id for session_id in self._last_sent if session_id not in seen])

    async def _publish_snapshot(self) -> frozenset[SessionId]:
        """Send the snapshot to readers that need one, and what has changed to the others."""
        waiting = [reader for reader in self._readers if reader.needs_snapshot]
        overview = await self._store.overview()
        for status in overview.statuses:
            self._publish_one(status.row.id, status)
        snapshot = feed_frame("feed_snapshot", _snapshot_body(overview)) if waiting else b""
        for reader in waiting:
            reader.set_snapshot(snapshot)
        return frozenset(status.row.id for status in overview.statuses)

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


def _snapshot_body(overview: SessionOverview) -> bytes:
    sessions = tuple(_session_info(status) for status in overview.statuses)
    questions = tuple(question_info(question) for question in overview.questions)
    return msgspec.json.encode(FeedSnapshot(sessions, questions, overview.has_more))


async def _wait(event: asyncio.Event, seconds: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()


def _now() -> float:
    return asyncio.get_running_loop().time()
