"""Serve event streams: replay and follow sessions, send heartbeats, and cut off stalled readers."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from urllib.parse import parse_qs

from holdfast.domain.errors import BadCursor, HoldfastError, TooLarge
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import HEARTBEAT_S, STREAM_SESSIONS_MAX, STREAM_STALLED_HEARTBEATS_MAX
from holdfast.http.asgi import SECURITY_HEADERS, Receive, Scope, Send, header
from holdfast.http.errors import BadRequest
from holdfast.http.sse.feed import Feed, FeedReader
from holdfast.http.sse.frames import HEARTBEAT, STREAM_START, FrameCache, multi_session_frame, session_frame
from holdfast.store.ports import SessionFollower, Store

Cursor = tuple[SessionId, Seq]
_HEADERS = ((b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"), *SECURITY_HEADERS)
_POLL_BEATS = 4
"""A silent stream polls the store after this many heartbeats."""
_FINAL_EVENT_KIND = "session_deleted"
_CHUNK_BYTES = 32_000
EVENTS_PATH = re.compile(r"/api/sessions/([^/]+)/events")
STREAM_PATH = "/api/stream"
_HEARTBEAT_SLOTS = 60
_SEQ = re.compile(r"[0-9]{1,18}")


class Stream:
    """One connection and its position in each session. `abort` ends the connection at once."""

    def __init__(self, send: Send, frames: FrameCache, abort: Callable[[], None]) -> None:
        self._send = send
        self._frames = frames
        self._abort = abort
        self._wakeup = asyncio.Event()
        self._followers: list[SessionFollower] = []
        self._feed: FeedReader | None = None
        self._heartbeat_due = False
        self._was_active = False
        self._is_sending = False
        self._beats = 0
        self._stalled_beats = 0
        self._is_closing = False
        self._is_disconnected = False
        self.events_sent = 0

    def notify(self) -> None:
        """Wake the stream: there is something to send."""
        self._wakeup.set()

    async def run(
        self, store: Store, cursors: Sequence[Cursor], receive: Receive, feed: FeedReader | None = None
    ) -> None:
        """Send events until the client disconnects, the stream is closed or nothing is left to follow."""
        self._feed = feed
        disconnect_task = asyncio.ensure_future(self._wait_for_disconnect(receive))
        try:
            with ExitStack() as stack:
                for session_id, after in cursors:
                    follower = stack.enter_context(store.follow(session_id, after, self._wakeup.set))
                    self._followers.append(follower)
                await self._send_loop()
        finally:
            disconnect_task.cancel()

    def close(self) -> None:
        """End the stream after it has sent what is available."""
        self._is_closing = True
        self._wakeup.set()

    def on_heartbeat(self) -> bool:
        """Send a heartbeat if the stream is silent. Return False if it cut off a stalled reader."""
        if self._is_sending:
            self._stalled_beats += 1
            if self._stalled_beats >= STREAM_STALLED_HEARTBEATS_MAX:
                self._is_disconnected = True
                self.close()
                self._abort()
                return False
        elif self._was_active:
            self._was_active = False
        else:
            self._beats += 1
            self._heartbeat_due = True
            if self._beats % _POLL_BEATS == 0:
                for follower in self._followers:
                    follower.resync()
            self._wakeup.set()
        return True

    async def _send_loop(self) -> None:
        await self._send({"type": "http.response.start", "status": 200, "headers": list(_HEADERS)})
        await self._write(STREAM_START)
        while not self._is_closing and (self._followers or self._feed is not None):
            self._wakeup.clear()
            sent = [await self._send_feed()]
            sent += [await self._send_events(follower) for follower in tuple(self._followers)]
            if self._heartbeat_due:
                self._heartbeat_due = False
                if not any(sent):
                    await self._write(HEARTBEAT)
            elif not any(sent):
                await self._wakeup.wait()
        if not self._is_disconnected:
            # The last events of runs that ended as the server stopped.
            await self._send_feed()
            for follower in tuple(self._followers):
                await self._send_events(follower)
        await self._send({"type": "http.response.body", "body": b""})

    async def _send_events(self, follower: SessionFollower) -> bool:
        try:
            events = await follower.next_events()
        except HoldfastError:
            # Deleted, or the store is unavailable: the client reconnects and gets a problem document.
            self._followers.remove(follower)
            return False
        if not events:
            return False
        for chunk in self._frames.chunks(follower.session_id, events):
            await self._write(chunk)
        self.events_sent += len(events)
        self._was_active = True
        if events[-1].kind == _FINAL_EVENT_KIND:
            self._followers.remove(follower)
        return True

    async def _send_feed(self) -> bool:
        if self._feed is None:
            return False
        frames = self._feed.take()
        for frame in frames:
            # In chunks, so that a slow reader of a long snapshot does not count as stalled.
            for start in range(0, len(frame), _CHUNK_BYTES):
                await self._write(frame[start : start + _CHUNK_BYTES])
        self.events_sent += len(frames)
        self._was_active = self._was_active or bool(frames)
        if self._feed.fault is not None:
            # As with a session: the client reconnects and gets a problem document.
            self.close()
        return bool(frames)

    async def _write(self, chunk: bytes) -> None:
        self._is_sending = True
        await self._send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._is_sending, self._stalled_beats = False, 0

    async def _wait_for_disconnect(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            continue
        self._is_disconnected = True
        self.close()


ABORT = "holdfast.abort"
"""The ASGI extension whose `call` ends the connection at once."""


class Streams:
    """The open streams of one event loop; they get heartbeats while `send_heartbeats` runs."""

    def __init__(self, store: Store, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._store = store
        self._heartbeat_s = heartbeat_s
        self._feed = Feed(store)
        self._frames, self._multi_session_frames = FrameCache(session_frame), FrameCache(multi_session_frame)
        # One ticker for all, with a slice of the streams at each tick: a thousand heartbeats at once would
        # delay active streams.
        self._slots: list[set[Stream]] = [set() for _ in range(_HEARTBEAT_SLOTS)]
        self._opened = 0
        self._events_of_closed = 0
        self._is_closed = False
        self.cut_off = 0

    @property
    def subscribers(self) -> int:
        return sum(len(slot) for slot in self._slots)

    @property
    def events_sent(self) -> int:
        """Return the number of events sent so far, counted once for each reader."""
        return self._events_of_closed + sum(stream.events_sent for slot in self._slots for stream in slot)

    async def stream_session(self, session_id: SessionId, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve `GET …/events`. Raises NoSuchSession and BadCursor before anything is sent."""
        after_args = _query(scope).get("after", [])
        last = header(scope, b"last-event-id") or (after_args[-1] if after_args else "0")
        cursor = await self._check_cursor(session_id, last)
        await self._run(Stream(send, self._frames, _abort_callback(scope)), [cursor], receive)

    async def stream_sessions(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve `GET /api/stream`. Raises as `stream_session` does, and BadRequest and TooLarge."""
        query = _query(scope)
        session_args, feed_arg = query.get("session", []), query.get("feed", ["false"])[-1]
        if feed_arg not in ("true", "false"):
            raise BadRequest(why="feed is true or false")
        if not session_args and feed_arg == "false":
            raise BadRequest(why="name at least one session, as session=ID:SEQ, or ask for the feed")
        if len(session_args) > STREAM_SESSIONS_MAX:
            raise TooLarge(what="The list of sessions", size=len(session_args), limit=STREAM_SESSIONS_MAX)
        requested = dict(_parse_cursor(text) for text in session_args)
        last = header(scope, b"last-event-id")
        if last:
            session_id, after = _parse_cursor(last)
            if session_id in requested:
                requested[session_id] = after
        cursors = [await self._check_cursor(session_id, after) for session_id, after in requested.items()]
        stream = Stream(send, self._multi_session_frames, _abort_callback(scope))
        if feed_arg == "false":
            await self._run(stream, cursors, receive)
            return
        with self._feed.reader(stream.notify) as reader:
            await reader.wait_until_ready()
            await self._run(stream, cursors, receive, reader)

    async def send_heartbeats(self) -> None:
        """Send heartbeats until cancelled, spread evenly over the streams."""
        while True:
            for slot in self._slots:
                await asyncio.sleep(self._heartbeat_s / _HEARTBEAT_SLOTS)
                for stream in tuple(slot):
                    if not stream.on_heartbeat():
                        self.cut_off += 1

    def close(self) -> None:
        """End all streams; their clients reconnect with their cursors."""
        self._is_closed = True
        for slot in self._slots:
            for stream in slot:
                stream.close()

    async def _run(
        self, stream: Stream, cursors: list[Cursor], receive: Receive, reader: FeedReader | None = None
    ) -> None:
        self._opened += 1
        slot = self._slots[self._opened % _HEARTBEAT_SLOTS]
        slot.add(stream)
        if self._is_closed:
            stream.close()
        try:
            await stream.run(self._store, cursors, receive, reader)
        finally:
            slot.discard(stream)
            self._events_of_closed += stream.events_sent

    async def _check_cursor(self, session_id: SessionId, after: str) -> Cursor:
        head = await self._store.head(session_id)
        if not _SEQ.fullmatch(after) or int(after) > head:
            # A cursor beyond the head would wait for ever, and miss the events before it.
            raise BadCursor(cursor=repr(after[:40]))
        seq: Seq = int(after)
        return session_id, seq


def _query(scope: Scope) -> dict[str, list[str]]:
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _parse_cursor(text: str) -> tuple[SessionId, str]:
    session_id, _, after = text.partition(":")
    return SessionId(session_id), after or "0"


def _abort_callback(scope: Scope) -> Callable[[], None]:
    extension: Mapping[str, Callable[[], None]] = (scope.get("extensions") or {}).get(ABORT, {})
    return extension.get("call", lambda: None)
