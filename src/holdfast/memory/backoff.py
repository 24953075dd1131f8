"""Delay memory commits after a failure, exponentially and with jitter."""

from collections.abc import Callable

import msgspec

from holdfast.domain.clock import Clock, Instant, is_due
from holdfast.domain.limits import COMMIT_RETRY_MS, COMMIT_RETRY_MS_MAX

_DOUBLINGS_MAX = 20


class _BackoffState(msgspec.Struct, frozen=True):
    until: Instant
    failures: int


class OwnerBackoff:
    """Backoff by owner: until when the scheduler skips it, unless a person requests a commit.

    `rng` returns a number from 0 to 1, for jitter.
    """

    def __init__(self, clock: Clock, rng: Callable[[], float]) -> None:
        self._clock = clock
        self._rng = rng
        self._states: dict[str, _BackoffState] = {}

    def retry_at(self, attempts: int) -> Instant:
        """Return the time of the next attempt after `attempts` attempts."""
        doubled = COMMIT_RETRY_MS * 2 ** min(max(attempts, 1) - 1, _DOUBLINGS_MAX)
        wait_ms = min(int(doubled * (0.5 + self._rng())), COMMIT_RETRY_MS_MAX)
        return self._clock.now_ms() + wait_ms

    def record_failure(self, owner: str) -> Instant:
        """Start the owner's backoff and return its end; failures during a backoff count as one."""
        before = self._states.get(owner)
        if before is not None and self.is_backing_off(owner):
            return before.until
        failures = before.failures + 1 if before is not None else 1
        self._states[owner] = _BackoffState(self.retry_at(failures), failures)
        return self._states[owner].until

    def record_success(self, owner: str) -> None:
        self._states.pop(owner, None)

    def is_backing_off(self, owner: str) -> bool:
        state = self._states.get(owner)
        return state is not None and not is_due(state.until, self._clock.now_ms(), COMMIT_RETRY_MS_MAX)

    def owners_in_backoff(self) -> list[str]:
        return [owner for owner in self._states if self.is_backing_off(owner)]
