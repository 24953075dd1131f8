"""The `ChatStore` port over SQLite."""

from collections.abc import Sequence

from holdfast.domain.chats import (
    BlockedDelivery,
    DeliveryRow,
    InboundRow,
    InboundUpdate,
    NewDelivery,
    RouteRow,
)
from holdfast.domain.clock import Instant
from holdfast.domain.ids import Seq, SessionId
from holdfast.store.sqlite import chats
from holdfast.store.sqlite.access import SqliteAccess


class SqliteChatStore(SqliteAccess):
    """Implement `ChatStore` over one file."""

    async def receive(self, *inbound: InboundUpdate) -> bool:
        return await self._transact(lambda tx: chats.receive(tx, inbound))

    async def received(self, channel: str, limit: int, after: int = 0) -> Sequence[InboundRow]:
        return await self._readers.read(chats.received, channel, limit, after)

    async def assign(self, no: int, session_id: SessionId, expect: Seq) -> InboundRow:
        return await self._transact(lambda tx: chats.assign(tx, no, session_id, expect))

    async def finish(
        self, no: int, replies: Sequence[NewDelivery] = (), move: RouteRow | None = None
    ) -> None:
        await self._transact(lambda tx: chats.finish(tx, no, replies, move))

    async def route(self, key: str) -> RouteRow | None:
        return await self._readers.read(chats.route, key)

    async def routes(self, channel: str = "", session_id: str = "", limit: int = 1_000) -> Sequence[RouteRow]:
        return await self._readers.read(chats.routes, channel, session_id, limit)

    async def put_route(self, route: RouteRow) -> None:
        await self._transact(lambda tx: chats.put_route(tx, route))

    async def plan(
        self, key: str, session_id: SessionId, before: Seq, after: Seq, deliveries: Sequence[NewDelivery]
    ) -> bool:
        return await self._transact(lambda tx: chats.plan(tx, key, session_id, before, after, deliveries))

    async def due(self, channel: str, now: Instant, limit: int) -> Sequence[tuple[str, DeliveryRow]]:
        return await self._readers.read(chats.due, channel, now, limit)

    async def blocked_deliveries(self, channel: str, now: Instant, limit: int) -> Sequence[BlockedDelivery]:
        return await self._readers.read(chats.blocked_deliveries, channel, now, limit)

    async def begin_delivery(self, key: str, n: int) -> DeliveryRow | None:
        lock = self._lock
        return await self._transact(
            lambda tx: chats.begin_delivery(tx, key, n, lock.process_id, lock.is_alive)
        )

    async def settle_delivery(
        self, key: str, row: DeliveryRow, new_deliveries: Sequence[NewDelivery] = ()
    ) -> bool:
        return await self._transact(lambda tx: chats.settle_delivery(tx, key, row, new_deliveries))

    async def delivery(self, key: str, source: str, piece: int) -> DeliveryRow | None:
        return await self._readers.read(chats.delivery, key, source, piece)

    async def deliveries(self, key: str, limit: int) -> Sequence[DeliveryRow]:
        return await self._readers.read(chats.deliveries, key, limit)

    async def message_with_button(self, key: str, press: str) -> DeliveryRow | None:
        return await self._readers.read(chats.message_with_button, key, press)
