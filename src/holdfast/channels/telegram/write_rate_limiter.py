"""Limit the rate of messages to a Telegram chat, so that Telegram does not refuse them.

A group accepts twenty messages a minute, including edits. Telegram extends the wait of a client that ignores
its limits.
"""

from collections import OrderedDict, deque

from holdfast.domain.clock import Clock, Instant

GROUP_WRITES_MAX = 20
"""Messages and edits that a group accepts in a minute."""
GROUP_EDITS_MAX = 14
"""Edits beyond this wait, so that edits of a message in progress never delay an answer."""
WINDOW_MS = 60_000
CHATS_TRACKED_MAX = 10_000
"""Chats with recorded writes; beyond this the least recently used is forgotten."""


class TelegramRateLimiter:
    """The writes of the last minute by chat, and the chats that Telegram blocked for a while."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._writes: OrderedDict[str, deque[Instant]] = OrderedDict()
        self._blocked_until: OrderedDict[str, Instant] = OrderedDict()

    def wait_ms(self, chat: str, *, is_group: bool, is_edit: bool) -> int:
        """Return how long to wait before writing to `chat`; 0 means now."""
        now = self._clock.now_ms()
        until = self._blocked_until.get(chat, 0)
        written = self._writes.get(chat, deque())
        while written and written[0] <= now - WINDOW_MS:
            written.popleft()
        limit = GROUP_EDITS_MAX if is_edit else GROUP_WRITES_MAX
        if is_group and len(written) >= limit:
            until = max(until, written[len(written) - limit] + WINDOW_MS)
        return max(until - now, 0)

    def record_write(self, chat: str, *, is_group: bool) -> None:
        if not is_group:
            return
        self._writes.setdefault(chat, deque(maxlen=GROUP_WRITES_MAX)).append(self._clock.now_ms())
        self._writes.move_to_end(chat)
        while len(self._writes) > CHATS_TRACKED_MAX:
            self._writes.popitem(last=False)

    def block(self, chat: str, ms: int) -> None:
        """Block a chat for `ms`, as Telegram asked."""
        self._blocked_until[chat] = self._clock.now_ms() + ms
        self._blocked_until.move_to_end(chat)
        while len(self._blocked_until) > CHATS_TRACKED_MAX:
            self._blocked_until.popitem(last=False)
