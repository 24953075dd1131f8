"""Supervise background loops: report a fault and restart the loop with backoff."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.channels.ports import ChannelFailure
from holdfast.channels.stats import ChannelStats
from holdfast.domain.errors import StoreFault

RETRY_S, RETRY_S_MAX = 0.5, 30.0
Sleep = Callable[[float], Awaitable[None]]


async def restart_on_failure(
    what: str, work: Callable[[], Awaitable[None]], stats: ChannelStats, sleep: Sleep
) -> None:
    """Run `work`, which ends only by a fault, and restart it until cancelled."""
    delay_s = RETRY_S
    while True:
        began = asyncio.get_running_loop().time()
        try:
            await work()
        except ChannelFailure as failure:
            stats.record_failure(str(failure))
        except StoreFault as fault:
            # The store reports its faults to its other callers; here it is only waited out.
            stats.record_failure(str(fault))
        except Exception as error:
            stats.record_fault(what, error)
        if asyncio.get_running_loop().time() - began > RETRY_S_MAX:
            delay_s = RETRY_S
        await sleep(delay_s)
        delay_s = min(delay_s * 2, RETRY_S_MAX)


class ChannelWakeup:
    """A wakeup with one waiter, which is woken once for any number of notifications."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        self._event.set()

    @property
    def is_set(self) -> bool:
        return self._event.is_set()

    async def wait(self, timeout_s: float) -> bool:
        """Wait and return whether `notify` was called; False after the timeout."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._event.wait()
        was_set = self._event.is_set()
        self._event.clear()
        return was_set
