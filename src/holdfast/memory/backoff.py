"""When memory is tried again after a failure: later each time, and not for every conversation at once."""

from collections.abc import Callable

import msgspec

from holdfast.domain.clock import Clock, Instant, has_come
from holdfast.domain.limits import COMMIT_RETRY_MS, COMMIT_RETRY_MS_MAX

_DOUBLINGS_MAX = 20


class _Rest(msgspec.Struct, frozen=True):
    until: Instant
    failures: int


class Rests:
    """Owners whose provider failed, and until when nobody is told by them unless a person asks.

    `chance` gives a number from 0 to 1: what failed together is not tried again together.
    """

    def __init__(self, clock: Clock, chance: Callable[[], float]) -> None:
        self._clock = clock
        self._chance = chance
        self._rests: dict[str, _Rest] = {}

    def retry_at(self, attempts: int) -> Instant:
        """When to try again what has been tried `attempts` times."""
        doubled = COMMIT_RETRY_MS * 2 ** min(max(attempts, 1) - 1, _DOUBLINGS_MAX)
        wait_ms = min(int(doubled * (0.5 + self._chance())), COMMIT_RETRY_MS_MAX)
        return self._clock.now_ms() + wait_ms

    def failed(self, owner: str) -> Instant:
        """Let `owner` rest, and say until when; failures of the same moment count as one."""
        before = self._rests.get(owner)
        if before is not None and self.rests(owner):
            return before.until
        failures = before.failures + 1 if before is not None else 1
        self._rests[owner] = _Rest(self.retry_at(failures), failures)
        return self._rests[owner].until

    def succeeded(self, owner: str) -> None:
        self._rests.pop(owner, None)

    def rests(self, owner: str) -> bool:
        rest = self._rests.get(owner)
        return rest is not None and not has_come(rest.until, self._clock.now_ms(), COMMIT_RETRY_MS_MAX)

    def resting(self) -> list[str]:
        """The owners that rest now."""
        return [owner for owner in self._rests if self.rests(owner)]
