"""A chat that floods is listened to at a pace; others are not made to wait for it."""

from holdfast.channels.pacing import Pace


def test_so_much_is_taken_up_at_once_and_then_a_little_at_a_time() -> None:
    pace = Pace(lambda: 100.0, burst=3, every_ms=500)
    assert [pace.wait_s("a") for _ in range(6)] == [0.0, 0.0, 0.0, 0.5, 1.0, 1.5]
    assert pace.wait_s("b") == 0.0, "another chat has said nothing yet"


def test_whoever_keeps_to_the_pace_never_waits() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0], burst=1, every_ms=500)
    for _ in range(50):
        assert pace.wait_s("a") == 0.0
        now[0] += 0.5


def test_after_a_rest_the_whole_burst_is_free_again() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0], burst=2, every_ms=500)
    assert [pace.wait_s("a") for _ in range(3)] == [0.0, 0.0, 0.5]
    now[0] = 60.0
    assert [pace.wait_s("a") for _ in range(3)] == [0.0, 0.0, 0.5]


def test_chats_that_have_fallen_silent_are_not_kept() -> None:
    now = [0.0]
    pace = Pace(lambda: now[0], burst=1, every_ms=500)
    for chat in range(1_000):
        now[0] += 1.0
        pace.wait_s(f"chat {chat}")
    assert len(pace._even_at) <= 2
