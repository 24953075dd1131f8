"""Limit what a run may use before a person must let it continue.

The run's row holds what it has used, so a restart resets nothing; only the time limit counts from the start
of the current work. Each time a person lets the run continue, it may use the same amount again.
"""

import msgspec

from holdfast.domain.clock import Clock
from holdfast.domain.state.rows import RunRow

_UNITS = (("hour", 3600), ("minute", 60), ("second", 1))


class RunLimits(msgspec.Struct, frozen=True):
    """The limits of a run; 0 means no limit. `cost_micros` is in millionths of a US dollar."""

    steps: int = 0
    tokens: int = 0
    cost_micros: int = 0
    time_s: int = 0


class RunLimiter:
    """Check the limits of a run during one period of work, which starts now."""

    def __init__(self, limits: RunLimits, clock: Clock) -> None:
        self._limits = limits
        self._clock = clock
        self._began_at = clock.now_ms()

    def reached_limit(self, run: RunRow) -> str:
        """Return the limit that `run` has reached, as people read it; empty if it may take another step."""
        limits, allowances = self._limits, run.allowances
        tokens = run.usage.input_tokens + run.usage.output_tokens
        if limits.steps and run.steps >= limits.steps * allowances:
            return _quantity(limits.steps * allowances, "step")
        if limits.tokens and tokens >= limits.tokens * allowances:
            return _quantity(limits.tokens * allowances, "token")
        if limits.cost_micros and (run.usage.cost_micros or 0) >= limits.cost_micros * allowances:
            return f"{limits.cost_micros * allowances / 1_000_000:,.2f} US dollars"
        left_s = self.remaining_s
        return self.time_limit_text if left_s is not None and left_s <= 0 else ""

    @property
    def remaining_s(self) -> float | None:
        """Return the remaining time, which may be negative; None without a time limit."""
        if not self._limits.time_s:
            return None
        return self._limits.time_s - (self._clock.now_ms() - self._began_at) / 1000

    @property
    def time_limit_text(self) -> str:
        """Return the time limit as people read it."""
        seconds = self._limits.time_s
        name, unit = next((name, unit) for name, unit in _UNITS if seconds % unit == 0)
        return f"{_quantity(seconds // unit, name)} of work"


def _quantity(count: int, name: str) -> str:
    return f"{count:,} {name}" if count == 1 else f"{count:,} {name}s"
