"""A fair write lock over processes. File locks are fair where SQLite's busy wait is not.

There are two locks. A waiting writer holds `next`, so a writer that comes straight back queues behind it
instead of taking the lock again. The locks belong to open files, so a dead process holds none.
"""

import fcntl
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.domain.errors import StoreBusy
from holdfast.store.plain_files import try_lock

_RETRY_S = 0.0003
_CALLBACK_INTERVAL_S = 0.025


class WriteLock:
    """The right to write to a folder's store; one holder at a time over all processes."""

    def __init__(self, folder: Path, wait_s: float) -> None:
        self._path = folder / "write.lock"
        self._wait_s = wait_s
        self._next = _open(folder / "write.next.lock")
        self._current = _open(self._path)

    def acquire(self, while_waiting: Callable[[], None]) -> None:
        """Wait for the lock; call `while_waiting` now and then until it is held.

        Raises StoreBusy when another process keeps it for longer than `wait_s`.
        """
        self._acquire(self._next, while_waiting)
        try:
            self._acquire(self._current, while_waiting)
        finally:
            fcntl.flock(self._next, fcntl.LOCK_UN)

    def release(self) -> None:
        fcntl.flock(self._current, fcntl.LOCK_UN)

    @contextmanager
    def hold(self, while_waiting: Callable[[], None]) -> Iterator[None]:
        """Hold the lock inside the block; raises as `acquire` does."""
        self.acquire(while_waiting)
        try:
            yield
        finally:
            self.release()

    def close(self) -> None:
        os.close(self._next)
        os.close(self._current)

    def _acquire(self, lock: int, while_waiting: Callable[[], None]) -> None:
        if try_lock(lock):
            return
        start = called = time.monotonic()
        while not try_lock(lock):
            now = time.monotonic()
            if now - start > self._wait_s:
                raise StoreBusy(seconds=round(self._wait_s), path=self._path.parent)
            if now - called > _CALLBACK_INTERVAL_S:
                called = now
                while_waiting()
            time.sleep(_RETRY_S)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
