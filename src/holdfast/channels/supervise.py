"""Work that goes on whatever happens to it: a fault is told, and after a while it is begun again."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from holdfast.channels.ports import ChannelFailure
from holdfast.channels.stats import Ledger
from holdfast.domain.errors import StoreFault

RETRY_S, RETRY_S_MAX = 0.5, 30.0
Sleep = Callable[[float], Awaitable[None]]


async def keep_on(what: str, work: Callable[[], Awaitable[None]], ledger: Ledger, sleep: Sleep) -> None:
    """Carry out `work`, which ends only by a fault, again and again until cancelled."""
    delay_s = RETRY_S
    while True:
        began = asyncio.get_running_loop().time()
        try:
            await work()
        except ChannelFailure as failure:
            ledger.failed(str(failure))
        except StoreFault as fault:
            # Told to whoever asks the store for something; here it is waited out.
            ledger.failed(str(fault))
        except Exception as error:
            ledger.fault(what, error)
        if asyncio.get_running_loop().time() - began > RETRY_S_MAX:
            delay_s = RETRY_S
        await sleep(delay_s)
        delay_s = min(delay_s * 2, RETRY_S_MAX)


class Bell:
    """Rung from anywhere; whoever waits hears it once, or looks by itself after a while."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    @property
    def is_rung(self) -> bool:
        return self._rung.is_set()

    async def wait(self, seconds: float) -> bool:
        """Whether it was rung; False: the time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        rung = self._rung.is_set()
        self._rung.clear()
        return rung
