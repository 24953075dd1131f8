"""Saying things in chats when the app misbehaves: nothing lost, nothing twice where the app can tell."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from holdfast.channels.delivery import Delivering
from holdfast.channels.pairing import Pairing
from holdfast.channels.stats import Ledger
from holdfast.domain.chats import Chat, DeliveryRow, NewDelivery, Outgoing, RouteRow
from holdfast.domain.clock import FakeClock
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import DELIVERIES_AT_ONCE_MAX, DELIVERY_MS_MAX
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_channel import Fault, Parlour, ParlourChannel, desk
from tests.support.in_process_app import WAIT_S, house, says

CHAT = Chat("parlour", "dm", "42")
KEY = CHAT.route


@pytest.mark.parametrize("dedupes", [True, False])
@pytest.mark.parametrize("fault", ["lost", "too_many"])
async def test_what_did_not_arrive_is_sent_again_as_if_nothing_had_been(
    tmp_path: Path, fault: Fault, dedupes: bool
) -> None:
    app = Parlour(dedupes=dedupes)
    app.faults = [fault, fault]
    async with house(tmp_path) as home, desk(home, app) as at:
        home.model.steps = [says("one"), says("two")]
        app.say("1")
        app.say("2")
        await at.quiet()
        assert app.texts() == ["one", "two"]
        assert app.sends == 2


@pytest.mark.parametrize("fault", ["accepted_then_silent", "silent", "broken"])
async def test_an_answer_of_which_nobody_knows_is_sent_again_and_shown_once_where_the_app_can_tell(
    tmp_path: Path, fault: Fault
) -> None:
    app = Parlour(dedupes=True)
    app.faults = [fault]
    async with house(tmp_path) as home, desk(home, app) as at:
        home.model.steps = [says("one")]
        app.say("1")
        await at.quiet()
        assert app.texts() == ["one"]
        assert "delivery_in_doubt" not in await home.events(await at.session())


async def test_an_answer_of_which_nobody_knows_is_sent_again_and_says_so_elsewhere(tmp_path: Path) -> None:
    app = Parlour()
    app.faults = ["accepted_then_silent"]
    async with house(tmp_path) as home, desk(home, app) as at:
        home.model.steps = [says("one"), says("two")]
        app.say("1")
        await at.quiet()
        assert app.texts() == ["one", "(again) one"]
        assert (await home.events(await at.session())).count("delivery_in_doubt") == 1
        app.say("2")
        await at.shown("one", "(again) one", "two")


async def test_a_notice_of_which_nobody_knows_is_let_be(tmp_path: Path) -> None:
    app = Parlour()
    async with house(tmp_path) as home, desk(home, app) as at:
        home.model.steps = [says("one"), says("two")]
        app.say("1")
        await at.shown("one")
        await at.quiet()
        app.faults = ["silent"]
        await home.say(await at.session(), "from the page")
        await at.shown("one", "two")
        await at.quiet()
        states = {row.body.text: row.state for row in await home.store.deliveries(KEY, 10)}
        assert states["> **You** (from elsewhere): from the page"] == "in_doubt"


async def test_what_nobody_has_seen_is_sent_however_often_the_app_was_silent(tmp_path: Path) -> None:
    app = Parlour()
    app.faults = ["silent"] * 6
    async with house(tmp_path) as home, desk(home, app, retry_ms=1) as at:
        home.model.steps = [says("one")]
        app.say("1")
        await at.shown("(again) one")
        await at.quiet()
        assert (await home.events(await at.session())).count("delivery_in_doubt") == 1


async def test_an_app_that_does_not_answer_is_waited_for_before_there_are_more_copies(tmp_path: Path) -> None:
    app = Parlour()
    app.faults, app.is_well = ["accepted_then_silent"] * 3, False
    async with house(tmp_path) as home, desk(home, app, retry_ms=1) as at:
        home.model.steps = [says("one")]
        app.say("1")

        async def is_tried() -> bool:
            rows = await home.store.deliveries(KEY, 10)
            return bool(rows) and rows[0].attempts >= 6

        await home.until(is_tried)
        assert app.texts() == ["one", *["(again) one"] * 2]
        app.is_well = True
        await at.quiet()
        assert app.texts() == ["one", *["(again) one"] * 3]


async def test_there_are_a_dozen_copies_at_most_of_what_always_may_have_arrived(tmp_path: Path) -> None:
    clock, app = FakeClock(), Parlour()
    app.faults = ["accepted_then_silent"] * 1_000
    store = await SqliteStore.open(tmp_path, clock=clock)
    loose = Loose(store, app, clock)
    await loose.plan("one")
    task = asyncio.create_task(loose.delivering.run())
    until = time.monotonic() + WAIT_S
    while True:
        loose.delivering.ring()
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
    assert 2 <= len(app.texts()) <= 14


async def test_who_is_stopped_while_sending_hands_it_back(tmp_path: Path) -> None:
    clock, app = FakeClock(), Parlour()
    store = await SqliteStore.open(tmp_path, clock=clock)
    other = await SqliteStore.open(tmp_path, clock=clock)
    loose = Loose(other, app, clock)
    await loose.plan("one")
    app.hold = asyncio.Event()
    async with loose.at_work():
        await asyncio.wait_for(app.held.wait(), WAIT_S)
    app.hold = None
    assert (await store.deliveries(KEY, 1))[0].process_id is None
    await Loose(store, app, clock).until("sent")
    assert app.texts() == ["(again) one"]
    await other.close()
    await store.close()


async def test_who_is_stopped_while_beginning_hands_it_back_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, app, begun, goes_on = FakeClock(), Parlour(), asyncio.Event(), asyncio.Event()
    store = await SqliteStore.open(tmp_path, clock=clock)
    other = await SqliteStore.open(tmp_path, clock=clock)
    begin = other.begin_delivery

    async def slowly(key: str, n: int) -> DeliveryRow | None:
        row = await begin(key, n)
        begun.set()
        await goes_on.wait()
        return row

    monkeypatch.setattr(other, "begin_delivery", slowly)
    loose = Loose(other, app, clock)
    await loose.plan("one")
    async with loose.at_work():
        await asyncio.wait_for(begun.wait(), WAIT_S)
        asyncio.get_running_loop().call_later(0.05, goes_on.set)
    (row,) = await store.deliveries(KEY, 1)
    assert (row.state, row.process_id) == ("waiting", None)
    await Loose(store, app, clock).until("sent")
    assert app.texts() == ["one"]
    await other.close()
    await store.close()


async def test_a_store_that_does_not_answer_keeps_nobody_from_stopping(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, asked = FakeClock(), asyncio.Event()
    store = await SqliteStore.open(tmp_path, clock=clock)

    async def never(key: str, n: int) -> None:
        asked.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(store, "begin_delivery", never)
    loose = Loose(store, Parlour(), clock)
    await loose.plan("one")
    async with asyncio.timeout(WAIT_S), loose.at_work():
        await asked.wait()
    await store.close()


async def test_what_the_app_refuses_for_good_is_dropped_with_the_reason_and_the_rest_goes_on(
    tmp_path: Path,
) -> None:
    app = Parlour()
    app.faults = ["forbidden"]
    async with house(tmp_path) as home, desk(home, app) as at:
        home.model.steps = [says("one"), says("two")]
        app.say("1")
        app.say("2")
        await at.quiet()
        assert app.texts() == ["two"]
        dropped = (await home.store.deliveries(KEY, 10))[-1]
        assert dropped.state == "dropped" and dropped.failure is not None
        assert "blocked" in dropped.failure.detail
        assert at.gateway.states()[0].delivered["dropped"] == 1


async def test_an_edit_is_repeated_until_it_says_the_last_words(tmp_path: Path) -> None:
    app = Parlour()
    app.edit_faults = ["lost", "silent", "too_many", "accepted_then_silent", "lost"]
    async with house(tmp_path) as home, desk(home, app) as at:
        end = asyncio.Event()
        home.model.steps = [[*says("begun ")[:1], end, *says("and ended")]]
        app.say("1")
        await at.shown("begun …")
        end.set()
        await at.quiet()
        assert app.texts() == ["begun and ended"] and app.sends == 1


async def test_an_answer_whose_message_cannot_be_edited_any_more_is_sent_as_a_new_one(tmp_path: Path) -> None:
    app = Parlour()
    async with house(tmp_path) as home, desk(home, app) as at:
        end = asyncio.Event()
        home.model.steps = [[*says("begun ")[:1], end, *says("and ended")]]
        app.say("1")
        await at.shown("begun …")
        app.edit_faults = ["forbidden"] * 100
        end.set()
        await at.quiet()
        assert app.texts() == ["begun …", "begun and ended"]


async def test_an_answer_that_ends_as_one_that_was_taken_back_is_not_taken_for_one(tmp_path: Path) -> None:
    app, end = Parlour(), asyncio.Event()
    async with house(tmp_path) as home, desk(home, app) as at:
        home.model.steps = [[*says("It reads:")[:1], end, *says("\n\n*Removed.*")]]
        app.say("1")
        await at.shown("It reads: …")
        app.edit_faults = ["forbidden"] * 100
        end.set()
        await at.quiet()
        assert app.texts() == ["It reads: …", "It reads:\n\n*Removed.*"]


class Loose:
    """A deliverer by itself, over a store with a chat."""

    def __init__(self, store: SqliteStore, app: Parlour, clock: FakeClock) -> None:
        self.store = store
        self.ledger = Ledger(ParlourChannel(app), clock, print)
        pairing = Pairing(store, clock, lambda bits: 1)
        self.delivering = Delivering(store, self.ledger, pairing, clock, lambda: 0.0, 20)

    async def plan(self, *texts: str, chat: Chat = CHAT) -> None:
        await self.store.put_route(RouteRow(chat, SessionId("")))
        fresh = [NewDelivery(f"m_{text}", 0, "answer", Outgoing(text)) for text in texts]
        assert await self.store.plan(chat.route, SessionId(""), 0, 0, fresh)

    @asynccontextmanager
    async def at_work(self) -> AsyncIterator[None]:
        """Stopped at the end."""
        task = asyncio.create_task(self.delivering.run())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, *states: str) -> list[DeliveryRow]:
        async with self.at_work():
            until = time.monotonic() + WAIT_S
            while True:
                self.delivering.ring()
                rows = list(await self.store.deliveries(KEY, 100))
                if [row.state for row in reversed(rows)] == list(states):
                    return rows
                assert time.monotonic() < until, rows
                await asyncio.sleep(0.005)


async def test_what_a_dead_process_had_begun_to_send_is_sent_again_and_says_so(tmp_path: Path) -> None:
    clock, app = FakeClock(), Parlour()
    store = await SqliteStore.open(tmp_path, clock=clock)
    other = await SqliteStore.open(tmp_path, clock=clock)
    loose = Loose(store, app, clock)
    await loose.plan("one", "two")
    assert await other.begin_delivery(KEY, 1) is not None
    await other.close()
    await loose.until("sent", "sent")
    assert app.texts() == ["(again) one", "two"]
    await store.close()


async def test_what_another_process_is_sending_is_left_to_it(tmp_path: Path) -> None:
    clock, app = FakeClock(), Parlour()
    store = await SqliteStore.open(tmp_path, clock=clock)
    other = await SqliteStore.open(tmp_path, clock=clock)
    loose = Loose(store, app, clock)
    await loose.plan("one", "two")
    begun = await other.begin_delivery(KEY, 1)
    assert begun is not None
    await loose.until("sending", "waiting")
    assert not app.chats
    await other.settle_delivery(KEY, replace(begun, state="sent", platform_id="p0"))
    again = Loose(store, app, clock)
    await again.until("sent", "sent")
    assert app.texts() == ["two"]
    await other.close()
    await store.close()


async def test_what_could_not_be_said_for_days_is_let_be(tmp_path: Path) -> None:
    clock, app = FakeClock(), Parlour()
    store = await SqliteStore.open(tmp_path, clock=clock)
    loose = Loose(store, app, clock)
    await loose.plan("old")
    clock.advance(DELIVERY_MS_MAX + 1)
    (row,) = await loose.until("dropped")
    assert row.failure is not None and row.failure.code == "too_old" and not app.chats
    await store.close()


async def test_so_many_chats_are_sent_to_at_once_and_no_more(tmp_path: Path) -> None:
    clock, app = FakeClock(), Parlour()
    store = await SqliteStore.open(tmp_path, clock=clock)
    loose = Loose(store, app, clock)
    for n in range(3 * DELIVERIES_AT_ONCE_MAX):
        await loose.plan("one", "two", chat=Chat("parlour", "dm", str(n)))
    app.hold, most = asyncio.Event(), 0
    task = asyncio.create_task(loose.delivering.run())
    rounds, until = 0, time.monotonic() + WAIT_S
    while rounds < 100 and time.monotonic() < until:
        await asyncio.sleep(0.001)
        under_way = [each for each in asyncio.all_tasks() if each.get_name().startswith("delivering ")]
        most = max(most, len(under_way))
        rounds += most >= DELIVERIES_AT_ONCE_MAX  # So many more looks: others would have begun by then.
    assert most == DELIVERIES_AT_ONCE_MAX
    app.hold.set()
    app.hold = None
    async with asyncio.timeout(WAIT_S):
        while sum(map(len, app.chats.values())) < 6 * DELIVERIES_AT_ONCE_MAX:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
    assert all(texts == ["one", "two"] for texts in map(app.texts, app.chats))
    assert len(app.chats) == 3 * DELIVERIES_AT_ONCE_MAX
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await store.close()
