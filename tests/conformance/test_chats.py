"""Updates from chat apps and deliveries to them: stored once, handled in order, with their outcomes."""

import pytest
from msgspec.structs import replace

from holdfast.domain.chats import Chat, InboundUpdate, NewDelivery, OutboundMessage, RouteRow
from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import LeaseHeld
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import CHANNEL_LEASE_MS, CHAT_RETENTION_MS
from holdfast.store.ports import Store
from tests.conformance.factories import StoreHome

CHAT = Chat("telegram", "dm", "42")
KEY = CHAT.route
HERE, THERE = SessionId("s_here"), SessionId("s_there")


def inbound_message(number: int, text: str = "hello") -> InboundUpdate:
    return InboundUpdate(CHAT, str(number), "7", "Ada", text)


def new_delivery(source: str, text: str, piece: int = 0) -> NewDelivery:
    return NewDelivery(source, piece, "answer", OutboundMessage(text))


async def test_the_same_update_is_kept_once_also_by_another_process(store: Store, home: StoreHome) -> None:
    other = await home.open()
    assert await store.receive(inbound_message(1))
    assert not await store.receive(inbound_message(1, "repeated with other words"))
    assert not await other.receive(inbound_message(1))
    assert await other.receive(inbound_message(2))
    assert [row.inbound.text for row in await store.received("telegram", 10)] == ["hello", "hello"]
    assert not await store.received("webhook", 10)
    await other.close()


async def test_inbound_messages_received_together_are_stored_in_order_once(
    store: Store,
) -> None:
    await store.receive(inbound_message(2, "before"))
    assert await store.receive(
        inbound_message(3, "three"), inbound_message(2, "two"), inbound_message(1, "one")
    )
    assert not await store.receive(inbound_message(1), inbound_message(3))
    kept = [(row.inbound.update_id, row.inbound.text) for row in await store.received("telegram", 10)]
    assert kept == [("2", "before"), ("3", "three"), ("1", "one")]


async def test_inbound_messages_are_read_after_a_given_number(store: Store) -> None:
    await store.receive(inbound_message(1), inbound_message(2))
    first, second = await store.received("telegram", 10)
    await store.receive(inbound_message(3))
    assert [row.inbound.update_id for row in await store.received("telegram", 10, first.no)] == ["2", "3"]
    await store.finish(second.no)
    assert [row.inbound.update_id for row in await store.received("telegram", 10, second.no)] == ["3"]


async def test_the_first_assignment_of_an_inbound_message_wins(store: Store) -> None:
    await store.receive(inbound_message(1))
    (row,) = await store.received("telegram", 10)
    assert (await store.assign(row.no, HERE, 5)).session_id == HERE
    again = await store.assign(row.no, THERE, 9)
    assert (again.session_id, again.expect, again.state) == (HERE, 5, "assigned")


async def test_finishing_replies_and_moves_the_chat_once(store: Store) -> None:
    await store.receive(inbound_message(1))
    (row,) = await store.received("telegram", 10)
    move = RouteRow(CHAT, HERE, (HERE,), 3, 1)
    await store.finish(row.no, [new_delivery("update:1", "Begun.")], move)
    await store.finish(row.no, [new_delivery("update:1", "Begun twice?")], RouteRow(CHAT, THERE))
    assert await store.route(KEY) == move
    assert [d.body.text for d in await store.deliveries(KEY, 10)] == ["Begun."]
    assert not await store.received("telegram", 10)
    assert not await store.receive(inbound_message(1))
    assert await store.routes(session_id=HERE) == await store.routes("telegram") == await store.routes()


async def test_deliveries_are_planned_once_for_each_segment(store: Store) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    assert not await store.plan(KEY, HERE, 4, 9, [new_delivery("m_1", "from nowhere")])
    assert not await store.plan(KEY, THERE, 0, 9, [new_delivery("m_1", "of another conversation")])
    assert await store.plan(KEY, HERE, 0, 9, [new_delivery("m_1", "one"), new_delivery("m_1", "two", 1)])
    assert not await store.plan(KEY, HERE, 0, 9, [new_delivery("m_1", "one")])
    assert [d.body.text for d in await store.deliveries(KEY, 10)] == ["two", "one"]


async def test_deliveries_to_a_chat_are_due_in_order_and_not_early(store: Store, clock: FakeClock) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [new_delivery("m_1", "one"), new_delivery("m_2", "two")])
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


async def test_a_sent_delivery_that_changes_is_to_be_edited(store: Store, clock: FakeClock) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [new_delivery("m_1", "beginn")])
    begun = await store.begin_delivery(KEY, 1)
    assert begun is not None
    await store.plan(KEY, HERE, 1, 2, [new_delivery("m_1", "beginning")])
    assert await store.settle_delivery(KEY, replace(begun, state="sent", platform_id="99"))
    ((_, row),) = await store.due("telegram", clock.now_ms(), 10)
    assert (row.state, row.platform_id, row.body.text) == ("changed", "99", "beginning")
    begun = await store.begin_delivery(KEY, 1)
    assert begun is not None and begun.state == "changed"
    assert await store.settle_delivery(KEY, replace(begun, state="sent"))
    assert not await store.due("telegram", clock.now_ms(), 10)


async def test_one_process_delivers_and_the_attempt_of_a_dead_one_counts_as_begun(
    store: Store, home: StoreHome
) -> None:
    other = await home.open()
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [new_delivery("m_1", "one")])
    assert await other.begin_delivery(KEY, 1) is not None
    assert await store.begin_delivery(KEY, 1) is None
    await other.close()
    taken = await store.begin_delivery(KEY, 1)
    assert taken is not None and (taken.state, taken.attempts) == ("sending", 2)


async def test_a_stale_delivery_of_a_living_process_can_be_taken_over(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    other = await home.open(clock)
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [new_delivery("m_1", "one")])
    first = await other.begin_delivery(KEY, 1)
    await store.plan(KEY, HERE, 1, 2, [new_delivery("m_1", "one more")])
    clock.advance(CHANNEL_LEASE_MS - 1)
    assert first is not None and await store.begin_delivery(KEY, 1) is None
    clock.advance(1)
    taken = await store.begin_delivery(KEY, 1)
    assert taken is not None and (taken.state, taken.attempts) == ("sending", 2)
    assert not await other.settle_delivery(KEY, replace(first, state="sent"))
    await other.close()


async def test_settling_a_superseded_delivery_attempt_changes_nothing(store: Store) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [new_delivery("m_1", "one")])
    first = await store.begin_delivery(KEY, 1)
    second = await store.begin_delivery(KEY, 1)
    assert first is not None and second is not None
    assert not await store.settle_delivery(KEY, replace(first, state="in_doubt"))
    assert await store.settle_delivery(KEY, replace(second, state="sent", platform_id="1"))


async def test_a_delivery_outcome_and_its_follow_ups_are_stored_atomically(store: Store) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    await store.plan(KEY, HERE, 0, 1, [new_delivery("m_1", "one")])
    first = await store.begin_delivery(KEY, 1)
    second = await store.begin_delivery(KEY, 1)
    assert first is not None and second is not None
    assert not await store.settle_delivery(
        KEY, replace(first, state="dropped"), [new_delivery("lost:1", "Lost?")]
    )
    assert await store.settle_delivery(
        KEY, replace(second, state="dropped"), [new_delivery("lost:1", "Lost.")]
    )
    assert [(row.body.text, row.state) for row in await store.deliveries(KEY, 10)] == [
        ("Lost.", "waiting"),
        ("one", "dropped"),
    ]


async def test_a_name_is_claimed_by_one_process_at_a_time(store: Store, home: StoreHome) -> None:
    other = await home.open()
    lease = await other.claim_name("channel:telegram", 10_000)
    with pytest.raises(LeaseHeld):
        await store.claim_name("channel:telegram", 10_000)
    await other.release(lease)
    assert (await store.claim_name("channel:telegram", 10_000)).epoch > lease.epoch
    await other.close()


async def test_old_finished_chat_rows_are_pruned_and_open_ones_kept(store: Store, clock: FakeClock) -> None:
    await store.put_route(RouteRow(CHAT, HERE))
    await store.receive(inbound_message(1))
    await store.receive(inbound_message(2))
    await store.plan(KEY, HERE, 0, 1, [new_delivery("m_1", "one"), new_delivery("m_2", "two")])
    begun = await store.begin_delivery(KEY, 1)
    assert begun is not None
    await store.settle_delivery(KEY, replace(begun, state="sent", platform_id="1"))
    await store.finish((await store.received("telegram", 1))[0].no)
    clock.advance(CHAT_RETENTION_MS + 1)
    await store.sweep()
    assert [d.body.text for d in await store.deliveries(KEY, 10)] == ["two"]
    assert len(await store.received("telegram", 10)) == 1
    assert await store.receive(inbound_message(1))
