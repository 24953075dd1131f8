"""A bot of ours at a local platform, and what it takes from there."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from holdfast.channels.ports import Take
from holdfast.channels.telegram.bot_api import Patience
from holdfast.channels.telegram.channel import Telegram
from holdfast.domain.chats import Chat, DeliveryRow, Inbound
from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import NoSuchBlob
from tests.support.telegram_api import TOKEN, US, TelegramApi, serving

ADA, GROUP = 77, -500
HERE = Chat("telegram", "dm", str(ADA))
THERE = Chat("telegram", "group", str(GROUP))
NAME = f"@{US['username']}"
CALM = Patience(answer_s=15, poll_s=1, retry_s=0.01, retry_s_max=0.05)


@dataclass
class Shelf:
    """The files that are sent and the deliveries that were made, as a store would give them."""

    blobs: dict[str, bytes] = field(default_factory=dict)
    rows: list[DeliveryRow] = field(default_factory=list)

    async def get_blob(self, digest: str) -> bytes:
        if digest not in self.blobs:
            raise NoSuchBlob(digest=digest)
        return self.blobs[digest]

    async def deliveries(self, key: str, limit: int) -> list[DeliveryRow]:
        return self.rows[:limit] if key == HERE.route else []


@dataclass
class Talk:
    """A platform, a channel to it, and what was taken from it."""

    api: TelegramApi
    channel: Telegram
    shelf: Shelf
    clock: FakeClock
    taken: list[Inbound] = field(default_factory=list)
    faults: list[Exception] = field(default_factory=list)
    """Raised by the next takings, one each, before anything is taken."""

    async def take(self, *inbound: Inbound) -> None:
        if self.faults:
            raise self.faults.pop(0)
        self.taken += inbound

    async def heard(self, count: int = 1) -> list[Inbound]:
        await self.api.until(lambda: len(self.taken) >= count)
        return self.taken


@asynccontextmanager
async def talking(patience: Patience = CALM, **more: Any) -> AsyncIterator[Talk]:
    async with serving() as api:
        api.open_chat(ADA)
        api.open_chat(GROUP)
        shelf, clock = Shelf(), FakeClock()
        token = more.pop("token", TOKEN)
        channel = Telegram(token, shelf, clock, api_url=api.url, patience=patience, **more)
        try:
            yield Talk(api, channel, shelf, clock)
        finally:
            await channel.close()


@asynccontextmanager
async def taking(talk: Talk, take: Take | None = None) -> AsyncIterator[None]:
    """The channel listens meanwhile."""
    task = asyncio.create_task(talk.channel.listen(take or talk.take))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


@asynccontextmanager
async def listening(**more: Any) -> AsyncIterator[Talk]:
    async with talking(**more) as talk, taking(talk):
        yield talk
