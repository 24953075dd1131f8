"""A memory provider that takes 5 s for everything, stores nothing and does no work: only its time counts.

Recall is quick until its folder has a file named `slow`.
"""

import asyncio
from collections.abc import Sequence

from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.memory.ports import Health, ProviderCannot, Segment
from holdfast.memory.providers.installed import ProviderContext

SLOW_S = 5


class SlowMemory:
    name = "slow"
    takes_key = True

    def __init__(self, given: ProviderContext) -> None:
        self._sign = given.folder / "slow"

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        await asyncio.sleep(SLOW_S if self._sign.exists() else 0)
        return ()

    async def commit(self, segment: Segment) -> str:
        await asyncio.sleep(SLOW_S)
        return segment.key

    async def retract(self, key: str, receipt: str) -> None:
        await asyncio.sleep(SLOW_S)

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        await asyncio.sleep(SLOW_S)
        raise ProviderCannot(verb="remember one thing")

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        await asyncio.sleep(SLOW_S)
        raise ProviderCannot(verb="list")

    async def edit(self, memory_id: str, text: str) -> Memory:
        raise ProviderCannot(verb="change a memory")

    async def forget(self, memory_id: str) -> None:
        raise ProviderCannot(verb="forget one thing")

    async def health(self) -> Health:
        return Health(ok=True)

    async def close(self) -> None:
        return
