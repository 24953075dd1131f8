"""Events as server-sent events: encoded once, whoever reads them."""

from collections.abc import Callable, Iterator, Sequence

from holdfast.domain.events.codec import Event
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import STREAM_SEND_BYTES

Frame = Callable[[SessionId, Event], bytes]

START = b"retry: 1000\n\n"
"""A browser that lost the stream comes back after a second."""
HEARTBEAT = b": still here\n\n"
"""A comment: it has no id, so it moves nobody's cursor."""
_KEPT_MAX = 1_000


class Frames:
    """The frames of the newest events. All readers of a session hold the same event objects, so an event's
    identity finds its frame."""

    def __init__(self, make: Frame) -> None:
        self._make = make
        self._kept: dict[int, tuple[Event, bytes]] = {}

    def frame(self, session_id: SessionId, event: Event) -> bytes:
        kept = self._kept.get(id(event))
        # Kept together with its event, which cannot go away meanwhile: the number is not used again.
        if kept is not None:
            return kept[1]
        if len(self._kept) >= _KEPT_MAX:
            self._kept.clear()
        made = self._make(session_id, event)
        self._kept[id(event)] = (event, made)
        return made

    def chunks(self, session_id: SessionId, events: Sequence[Event]) -> Iterator[bytes]:
        """The frames of `events` in as few pieces as may be sent at once."""
        pile: list[bytes] = []
        size = 0
        for event in events:
            frame = self.frame(session_id, event)
            pile.append(frame)
            size += len(frame)
            if size >= STREAM_SEND_BYTES:
                yield b"".join(pile)
                pile, size = [], 0
        if pile:
            yield b"".join(pile)


def of_session(session_id: SessionId, event: Event) -> bytes:
    """For a stream of one session: the id is the seq."""
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.seq, event.kind.encode(), _line(event))


def of_several(session_id: SessionId, event: Event) -> bytes:
    """For a stream of several: id and body say which."""
    name = session_id.encode()
    body = b'{"session_id":"%s",%s' % (name, _line(event)[1:])
    return b"id: %s:%d\nevent: %s\ndata: %s\n\n" % (name, event.seq, event.kind.encode(), body)


def of_feed(kind: str, body: bytes) -> bytes:
    """For a feed: it has no id, so it moves nobody's cursor."""
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), body)


def _line(event: Event) -> bytes:
    wire = event.wire()
    # Another program's JSON, kept as it came, may hold line ends; only between its tokens.
    if b"\n" in wire or b"\r" in wire:
        wire = wire.replace(b"\n", b" ").replace(b"\r", b" ")
    return wire
