"""How fast one chat is listened to: so much at once, then a little at a time.

Nobody types that fast. A program that floods its chat is heard out all the same, and meanwhile takes no more
of the server than anybody else.
"""

from collections.abc import Callable

from holdfast.domain.limits import CHAT_BURST_MAX, CHAT_EVERY_MS


class ChatRateLimiter:
    """Of the chats of one channel. `now` is a clock that only goes forward, in seconds."""

    def __init__(
        self, now: Callable[[], float], burst: int = CHAT_BURST_MAX, every_ms: int = CHAT_EVERY_MS
    ) -> None:
        self._now = now
        self._every_s = every_ms / 1000
        self._ahead_s = burst * self._every_s
        self._even_at: dict[str, float] = {}
        """When a chat would have said what it has, had it kept to the pace; those that have are not kept."""

    def wait_s(self, key: str) -> float:
        """How long the next thing that this chat says has to wait. To be asked once for each."""
        now = self._now()
        self._forget(now)
        even_at = max(self._even_at.pop(key, now), now) + self._every_s
        self._even_at[key] = even_at
        return max(even_at - now - self._ahead_s, 0.0)

    def _forget(self, now: float) -> None:
        # Two for each that comes: they are never many more than have just spoken.
        for key in [key for key, _ in zip(self._even_at, range(2), strict=False)]:
            if self._even_at[key] <= now:
                del self._even_at[key]
