"""The port of a store for chat apps: inbound updates, routes and deliveries."""

from collections.abc import Sequence
from typing import Protocol

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


class ChatStore(Protocol):
    """Inbound updates, routes and deliveries of chat apps; see `domain.chats`."""

    async def receive(self, *inbound: InboundUpdate) -> bool:
        """Store updates durably, all at once, each id once; return False if all were stored already."""

    async def received(self, channel: str, limit: int, after: int = 0) -> Sequence[InboundRow]:
        """Return the unfinished updates of a channel in the order of arrival.

        `after` is the number of one of them: later updates always have higher numbers.
        """

    async def assign(self, no: int, session_id: SessionId, expect: Seq) -> InboundRow:
        """Record which session an update is for, before acting on it. A first assignment stays."""

    async def finish(
        self, no: int, replies: Sequence[NewDelivery] = (), move: RouteRow | None = None
    ) -> None:
        """Finish an update: plan its replies and move the chat to the route `move`, in one transaction.

        `move` replaces the whole route, its cursor included.
        """

    async def route(self, key: str) -> RouteRow | None: ...

    async def routes(self, channel: str = "", session_id: str = "", limit: int = 1_000) -> Sequence[RouteRow]:
        """Return the routes of a channel, or all that point to a session, most recently used first."""

    async def put_route(self, route: RouteRow) -> None: ...

    async def plan(
        self, key: str, session_id: SessionId, before: Seq, after: Seq, deliveries: Sequence[NewDelivery]
    ) -> bool:
        """Plan the deliveries of a chat's session up to `after`, all at once; return whether it did.

        Returns False and changes nothing unless the route points to `session_id` with its cursor at `before`.
        A delivery planned before under the same source and piece is changed; if it was sent already, the
        worker edits it.
        """

    async def due(self, channel: str, now: Instant, limit: int) -> Sequence[tuple[str, DeliveryRow]]:
        """Return each chat's first unfinished delivery if it may be tried now; later ones wait for it."""

    async def blocked_deliveries(self, channel: str, now: Instant, limit: int) -> Sequence[BlockedDelivery]:
        """Return each chat's first delivery that failed as POISON_MESSAGE, and the next if it is due."""

    async def begin_delivery(self, key: str, n: int) -> DeliveryRow | None:
        """Mark a delivery as being sent by this process; return None if another has it or it is over.

        Another living process keeps it for CHANNEL_LEASE_MS. The answer to a slower try may never arrive.
        """

    async def settle_delivery(
        self, key: str, row: DeliveryRow, new_deliveries: Sequence[NewDelivery] = ()
    ) -> bool:
        """Record the outcome of a delivery and plan `new_deliveries`: all of it or nothing.

        Returns False and changes nothing if another attempt has begun since (`attempts`).
        """

    async def delivery(self, key: str, source: str, piece: int) -> DeliveryRow | None: ...

    async def deliveries(self, key: str, limit: int) -> Sequence[DeliveryRow]:
        """Return the deliveries of a chat, newest first."""

    async def message_with_button(self, key: str, press: str) -> DeliveryRow | None:
        """Return the newest message of a chat that has this button, however old; None if there is none."""
