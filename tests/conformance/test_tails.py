"""Following a session: every event once, in order, from any writer."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest

from holdfast.domain.errors import NoSuchSession
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import READ_EVENTS_MAX, SUBSCRIBER_EVENTS_MAX
from holdfast.store.ports import Append, Store
from tests.conformance.factories import StoreHome
from tests.support.turn_events import IDS, accept, created

SEEN_WITHIN_S = 1.0
"""A generous timeout for a slow or busy machine."""


def rename(session_id: SessionId, title: object) -> Append:
    return Append(session_id, (f.SessionRenamed(str(title), "user"),))


async def create_session(store: Store, count: int = 0) -> SessionId:
    new = created()
    await store.append(new)
    await asyncio.gather(*(store.submit(rename(new.session_id, n)) for n in range(count)))
    return new.session_id


async def next_events(tail: AsyncIterator[Event], count: int, timeout_s: float = 30) -> list[Event]:
    async with asyncio.timeout(timeout_s):
        return [await anext(tail) for _ in range(count)]


async def test_a_tail_replays_and_then_follows(store: Store) -> None:
    session_id = await create_session(store, 3)
    tail = store.tail(session_id, 2)
    assert [event.seq for event in await next_events(tail, 2)] == [3, 4]
    following = asyncio.ensure_future(next_events(tail, 1))
    await asyncio.sleep(0.01)
    assert not following.done()
    await store.append(rename(session_id, "new"))
    assert [event.seq for event in await following] == [5]
    await tail.aclose()


async def test_a_tail_replays_a_long_history_completely(store: Store) -> None:
    new = created()
    await store.append(new)
    count = 2 * READ_EVENTS_MAX + 3
    await store.append(Append(new.session_id, [f.SessionRenamed(str(n), "user") for n in range(count)]))
    tail = store.tail(new.session_id, 0)
    assert [event.seq for event in await next_events(tail, count + 1)] == list(range(1, count + 2))
    await tail.aclose()


async def test_many_readers_beside_many_writers_see_all_once_in_order(store: Store) -> None:
    session_id = await create_session(store)

    async def follow(after: int) -> list[int]:
        tail = store.tail(session_id, after)
        seqs = [event.seq for event in await next_events(tail, 301 - after)]
        await tail.aclose()
        return seqs

    async def write(count: int) -> None:
        for n in range(count):
            await store.append(rename(session_id, n))

    readers = [asyncio.ensure_future(follow(0)) for _ in range(5)]
    writers = [asyncio.ensure_future(write(100)) for _ in range(3)]
    await asyncio.sleep(0.02)
    readers += [asyncio.ensure_future(follow(min(10 * n, 40))) for n in range(5)]
    seen = await asyncio.gather(*readers)
    await asyncio.gather(*writers)
    for seqs in seen:
        assert seqs == list(range(seqs[0], 302))


async def test_a_reader_sees_only_its_session(store: Store) -> None:
    mine, other = await create_session(store), await create_session(store)
    tail = store.tail(mine, 1)
    following = asyncio.ensure_future(next_events(tail, 1))
    await asyncio.sleep(0.01)
    await store.append(rename(other, "other"))
    await store.append(rename(mine, "mine"))
    (event,) = await following
    assert event.fact == f.SessionRenamed("mine", "user")
    await tail.aclose()


async def test_an_overflowed_reader_misses_no_event(store: Store) -> None:
    session_id = await create_session(store)
    tail = store.tail(session_id, 0)
    first = await next_events(tail, 1)
    waiting = asyncio.ensure_future(next_events(tail, 1))
    await asyncio.sleep(0.01)
    for start in range(0, 2 * SUBSCRIBER_EVENTS_MAX, 500):
        facts = [f.SessionRenamed(str(n), "user") for n in range(start, start + 500)]
        await store.append(Append(session_id, facts))
    seen = first + await waiting + await next_events(tail, 2 * SUBSCRIBER_EVENTS_MAX - 1)
    await store.append(rename(session_id, "last"))
    seen += await next_events(tail, 1)
    assert [event.seq for event in seen] == list(range(1, 2 * SUBSCRIBER_EVENTS_MAX + 3))
    await tail.aclose()


async def test_readers_only_see_durable_events(store: Store, home: StoreHome) -> None:
    session_id = await create_session(store)
    other = await home.open()
    tail = store.tail(session_id, 0)
    writing = [store.submit(rename(session_id, n)) for n in range(50)]
    for event in await next_events(tail, 51):
        assert await other.read(session_id, event.seq - 1, 1) == [event]
    await asyncio.gather(*writing)
    await tail.aclose()


async def test_a_tail_sees_what_another_store_wrote(store: Store, home: StoreHome) -> None:
    session_id = await create_session(store)
    other = await home.open()
    tail = store.tail(session_id, 1)
    waits: list[float] = []
    for n in range(20):
        following = asyncio.ensure_future(next_events(tail, 1))
        await asyncio.sleep(0.03)
        await other.append(rename(session_id, n))
        started = time.monotonic()
        (event,) = await following
        waits.append(time.monotonic() - started)
        assert event.seq == n + 2
    assert sorted(waits)[len(waits) // 2] < SEEN_WITHIN_S
    await tail.aclose()


async def test_a_tail_sees_what_another_process_wrote(store: Store, home: StoreHome) -> None:
    session_id = await create_session(store)
    tail = store.tail(session_id, 1)
    with home.start_child("rename", session_id, "10") as child:
        assert child.stdin is not None and child.stdout is not None
        assert await asyncio.to_thread(child.stdout.readline) == "ready\n"
        waits: list[float] = []
        for n in range(10):
            following = asyncio.ensure_future(next_events(tail, 1))
            child.stdin.write("go\n")
            assert int(await asyncio.to_thread(child.stdout.readline)) == n + 2
            started = time.monotonic()
            (event,) = await following
            waits.append(max(0.0, time.monotonic() - started))
            assert (event.seq, event.fact) == (n + 2, f.SessionRenamed(str(n), "user"))
        await tail.aclose()
    assert child.returncode == 0
    assert sorted(waits)[5] < SEEN_WITHIN_S


async def test_writers_in_two_processes_interleave_without_gaps(store: Store, home: StoreHome) -> None:
    session_id = await create_session(store)
    tail = store.tail(session_id, 0)
    with home.start_child("send", session_id, "40") as child:
        assert child.stdout is not None
        await asyncio.to_thread(child.stdout.readline)
        for n in range(40):
            await store.append(accept(session_id, f"turn {n} of this process"))
        assert await asyncio.to_thread(child.stdout.readline) == "sent\n"
    head = await store.head(session_id)
    events = await next_events(tail, head)
    assert [event.seq for event in events] == list(range(1, head + 1))
    turns = [fact.turn for event in events if isinstance(fact := event.fact, f.TurnAccepted)]
    assert turns == list(range(1, 81))
    await tail.aclose()


async def test_tailing_an_unknown_session_raises(store: Store) -> None:
    tail = store.tail(IDS.session(), 0)
    with pytest.raises(NoSuchSession):
        await next_events(tail, 1)


async def test_an_up_to_date_follower_receives_the_deletion(store: Store) -> None:
    session_id = await create_session(store)
    rung = asyncio.Event()
    with store.follow(session_id, 1, rung.set) as follower:
        assert list(await follower.next_events()) == []
        await store.append(Append(session_id, (f.SessionDeleted(),)))
        async with asyncio.timeout(30):
            await rung.wait()
        assert [event.kind for event in await follower.next_events()] == ["session_deleted"]


async def test_a_follower_reads_events_in_batches_after_a_notification(store: Store, home: StoreHome) -> None:
    session_id = await create_session(store, 3)
    other = await home.open()
    rung = asyncio.Event()
    with store.follow(session_id, 1, rung.set) as follower:
        assert [event.seq for event in await follower.next_events()] == [2, 3, 4]
        assert list(await follower.next_events()) == []
        for seq, writer in ((5, store), (6, other)):
            rung.clear()
            await writer.append(rename(session_id, seq))
            async with asyncio.timeout(30):
                await rung.wait()
            assert [event.seq for event in await follower.next_events()] == [seq]
        assert follower.after == 6
        follower.resync()
        assert list(await follower.next_events()) == []


async def test_a_follower_of_an_unknown_session_raises_on_next_events(store: Store) -> None:
    with store.follow(IDS.session(), 0, lambda: None) as follower:
        with pytest.raises(NoSuchSession):
            await follower.next_events()
        with pytest.raises(NoSuchSession):
            await follower.next_events()
