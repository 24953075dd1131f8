"""Events as server-sent events: encoded once, whoever reads them."""

from collections.abc import Callable, Iterator, Sequence

from holdfast.domain.events.codec import Event
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import STREAM_SEND_BYTES

FrameEncoder = Callable[[SessionId, Event], bytes]

STREAM_START = b"retry: 1000\n\n"
"""A browser that lost the stream comes back after a second."""
HEARTBEAT = b": still here\n\n"
"""A comment: it has no id, so it moves nobody's cursor."""
_CACHE_MAX = 1_000


class FrameCache:
    """The frames of the newest events. All readers of a session hold the same event objects, so an event's
    identity finds its frame."""

    def __init__(self, encode: FrameEncoder) -> None:
        self._encode = encode
        self._cache: dict[int, tuple[Event, bytes]] = {}

    def frame(self, session_id: SessionId, event: Event) -> bytes:
        cached = self._cache.get(id(event))
        # Kept together with its event, which cannot go away meanwhile: the number is not used again.
        if cached is not None:
            return cached[1]
        if len(self._cache) >= _CACHE_MAX:
            self._cache.clear()
        encoded = self._encode(session_id, event)
        self._cache[id(event)] = (event, encoded)
        return encoded

    def chunks(self, session_id: SessionId, events: Sequence[Event]) -> Iterator[bytes]:
        """The frames of `events` in as few pieces as may be sent at once."""
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
    """For a stream of one session: the id is the seq."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), _data_line(event))


def multi_session_frame(session_id: SessionId, event: Event) -> bytes:
    """For a stream of several: id and body say which."""
    name = session_id.encode()
    body = b'{"session_id":"%s",%s' % (name, _data_line(event)[1:])
    return b"id: %s:%d\nevent: %s\ndata: %s\n\n" % (name, event.seq, event.kind.encode(), body)


def feed_frame(kind: str, body: bytes) -> bytes:
    """For a feed: it has no id, so it moves nobody's cursor."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)


def _data_line(event: Event) -> bytes:
    wire = event.to_json()
    # Another program's JSON, kept as it came, may hold line ends; only between its tokens.
    if b"\n" in wire or b"\r" in wire:
        wire = wire.replace(b"\n", b" ").replace(b"\r", b" ")
    return wire
