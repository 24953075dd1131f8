"""Count what one channel received and delivered in this process, and record its last error."""

import traceback
from collections import Counter
from collections.abc import Callable
from typing import Literal

import msgspec

from holdfast.channels.ports import Channel
from holdfast.domain.clock import Clock, Instant

DeliveryOutcome = Literal["sent", "edited", "again", "retried", "in_doubt", "dropped"]
"""The outcome of a delivery attempt. `again`: the message was resent, and marked as such."""
_DETAIL_CHARS_MAX = 500


class ChannelState(msgspec.Struct, frozen=True):
    """The state of a channel, as the settings show it.

    `serving`: this process serves the channel; otherwise another process does, or none can. `last_error` is
    kept until the next success. `undelivered` is the error of the last message that was dropped; it is never
    cleared.
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
    """The statistics of one channel in this process."""

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
        """Count updates from the app."""
        self.received += count
        self.record_success()

    def record_success(self) -> None:
        self._last_seen_at = self._clock.now_ms()
        self._last_error = ""

    def count(self, outcome: DeliveryOutcome) -> None:
        self.delivered[outcome] += 1

    def record_failure(self, detail: str) -> None:
        """Record an error of the app."""
        self._last_error = detail[:_DETAIL_CHARS_MAX]
        self._last_error_at = self._clock.now_ms()

    def record_lost(self, detail: str) -> None:
        """Record that a message was dropped."""
        self._undelivered = detail[:_DETAIL_CHARS_MAX]
        self._undelivered_at = self._clock.now_ms()

    def record_fault(self, what: str, error: BaseException) -> None:
        """Record a fault of this program and report it to the operator."""
        self.record_failure(f"{what}: {type(error).__name__}")
        lines = "".join(traceback.format_exception(error))
        self._notify(f"holdfast: {self.channel.name}: {what}: {type(error).__name__}: {error}\n{lines}")

    def state(self) -> ChannelState:
        return ChannelState(
            self.channel.name, self.serving, self._last_seen_at, self._last_error, self._last_error_at,
            self.received, self.waiting, dict(self.delivered), self._undelivered, self._undelivered_at,
        )  # fmt: skip
