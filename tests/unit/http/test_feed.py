"""One task reads for all feeds: each is told everything that changes, and a slow one waits for nobody."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.domain.errors import StoreClosed
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import FEED_PENDING_MAX
from holdfast.http.sse.feed import Feed, FeedReader
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from tests.support.turn_events import TurnEvents, created

ONE, TWO = SessionId("s_one"), SessionId("s_two")


class FeedProbe:
    """A reader in a test's hands, and the bell that it rings."""

    def __init__(self) -> None:
        self.wakeup = asyncio.Event()
        self.reader: FeedReader | None = None

    async def next(self) -> list[tuple[str, dict[str, Any]]]:
        """What it is given next, once there is something."""
        assert self.reader is not None
        async with asyncio.timeout(30):
            while True:
                self.wakeup.clear()
                frames = self.reader.take()
                if frames:
                    return [decode_frame(frame) for frame in frames]
                await self.wakeup.wait()


def decode_frame(frame: bytes) -> tuple[str, dict[str, Any]]:
    event, data = frame.decode().rstrip("\n").split("\n")
    return event.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: "))


async def test_rapid_changes_are_merged_and_unchanged_sessions_are_not_sent(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    new, feed, reading, story = created("One"), Feed(store), FeedProbe(), TurnEvents()
    await store.append(new)
    with feed.reader(reading.wakeup.set) as reading.reader:
        await reading.reader.wait_until_ready()
        ((kind, snapshot),) = await reading.next()
        assert kind == "feed_snapshot"
        assert [row["title"] for row in snapshot["sessions"]] == ["One"] and not snapshot["more"]
        for n in range(20):
            await store.append(Append(new.session_id, (f.SessionRenamed(str(n), "user"),)))
        seen = [row for row in await reading.next() if row[1]["session"]["title"] == "19"]
        while not seen:
            seen = [row for row in await reading.next() if row[1]["session"]["title"] == "19"]
        # Facts that ring and change nothing that is shown: the next thing told is the one after them.
        await store.append(Append(new.session_id, (f.MemoryCommitted(1, "k", 1, 1),)))
        await asyncio.sleep(0.2)
        assert reading.reader.take() == []
        await store.append(Append(new.session_id, story.opening()))
        ((kind, changed),) = await reading.next()
        assert (kind, changed["session"]["status"]) == ("feed_changed", "working")
    await store.close()


async def test_a_later_reader_takes_nothing_from_earlier_ones(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    new, feed, one, two = created("0"), Feed(store), FeedProbe(), FeedProbe()
    await store.append(new)
    with feed.reader(one.wakeup.set) as one.reader:
        await one.next()
        for n in range(1, 15):
            await store.append(Append(new.session_id, (f.SessionRenamed(str(n), "user"),)))
            # Its snapshot is read while the change is still to be told.
            with feed.reader(two.wakeup.set) as two.reader:
                ((_, snapshot),) = await two.next()
                assert [row["title"] for row in snapshot["sessions"]] == [str(n)]
            titles = [row["session"]["title"] for _, row in await one.next()]
            assert titles == [str(n)]
    await store.close()


async def test_a_stalled_reader_buffers_a_bounded_number_and_then_gets_a_snapshot() -> None:
    rung: list[str] = []
    reader = FeedReader(lambda: rung.append("reader"), lambda: rung.append("feed"))
    reader.offer(ONE, b"before the snapshot, so in it")
    reader.set_snapshot(b"snapshot")
    await reader.wait_until_ready()
    assert reader.take() == [b"snapshot"]
    reader.offer(ONE, b"older")
    reader.offer(TWO, b"two")
    reader.offer(ONE, b"newer")
    assert sorted(reader.take()) == [b"newer", b"two"]
    for n in range(FEED_PENDING_MAX + 1):
        reader.offer(SessionId(f"s_{n}"), b"x")
    assert not reader._frames and not reader.needs_snapshot, "nothing is read for it while it takes nothing"
    assert "feed" not in rung
    assert reader.take() == []
    assert rung[-1] == "feed" and reader.needs_snapshot
    reader.offer(ONE, b"part of what comes")
    reader.set_snapshot(b"another")
    assert reader.take() == [b"another"]


async def test_a_store_failure_ends_the_feed_with_its_error(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    feed, reading = Feed(store), FeedProbe()
    with feed.reader(reading.wakeup.set) as reader:
        await reader.wait_until_ready()
        reader.take()
        reading.wakeup.clear()
        await store.close()
        await asyncio.wait_for(reading.wakeup.wait(), 30)
        assert isinstance(reader.fault, StoreClosed)
        with feed.reader(lambda: None) as another, pytest.raises(StoreClosed):
            await asyncio.wait_for(another.wait_until_ready(), 30)


async def test_a_feed_without_readers_has_no_store_watch(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    feed = Feed(store)
    for _ in range(3):
        with feed.reader(lambda: None) as reader:
            await reader.wait_until_ready()
            assert len(store._hub._watches) == 1
        await asyncio.sleep(0)
        assert not store._hub._watches
    await store.close()
