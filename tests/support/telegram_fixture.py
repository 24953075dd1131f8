"""A bot at a local Telegram server, and the updates that it receives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast.channels.ports import InboundReceiver
from holdfast.channels.telegram.bot_api import TelegramTimeouts
from holdfast.channels.telegram.channel import Telegram
from holdfast.domain.chats import Chat, DeliveryRow, InboundUpdate
from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import NoSuchBlob
from tests.support.telegram_api import BOT_USER, TOKEN, TelegramApi, telegram_server

ADA, GROUP = 77, -500
HERE = Chat("telegram", "dm", str(ADA))
THERE = Chat("telegram", "group", str(GROUP))
NAME = f"@{BOT_USER['username']}"
CALM = TelegramTimeouts(answer_s=15, poll_s=1, retry_s=0.01, retry_s_max=0.05)


@dataclass
class FakeStore:
    """Keep sent files and deliveries, as a store does."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    rows: list[DeliveryRow] = field(default_factory=list)

    async def get_blob(self, digest: str) -> bytes:
        if digest not in self.blobs:
            raise NoSuchBlob(digest=digest)
        return self.blobs[digest]

    async def deliveries(self, key: str, limit: int) -> list[DeliveryRow]:
        return self.rows[:limit] if key == HERE.route else []


@dataclass
class TelegramHarness:
    """A Telegram server, a channel to it, and the received updates."""

    api: TelegramApi
    channel: Telegram
    store: FakeStore
    clock: FakeClock
    received: list[InboundUpdate] = field(default_factory=list)
    receive_faults: list[Exception] = field(default_factory=list)
    """Raised by the next `take` calls, one each, before anything is taken."""

    async def receive(self, *inbound: InboundUpdate) -> None:
        if self.receive_faults:
            raise self.receive_faults.pop(0)
        self.received += inbound

    async def wait_for_inbound(self, count: int = 1) -> list[InboundUpdate]:
        await self.api.wait_until(lambda: len(self.received) >= count)
        return self.received


@asynccontextmanager
async def telegram_harness(
    timeouts: TelegramTimeouts = CALM, **options: Any
) -> AsyncIterator[TelegramHarness]:
    async with telegram_server() as api:
        api.open_chat(ADA)
        api.open_chat(GROUP)
        store, clock = FakeStore(), FakeClock()
        token = options.pop("token", TOKEN)
        channel = Telegram(token, store, clock, api_url=api.url, timeouts=timeouts, **options)
        try:
            yield TelegramHarness(api, channel, store, clock)
        finally:
            await channel.close()


@asynccontextmanager
async def listening_channel(
    harness: TelegramHarness, receiver: InboundReceiver | None = None
) -> AsyncIterator[None]:
    """Let the channel listen until the end of the block."""
    task = asyncio.create_task(harness.channel.listen(receiver or harness.receive))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def listening_harness(**options: Any) -> AsyncIterator[TelegramHarness]:
    async with telegram_harness(**options) as harness, listening_channel(harness):
        yield harness
