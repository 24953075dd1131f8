"""Wait for work that must not be left half done."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def run_to_completion(work: Awaitable[T]) -> T:
    """Wait for `work` to its end; a cancellation that comes meanwhile is raised only then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as asked:
            cancelled = asked
    if cancelled is not None:
        if not task.cancelled():
            task.exception()  # Seen: the cancellation tells more than how the work went.
        raise cancelled
    return task.result()
