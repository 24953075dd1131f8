"""A semaphore that can be resized while in use."""

import asyncio
from collections import deque
from contextlib import suppress


class ResizableSemaphore:
    """A first-come, first-served semaphore. Belongs to one event loop."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._held = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_full(self) -> bool:
        """Return whether the next `acquire` has to wait."""
        return self._held >= self._size or any(not each.cancelled() for each in self._waiting)

    async def acquire(self) -> None:
        if not self.is_full:
            self._held += 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                # `release` had admitted this waiter just before the cancellation.
                self.release()
            with suppress(ValueError):
                self._waiting.remove(waiter)
            raise

    def release(self) -> None:
        self._held -= 1
        self._admit()

    def resize(self, size: int) -> None:
        """Change the size. Current holders keep their slots; a smaller size takes effect as they release."""
        self._size = size
        self._admit()

    def _admit(self) -> None:
        while self._waiting and self._held < self._size:
            waiter = self._waiting.popleft()
            if not waiter.cancelled():
                self._held += 1
                waiter.set_result(None)
