"""How a chat app fares here: whether this process serves it, what came and went, what went wrong last."""

import traceback
from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec

from holdfast.channels.ports import Channel
from holdfast.domain.clock import Clock, Instant

DeliveryOutcome = Literal["sent", "edited", "again", "retried", "in_doubt", "dropped"]
"""What became of a try to say something. `again`: it was sent once more, and said so."""
_DETAIL_CHARS_MAX = 500


class ChannelState(msgspec.Struct, frozen=True):
    """A chat app as people see it in the settings.

    `serving`: this process listens to it and sends; another does if not, or nobody can. `last_error` is what
    went wrong last, and stays until something went well again. `undelivered` is why the last message that was
    let be could not be said; it stays.
    """

    name: str
    serving: bool
    last_seen_at: Instant
    last_error: str
    last_error_at: Instant
    received: int
    waiting: int
    delivered: "dict[DeliveryOutcome, int]"
    undelivered: str = ""
    undelivered_at: Instant = 0


class ChannelStats:
    """What is counted of one chat app in this process."""

    def __init__(self, channel: Channel, clock: Clock, notify: Callable[[str], None]) -> None:
        self.channel = channel
        self._clock = clock
        self._notify = notify
        self.serving = False
        self.received = 0
        self.poisoned = 0
        self.waiting = 0
        self.delivered: Counter[DeliveryOutcome] = Counter()
        self._last_seen_at: Instant = 0
        self._last_error = ""
        self._last_error_at: Instant = 0
        self._undelivered = ""
        self._undelivered_at: Instant = 0

    def record_received(self, count: int) -> None:
        """Something came from the app."""
        self.received += count
        self.record_success()

    def record_success(self) -> None:
        self._last_seen_at = self._clock.now_ms()
        self._last_error = ""

    def count(self, outcome: DeliveryOutcome) -> None:
        self.delivered[outcome] += 1

    def record_failure(self, detail: str) -> None:
        """Something went wrong with the app itself."""
        self._last_error = detail[:_DETAIL_CHARS_MAX]
        self._last_error_at = self._clock.now_ms()

    def record_lost(self, detail: str) -> None:
        """A message was let be: nobody in its chat will see it."""
        self._undelivered = detail[:_DETAIL_CHARS_MAX]
        self._undelivered_at = self._clock.now_ms()

    def record_fault(self, what: str, error: BaseException) -> None:
        """Something went wrong in this program: it is told where its operator reads."""
        self.record_failure(f"{what}: {type(error).__name__}")
        lines = "".join(traceback.format_exception(error))
        self._notify(f"holdfast: {self.channel.name}: {what}: {type(error).__name__}: {error}\n{lines}")

    def state(self) -> ChannelState:
        return ChannelState(
            self.channel.name, self.serving, self._last_seen_at, self._last_error, self._last_error_at,
            self.received, self.waiting, dict(self.delivered), self._undelivered, self._undelivered_at,
        )  # fmt: skip
