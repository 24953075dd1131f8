"""Files as they come in: whoever comes to a stop is cut off, and what is held at once has a bound."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest

from holdfast.http.asgi import Receive
from holdfast.http.uploads import Incoming, Pace, Room, TooManyUploads, UploadTooSlow

PACE = Pace(0.1, 100)


def sending(*pieces: tuple[float, bytes]) -> Receive:
    """A body whose pieces each come after some seconds; after the last one nothing comes."""

    async def bodies() -> AsyncIterator[dict[str, Any]]:
        for after_s, body in pieces:
            await asyncio.sleep(after_s)
            yield {"type": "http.request", "body": body, "more_body": body != b""}
        await asyncio.Event().wait()

    queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    feeding: list[asyncio.Task[None]] = []

    async def feed() -> None:
        async for each in bodies():
            queue.put_nowait(each)

    async def receive() -> dict[str, Any]:
        if not feeding:
            feeding.append(asyncio.create_task(feed()))
        return await queue.get()

    return receive


async def read(room: Room, receive: Receive) -> bytes:
    with room.entered() as take:
        return await Incoming(receive, "", None, PACE).read(take)


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        [(0.02, b"a")] * 10_000,
        [(0.0, b"a" * 100_000)],
        [(0.0, b"a" * 100_000), *[(0.02, b"a")] * 10_000],
    ],
)
async def test_one_that_comes_to_a_stop_is_cut_off(pieces: list[tuple[float, bytes]]) -> None:
    room = Room(1_000_000, 1_000, 0.1)
    async with asyncio.timeout(30):
        with pytest.raises(UploadTooSlow):
            await read(room, sending(*pieces))
    assert room.held_bytes == 0


async def test_one_that_keeps_its_pace_is_taken_however_long_it_takes() -> None:
    pieces = [*[(0.02, b"a" * 50)] * 20, (0.0, b"")]
    assert await read(Room(1_000_000, 1_000, 0.1), sending(*pieces)) == b"a" * 1_000


async def test_the_oldest_always_has_room_and_the_others_wait_for_it() -> None:
    room = Room(1_000, 10, 60)
    with ExitStack() as leaving:
        first = leaving.enter_context(room.entered())
        with room.entered() as second, room.entered() as small:
            await first(700)
            await second(200)
            waiting = asyncio.ensure_future(second(200))
            await small(10)
            await first(700)
            assert (waiting.done(), room.held_bytes) == (False, 1_610)
            leaving.close()
            await asyncio.wait_for(waiting, 30)
            assert room.held_bytes == 410


async def test_who_finds_no_room_is_told_to_come_back() -> None:
    room = Room(1_000, 10, 0.05)
    with room.entered() as first, room.entered() as second:
        await first(1_000)
        with pytest.raises(TooManyUploads):
            await second(11)
    assert room.held_bytes == 0
