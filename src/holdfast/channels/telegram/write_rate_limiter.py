"""How often a chat in Telegram may be written to, kept here so that Telegram need not be asked to refuse.

A group takes twenty messages a minute, edits among them; whoever is told to wait and does not is made to wait
longer.
"""

from collections import OrderedDict, deque

from holdfast.domain.clock import Clock, Instant

GROUP_WRITES_MAX = 20
"""Messages and edits that a group takes in a minute."""
GROUP_EDITS_MAX = 14
"""Past that only messages go through, so that one that is being written never holds up an answer."""
WINDOW_MS = 60_000
CHATS_TRACKED_MAX = 10_000
"""Chats whose pace is known; past that the longest untouched is forgotten."""


class TelegramRateLimiter:
    """What was written where in the last minute, and who asked for patience."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._writes: OrderedDict[str, deque[Instant]] = OrderedDict()
        self._blocked_until: OrderedDict[str, Instant] = OrderedDict()

    def wait_ms(self, chat: str, *, is_group: bool, is_edit: bool) -> int:
        """How long until `chat` may be written to; 0: now."""
        now = self._clock.now_ms()
        until = self._blocked_until.get(chat, 0)
        written = self._writes.get(chat, deque())
        while written and written[0] <= now - WINDOW_MS:
            written.popleft()
        most = GROUP_EDITS_MAX if is_edit else GROUP_WRITES_MAX
        if is_group and len(written) >= most:
            until = max(until, written[len(written) - most] + WINDOW_MS)
        return max(until - now, 0)

    def record_write(self, chat: str, *, is_group: bool) -> None:
        if not is_group:
            return
        self._writes.setdefault(chat, deque(maxlen=GROUP_WRITES_MAX)).append(self._clock.now_ms())
        self._writes.move_to_end(chat)
        while len(self._writes) > CHATS_TRACKED_MAX:
            self._writes.popitem(last=False)

    def block(self, chat: str, ms: int) -> None:
        """Telegram asked for `ms` of patience there."""
        self._blocked_until[chat] = self._clock.now_ms() + ms
        self._blocked_until.move_to_end(chat)
        while len(self._blocked_until) > CHATS_TRACKED_MAX:
            self._blocked_until.popitem(last=False)
