"""Reserve Ollama's fixed port for one test at a time, since tests run side by side."""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.free_ports import is_free

OLLAMA_PORT = 11434


@contextmanager
def ollama_port() -> Iterator[int | None]:
    """Yield the port while it is reserved and free; None if something other than a test uses it."""
    with (Path(tempfile.gettempdir()) / "holdfast-tests-ollama-port.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield OLLAMA_PORT if is_free(OLLAMA_PORT) else None
