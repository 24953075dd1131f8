"""The provider of whoever remembers now, found anew each time: it may still be opening, or have changed."""

from collections.abc import Awaitable, Callable, Sequence

from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.memory.ports import Health, OwnerGone, Provider, ProviderFailure, Segment


class Awaited:
    """Stands where a provider does. That there is none just now is a failure of memory like any other."""

    def __init__(self, name: str, find: Callable[[], Awaitable[Provider]]) -> None:
        self._name = name
        self._find = find

    @property
    def name(self) -> str:
        return self._name

    @property
    def takes_key(self) -> bool:
        """Not to be relied on before it is there; whoever tells it asks for it by its owner."""
        return False

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        return await (await self._found()).recall(query, scope, limit)

    async def commit(self, segment: Segment) -> str:
        return await (await self._found()).commit(segment)

    async def retract(self, key: str, receipt: str) -> None:
        await (await self._found()).retract(key, receipt)

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        return await (await self._found()).remember(text, scope, origin, key)

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        return await (await self._found()).list_(scope, words, cursor, limit)

    async def edit(self, memory_id: str, text: str) -> Memory:
        return await (await self._found()).edit(memory_id, text)

    async def forget(self, memory_id: str) -> None:
        await (await self._found()).forget(memory_id)

    async def health(self) -> Health:
        try:
            return await (await self._found()).health()
        except ProviderFailure as failure:
            return Health(False, str(failure.fields["detail"]))

    async def close(self) -> None:
        """It is whoever found it that closes it."""

    async def _found(self) -> Provider:
        try:
            return await self._find()
        except OwnerGone as gone:
            raise ProviderFailure(detail=str(gone).rstrip(".")) from gone
