"""Opening things in a thread, so that nothing is left open by whoever stops waiting."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def opened(opens: Callable[[], T], closes: Callable[[T], None]) -> T:
    """What `opens` gives, in a thread; whoever stops waiting for it leaves nothing open."""
    opening = asyncio.ensure_future(asyncio.to_thread(opens))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        if opening.exception() is None:
            closes(opening.result())
        raise
