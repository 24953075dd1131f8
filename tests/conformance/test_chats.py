"""What came from chat apps and what goes back: kept once, dealt with in order, told what became of it."""

import pytest
from msgspec.structs import replace

from holdfast.domain.chats import Chat, Inbound, NewDelivery, Outgoing, RouteRow
from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import LeaseHeld
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import CHANNEL_LEASE_MS, CHATS_KEPT_MS
from holdfast.store.ports import Store
from tests.conformance.factories import Home

CHAT = Chat("telegram", "dm", "42")
KEY = CHAT.route
HERE, THERE = SessionId("s_here"), SessionId("s_there")


def came(number: int, text: str = "hello") -> Inbound:
    return Inbound(CHAT, str(number), "7", "Ada", text)


def said(source: str, text: str, piece: int = 0) -> NewDelivery:
    return NewDelivery(source, piece, "answer", Outgoing(text))


async def test_the_same_update_is_kept_once_also_by_another_process(store: Store, home: Home) -> None:
    other = await home.open()
    assert await store.receive(came(1))
    assert not await store.receive(came(1, "repeated with other words"))
    assert not await other.receive(came(1))
    assert await other.receive(came(2))
    assert [row.inbound.text for row in await store.received("telegram", 10)] == ["hello", "hello"]
    assert not await store.received("webhook", 10)
    await other.close()


async def test_what_came_together_is_kept_together_in_its_order_and_what_was_there_stays(
    store: Store,
) -> None:
    await store.receive(came(2, "before"))
    assert await store.receive(came(3, "three"), came(2, "two"), came(1, "one"))
    assert not await store.receive(came(1), came(3))
    kept = [(row.inbound.update_id, row.inbound.text) for row in await store.received("telegram", 10)]
    assert kept == [("2", "before"), ("3", "three"), ("1", "one")]


async def test_what_comes_later_is_found_behind_whatever_is_held(store: Store) -> None:
    await store.receive(came(1), came(2))
    first, second = await store.received("telegram", 10)
    await store.receive(came(3))
    assert [row.inbound.update_id for row in await store.received("telegram", 10, first.no)] == ["2", "3"]
    await store.finish(second.no)
    assert [row.inbound.update_id for row in await store.received("telegram", 10, second.no)] == ["3"]


async def test_what_something_is_for_stays_as_it_was_first_said(store: Store) -> None:
    await store.receive(came(1))
    (row,) = await store.received("telegram", 10)
    assert (await store.assign(row.no, HERE, 5)).session_id == HERE
    again = await store.assign(row.no, THERE, 9)
    assert (again.session_id, again.expect, again.state) == (HERE, 5, "assigned")


async def test_finishing_replies_and_moves_the_chat_once(store: Store) -> None:
    await store.receive(came(1))
    (row,) = await store.received("telegram", 10)
    move = RouteRow(CHAT, HERE, (HERE,), 3, 1)
    await store.finish(row.no, [said("update:1", "Begun.")], move)
    await store.finish(row.no, [said("update:1", "Begun twice?")], RouteRow(CHAT, THERE))
    assert await store.route(KEY) == move
    assert [d.body.text for d in await store.deliveries(KEY, 10)] == ["Begun."]
    assert not await store.received("telegram", 10)
    assert not await store.receive(came(1))
    assert await store.routes(session_id=HERE) == await store.routes("telegram") == await store.routes()


async def test_a_plan_is_made_once_for_each_stretch(store: Store) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    assert not await store.plan(KEY, HERE, 4, 9, [said("m_1", "from nowhere")])
    assert not await store.plan(KEY, THERE, 0, 9, [said("m_1", "of another conversation")])
    assert await store.plan(KEY, HERE, 0, 9, [said("m_1", "one"), said("m_1", "two", 1)])
    assert not await store.plan(KEY, HERE, 0, 9, [said("m_1", "one")])
    assert [d.body.text for d in await store.deliveries(KEY, 10)] == ["two", "one"]


async def test_a_chat_is_sent_to_in_order_and_not_before_its_time(store: Store, clock: FakeClock) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [said("m_1", "one"), said("m_2", "two")])
    ((key, first),) = await store.due("telegram", clock.now_ms(), 10)
    assert (key, first.body.text) == (KEY, "one")
    begun = await store.begin_delivery(KEY, first.n)
    assert begun is not None and (begun.state, begun.attempts) == ("waiting", 1)
    later = clock.now_ms() + 1_000
    assert await store.settle_delivery(KEY, replace(begun, state="waiting", retry_at=later))
    assert not await store.due("telegram", later - 1, 10), "the second waits for the first"
    begun = await store.begin_delivery(KEY, first.n)
    assert begun is not None
    assert await store.settle_delivery(KEY, replace(begun, state="sent", platform_id="99"))
    ((_, second),) = await store.due("telegram", later, 10)
    assert second.body.text == "two"


async def test_what_changes_after_it_was_sent_is_to_be_edited(store: Store, clock: FakeClock) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [said("m_1", "beginn")])
    begun = await store.begin_delivery(KEY, 1)
    assert begun is not None
    await store.plan(KEY, HERE, 1, 2, [said("m_1", "beginning")])
    assert await store.settle_delivery(KEY, replace(begun, state="sent", platform_id="99"))
    ((_, row),) = await store.due("telegram", clock.now_ms(), 10)
    assert (row.state, row.platform_id, row.body.text) == ("changed", "99", "beginning")
    begun = await store.begin_delivery(KEY, 1)
    assert begun is not None and begun.state == "changed"
    assert await store.settle_delivery(KEY, replace(begun, state="sent"))
    assert not await store.due("telegram", clock.now_ms(), 10)


async def test_one_process_sends_and_a_dead_ones_try_is_seen_as_begun(store: Store, home: Home) -> None:
    other = await home.open()
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [said("m_1", "one")])
    assert await other.begin_delivery(KEY, 1) is not None
    assert await store.begin_delivery(KEY, 1) is None
    await other.close()
    taken = await store.begin_delivery(KEY, 1)
    assert taken is not None and (taken.state, taken.attempts) == ("sending", 2)


async def test_what_a_living_process_has_had_for_too_long_may_be_taken_over_as_begun(
    store: Store, home: Home, clock: FakeClock
) -> None:
    other = await home.open(clock)
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [said("m_1", "one")])
    first = await other.begin_delivery(KEY, 1)
    await store.plan(KEY, HERE, 1, 2, [said("m_1", "one more")])
    clock.advance(CHANNEL_LEASE_MS - 1)
    assert first is not None and await store.begin_delivery(KEY, 1) is None
    clock.advance(1)
    taken = await store.begin_delivery(KEY, 1)
    assert taken is not None and (taken.state, taken.attempts) == ("sending", 2)
    assert not await other.settle_delivery(KEY, replace(first, state="sent"))
    await other.close()


async def test_a_late_word_on_an_old_try_changes_nothing(store: Store) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [said("m_1", "one")])
    first = await store.begin_delivery(KEY, 1)
    second = await store.begin_delivery(KEY, 1)
    assert first is not None and second is not None
    assert not await store.settle_delivery(KEY, replace(first, state="in_doubt"))
    assert await store.settle_delivery(KEY, replace(second, state="sent", platform_id="1"))


async def test_what_is_to_be_said_of_an_outcome_is_planned_with_it_or_not_at_all(store: Store) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [said("m_1", "one")])
    first = await store.begin_delivery(KEY, 1)
    second = await store.begin_delivery(KEY, 1)
    assert first is not None and second is not None
    assert not await store.settle_delivery(KEY, replace(first, state="dropped"), [said("lost:1", "Lost?")])
    assert await store.settle_delivery(KEY, replace(second, state="dropped"), [said("lost:1", "Lost.")])
    assert [(row.body.text, row.state) for row in await store.deliveries(KEY, 10)] == [
        ("Lost.", "waiting"),
        ("one", "dropped"),
    ]


async def test_one_process_at_a_time_has_a_name(store: Store, home: Home) -> None:
    other = await home.open()
    lease = await other.claim_name("channel:telegram", 10_000)
    with pytest.raises(LeaseHeld):
        await store.claim_name("channel:telegram", 10_000)
    await other.release(lease)
    assert (await store.claim_name("channel:telegram", 10_000)).epoch > lease.epoch
    await other.close()


async def test_what_is_long_over_is_forgotten_and_what_is_open_is_not(store: Store, clock: FakeClock) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    await store.receive(came(1))
    await store.receive(came(2))
    await store.plan(KEY, HERE, 0, 1, [said("m_1", "one"), said("m_2", "two")])
    begun = await store.begin_delivery(KEY, 1)
    assert begun is not None
    await store.settle_delivery(KEY, replace(begun, state="sent", platform_id="1"))
    await store.finish((await store.received("telegram", 1))[0].no)
    clock.advance(CHATS_KEPT_MS + 1)
    await store.sweep()
    assert [d.body.text for d in await store.deliveries(KEY, 10)] == ["two"]
    assert len(await store.received("telegram", 10)) == 1
    assert await store.receive(came(1))
