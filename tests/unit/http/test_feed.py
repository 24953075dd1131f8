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
from tests.support.turn_events import TurnStory, created

ONE, TWO = SessionId("s_one"), SessionId("s_two")


class Reading:
    """A reader in a test's hands, and the bell that it rings."""

    def __init__(self) -> None:
        self.bell = asyncio.Event()
        self.reader: FeedReader | None = None

    async def next(self) -> list[tuple[str, dict[str, Any]]]:
        """What it is given next, once there is something."""
        assert self.reader is not None
        async with asyncio.timeout(30):
            while True:
                self.bell.clear()
                frames = self.reader.take()
                if frames:
                    return [told(frame) for frame in frames]
                await self.bell.wait()


def told(frame: bytes) -> tuple[str, dict[str, Any]]:
    event, data = frame.decode().rstrip("\n").split("\n")
    return event.removeprefix("event: "), msgspec.json.decode(data.removeprefix("data: "))


async def test_changes_of_a_moment_are_told_as_one_and_what_is_the_same_is_not_told(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    new, feed, reading, story = created("One"), Feed(store), Reading(), TurnStory()
    await store.append(new)
    with feed.reader(reading.bell.set) as reading.reader:
        await reading.reader.begun()
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


async def test_whoever_comes_later_takes_nothing_away_from_those_who_are_there(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    new, feed, one, two = created("0"), Feed(store), Reading(), Reading()
    await store.append(new)
    with feed.reader(one.bell.set) as one.reader:
        await one.next()
        for n in range(1, 15):
            await store.append(Append(new.session_id, (f.SessionRenamed(str(n), "user"),)))
            # Its snapshot is read while the change is still to be told.
            with feed.reader(two.bell.set) as two.reader:
                ((_, snapshot),) = await two.next()
                assert [row["title"] for row in snapshot["sessions"]] == [str(n)]
            titles = [row["session"]["title"] for _, row in await one.next()]
            assert titles == [str(n)]
    await store.close()


async def test_a_reader_that_takes_nothing_holds_a_bounded_pile_and_then_gets_a_new_snapshot() -> None:
    rung: list[str] = []
    reader = FeedReader(lambda: rung.append("reader"), lambda: rung.append("feed"))
    reader.offer(ONE, b"before the snapshot, so in it")
    reader.greet(b"snapshot")
    await reader.begun()
    assert reader.take() == [b"snapshot"]
    reader.offer(ONE, b"older")
    reader.offer(TWO, b"two")
    reader.offer(ONE, b"newer")
    assert sorted(reader.take()) == [b"newer", b"two"]
    for n in range(FEED_PENDING_MAX + 1):
        reader.offer(SessionId(f"s_{n}"), b"x")
    assert not reader._frames and not reader.waits, "nothing is read for it while it takes nothing"
    assert "feed" not in rung
    assert reader.take() == []
    assert rung[-1] == "feed" and reader.waits
    reader.offer(ONE, b"part of what comes")
    reader.greet(b"another")
    assert reader.take() == [b"another"]


async def test_a_store_that_fails_ends_the_feed_and_says_why(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    feed, reading = Feed(store), Reading()
    with feed.reader(reading.bell.set) as reader:
        await reader.begun()
        reader.take()
        reading.bell.clear()
        await store.close()
        await asyncio.wait_for(reading.bell.wait(), 30)
        assert isinstance(reader.fault, StoreClosed)
        with feed.reader(lambda: None) as another, pytest.raises(StoreClosed):
            await asyncio.wait_for(another.begun(), 30)


async def test_nobody_reads_for_a_feed_that_has_no_readers(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    feed = Feed(store)
    for _ in range(3):
        with feed.reader(lambda: None) as reader:
            await reader.begun()
            assert len(store._hub._watches) == 1
        await asyncio.sleep(0)
        assert not store._hub._watches
    await store.close()
