"""Time as a dependency, so that tests can control it."""

import time
from typing import Protocol, TypeAlias

Instant: TypeAlias = int
"""Milliseconds since 1970 in UTC."""
INSTANT_MAX: Instant = 253_402_300_799_999
"""The end of the year 9999: no calendar goes further."""
CLOCK_MARGIN_MS = 60_000
"""The largest tolerated difference between correct clocks, or step backwards of one."""


class Clock(Protocol):
    def now_ms(self) -> Instant: ...


class SystemClock:
    """Read the machine's clock."""

    def now_ms(self) -> Instant:
        return time.time_ns() // 1_000_000


class FakeClock:
    """A clock that moves only when a test moves it."""

    def __init__(self, at: Instant = 1_700_000_000_000) -> None:
        self._at = at

    def now_ms(self) -> Instant:
        return self._at

    def advance(self, ms: int) -> None:
        assert ms >= 0, "time does not run backwards in tests"
        self._at += ms

    def rewind(self, ms: int) -> None:
        """Set the clock back, like one that was ahead and is corrected."""
        self._at -= ms


def is_due(at: Instant, now: Instant, ahead_ms_max: int = 0) -> bool:
    """Return whether `at` has come; it was set at most `ahead_ms_max` ahead of its clock.

    A clock that was ahead set any time further away, so that is due too.
    """
    return at <= now or at > now + ahead_ms_max + CLOCK_MARGIN_MS
