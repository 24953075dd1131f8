"""Ollama's own port, for one test at a time: tests run side by side, and it is the same for all of them."""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.free_ports import is_free

OLLAMA_PORT = 11434


@contextmanager
def ollama_port() -> Iterator[int | None]:
    """The port, free for as long as this is held; None if something else than a test has it."""
    with (Path(tempfile.gettempdir()) / "holdfast-tests-ollama-port.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield OLLAMA_PORT if is_free(OLLAMA_PORT) else None
