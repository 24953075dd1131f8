"""Limit the rate at which one chat's updates are processed: a burst, then a steady rate.

People do not type faster than the limit. A program that floods its chat is delayed, not refused, and uses no
more of the server than any other chat.
"""

from collections.abc import Callable

from holdfast.domain.limits import CHAT_BURST_MAX, CHAT_EVERY_MS


class ChatRateLimiter:
    """The rate limiter for the chats of one channel. `now` is a monotonic clock in seconds."""

    def __init__(
        self, now: Callable[[], float], burst: int = CHAT_BURST_MAX, every_ms: int = CHAT_EVERY_MS
    ) -> None:
        self._now = now
        self._every_s = every_ms / 1000
        self._burst_s = burst * self._every_s
        self._steady_at: dict[str, float] = {}
        """The time at which each chat is back within the steady rate; chats within it have no entry."""

    def wait_s(self, key: str) -> float:
        """Return how long the chat's next update has to wait; call this once per update."""
        now = self._now()
        self._forget(now)
        steady_at = max(self._steady_at.pop(key, now), now) + self._every_s
        self._steady_at[key] = steady_at
        return max(steady_at - now - self._burst_s, 0.0)

    def _forget(self, now: float) -> None:
        # Two checks per update bound the dictionary by the number of recently active chats.
        for key in [key for key, _ in zip(self._steady_at, range(2), strict=False)]:
            if self._steady_at[key] <= now:
                del self._steady_at[key]
