"""Keys: a repeated send is one turn."""

import asyncio

import pytest

from holdfast.domain.decisions.turns import replace_turns
from holdfast.domain.errors import KeyReused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import SessionId
from holdfast.domain.state.session_state import SessionStateView
from holdfast.store.ports import Append, Store
from tests.conformance.factories import StoreHome
from tests.support.turn_events import IDS, TurnEvents, accept, created


async def create_session(store: Store) -> SessionId:
    new = created()
    await store.append(new)
    return new.session_id


async def test_a_repeated_send_is_one_turn(store: Store) -> None:
    session_id = await create_session(store)
    (first,) = await store.append(accept(session_id, "hello", "k"))
    (again,) = await store.append(accept(session_id, "hello", "k"))
    assert first.repeated_turn is None
    assert again.repeated_turn is not None
    assert (again.repeated_turn.turn, again.repeated_turn.seq, again.repeated_turn.key) == (
        1,
        first.first_seq,
        "k",
    )
    assert again.context_before == again.context_after == first.context_after
    assert await store.head(session_id) == first.last_seq


async def test_an_idempotency_key_belongs_to_one_message(store: Store) -> None:
    session_id = await create_session(store)
    await store.append(accept(session_id, "hello", "k"))
    with pytest.raises(KeyReused):
        await store.append(accept(session_id, "goodbye", "k"))
    assert (await store.session(session_id)).last_turn == 1


async def test_keys_belong_to_their_session(store: Store) -> None:
    one, two = await create_session(store), await create_session(store)
    await store.append(accept(one, "hello", "k"))
    (receipt,) = await store.append(accept(two, "other", "k"))
    assert receipt.repeated_turn is None


async def test_nothing_else_of_a_repeated_send_is_stored(store: Store) -> None:
    session_id = await create_session(store)
    story = TurnEvents(2, "edited", "k")
    edit = (f.TurnsUndone(1, "edit"), story.accepted())
    await store.append(accept(session_id, "first"))
    await store.append(Append(session_id, edit))
    head = await store.head(session_id)
    retried = (f.TurnsUndone(1, "edit"), TurnEvents(3, "edited", "k").accepted())
    (receipt,) = await store.append(Append(session_id, retried))
    assert receipt.repeated_turn is not None and receipt.repeated_turn.id == story.id
    assert await store.head(session_id) == head


@pytest.mark.parametrize("stores", [1, 2])
async def test_concurrent_sends_with_one_key_store_one_turn(
    store: Store, home: StoreHome, stores: int
) -> None:
    session_id = await create_session(store)
    opened = [store] + [await home.open() for _ in range(stores - 1)]
    tried = await asyncio.gather(
        *(opened[n % stores].append(accept(session_id, "hello", "k")) for n in range(10))
    )
    receipts = [receipt for (receipt,) in tried]
    assert sum(receipt.repeated_turn is None for receipt in receipts) == 1
    assert (await store.session(session_id)).last_turn == 1
    assert {receipt.first_seq for receipt in receipts} == {2}


async def test_a_retry_is_recognised_although_the_session_moved_on(store: Store) -> None:
    session_id = await create_session(store)
    story = TurnEvents(1, "hello", "k")
    await store.append(Append(session_id, (story.accepted(),), expect=1))
    await store.append(Append(session_id, (f.SessionRenamed("x", "user"),)))
    retry = TurnEvents(1, "hello", "k").accepted()
    (receipt,) = await store.append(Append(session_id, (retry,), expect=1))
    assert receipt.repeated_turn is not None and receipt.repeated_turn.id == story.id


async def test_a_key_is_remembered_after_its_turn_was_undone_and_after_reopening(
    store: Store, home: StoreHome
) -> None:
    session_id = await create_session(store)
    await store.append(accept(session_id, "hello", "k"))
    await store.append(Append(session_id, (f.TurnsUndone(1),)))
    await store.close()
    again = await home.open()
    (receipt,) = await again.append(accept(session_id, "hello", "k"))
    assert receipt.repeated_turn is not None and receipt.repeated_turn.status == "undone"


async def test_an_empty_key_is_a_key(store: Store) -> None:
    session_id = await create_session(store)
    await store.append(accept(session_id, "hello", ""))
    (receipt,) = await store.append(accept(session_id, "hello", ""))
    assert receipt.repeated_turn is not None


async def test_one_change_cannot_use_a_key_twice(store: Store) -> None:
    session_id = await create_session(store)
    twice = [TurnEvents(1, "a", "k").accepted(), TurnEvents(2, "b", "k").accepted()]
    with pytest.raises(KeyReused):
        await store.append(Append(session_id, twice))
    assert await store.head(session_id) == 1


async def test_a_session_may_begin_with_its_first_send(store: Store) -> None:
    session_id = IDS.session()
    story = TurnEvents(1, "hello", "k")

    def decide(view: SessionStateView) -> list[f.AnyFact]:
        began = [] if view.session() else [f.SessionCreated()]
        return [*began, story.accepted()]

    await store.append(Append(session_id, decide))
    (receipt,) = await store.append(Append(session_id, decide))
    assert receipt.repeated_turn is not None and receipt.repeated_turn.turn == 1


async def test_an_idempotency_key_covers_every_part(store: Store) -> None:
    session_id = await create_session(store)
    turn = f.TurnAccepted(IDS.turn(), 1, IDS.message(), (Text("a"), Text("b")), key="k")
    await store.append(Append(session_id, (turn,)))
    other = f.TurnAccepted(IDS.turn(), 2, IDS.message(), (Text("a\nb"),), key="k")
    with pytest.raises(KeyReused):
        await store.append(Append(session_id, (other,)))


async def test_an_edit_that_is_tried_again_is_one_turn(store: Store) -> None:
    session_id = await create_session(store)
    story = TurnEvents(1, "first")
    await store.append(Append(session_id, (story.accepted(),)))

    def edit(view: SessionStateView) -> list[f.AnyFact]:
        return replace_turns(view, session_id, IDS, story.id, (Text("better"),), "edit", "k")

    await store.append(Append(session_id, edit))
    (receipt,) = await store.append(Append(session_id, edit))
    assert receipt.repeated_turn is not None and receipt.repeated_turn.turn == 2
