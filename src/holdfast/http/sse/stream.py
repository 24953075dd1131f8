"""One connection that follows sessions for ever: replay, then news, and a sign of life when there is none.

Beside sessions, or alone, it may follow the feed of them all.

Each stream is a task of its own, so a reader who does not read makes only itself wait. What it has not
taken lies in the store, not here.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack

from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import STREAM_STALLED_BEATS_MAX
from holdfast.http.asgi import ALWAYS, Receive, Send
from holdfast.http.sse.feed import FeedReader
from holdfast.http.sse.frames import HEARTBEAT, START, Frames
from holdfast.store.ports import Follower, Store

Cursor = tuple[SessionId, Seq]

_HEADERS = ((b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"), *ALWAYS)
_LOOK_BEATS = 4
"""Every so many heartbeats a silent stream asks the store itself."""
_LAST_KIND = "session_deleted"
_PIECE_BYTES = 32_000


class Stream:
    """A reader: its connection, and where it is in each session. `abort` ends the connection at once."""

    def __init__(self, send: Send, frames: Frames, abort: Callable[[], None]) -> None:
        self._send = send
        self._frames = frames
        self._abort = abort
        self._bell = asyncio.Event()
        self._followers: list[Follower] = []
        self._feed: FeedReader | None = None
        self._due = False
        self._busy = False
        self._is_sending = False
        self._beats = 0
        self._stalled = 0
        self._is_over = False
        self._is_gone = False
        self.events = 0
        """How many were passed on."""

    def ring(self) -> None:
        """There is something to pass on."""
        self._bell.set()

    async def run(
        self, store: Store, cursors: Sequence[Cursor], receive: Receive, feed: FeedReader | None = None
    ) -> None:
        """Pass everything on until the reader has gone, the stream is closed or nothing is left to follow."""
        self._feed = feed
        leaving = asyncio.ensure_future(self._notice_leaving(receive))
        try:
            with ExitStack() as stack:
                for session_id, after in cursors:
                    follower = stack.enter_context(store.follow(session_id, after, self._bell.set))
                    self._followers.append(follower)
                await self._pass_on()
        finally:
            leaving.cancel()

    def close(self) -> None:
        """Let the stream end once it has passed on what is there."""
        self._is_over = True
        self._bell.set()

    def beat(self) -> bool:
        """A heartbeat's time has come. False if the reader has taken nothing for too long, and is cut off."""
        if self._is_sending:
            self._stalled += 1
            if self._stalled >= STREAM_STALLED_BEATS_MAX:
                self._is_gone = True
                self.close()
                self._abort()
                return False
        elif self._busy:
            self._busy = False
        else:
            self._beats += 1
            self._due = True
            if self._beats % _LOOK_BEATS == 0:
                for follower in self._followers:
                    follower.look()
            self._bell.set()
        return True

    async def _pass_on(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        await self._write(START)
        while not self._is_over and (self._followers or self._feed is not None):
            self._bell.clear()
            moved = [await self._pass_on_feed()]
            moved += [await self._pass_on_one(follower) for follower in tuple(self._followers)]
            if self._due:
                self._due = False
                if not any(moved):
                    await self._write(HEARTBEAT)
            elif not any(moved):
                await self._bell.wait()
        if not self._is_gone:
            # What a run said last as the server stopped.
            await self._pass_on_feed()
            for follower in tuple(self._followers):
                await self._pass_on_one(follower)
        await self._send({"type": "http.response.body", "body": b""})

    async def _pass_on_one(self, follower: Follower) -> bool:
        try:
            events = await follower.take()
        except HoldfastError:
            # Deleted, or the store is away: the reader comes back and is told so in words.
            self._followers.remove(follower)
            return False
        if not events:
            return False
        for chunk in self._frames.chunks(follower.session_id, events):
            await self._write(chunk)
        self.events += len(events)
        self._busy = True
        if events[-1].kind == _LAST_KIND:
            self._followers.remove(follower)
        return True

    async def _pass_on_feed(self) -> bool:
        if self._feed is None:
            return False
        frames = self._feed.take()
        for frame in frames:
            # In pieces: whoever takes a long snapshot slowly does take it.
            for start in range(0, len(frame), _PIECE_BYTES):
                await self._write(frame[start : start + _PIECE_BYTES])
        self.events += len(frames)
        self._busy = self._busy or bool(frames)
        if self._feed.fault is not None:
            # As with a session: the reader comes back and is told why in words.
            self.close()
        return bool(frames)

    async def _write(self, chunk: bytes) -> None:
        self._is_sending = True
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._is_sending, self._stalled = False, 0

    async def _notice_leaving(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        self._is_gone = True
        self.close()
