"""A chat that floods is listened to at a pace; others are not made to wait for it."""

from holdfast.channels.chat_rate_limiter import ChatRateLimiter


def test_the_rate_limiter_allows_a_burst_then_a_steady_rate() -> None:
    pace = ChatRateLimiter(lambda: 100.0, burst=3, every_ms=500)
    assert [pace.wait_s("a") for _ in range(6)] == [0.0, 0.0, 0.0, 0.5, 1.0, 1.5]
    assert pace.wait_s("b") == 0.0, "another chat has said nothing yet"


def test_a_chat_below_the_rate_limit_never_waits() -> None:
    now = [0.0]
    pace = ChatRateLimiter(lambda: now[0], burst=1, every_ms=500)
    for _ in range(50):
        assert pace.wait_s("a") == 0.0
        now[0] += 0.5


def test_the_burst_is_restored_after_idle_time() -> None:
    now = [0.0]
    pace = ChatRateLimiter(lambda: now[0], burst=2, every_ms=500)
    assert [pace.wait_s("a") for _ in range(3)] == [0.0, 0.0, 0.5]
    now[0] = 60.0
    assert [pace.wait_s("a") for _ in range(3)] == [0.0, 0.0, 0.5]


def test_idle_chats_are_evicted_from_the_rate_limiter() -> None:
    now = [0.0]
    pace = ChatRateLimiter(lambda: now[0], burst=1, every_ms=500)
    for chat in range(1_000):
        now[0] += 1.0
        pace.wait_s(f"chat {chat}")
    assert len(pace._steady_at) <= 2
