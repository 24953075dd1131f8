"""Event streams: replay and follow sessions, send heartbeats, limit how many are open, close them all."""

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from urllib.parse import parse_qs

from holdfast.domain.errors import BadCursor, HoldfastError, TooLarge
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import HEARTBEAT_S, STREAM_SESSIONS_MAX, STREAM_STALLED_BEATS_MAX
from holdfast.http.asgi import ALWAYS, Receive, Scope, Send, header
from holdfast.http.errors import BadRequest
from holdfast.http.sse.feed import Feed, FeedReader
from holdfast.http.sse.frames import HEARTBEAT, START, Frames, of_session, of_several
from holdfast.store.ports import Follower, Store

Cursor = tuple[SessionId, Seq]
_HEADERS = ((b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no"), *ALWAYS)
_LOOK_BEATS = 4
"""Every so many heartbeats a silent stream asks the store itself."""
_LAST_KIND = "session_deleted"
_PIECE_BYTES = 32_000
EVENTS_PATH = re.compile(r"/api/sessions/([^/]+)/events")
STREAM_PATH = "/api/stream"
_SLOTS = 60
_SEQ = re.compile(r"[0-9]{1,18}")


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


ABORT = "holdfast.abort"
"""The extension of a scope whose `call` ends the connection at once."""


class Streams:
    """Belongs to one event loop. `beat_for_ever` must be running for signs of life."""

    def __init__(self, store: Store, heartbeat_s: float = HEARTBEAT_S) -> None:
        self._store = store
        self._heartbeat_s = heartbeat_s
        self._feed = Feed(store)
        self._frames, self._frames_of_several = Frames(of_session), Frames(of_several)
        # One ticker for all, and only a slice of the streams at each tick: beating a thousand at once would
        # hold up whoever is streaming.
        self._slots: list[set[Stream]] = [set() for _ in range(_SLOTS)]
        self._opened = 0
        self._events = 0
        self._is_closed = False
        self.cut_off = 0

    @property
    def subscribers(self) -> int:
        return sum(len(slot) for slot in self._slots)

    @property
    def events(self) -> int:
        """Events passed on so far, counted once for each reader."""
        return self._events + sum(stream.events for slot in self._slots for stream in slot)

    async def follow_one(self, session_id: SessionId, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer `GET …/events`. Raises NoSuchSession and BadCursor before anything is sent."""
        given = _query(scope).get("after", [])
        last = header(scope, b"last-event-id") or (given[-1] if given else "0")
        cursor = await self._checked(session_id, last)
        await self._run(Stream(send, self._frames, _abort_of(scope)), [cursor], receive)

    async def follow_several(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer `GET /api/stream`. Raises as `follow_one` does, BadRequest and TooLarge."""
        query = _query(scope)
        named, feeds = query.get("session", []), query.get("feed", ["false"])[-1]
        if feeds not in ("true", "false"):
            raise BadRequest(why="feed is true or false")
        if not named and feeds == "false":
            raise BadRequest(why="name at least one session, as session=ID:SEQ, or ask for the feed")
        if len(named) > STREAM_SESSIONS_MAX:
            raise TooLarge(what="The list of sessions", size=len(named), limit=STREAM_SESSIONS_MAX)
        wanted = dict(_split(text) for text in named)
        last = header(scope, b"last-event-id")
        if last:
            session_id, after = _split(last)
            if session_id in wanted:
                wanted[session_id] = after
        cursors = [await self._checked(session_id, after) for session_id, after in wanted.items()]
        stream = Stream(send, self._frames_of_several, _abort_of(scope))
        if feeds == "false":
            await self._run(stream, cursors, receive)
            return
        with self._feed.reader(stream.ring) as reader:
            await reader.begun()
            await self._run(stream, cursors, receive, reader)

    async def beat_for_ever(self) -> None:
        """Give every stream its sign of life, each at its own time."""
        while True:
            for slot in self._slots:
                await asyncio.sleep(self._heartbeat_s / _SLOTS)
                for stream in tuple(slot):
                    if not stream.beat():
                        self.cut_off += 1

    def close(self) -> None:
        """End all streams; their readers come back with their cursors."""
        self._is_closed = True
        for slot in self._slots:
            for stream in slot:
                stream.close()

    async def _run(
        self, stream: Stream, cursors: list[Cursor], receive: Receive, reader: FeedReader | None = None
    ) -> None:
        self._opened += 1
        slot = self._slots[self._opened % _SLOTS]
        slot.add(stream)
        if self._is_closed:
            stream.close()
        try:
            await stream.run(self._store, cursors, receive, reader)
        finally:
            slot.discard(stream)
            self._events += stream.events

    async def _checked(self, session_id: SessionId, after: str) -> Cursor:
        head = await self._store.head(session_id)
        if not _SEQ.fullmatch(after) or int(after) > head:
            # A number that was never given out would wait for ever, and miss what comes before it.
            raise BadCursor(cursor=repr(after[:40]))
        seq: Seq = int(after)
        return session_id, seq


def _query(scope: Scope) -> dict[str, list[str]]:
    return parse_qs(scope["query_string"].decode("latin-1"), keep_blank_values=True)


def _split(text: str) -> tuple[SessionId, str]:
    session_id, _, after = text.partition(":")
    return SessionId(session_id), after or "0"


def _abort_of(scope: Scope) -> Callable[[], None]:
    offered: Mapping[str, Callable[[], None]] = (scope.get("extensions") or {}).get(ABORT, {})
    return offered.get("call", lambda: None)
