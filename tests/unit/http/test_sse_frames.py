"""Events as frames: one line each, encoded once, sent in pieces of a bounded size."""

import msgspec

from holdfast.domain.events.codec import Event
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import STREAM_SEND_BYTES
from holdfast.http.sse.frames import HEARTBEAT, Frames, of_session, of_several

HERE = SessionId("s_1")


def event(seq: int, body: bytes = b'{"text":"a"}', kind: str = "text_appended", version: int = 1) -> Event:
    return Event(seq, 1_000, kind, version, body)


def body_of(frame: bytes) -> object:
    line = next(line for line in frame.split(b"\n") if line.startswith(b"data: "))
    return msgspec.json.decode(line.removeprefix(b"data: "))


def test_a_frame_has_its_number_its_kind_and_its_body() -> None:
    assert of_session(HERE, event(7)) == (
        b'id: 7\nevent: text_appended\ndata: {"seq":7,"at":1000,"kind":"text_appended","text":"a"}\n\n'
    )


def test_among_several_sessions_a_frame_says_which() -> None:
    frame = of_several(HERE, event(7, b"{}", "session_deleted"))
    assert frame.startswith(b"id: s_1:7\nevent: session_deleted\n")
    assert body_of(frame) == {"session_id": "s_1", "seq": 7, "at": 1000, "kind": "session_deleted"}


def test_a_body_that_came_with_line_ends_is_still_one_line() -> None:
    frame = of_session(HERE, event(7, b'{\r\n  "later":\n "a\\nb"\n}', "dreamt", 9))
    assert frame.count(b"\n") == 4
    assert body_of(frame) == {
        "seq": 7, "at": 1000, "kind": "dreamt", "version": 9, "later": "a\nb",
    }  # fmt: skip


def test_an_event_is_encoded_once_however_many_read_it() -> None:
    made: list[int] = []

    def make(session_id: SessionId, event: Event) -> bytes:
        made.append(event.seq)
        return of_session(session_id, event)

    frames, events = Frames(make), [event(seq) for seq in range(1, 2_001)]
    for start in range(0, 2_000, 10):
        for _ in range(50):
            list(frames.chunks(HERE, events[start : start + 10]))
    assert made == list(range(1, 2_001))


def test_equal_events_of_two_sessions_are_two_frames() -> None:
    frames = Frames(of_several)
    one, other = event(1), event(1)
    assert frames.frame(HERE, one) != frames.frame(SessionId("s_2"), other)


def test_what_is_there_at_once_is_sent_in_few_bounded_pieces() -> None:
    frames = Frames(of_session)
    small = [event(seq) for seq in range(1, 101)]
    assert len(list(frames.chunks(HERE, small))) == 1
    body = b'{"text":"%s"}' % (b"x" * 60_000)
    large = [event(seq, body) for seq in range(1, 21)]
    pieces = list(frames.chunks(HERE, large))
    assert b"".join(pieces) == b"".join(of_session(HERE, each) for each in large)
    assert all(len(piece) < STREAM_SEND_BYTES + 61_000 for piece in pieces)
    assert list(frames.chunks(HERE, [])) == []


def test_a_sign_of_life_moves_no_cursor() -> None:
    assert HEARTBEAT.startswith(b":") and HEARTBEAT.endswith(b"\n\n")
    assert b"id" not in HEARTBEAT.replace(b"still", b"")
