"""Peers of the store: a raw write and sync, and the JSON rewrite that other systems do."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

sync = getattr(os, "fdatasync", os.fsync)
"""The call that SQLite makes: on Linux fdatasync, which is never slower than fsync."""


class RawLog:
    """A file with one sync per write. `rewind` makes the next writes overwrite old ones."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600)
        self._offset = 0

    def put(self, content: bytes) -> float:
        """Write and sync; return how many milliseconds that took."""
        start = time.perf_counter()
        os.pwrite(self._file, content, self._offset)
        sync(self._file)
        taken = time.perf_counter() - start
        self._offset += len(content)
        return taken * 1e3

    def rewind(self) -> None:
        self._offset = 0

    def extend(self, size_bytes: int) -> None:
        """Extend the file to its full size, for writes that only overwrite."""
        os.pwrite(self._file, b"\0" * size_bytes, 0)
        os.fsync(self._file)

    def close(self) -> None:
        os.close(self._file)


def paced_batches(log: RawLog, event: bytes, per_s: int, seconds: float) -> tuple[list[float], list[float]]:
    """Write and sync all due events together, again and again, by the clock.

    Return the milliseconds of each write+sync, and of each event from its due time to durable.
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
    """Save a session as other systems do: encode it all, write, sync, rename. Return the milliseconds.

    The encoder is msgspec's, several times faster than theirs: this peer is shown at its best.
    """
    start = time.perf_counter()
    beside = path.with_suffix(".tmp")
    with beside.open("wb") as file:
        file.write(msgspec.json.encode(messages))
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    return (time.perf_counter() - start) * 1e3
