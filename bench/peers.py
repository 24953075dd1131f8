"""What the store is measured against: a raw write and sync, and the JSON rewrite that others do."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

sync = getattr(os, "fdatasync", os.fsync)
"""The call that SQLite makes: on Linux fdatasync, never dearer than fsync. So the peer is not made slow."""


class RawLog:
    """A file that bytes are written to, one sync each. `rewind` makes the next writes overwrite old ones."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._offset = 0

    def put(self, content: bytes) -> float:
        """Write and sync; returns the milliseconds it took."""
        start = time.perf_counter()
        os.pwrite(self._file, content, self._offset)
        sync(self._file)
        taken = time.perf_counter() - start
        self._offset += len(content)
        return taken * 1e3

    def rewind(self) -> None:
        self._offset = 0

    def extend(self, size_bytes: int) -> None:
        """Make the file as long as it will get, for writes that only overwrite."""
        os.pwrite(self._file, b"\0" * size_bytes, 0)
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def paced_batches(log: RawLog, event: bytes, per_s: int, seconds: float) -> tuple[list[float], list[float]]:
    """Events that fall due by the clock, all that are due written and synced together, again and again.

    Returns the milliseconds of each write+sync, and of each event from falling due to durable.
    """
    syncs: list[float] = []
    waits: list[float] = []
    start = time.perf_counter()
    done, total = 0, int(per_s * seconds)
    while done < total:
        due = min(total, int((time.perf_counter() - start) * per_s))
        if due <= done:
            time.sleep(max(0.0, start + (done + 1) / per_s - time.perf_counter()))
            continue
        syncs.append(log.put(event * (due - done)))
        now = time.perf_counter()
        waits += ((now - start - k / per_s) * 1e3 for k in range(done + 1, due + 1))
        done = due
    return syncs, waits


def rewrite_json(path: Path, messages: Sequence[dict[str, str]]) -> float:
    """Save a session the way others do: encode all of it, write beside, sync, rename. Returns milliseconds.

    The encoder is msgspec's, several times faster than what they use: this peer is shown at its best.
    """
    start = time.perf_counter()
    beside = path.with_suffix(".tmp")
    with beside.open("wb") as file:
        file.write(msgspec.json.encode(messages))
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    return (time.perf_counter() - start) * 1e3
