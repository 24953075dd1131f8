"""What goes back to a chat app: what conversations say is planned, and what is planned is delivered."""

from collections.abc import Callable

from holdfast.channels.conversation_follower import ConversationFollower
from holdfast.channels.delivery import DeliveryWorker
from holdfast.channels.pairing import Pairing
from holdfast.channels.stats import ChannelStats
from holdfast.domain.chats import RouteRow
from holdfast.domain.clock import Clock
from holdfast.store.ports import Store


class ChannelOutbox:
    """Of one channel. Works while its two loops run."""

    def __init__(
        self,
        store: Store,
        stats: ChannelStats,
        pairing: Pairing,
        clock: Clock,
        rng: Callable[[], float],
        retry_ms: int,
    ) -> None:
        self._worker = DeliveryWorker(store, stats, pairing, clock, rng, retry_ms)
        self._follower = ConversationFollower(store, stats, pairing, self._worker.notify)

    async def follow_conversations(self) -> None:
        await self._follower.run()

    async def deliver(self) -> None:
        await self._worker.run()

    def notify(self) -> None:
        """Something was added to what is to be delivered."""
        self._worker.notify()

    async def prepare_switch(self, key: str) -> None:
        """A chat is about to turn to another conversation. Say `moved` or `stay` then."""
        await self._follower.prepare_switch(key)

    def chat_moved(self, route: RouteRow) -> None:
        """A chat is at this conversation from now on, and is to be told of it."""
        self._follower.chat_moved(route)

    def sync_route(self, route: RouteRow) -> None:
        """A chat is at this conversation: where it was before may have gone on there."""
        self._follower.sync_route(route)

    def cancel_switch(self, key: str) -> None:
        self._follower.cancel_switch(key)

    def close(self) -> None:
        self._worker.close()

    async def drained(self) -> None:
        await self._worker.drained()
