"""Files as they come in: whoever comes to a stop is cut off, and what is held at once has a bound."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

import pytest

from holdfast.http.asgi import Receive
from holdfast.http.uploads import IncomingUpload, MinUploadRate, TooManyUploads, UploadBudget, UploadTooSlow

MIN_RATE = MinUploadRate(0.1, 100)


def timed_body(*pieces: tuple[float, bytes]) -> Receive:
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


async def read(room: UploadBudget, receive: Receive) -> bytes:
    with room.reservation() as take:
        return await IncomingUpload(receive, "", None, MIN_RATE).read(take)


@pytest.mark.parametrize(
    "pieces",
    [
        (),
        [(0.02, b"a")] * 10_000,
        [(0.0, b"a" * 100_000)],
        [(0.0, b"a" * 100_000), *[(0.02, b"a")] * 10_000],
    ],
)
async def test_a_stalled_upload_is_refused(pieces: list[tuple[float, bytes]]) -> None:
    room = UploadBudget(1_000_000, 1_000, 0.1)
    async with asyncio.timeout(30):
        with pytest.raises(UploadTooSlow):
            await read(room, timed_body(*pieces))
    assert room.reserved_bytes == 0


async def test_an_upload_at_the_minimum_rate_is_accepted_however_long_it_takes() -> None:
    pieces = [*[(0.02, b"a" * 50)] * 20, (0.0, b"")]
    assert await read(UploadBudget(1_000_000, 1_000, 0.1), timed_body(*pieces)) == b"a" * 1_000


async def test_the_oldest_upload_never_waits_and_others_wait_for_it() -> None:
    room = UploadBudget(1_000, 10, 60)
    with ExitStack() as leaving:
        first = leaving.enter_context(room.reservation())
        with room.reservation() as second, room.reservation() as small:
            await first(700)
            await second(200)
            waiting = asyncio.ensure_future(second(200))
            await small(10)
            await first(700)
            assert (waiting.done(), room.reserved_bytes) == (False, 1_610)
            leaving.close()
            await asyncio.wait_for(waiting, 30)
            assert room.reserved_bytes == 410


async def test_an_upload_beyond_the_budget_is_refused() -> None:
    room = UploadBudget(1_000, 10, 0.05)
    with room.reservation() as first, room.reservation() as second:
        await first(1_000)
        with pytest.raises(TooManyUploads):
            await second(11)
    assert room.reserved_bytes == 0
