"""Per-session data of the owner: the pin, and the draft of a message."""

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import NoSuchSession, TooLarge
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import FEED_SESSIONS_MAX, PINS_MAX, PURGE_AFTER_MS
from holdfast.store.ports import Append, Store
from tests.conformance.factories import StoreHome
from tests.support.turn_events import IDS, created


async def create_session(store: Store) -> SessionId:
    new = created()
    await store.append(new)
    return new.session_id


async def is_pinned(store: Store, session_id: SessionId) -> bool:
    found = session_id in await store.pinned([session_id])
    assert found == (await store.session_statuses([session_id]))[session_id].pinned
    return found


async def test_a_session_is_pinned_until_it_is_no_longer(store: Store, home: StoreHome) -> None:
    session_id, other = await create_session(store), await create_session(store)
    await store.pin(session_id, True)
    await store.pin(session_id, True)
    again = await home.open()
    assert await is_pinned(again, session_id)
    assert not await is_pinned(again, other)
    await again.pin(session_id, False)
    await again.pin(session_id, False)
    assert not await is_pinned(store, session_id)
    with pytest.raises(NoSuchSession):
        await store.pin(IDS.session(), True)


async def test_the_overview_includes_old_pinned_sessions(store: Store, clock: FakeClock) -> None:
    old, archived = await create_session(store), await create_session(store)
    for _ in range(FEED_SESSIONS_MAX):
        clock.advance(1)
        await create_session(store)
    await store.append(Append(archived, (f.SessionArchived(True),)))
    assert old not in {each.row.id for each in (await store.overview()).statuses}
    await store.pin(old, True)
    await store.pin(archived, True)
    survey = await store.overview()
    assert {each.row.id for each in survey.statuses if each.pinned} == {old}
    assert len(survey.statuses) == FEED_SESSIONS_MAX + 1


async def test_pins_are_visible_to_other_processes(store: Store, home: StoreHome) -> None:
    session_id = await create_session(store)
    other = await home.open()
    number, _ = await other.mark_changes_since(0)
    await store.pin(session_id, True)
    await store.pin(session_id, True)
    assert await other.mark_changes_since(number) == (number + 1, frozenset({session_id}))
    await store.pin(session_id, False)
    assert await other.mark_changes_since(number + 1) == (number + 2, frozenset({session_id}))


async def test_a_watch_reports_a_pin(store: Store) -> None:
    session_id = await create_session(store)
    rung: list[bool] = []
    with store.watch(lambda: rung.append(True)) as watch:
        watch.take_changed()
        rung.clear()
        await store.pin(session_id, True)
        assert rung
        assert watch.take_changed() == frozenset({session_id})


async def test_only_so_many_can_be_pinned_and_the_deleted_do_not_count(store: Store) -> None:
    pinned = [await create_session(store) for _ in range(PINS_MAX)]
    for session_id in pinned:
        await store.pin(session_id, True)
    one_more = await create_session(store)
    with pytest.raises(TooLarge):
        await store.pin(one_more, True)
    assert not await is_pinned(store, one_more)
    await store.append(Append(pinned[0], (f.SessionDeleted(),)))
    await store.pin(one_more, True)
    assert await is_pinned(store, one_more)


async def test_pins_and_drafts_go_with_their_session(store: Store, clock: FakeClock) -> None:
    session_id, other = await create_session(store), await create_session(store)
    for each in (session_id, other):
        await store.pin(each, True)
        await store.put_item("draft", each, b"And then")
    await store.append(Append(session_id, (f.SessionDeleted(),)))
    assert session_id not in {each.row.id for each in (await store.overview()).statuses}
    clock.advance(PURGE_AFTER_MS + 1)
    await store.append(Append(other, (f.SessionRenamed("x", "user"),)))
    await store.sweep()
    assert set(await store.items("pin")) == set(await store.items("draft")) == {other}
