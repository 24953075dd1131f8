"""How much a run may use before it waits for a person to let it go on.

What it has used is in its row, so nothing is forgotten over a restart; only time is counted from when this
stretch of work began. Each time that a person lets the run go on it may use as much again.
"""

import msgspec

from holdfast.domain.clock import Clock
from holdfast.domain.state.rows import RunRow

_UNITS = (("hour", 3600), ("minute", 60), ("second", 1))


class RunLimits(msgspec.Struct, frozen=True):
    """The most of each; 0 is no limit. `cost_micros` is millionths of a US dollar."""

    steps: int = 0
    tokens: int = 0
    cost_micros: int = 0
    time_s: int = 0


class RunLimiter:
    """One stretch of work on a run, which begins now."""

    def __init__(self, limits: RunLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._began_at = clock.now_ms()

    def reached_limit(self, run: RunRow) -> str:
        """The limit that `run` has reached, as people read it; nothing if it may take another step."""
        most, times = self._limits, run.allowances
        tokens = run.usage.input_tokens + run.usage.output_tokens
        if most.steps and run.steps >= most.steps * times:
            return _counted(most.steps * times, "step")
        if most.tokens and tokens >= most.tokens * times:
            return _counted(most.tokens * times, "token")
        if most.cost_micros and (run.usage.cost_micros or 0) >= most.cost_micros * times:
            return f"{most.cost_micros * times / 1_000_000:,.2f} US dollars"
        left_s = self.remaining_s
        return self.time_limit_text if left_s is not None and left_s <= 0 else ""

    @property
    def remaining_s(self) -> float | None:
        """How long it may still be worked on; None where there is no limit. Less than nothing is nothing."""
        if not self._limits.time_s:
            return None
        return self._limits.time_s - (self._clock.now_ms() - self._began_at) / 1000

    @property
    def time_limit_text(self) -> str:
        """The limit of time, as people read it."""
        seconds = self._limits.time_s
        name, unit = next((name, unit) for name, unit in _UNITS if seconds % unit == 0)
        return f"{_counted(seconds // unit, name)} of work"


def _counted(count: int, name: str) -> str:
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"
