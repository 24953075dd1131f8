"""Time as a part that is passed in, so that tests can hold it still."""

import time
from typing import Protocol, TypeAlias

Instant: TypeAlias = int
"""Milliseconds since 1970 in UTC."""
INSTANT_MAX: Instant = 253_402_300_799_999
"""The end of the year 9999: there are no later days."""
CLOCK_MARGIN_MS = 60_000
"""How far clocks that are right may be apart, or one may be put back without anyone minding."""


class Clock(Protocol):
    def now_ms(self) -> Instant: ...


class SystemClock:
    """The machine's own clock."""

    def now_ms(self) -> Instant:
        return time.time_ns() // 1_000_000


class FakeClock:
    """A clock that moves only when it is told to."""

    def __init__(self, at: Instant = 1_700_000_000_000) -> None:
        self._at = at

    def now_ms(self) -> Instant:
        return self._at

    def advance(self, ms: int) -> None:
        assert ms >= 0, "time does not run backwards in tests"
        self._at += ms

    def rewind(self, ms: int) -> None:
        """As the clock of a machine is that was ahead."""
        self._at -= ms


def is_due(at: Instant, now: Instant, ahead_ms_max: int = 0) -> bool:
    """Whether a time has come that was set at most `ahead_ms_max` before it.

    One that is further away than that was set by a clock that was ahead: nobody waits for it.
    """
    return at <= now or at > now + ahead_ms_max + CLOCK_MARGIN_MS
