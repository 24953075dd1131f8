"""One message that its app never takes is passed by; where an app takes none at all, all of them wait."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.channels.delivery import TOLD, Delivering
from holdfast.channels.pairing import Pairing
from holdfast.channels.stats import Ledger
from holdfast.channels.telegram.channel import Telegram
from holdfast.domain.chats import FAILED_ALONE, DeliveryRow, NewDelivery, Outgoing, RouteRow
from holdfast.domain.clock import FakeClock
from holdfast.domain.events.facts import Failure
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import DELIVERY_MS_MAX
from holdfast.store.sqlite.store import SqliteStore
from tests.support.in_process_app import WAIT_S
from tests.support.telegram_api import TOKEN, Refuse, TelegramApi, serving
from tests.support.telegram_fixture import ADA, CALM, HERE

HOUR_MS = 3_600_000
OPEN = ("waiting", "sending", "changed")


class Rude(TelegramApi):
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
            raise Refuse(500, "Internal Server Error")
        return await super()._perform(token, method, asked)


class Bench:
    def __init__(self, store: SqliteStore, api: Rude, clock: FakeClock) -> None:
        self.store, self.api, self.clock = store, api, clock
        self.channel = Telegram(TOKEN, store, clock, api_url=api.url, patience=CALM)
        self.ledger = Ledger(self.channel, clock, print)
        pairing = Pairing(store, clock, lambda bits: 1)
        self.delivering = Delivering(store, self.ledger, pairing, clock, lambda: 0.5)

    async def plan(self, *texts: str) -> None:
        if await self.store.route(HERE.route) is None:
            await self.store.put_route(RouteRow(HERE, SessionId("")))
        fresh = [NewDelivery(f"m_{text}", 0, "answer", Outgoing(text)) for text in texts]
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
                    if first is not None and first.failure is not None and first.failure.code == FAILED_ALONE:
                        waits += [row.retry_at for row in behind[:1]]
                    self.clock.advance(max(min(waits, default=0) - now, 5_000))
                self.delivering.ring()
                await asyncio.sleep(0.005)
                await self.delivering.drained()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def bench(folder: Path) -> AsyncIterator[Bench]:
    async with serving(Rude()) as api:
        assert isinstance(api, Rude)
        api.open_chat(ADA)
        clock = FakeClock()
        store = await SqliteStore.open(folder, clock=clock)
        made = Bench(store, api, clock)
        try:
            yield made
        finally:
            await made.channel.close()
            await store.close()


async def test_a_message_that_telegram_never_takes_is_passed_by_and_that_is_said(tmp_path: Path) -> None:
    async with bench(tmp_path) as at:
        at.api.poison = "poison"
        await at.plan("one", "poison", "two", "three")
        await at.live(3 * HOUR_MS, lambda rows: TOLD in rows and rows[TOLD].state == "sent")
        assert at.api.texts(ADA) == ["one", "two", "three", TOLD.strip("*")]
        rows = await at.rows()
        assert rows["poison"].state == "in_doubt" and rows["poison"].failure is not None
        state = at.ledger.state()
        assert "Internal Server Error" in state.undelivered and state.undelivered_at


async def test_a_telegram_that_is_down_for_a_day_is_told_everything_afterwards(tmp_path: Path) -> None:
    async with bench(tmp_path) as at:
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
    async with bench(tmp_path) as at:
        at.api.takes_messages = False
        await at.plan("one", "two")
        await at.live(24 * HOUR_MS, lambda rows: False)
        at.api.takes_messages = True
        await at.live(DELIVERY_MS_MAX, lambda rows: all(row.state == "sent" for row in rows.values()))
        assert sorted(text.partition("\n")[0] for text in at.api.texts(ADA)) == ["one", "two"]


async def test_what_is_said_long_after_a_stubborn_message_does_not_wait_for_its_next_try(
    tmp_path: Path,
) -> None:
    async with bench(tmp_path) as at:
        at.api.poison = "poison"
        await at.plan("poison")
        await at.live(4 * HOUR_MS, lambda rows: False)
        # As after a restart: nobody remembers how it failed but its row.
        again = Bench(at.store, at.api, at.clock)
        await again.plan("two")
        await again.live(60_000, lambda rows: rows["two"].state == "sent")
        assert at.api.texts(ADA) == ["two"]
        await again.channel.close()


async def test_that_a_message_was_let_be_is_said_also_by_whoever_comes_after_a_death(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with bench(tmp_path) as at:
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
        again = Bench(at.store, at.api, at.clock)
        await again.live(HOUR_MS, lambda rows: TOLD in rows and rows[TOLD].state == "sent")
        assert at.api.texts(ADA) == ["one", "two", TOLD.strip("*")]
        await again.channel.close()


async def test_a_stubborn_message_stays_as_it_was_when_only_an_edit_gets_past_it(tmp_path: Path) -> None:
    async with bench(tmp_path) as at:
        await at.plan("stuck", "two")
        stuck, two = [await at.store.begin_delivery(HERE.route, n) for n in (1, 2)]
        assert stuck is not None and two is not None
        number = await at.channel.send(HERE, Outgoing("two"), "two")
        await at.store.settle_delivery(HERE.route, replace(two, state="sent", platform_id=number))
        later = at.clock.now_ms() + HOUR_MS
        refused = replace(stuck, failure=Failure(FAILED_ALONE, "refused"), retry_at=later)
        await at.store.settle_delivery(HERE.route, refused)
        edited = [NewDelivery("m_two", 0, "answer", Outgoing("two, edited"))]
        assert await at.store.plan(HERE.route, SessionId(""), 0, 0, edited)
        await at.live(60_000, lambda rows: rows["two, edited"].state == "sent")
        await at.delivering.drained()
        row = (await at.rows())["stuck"]
        assert (row.state, row.retry_at, row.attempts, row.process_id) == ("waiting", later, 1, None)
