"""Saying things in chats when the app misbehaves: nothing lost, nothing twice where the app can tell."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.channels.delivery import DeliveryWorker
from holdfast.channels.pairing import Pairing
from holdfast.channels.stats import ChannelStats
from holdfast.domain.chats import Chat, DeliveryRow, NewDelivery, OutboundMessage, RouteRow
from holdfast.domain.clock import FakeClock
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import DELIVERIES_AT_ONCE_MAX, DELIVERY_MS_MAX
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_channel import FakeChatApp, FakeChatChannel, Fault, channel_harness
from tests.support.in_process_app import WAIT_S, running_app, text_step

CHAT = Chat("parlour", "dm", "42")
KEY = CHAT.route


@pytest.mark.parametrize("dedupes", [True, False])
@pytest.mark.parametrize("fault", ["lost", "too_many"])
async def test_an_undelivered_message_is_resent_silently(tmp_path: Path, fault: Fault, dedupes: bool) -> None:
    chat_app = FakeChatApp(dedupes=dedupes)
    chat_app.faults = [fault, fault]
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        engine_app.model.steps = [text_step("one"), text_step("two")]
        chat_app.post_message("1")
        chat_app.post_message("2")
        await harness.wait_until_idle()
        assert chat_app.texts() == ["one", "two"]
        assert chat_app.send_count == 2


@pytest.mark.parametrize("fault", ["accepted_then_silent", "silent", "broken"])
async def test_a_doubtful_answer_is_resent_once_where_sends_are_deduplicated(
    tmp_path: Path, fault: Fault
) -> None:
    chat_app = FakeChatApp(dedupes=True)
    chat_app.faults = [fault]
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        engine_app.model.steps = [text_step("one")]
        chat_app.post_message("1")
        await harness.wait_until_idle()
        assert chat_app.texts() == ["one"]
        assert "delivery_in_doubt" not in await engine_app.event_kinds(await harness.session_id())


async def test_a_doubtful_answer_is_resent_with_a_note_elsewhere(tmp_path: Path) -> None:
    chat_app = FakeChatApp()
    chat_app.faults = ["accepted_then_silent"]
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        engine_app.model.steps = [text_step("one"), text_step("two")]
        chat_app.post_message("1")
        await harness.wait_until_idle()
        assert chat_app.texts() == ["one", "(again) one"]
        assert (await engine_app.event_kinds(await harness.session_id())).count("delivery_in_doubt") == 1
        chat_app.post_message("2")
        await harness.wait_for_texts("one", "(again) one", "two")


async def test_a_doubtful_notice_is_not_resent(tmp_path: Path) -> None:
    chat_app = FakeChatApp()
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        engine_app.model.steps = [text_step("one"), text_step("two")]
        chat_app.post_message("1")
        await harness.wait_for_texts("one")
        await harness.wait_until_idle()
        chat_app.faults = ["silent"]
        await engine_app.send(await harness.session_id(), "from the page")
        await harness.wait_for_texts("one", "two")
        await harness.wait_until_idle()
        states = {row.body.text: row.state for row in await engine_app.store.deliveries(KEY, 10)}
        assert states["> **You** (from elsewhere): from the page"] == "in_doubt"


async def test_what_nobody_has_seen_is_sent_however_often_the_app_was_silent(tmp_path: Path) -> None:
    chat_app = FakeChatApp()
    chat_app.faults = ["silent"] * 6
    async with (
        running_app(tmp_path) as engine_app,
        channel_harness(engine_app, chat_app, retry_ms=1) as harness,
    ):
        engine_app.model.steps = [text_step("one")]
        chat_app.post_message("1")
        await harness.wait_for_texts("(again) one")
        await harness.wait_until_idle()
        assert (await engine_app.event_kinds(await harness.session_id())).count("delivery_in_doubt") == 1


async def test_an_app_that_does_not_answer_is_waited_for_before_there_are_more_copies(tmp_path: Path) -> None:
    chat_app = FakeChatApp()
    chat_app.faults, chat_app.is_healthy = ["accepted_then_silent"] * 3, False
    async with (
        running_app(tmp_path) as engine_app,
        channel_harness(engine_app, chat_app, retry_ms=1) as harness,
    ):
        engine_app.model.steps = [text_step("one")]
        chat_app.post_message("1")

        async def is_tried() -> bool:
            rows = await engine_app.store.deliveries(KEY, 10)
            return bool(rows) and rows[0].attempts >= 6

        await engine_app.wait_until(is_tried)
        assert chat_app.texts() == ["one", *["(again) one"] * 2]
        chat_app.is_healthy = True
        await harness.wait_until_idle()
        assert chat_app.texts() == ["one", *["(again) one"] * 3]


async def test_there_are_a_dozen_copies_at_most_of_what_always_may_have_arrived(tmp_path: Path) -> None:
    clock, chat_app = FakeClock(), FakeChatApp()
    chat_app.faults = ["accepted_then_silent"] * 1_000
    store = await SqliteStore.open(tmp_path, clock=clock)
    loose = DeliveryHarness(store, chat_app, clock)
    await loose.plan("one")
    task = asyncio.create_task(loose.delivering.run())
    until = time.monotonic() + WAIT_S
    while True:
        loose.delivering.notify()
        await asyncio.sleep(0.002)
        (row,) = await store.deliveries(KEY, 1)
        if row.state not in ("waiting", "sending"):
            break
        assert time.monotonic() < until, row
        if row.process_id is None:  # Nobody tries it now.
            clock.advance(300_000)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()
    assert row.state == "dropped" and row.failure is not None and row.failure.code == "too_old"
    assert 2 <= len(chat_app.texts()) <= 14


async def test_a_cancelled_send_hands_the_delivery_back(tmp_path: Path) -> None:
    clock, chat_app = FakeClock(), FakeChatApp()
    store = await SqliteStore.open(tmp_path, clock=clock)
    other = await SqliteStore.open(tmp_path, clock=clock)
    loose = DeliveryHarness(other, chat_app, clock)
    await loose.plan("one")
    chat_app.hold = asyncio.Event()
    async with loose.running():
        await asyncio.wait_for(chat_app.hold_reached.wait(), WAIT_S)
    chat_app.hold = None
    assert (await store.deliveries(KEY, 1))[0].process_id is None
    await DeliveryHarness(store, chat_app, clock).wait_for_states("sent")
    assert chat_app.texts() == ["(again) one"]
    await other.close()
    await store.close()


async def test_a_cancelled_begin_restores_the_delivery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, chat_app, begun, goes_on = FakeClock(), FakeChatApp(), asyncio.Event(), asyncio.Event()
    store = await SqliteStore.open(tmp_path, clock=clock)
    other = await SqliteStore.open(tmp_path, clock=clock)
    begin = other.begin_delivery

    async def slowly(key: str, n: int) -> DeliveryRow | None:
        row = await begin(key, n)
        begun.set()
        await goes_on.wait()
        return row

    monkeypatch.setattr(other, "begin_delivery", slowly)
    loose = DeliveryHarness(other, chat_app, clock)
    await loose.plan("one")
    async with loose.running():
        await asyncio.wait_for(begun.wait(), WAIT_S)
        asyncio.get_running_loop().call_later(0.05, goes_on.set)
    (row,) = await store.deliveries(KEY, 1)
    assert (row.state, row.process_id) == ("waiting", None)
    await DeliveryHarness(store, chat_app, clock).wait_for_states("sent")
    assert chat_app.texts() == ["one"]
    await other.close()
    await store.close()


async def test_a_hanging_store_does_not_block_delivery_shutdown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = FakeClock(), asyncio.Event()
    store = await SqliteStore.open(tmp_path, clock=clock)

    async def never(key: str, n: int) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "begin_delivery", never)
    loose = DeliveryHarness(store, FakeChatApp(), clock)
    await loose.plan("one")
    async with asyncio.timeout(WAIT_S), loose.running():
        await asked.wait()
    await store.close()


async def test_what_the_app_refuses_for_good_is_dropped_with_the_reason_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    chat_app = FakeChatApp()
    chat_app.faults = ["forbidden"]
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        engine_app.model.steps = [text_step("one"), text_step("two")]
        chat_app.post_message("1")
        chat_app.post_message("2")
        await harness.wait_until_idle()
        assert chat_app.texts() == ["two"]
        dropped = (await engine_app.store.deliveries(KEY, 10))[-1]
        assert dropped.state == "dropped" and dropped.failure is not None
        assert "blocked" in dropped.failure.detail
        assert harness.gateway.states()[0].delivered["dropped"] == 1


async def test_an_edit_is_repeated_until_it_says_the_last_words(tmp_path: Path) -> None:
    chat_app = FakeChatApp()
    chat_app.edit_faults = ["lost", "silent", "too_many", "accepted_then_silent", "lost"]
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        end = asyncio.Event()
        engine_app.model.steps = [[*text_step("begun ")[:1], end, *text_step("and ended")]]
        chat_app.post_message("1")
        await harness.wait_for_texts("begun …")
        end.set()
        await harness.wait_until_idle()
        assert chat_app.texts() == ["begun and ended"] and chat_app.send_count == 1


async def test_an_answer_whose_message_cannot_be_edited_any_more_is_sent_as_a_new_one(tmp_path: Path) -> None:
    chat_app = FakeChatApp()
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        end = asyncio.Event()
        engine_app.model.steps = [[*text_step("begun ")[:1], end, *text_step("and ended")]]
        chat_app.post_message("1")
        await harness.wait_for_texts("begun …")
        chat_app.edit_faults = ["forbidden"] * 100
        end.set()
        await harness.wait_until_idle()
        assert chat_app.texts() == ["begun …", "begun and ended"]


async def test_an_answer_that_ends_as_one_that_was_taken_back_is_not_taken_for_one(tmp_path: Path) -> None:
    chat_app, end = FakeChatApp(), asyncio.Event()
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        engine_app.model.steps = [[*text_step("It reads:")[:1], end, *text_step("\n\n*Removed.*")]]
        chat_app.post_message("1")
        await harness.wait_for_texts("It reads: …")
        chat_app.edit_faults = ["forbidden"] * 100
        end.set()
        await harness.wait_until_idle()
        assert chat_app.texts() == ["It reads: …", "It reads:\n\n*Removed.*"]


class DeliveryHarness:
    """A deliverer by itself, over a store with a chat."""

    def __init__(self, store: SqliteStore, chat_app: FakeChatApp, clock: FakeClock) -> None:
        self.store = store
        self.ledger = ChannelStats(FakeChatChannel(chat_app), clock, print)
        pairing = Pairing(store, clock, lambda bits: 1)
        self.delivering = DeliveryWorker(store, self.ledger, pairing, clock, lambda: 0.0, 20)

    async def plan(self, *texts: str, chat: Chat = CHAT) -> None:
        await self.store.put_route(RouteRow(chat, SessionId("")))
        fresh = [NewDelivery(f"m_{text}", 0, "answer", OutboundMessage(text)) for text in texts]
        assert await self.store.plan(chat.route, SessionId(""), 0, 0, fresh)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Stopped at the end."""
        task = asyncio.create_task(self.delivering.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def wait_for_states(self, *states: str) -> list[DeliveryRow]:
        async with self.running():
            until = time.monotonic() + WAIT_S
            while True:
                self.delivering.notify()
                rows = list(await self.store.deliveries(KEY, 100))
                if [row.state for row in reversed(rows)] == list(states):
                    return rows
                assert time.monotonic() < until, rows
                await asyncio.sleep(0.005)


async def test_a_send_begun_by_a_dead_process_is_resent_with_a_note(tmp_path: Path) -> None:
    clock, chat_app = FakeClock(), FakeChatApp()
    store = await SqliteStore.open(tmp_path, clock=clock)
    other = await SqliteStore.open(tmp_path, clock=clock)
    loose = DeliveryHarness(store, chat_app, clock)
    await loose.plan("one", "two")
    assert await other.begin_delivery(KEY, 1) is not None
    await other.close()
    await loose.wait_for_states("sent", "sent")
    assert chat_app.texts() == ["(again) one", "two"]
    await store.close()


async def test_what_another_process_is_sending_is_left_to_it(tmp_path: Path) -> None:
    clock, chat_app = FakeClock(), FakeChatApp()
    store = await SqliteStore.open(tmp_path, clock=clock)
    other = await SqliteStore.open(tmp_path, clock=clock)
    loose = DeliveryHarness(store, chat_app, clock)
    await loose.plan("one", "two")
    begun = await other.begin_delivery(KEY, 1)
    assert begun is not None
    await loose.wait_for_states("sending", "waiting")
    assert not chat_app.chats
    await other.settle_delivery(KEY, replace(begun, state="sent", platform_id="p0"))
    again = DeliveryHarness(store, chat_app, clock)
    await again.wait_for_states("sent", "sent")
    assert chat_app.texts() == ["two"]
    await other.close()
    await store.close()


async def test_a_delivery_older_than_the_limit_is_dropped(tmp_path: Path) -> None:
    clock, chat_app = FakeClock(), FakeChatApp()
    store = await SqliteStore.open(tmp_path, clock=clock)
    loose = DeliveryHarness(store, chat_app, clock)
    await loose.plan("old")
    clock.advance(DELIVERY_MS_MAX + 1)
    (row,) = await loose.wait_for_states("dropped")
    assert row.failure is not None and row.failure.code == "too_old" and not chat_app.chats
    await store.close()


async def test_so_many_chats_are_sent_to_at_once_and_no_more(tmp_path: Path) -> None:
    clock, chat_app = FakeClock(), FakeChatApp()
    store = await SqliteStore.open(tmp_path, clock=clock)
    loose = DeliveryHarness(store, chat_app, clock)
    for n in range(3 * DELIVERIES_AT_ONCE_MAX):
        await loose.plan("one", "two", chat=Chat("parlour", "dm", str(n)))
    chat_app.hold, most = asyncio.Event(), 0
    task = asyncio.create_task(loose.delivering.run())
    rounds, until = 0, time.monotonic() + WAIT_S
    while rounds < 100 and time.monotonic() < until:
        await asyncio.sleep(0.001)
        under_way = [each for each in asyncio.all_tasks() if each.get_name().startswith("delivering ")]
        most = max(most, len(under_way))
        rounds += most >= DELIVERIES_AT_ONCE_MAX  # So many more looks: others would have begun by then.
    assert most == DELIVERIES_AT_ONCE_MAX
    chat_app.hold.set()
    chat_app.hold = None
    async with asyncio.timeout(WAIT_S):
        while sum(map(len, chat_app.chats.values())) < 6 * DELIVERIES_AT_ONCE_MAX:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert all(texts == ["one", "two"] for texts in map(chat_app.texts, chat_app.chats))
    assert len(chat_app.chats) == 3 * DELIVERIES_AT_ONCE_MAX
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()
