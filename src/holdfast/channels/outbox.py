"""Send messages to a chat app: plan them from conversations, then deliver them."""

from collections.abc import Callable

from holdfast.channels.conversation_follower import ConversationFollower
from holdfast.channels.delivery import DeliveryWorker
from holdfast.channels.pairing import Pairing
from holdfast.channels.stats import ChannelStats
from holdfast.domain.chats import RouteRow
from holdfast.domain.clock import Clock
from holdfast.store.ports import Store


class ChannelOutbox:
    """The outbox of one channel. Works while its two loops run."""

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
        """Wake the delivery loop after a delivery was added."""
        self._worker.notify()

    async def prepare_switch(self, key: str) -> None:
        """Finish a chat's messages before a switch. Call `chat_moved` or `cancel_switch` afterwards."""
        await self._follower.prepare_switch(key)

    def chat_moved(self, route: RouteRow) -> None:
        """Follow a chat's new route."""
        self._follower.chat_moved(route)

    def sync_route(self, route: RouteRow) -> None:
        """Follow a chat's route if it differs from the known one."""
        self._follower.sync_route(route)

    def cancel_switch(self, key: str) -> None:
        self._follower.cancel_switch(key)

    def close(self) -> None:
        self._worker.close()

    async def drained(self) -> None:
        await self._worker.drained()
