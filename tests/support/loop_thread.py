"""Run async context managers on a thread with its own event loop, for tests that block."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

WAIT_S = 60.0
T = TypeVar("T")


@contextmanager
def run_in_thread(context: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Yield the value of `opened`, which stays open in its thread."""
    results: list[T] = []
    ready, over, loop = threading.Event(), asyncio.Event(), asyncio.new_event_loop()

    async def serve() -> None:
        async with context as part:
            results.append(part)
            ready.set()
            await over.wait()

    thread = threading.Thread(target=lambda: (loop.run_until_complete(serve()), loop.close()), daemon=True)
    thread.start()
    assert ready.wait(WAIT_S), "it did not open in time"
    try:
        yield results[0]
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(WAIT_S)
