"""One message that its app never takes is passed by; where an app takes none at all, all of them wait."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.channels.delivery import LOST_MESSAGE_NOTICE, DeliveryWorker
from holdfast.channels.pairing import Pairing
from holdfast.channels.stats import ChannelStats
from holdfast.channels.telegram.channel import Telegram
from holdfast.domain.chats import POISON_MESSAGE, DeliveryRow, NewDelivery, OutboundMessage, RouteRow
from holdfast.domain.clock import FakeClock
from holdfast.domain.events.facts import Failure
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import DELIVERY_MS_MAX
from holdfast.store.sqlite.store import SqliteStore
from tests.support.in_process_app import WAIT_S
from tests.support.telegram_api import TOKEN, TelegramApi, TelegramError, telegram_server
from tests.support.telegram_fixture import ADA, CALM, HERE

HOUR_MS = 3_600_000
OPEN = ("waiting", "sending", "changed")


class FailingTelegramApi(TelegramApi):
    """A platform that answers some messages with 500, always, or every request while it is `down`."""

    poison = ""
    is_down = False
    takes_messages = True

    async def _perform(self, token: str, method: str, asked: dict[str, object]) -> object:
        is_message = method == "sendMessage"
        refused = is_message and (
            not self.takes_messages or (self.poison and self.poison in str(asked["text"]))
        )
        if self.is_down or refused:
            raise TelegramError(500, "Internal Server Error")
        return await super()._perform(token, method, asked)


class DeliveryHarness:
    def __init__(self, store: SqliteStore, api: FailingTelegramApi, clock: FakeClock) -> None:
        self.store, self.api, self.clock = store, api, clock
        self.channel = Telegram(TOKEN, store, clock, api_url=api.url, timeouts=CALM)
        self.ledger = ChannelStats(self.channel, clock, print)
        pairing = Pairing(store, clock, lambda bits: 1)
        self.delivering = DeliveryWorker(store, self.ledger, pairing, clock, lambda: 0.5)

    async def plan(self, *texts: str) -> None:
        if await self.store.route(HERE.route) is None:
            await self.store.put_route(RouteRow(HERE, SessionId("")))
        fresh = [NewDelivery(f"m_{text}", 0, "answer", OutboundMessage(text)) for text in texts]
        assert await self.store.plan(HERE.route, SessionId(""), 0, 0, fresh)

    async def rows(self) -> dict[str, DeliveryRow]:
        return {row.body.text: row for row in await self.store.deliveries(HERE.route, 100)}

    async def live(self, ms: int, until: Callable[[dict[str, DeliveryRow]], bool]) -> None:
        """Let the time go by, from one thing that is due to the next, for so long or until it is so."""
        task, end = asyncio.create_task(self.delivering.run()), self.clock.now_ms() + ms
        deadline = time.monotonic() + WAIT_S
        try:
            while not until(rows := await self.rows()):
                assert time.monotonic() < deadline, rows
                waiting = [row for row in rows.values() if row.state in OPEN]
                if all(row.process_id is None for row in waiting):
                    now = self.clock.now_ms()
                    if now >= end:
                        return
                    first, *behind = sorted(waiting, key=lambda row: row.n) or [None]
                    waits = [first.retry_at] if first is not None else []
                    if (
                        first is not None
                        and first.failure is not None
                        and first.failure.code == POISON_MESSAGE
                    ):
                        waits += [row.retry_at for row in behind[:1]]
                    self.clock.advance(max(min(waits, default=0) - now, 5_000))
                self.delivering.notify()
                await asyncio.sleep(0.005)
                await self.delivering.drained()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def delivery_harness(folder: Path) -> AsyncIterator[DeliveryHarness]:
    async with telegram_server(FailingTelegramApi()) as api:
        assert isinstance(api, FailingTelegramApi)
        api.open_chat(ADA)
        clock = FakeClock()
        store = await SqliteStore.open(folder, clock=clock)
        made = DeliveryHarness(store, api, clock)
        try:
            yield made
        finally:
            await made.channel.close()
            await store.close()


async def test_a_message_telegram_never_accepts_is_skipped_with_a_notice(tmp_path: Path) -> None:
    async with delivery_harness(tmp_path) as at:
        at.api.poison = "poison"
        await at.plan("one", "poison", "two", "three")
        await at.live(
            3 * HOUR_MS,
            lambda rows: LOST_MESSAGE_NOTICE in rows and rows[LOST_MESSAGE_NOTICE].state == "sent",
        )
        assert at.api.texts(ADA) == ["one", "two", "three", LOST_MESSAGE_NOTICE.strip("*")]
        rows = await at.rows()
        assert rows["poison"].state == "in_doubt" and rows["poison"].failure is not None
        state = at.ledger.state()
        assert "Internal Server Error" in state.undelivered and state.undelivered_at


async def test_everything_is_delivered_after_a_day_of_telegram_downtime(tmp_path: Path) -> None:
    async with delivery_harness(tmp_path) as at:
        at.api.is_down = True
        await at.plan("one", "two", "three")
        await at.live(24 * HOUR_MS, lambda rows: False)
        assert not at.api.texts(ADA)
        at.api.is_down = False
        await at.live(DELIVERY_MS_MAX, lambda rows: all(row.state == "sent" for row in rows.values()))
        assert [text.partition("\n")[0] for text in at.api.texts(ADA)] == ["one", "two", "three"]
        assert not at.ledger.state().undelivered


async def test_a_telegram_that_answers_and_takes_no_message_for_a_day_loses_none(tmp_path: Path) -> None:
    """It is not the message: the one behind it does not get through either."""
    async with delivery_harness(tmp_path) as at:
        at.api.takes_messages = False
        await at.plan("one", "two")
        await at.live(24 * HOUR_MS, lambda rows: False)
        at.api.takes_messages = True
        await at.live(DELIVERY_MS_MAX, lambda rows: all(row.state == "sent" for row in rows.values()))
        assert sorted(text.partition("\n")[0] for text in at.api.texts(ADA)) == ["one", "two"]


async def test_a_later_message_does_not_wait_for_a_poison_message_retry(
    tmp_path: Path,
) -> None:
    async with delivery_harness(tmp_path) as at:
        at.api.poison = "poison"
        await at.plan("poison")
        await at.live(4 * HOUR_MS, lambda rows: False)
        # As after a restart: nobody remembers how it failed but its row.
        again = DeliveryHarness(at.store, at.api, at.clock)
        await again.plan("two")
        await again.live(60_000, lambda rows: rows["two"].state == "sent")
        assert at.api.texts(ADA) == ["two"]
        await again.channel.close()


async def test_the_lost_message_notice_survives_a_crash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with delivery_harness(tmp_path) as at:
        at.api.poison = "poison"
        await at.plan("one", "poison", "two")
        settle, died = at.store.settle_delivery, asyncio.Event()

        async def settle_and_die(key: str, row: DeliveryRow, *more: Any) -> bool:
            done = await settle(key, row, *more)
            if row.state in ("in_doubt", "dropped"):
                died.set()
                raise asyncio.CancelledError
            return done

        with monkeypatch.context() as patch:
            patch.setattr(at.store, "settle_delivery", settle_and_die)
            await at.live(6 * HOUR_MS, lambda rows: died.is_set())
        assert died.is_set()
        again = DeliveryHarness(at.store, at.api, at.clock)
        await again.live(
            HOUR_MS, lambda rows: LOST_MESSAGE_NOTICE in rows and rows[LOST_MESSAGE_NOTICE].state == "sent"
        )
        assert at.api.texts(ADA) == ["one", "two", LOST_MESSAGE_NOTICE.strip("*")]
        await again.channel.close()


async def test_an_edit_that_succeeds_does_not_drop_a_poison_message(tmp_path: Path) -> None:
    async with delivery_harness(tmp_path) as at:
        await at.plan("stuck", "two")
        stuck, two = [await at.store.begin_delivery(HERE.route, n) for n in (1, 2)]
        assert stuck is not None and two is not None
        number = await at.channel.send(HERE, OutboundMessage("two"), "two")
        await at.store.settle_delivery(HERE.route, replace(two, state="sent", platform_id=number))
        later = at.clock.now_ms() + HOUR_MS
        refused = replace(stuck, failure=Failure(POISON_MESSAGE, "refused"), retry_at=later)
        await at.store.settle_delivery(HERE.route, refused)
        edited = [NewDelivery("m_two", 0, "answer", OutboundMessage("two, edited"))]
        assert await at.store.plan(HERE.route, SessionId(""), 0, 0, edited)
        await at.live(60_000, lambda rows: rows["two, edited"].state == "sent")
        await at.delivering.drained()
        row = (await at.rows())["stuck"]
        assert (row.state, row.retry_at, row.attempts, row.process_id) == ("waiting", later, 1, None)
