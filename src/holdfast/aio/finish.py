"""Wait for work that must not stop half done."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def run_to_completion(work: Awaitable[T]) -> T:
    """Wait for `work` to its end; raise a cancellation that comes meanwhile only then."""
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        if not task.cancelled():
            # Retrieve the exception, or asyncio would log it: the cancellation matters more.
            task.exception()
        raise cancelled
    return task.result()
