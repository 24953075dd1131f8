"""What goes back to a chat app: what conversations say is planned, and what is planned is delivered."""

from collections.abc import Callable

from holdfast.channels.conversation_follower import Telling
from holdfast.channels.delivery import Delivering
from holdfast.channels.pairing import Pairing
from holdfast.channels.stats import Ledger
from holdfast.domain.chats import RouteRow
from holdfast.domain.clock import Clock
from holdfast.store.ports import Store


class Outbox:
    """Of one channel. Works while its two loops run."""

    def __init__(
        self,
        store: Store,
        ledger: Ledger,
        pairing: Pairing,
        clock: Clock,
        chance: Callable[[], float],
        retry_ms: int,
    ) -> None:
        self._delivering = Delivering(store, ledger, pairing, clock, chance, retry_ms)
        self._telling = Telling(store, ledger, pairing, self._delivering.ring)

    async def tell_for_ever(self) -> None:
        await self._telling.run()

    async def deliver_for_ever(self) -> None:
        await self._delivering.run()

    def ring(self) -> None:
        """Something was added to what is to be delivered."""
        self._delivering.ring()

    async def leave(self, key: str) -> None:
        """A chat is about to turn to another conversation. Say `moved` or `stay` then."""
        await self._telling.leave(key)

    def moved(self, route: RouteRow) -> None:
        """A chat is at this conversation from now on, and is to be told of it."""
        self._telling.moved(route)

    def followed(self, route: RouteRow) -> None:
        """A chat is at this conversation: where it was before may have gone on there."""
        self._telling.followed(route)

    def stay(self, key: str) -> None:
        self._telling.stay(key)

    def close(self) -> None:
        self._delivering.close()

    async def drained(self) -> None:
        await self._delivering.drained()
