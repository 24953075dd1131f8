"""Time as a part that is passed in, so that tests can hold it still."""

import time
from typing import Protocol, TypeAlias

Instant: TypeAlias = int
"""Milliseconds since 1970 in UTC."""


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
