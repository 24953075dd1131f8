"""Events as frames: one line each, encoded once, sent in pieces of a bounded size."""

import msgspec

from holdfast.domain.events.codec import Event
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import STREAM_SEND_BYTES
from holdfast.http.sse.frames import HEARTBEAT, FrameCache, multi_session_frame, session_frame

HERE = SessionId("s_1")


def event(seq: int, body: bytes = b'{"text":"a"}', kind: str = "text_appended", version: int = 1) -> Event:
    return Event(seq, 1_000, kind, version, body)


def body_of(frame: bytes) -> object:
    line = next(line for line in frame.split(b"\n") if line.startswith(b"data: "))
    return msgspec.json.decode(line.removeprefix(b"data: "))


def test_a_frame_has_its_seq_kind_and_body() -> None:
    assert session_frame(HERE, event(7)) == (
        b'id: 7\nevent: text_appended\ndata: {"seq":7,"at":1000,"kind":"text_appended","text":"a"}\n\n'
    )


def test_a_multi_session_frame_names_its_session() -> None:
    frame = multi_session_frame(HERE, event(7, b"{}", "session_deleted"))
    assert frame.startswith(b"id: s_1:7\nevent: session_deleted\n")
    assert body_of(frame) == {"session_id": "s_1", "seq": 7, "at": 1000, "kind": "session_deleted"}


def test_line_ends_in_a_body_are_removed() -> None:
    frame = session_frame(HERE, event(7, b'{\r\n  "later":\n "a\\nb"\n}', "dreamt", 9))
    assert frame.count(b"\n") == 4
    assert body_of(frame) == {
        "seq": 7, "at": 1000, "kind": "dreamt", "version": 9, "later": "a\nb",
    }  # fmt: skip


def test_an_event_is_encoded_once_however_many_read_it() -> None:
    made: list[int] = []

    def make(session_id: SessionId, event: Event) -> bytes:
        made.append(event.seq)
        return session_frame(session_id, event)

    frames, events = FrameCache(make), [event(seq) for seq in range(1, 2_001)]
    for start in range(0, 2_000, 10):
        for _ in range(50):
            list(frames.chunks(HERE, events[start : start + 10]))
    assert made == list(range(1, 2_001))


def test_equal_events_of_two_sessions_are_two_frames() -> None:
    frames = FrameCache(multi_session_frame)
    one, other = event(1), event(1)
    assert frames.frame(HERE, one) != frames.frame(SessionId("s_2"), other)


def test_available_frames_are_joined_into_bounded_chunks() -> None:
    frames = FrameCache(session_frame)
    small = [event(seq) for seq in range(1, 101)]
    assert len(list(frames.chunks(HERE, small))) == 1
    body = b'{"text":"%s"}' % (b"x" * 60_000)
    large = [event(seq, body) for seq in range(1, 21)]
    pieces = list(frames.chunks(HERE, large))
    assert b"".join(pieces) == b"".join(session_frame(HERE, each) for each in large)
    assert all(len(piece) < STREAM_SEND_BYTES + 61_000 for piece in pieces)
    assert list(frames.chunks(HERE, [])) == []


def test_a_heartbeat_moves_no_cursor() -> None:
    assert HEARTBEAT.startswith(b":") and HEARTBEAT.endswith(b"\n\n")
    assert b"id" not in HEARTBEAT.replace(b"still", b"")
