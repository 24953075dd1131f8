"""The port of a store for chat apps: what came from them and what goes back."""

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
    """What came from chat apps and what goes back to them; see `domain.chats`."""

    async def receive(self, *inbound: InboundUpdate) -> bool:
        """Keep what came, durably and all at once, each update id once; False: it is all here already."""

    async def received(self, channel: str, limit: int, after: int = 0) -> Sequence[InboundRow]:
        """What came through a channel and is not dealt with yet, in the order in which it came.

        `after` is the number of one of them: what comes later always has a higher one.
        """

    async def assign(self, no: int, session_id: SessionId, expect: Seq) -> InboundRow:
        """Say which conversation something is for, before anything is done. What was said first stays."""

    async def finish(
        self, no: int, replies: Sequence[NewDelivery] = (), move: RouteRow | None = None
    ) -> None:
        """It is dealt with: what is said to it is to be delivered, and the chat is there from now on.

        The route is `move`'s cursor and all, in place of what it was.
        """

    async def route(self, key: str) -> RouteRow | None: ...

    async def routes(self, channel: str = "", session_id: str = "", limit: int = 1_000) -> Sequence[RouteRow]:
        """Every chat of a channel, or all that are at a conversation; the most recently used first."""

    async def put_route(self, route: RouteRow) -> None: ...

    async def plan(
        self, key: str, session_id: SessionId, before: Seq, after: Seq, deliveries: Sequence[NewDelivery]
    ) -> bool:
        """Note what a chat is to be told of its conversation up to `after`, all at once.

        False, and nothing noted, unless the chat is at `session_id` and was told up to `before`. What was
        planned before under the same source and piece is changed: one that was sent is to be edited.
        """

    async def due(self, channel: str, now: Instant, limit: int) -> Sequence[tuple[str, DeliveryRow]]:
        """The first delivery of each chat that is not over, if it may be tried now: they go in order."""

    async def blocked_deliveries(self, channel: str, now: Instant, limit: int) -> Sequence[BlockedDelivery]:
        """Of each chat whose first delivery FAILED_ALONE that one, and the one behind it, if it may go."""

    async def begin_delivery(self, key: str, n: int) -> DeliveryRow | None:
        """It is about to be sent, by this process; None if another has it or it is over.

        Another that lives has it for CHANNEL_LEASE_MS: whoever was slower may not be heard of again.
        """

    async def settle_delivery(
        self, key: str, row: DeliveryRow, new_deliveries: Sequence[NewDelivery] = ()
    ) -> bool:
        """What became of it, and what is `fresh` to be said of that: all of it or nothing.

        False, and nothing changed, if another try was begun since (`attempts`).
        """

    async def delivery(self, key: str, source: str, piece: int) -> DeliveryRow | None: ...

    async def deliveries(self, key: str, limit: int) -> Sequence[DeliveryRow]:
        """The newest first."""

    async def message_with_button(self, key: str, press: str) -> DeliveryRow | None:
        """The newest message of a chat that has this button, however long ago; None if none (any more)."""
