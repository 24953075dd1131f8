"""Deleting: a session is gone at once for every reader, and its space is reclaimed."""

import asyncio
import random

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import NoSuchRun, NoSuchSession, SeqMismatch
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PURGE_AFTER_MS
from holdfast.store.ports import DELETED, Append, Store
from tests.conformance.factories import StoreHome
from tests.support.turn_events import IDS, TurnEvents, created, turn_facts

DELETED_FACT = (f.SessionDeleted(),)


def ignore_progress(done: int, total: int) -> None:
    """Ignore the progress of a check."""


async def create_session(store: Store, *facts: f.AnyFact) -> SessionId:
    new = created("doomed")
    await store.append(new)
    if facts:
        await store.append(Append(new.session_id, facts))
    return new.session_id


async def test_a_deleted_session_is_gone_for_every_reader(store: Store, home: StoreHome) -> None:
    story = TurnEvents(1, "narwhal")
    session_id = await create_session(store, *story.opening())
    other = await home.open()
    await store.append(Append(session_id, DELETED_FACT))
    for each in (store, other):
        assert (await each.sessions(None, 10)).sessions == ()
        assert await each.search("narwhal", 10) == []
        assert list(await each.open_runs()) == []
        assert (await each.totals()).sessions == 0
        for reading in (
            each.session(session_id), each.head(session_id), each.read(session_id, 0, 10),
            each.messages(session_id, None, 10), each.tools(session_id, story.run_id),
        ):  # fmt: skip
            with pytest.raises(NoSuchSession):
                await reading
        with pytest.raises(NoSuchRun):
            await each.run(story.run_id)
        with pytest.raises(NoSuchSession):
            await each.append(Append(session_id, (f.SessionRenamed("x", "user"),)))


async def test_a_deleted_session_is_purged_after_a_minute_and_no_other(
    store: Store, clock: FakeClock
) -> None:
    doomed = await create_session(store, *turn_facts(1, "walrus"), *turn_facts(2))
    kept = await create_session(store, *turn_facts(1, "walrus"))
    whole = await store.read(kept, 0, 100)
    await store.append(Append(doomed, DELETED_FACT))
    await store.append(Append(kept, (f.SessionRenamed("later", "user"),)))
    clock.advance(PURGE_AFTER_MS - 1)
    assert (await store.sweep()).sessions == 0
    clock.advance(1)
    assert (await store.sweep()).sessions == 1
    assert list(await store.read(kept, 0, 100))[:-1] == list(whole)
    assert len(await store.search("walrus", 10)) == 1
    assert list(await store.check(False, ignore_progress)) == []


async def test_the_space_comes_back(store: Store, home: StoreHome, clock: FakeClock) -> None:
    noise = random.Random(7)
    text = " ".join(noise.randbytes(8).hex() for _ in range(20_000))
    doomed = await create_session(
        store, *(fact for turn in range(1, 11) for fact in turn_facts(turn, text, (text,)))
    )
    kept = await create_session(store, *turn_facts(1))
    await store.search("anything", 1)
    await store.close()
    store = await home.open(clock)
    full = (await store.totals()).store_bytes
    await store.append(Append(doomed, DELETED_FACT))
    await store.append(Append(kept, (f.SessionRenamed("later", "user"),)))
    clock.advance(PURGE_AFTER_MS)
    swept = await store.sweep()
    await store.close()
    store = await home.open(clock)
    assert swept.sessions == 1 and swept.bytes_freed > full / 2
    assert (await store.totals()).store_bytes < full / 4
    assert list(await store.check(False, ignore_progress)) == []


async def test_a_purge_does_not_block_other_work(store: Store, clock: FakeClock) -> None:
    doomed = [
        await create_session(store, *(fact for turn in range(1, 101) for fact in turn_facts(turn)))
        for _ in range(5)
    ]
    kept = await create_session(store)
    await store.append(*(Append(each, DELETED_FACT) for each in doomed))
    clock.advance(PURGE_AFTER_MS)
    sweeping = asyncio.ensure_future(store.sweep())
    count = 0
    while not sweeping.done():
        await store.append(Append(kept, (f.SessionRenamed(str(count), "user"),)))
        count += 1
    assert (await sweeping).sessions == 5
    assert count > 3


@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize("swept", [False, True])
async def test_the_same_conversation_can_be_brought_back(
    store: Store, clock: FakeClock, others: int, swept: bool
) -> None:
    session_id = await create_session(store, *turn_facts(1, "beluga"), *TurnEvents(2).opening())
    events = list(await store.read(session_id, 0, 100))
    await store.append(Append(session_id, DELETED_FACT))
    for _ in range(others):
        await create_session(store)
    if swept:
        clock.advance(PURGE_AFTER_MS)
        await store.sweep()
    assert await store.import_session(session_id, events) == len(events)
    assert list(await store.read(session_id, 0, 100)) == events
    assert len(await store.search("beluga", 10)) == 1
    clock.advance(PURGE_AFTER_MS)
    await store.sweep()
    assert list(await store.read(session_id, 0, 100)) == events
    assert len(await store.search("beluga", 10)) == 1
    assert (await store.session(session_id)).last_turn == 2
    assert len(await store.open_runs()) == 1
    assert list(await store.check(False, ignore_progress)) == []


async def test_deleting_everything_leaves_a_store_that_works(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    for _ in range(3):
        session_id = await create_session(store, *turn_facts(1))
        await store.append(Append(session_id, DELETED_FACT))
    clock.advance(PURGE_AFTER_MS)
    await store.sweep()
    await store.close()
    store = await home.open(clock)
    session_id = await create_session(store, *turn_facts(1, "orca"))
    assert len(await store.search("orca", 10)) == 1
    await store.sweep()
    assert (await store.totals()).sessions == 1
    assert list(await store.check(False, ignore_progress)) == []


async def test_events_after_a_purge_are_never_taken_for_seen_ones(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    doomed = await create_session(store, *turn_facts(1))
    other = await home.open(clock)
    kept = IDS.session()
    await other.append(created("kept", kept))
    tail = store.tail(kept, 0)
    assert (await anext(tail)).seq == 1
    await other.append(Append(doomed, DELETED_FACT))
    clock.advance(PURGE_AFTER_MS)
    await other.sweep()
    await asyncio.sleep(0.1)
    await other.append(Append(kept, (f.SessionRenamed("after", "user"),)))
    async with asyncio.timeout(30):
        assert (await anext(tail)).seq == 2
    await tail.aclose()


async def test_a_deletion_record_is_visible_to_all_processes_until_it_is_taken(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    doomed, kept = await create_session(store, *turn_facts(1)), await create_session(store)
    assert await store.items(DELETED) == {}
    await store.append(Append(doomed, DELETED_FACT))
    other = await home.open(clock)
    (record,) = (await other.items(DELETED)).items()
    assert record[0] == doomed
    await store.append(Append(kept, (f.SessionRenamed("later", "user"),)))
    clock.advance(PURGE_AFTER_MS)
    assert (await store.sweep()).sessions == 1
    assert dict(await store.items(DELETED)) == dict([record])
    assert await store.take_item(DELETED, doomed) is not None
    assert await store.items(DELETED) == {}


@pytest.mark.parametrize("swept", [False, True])
async def test_the_record_of_a_deletion_goes_when_the_conversation_is_brought_back(
    store: Store, clock: FakeClock, swept: bool
) -> None:
    session_id, other = await create_session(store, *turn_facts(1)), await create_session(store)
    events = list(await store.read(session_id, 0, 100))
    await store.append(Append(session_id, DELETED_FACT), Append(other, DELETED_FACT))
    await create_session(store)
    if swept:
        clock.advance(PURGE_AFTER_MS)
        await store.sweep()
    await store.import_session(session_id, events)
    assert list(await store.items(DELETED)) == [other]
    await store.append(created("again", other))
    assert await store.items(DELETED) == {}
    await store.append(Append(session_id, DELETED_FACT))
    assert list(await store.items(DELETED)) == [session_id]


async def test_a_deletion_that_is_refused_leaves_no_record(store: Store) -> None:
    session_id = await create_session(store)
    with pytest.raises(SeqMismatch):
        await store.append(Append(session_id, DELETED_FACT, expect=7))
    assert await store.items(DELETED) == {}
