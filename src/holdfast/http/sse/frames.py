"""Encode events as server-sent events, once for all readers."""

from collections.abc import Callable, Iterator, Sequence

from holdfast.domain.events.codec import Event
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import STREAM_SEND_BYTES

FrameEncoder = Callable[[SessionId, Event], bytes]

STREAM_START = b"retry: 1000\n\n"
"""Tells a browser to reconnect one second after it has lost the stream."""
HEARTBEAT = b": still here\n\n"
"""A comment without an id, so that it moves no cursor."""
_CACHE_MAX = 1_000


class FrameCache:
    """The encoded frames of recent events, found by the identity of the event.

    All readers of a session hold the same event objects.
    """

    def __init__(self, encode: FrameEncoder) -> None:
        self._encode = encode
        self._cache: dict[int, tuple[Event, bytes]] = {}

    def frame(self, session_id: SessionId, event: Event) -> bytes:
        cached = self._cache.get(id(event))
        # The entry also holds the event, so that no other object can get the same id meanwhile.
        if cached is not None:
            return cached[1]
        if len(self._cache) >= _CACHE_MAX:
            self._cache.clear()
        encoded = self._encode(session_id, event)
        self._cache[id(event)] = (event, encoded)
        return encoded

    def chunks(self, session_id: SessionId, events: Sequence[Event]) -> Iterator[bytes]:
        """Yield the frames of `events` joined into chunks of the send size."""
        buffer: list[bytes] = []
        size = 0
        for event in events:
            frame = self.frame(session_id, event)
            buffer.append(frame)
            size += len(frame)
            if size >= STREAM_SEND_BYTES:
                yield b"".join(buffer)
                buffer, size = [], 0
        if buffer:
            yield b"".join(buffer)


def session_frame(session_id: SessionId, event: Event) -> bytes:
    """Return the frame for a stream of one session; its id is the seq."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), _data_line(event))


def multi_session_frame(session_id: SessionId, event: Event) -> bytes:
    """Return the frame for a stream of several sessions; id and body name the session."""
    name = session_id.encode()
    body = b'{"session_id":"%s",%s' % (name, _data_line(event)[1:])
    return b"id: %s:%d\nevent: %s\ndata: %s\n\n" % (name, event.seq, event.kind.encode(), body)


def feed_frame(kind: str, body: bytes) -> bytes:
    """Return a frame of the feed, without an id, so that it moves no cursor."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)


def _data_line(event: Event) -> bytes:
    wire = event.to_json()
    # JSON from another program, stored unchanged, may have line breaks between its tokens.
    if b"\n" in wire or b"\r" in wire:
        wire = wire.replace(b"\n", b" ").replace(b"\r", b" ")
    return wire
