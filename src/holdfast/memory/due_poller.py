"""Going round: what has become due is taken up by itself, also what a crash or another process left."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError
from holdfast.domain.limits import DEBTS_SHOWN_MAX
from holdfast.domain.state.rows import Debt
from holdfast.memory.committer import Outcome
from holdfast.memory.ports import Ledger

EVERY_S_MAX = 5.0

TakeUp = Callable[[Sequence[Debt]], list["asyncio.Task[Outcome]"]]
"""Begins to pay what is owed in these conversations, in the background, where that is not being done."""


class Rounds:
    """Looks for what is due, again and again. `resting` are the owners who are left in peace for now."""

    def __init__(
        self,
        ledger: Ledger,
        clock: Clock,
        idle_s: float,
        resting: Callable[[], list[str]],
        take_up: TakeUp,
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._ledger = ledger
        self._clock = clock
        self._idle_ms = int(idle_s * 1000)
        self._every_s = min(EVERY_S_MAX, idle_s / 2)
        self._began_at = clock.now_ms()
        self._resting = resting
        self._take_up = take_up
        self._sleep = sleep

    async def go(self) -> None:
        """Never ends by itself."""
        while True:
            try:
                goes_on = await self.one()
            except (HoldfastError, OSError):
                # A fault of the store is told to whoever asks it for something; here it is only waited out.
                goes_on = False
            if not goes_on:
                await self._sleep(self._every_s)

    async def one(self) -> bool:
        """Take up what is due; whether more may be due at once."""
        now = self._clock.now_ms()
        self._began_at = min(self._began_at, now)  # The clock may have been put back.
        # What was owed before this start waits for nobody: the conversation may never be gone on with.
        quiet_since = max(self._began_at, now - self._idle_ms)
        due = await self._ledger.due_debts(quiet_since, now, DEBTS_SHOWN_MAX, self._resting())
        tasks = self._take_up(due)
        if len(due) < DEBTS_SHOWN_MAX or not tasks:
            return False
        done, _ = await asyncio.wait(tasks, timeout=self._every_s)
        return any(not task.cancelled() and not task.exception() and task.result().paid for task in done)
