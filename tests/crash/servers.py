"""`holdfast serve` as a test sees it: a real process, started, killed, stopped, continued, started again."""

import asyncio
import fcntl
import json
import os
import signal
import socket
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

START_S_MAX = 60.0
STOP_S_MAX = 60.0


class Server:
    """One server on a port of its own, which stays the same whatever happens to the process."""

    def __init__(self, folder: Path, model_url: str, **settings: str) -> None:
        self.folder = folder
        self.address = f"http://127.0.0.1:{_free_port()}"
        self.ready_at = 0.0
        self._environ = _environ(model_url, settings)
        self._process: Process | None = None
        self._errors = folder.with_name(f"{folder.name}.{self.address.rpartition(':')[2]}.stderr")

    @property
    def pid(self) -> int:
        assert self._process is not None, "it was never started"
        return self._process.pid

    @property
    def errors(self) -> str:
        return self._errors.read_text() if self._errors.exists() else ""

    async def start(self) -> None:
        """Returns once it answers."""
        port = self.address.rpartition(":")[2]
        with self._errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", "-m", "holdfast", "serve", "--port", port, "--data", str(self.folder),
                env=self._environ, stdin=DEVNULL, stdout=PIPE, stderr=errors,
            )  # fmt: skip
        assert self._process.stdout is not None
        async with asyncio.timeout(START_S_MAX):
            async for line in self._process.stdout:
                if line.startswith(b"http://"):
                    self.ready_at = time.monotonic()
                    return
        raise AssertionError(f"the server ended by itself:\n{self.errors}")

    def strike(self) -> None:
        """SIGKILL, at once; `bury` it then."""
        os.kill(self.pid, signal.SIGKILL)

    async def bury(self) -> None:
        """Wait until the killed process is gone. Raises AssertionError when it had ended by itself."""
        code = await self._ended()
        assert code == -signal.SIGKILL, f"the server ended by itself with {code}:\n{self.errors}"

    async def kill(self) -> None:
        self.strike()
        await self.bury()

    def ask_to_end(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    async def end(self) -> None:
        """SIGTERM, and wait. Raises AssertionError unless it ended well."""
        self.ask_to_end()
        code = await self._ended()
        assert code == 0, f"the server ended with {code}:\n{self.errors}"

    async def stop(self) -> None:
        """SIGSTOP between two commits: whoever is stopped inside one stalls every other writer with it."""
        for _ in range(200):
            os.kill(self.pid, signal.SIGSTOP)
            await asyncio.sleep(0.02)
            if _is_free(self.folder / "write.lock") and _is_free(self.folder / "write.next.lock"):
                return
            os.kill(self.pid, signal.SIGCONT)
            await asyncio.sleep(0.003)
        raise AssertionError("it is always inside a commit")

    def go_on(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def _ended(self) -> int:
        assert self._process is not None
        async with asyncio.timeout(STOP_S_MAX):
            # Not `wait` alone: what is left in the pipe keeps its transport open.
            await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode

    async def leave(self) -> None:
        """Leave nobody behind, however the test went."""
        if self._process is not None and self._process.returncode is None:
            for number in (signal.SIGCONT, signal.SIGKILL):
                os.kill(self.pid, number)
            await self._ended()


@asynccontextmanager
async def serving(folder: Path, model_url: str, **settings: str) -> AsyncIterator[Server]:
    """A server over `folder` that has been started."""
    server = Server(folder, model_url, **settings)
    try:
        await server.start()
        yield server
    finally:
        await server.leave()


async def doctor(folder: Path) -> dict[str, Any]:
    """What `holdfast doctor` says of a folder."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-P", "-m", "holdfast", "doctor", "--json", "--data", str(folder),
        env=_environ("", {}), stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    out, errors = await process.communicate()
    assert out, errors.decode()
    report: dict[str, Any] = json.loads(out)
    return report


@contextmanager
def write_turn(folder: Path) -> Iterator["Turnstile"]:
    """Hold the right to write, as another process of the same store may."""
    with (folder / "write.lock").open("rb") as file:
        turnstile = Turnstile(file.fileno())
        turnstile.close()
        yield turnstile


class Turnstile:
    """Lets writers pass one by one. While it is closed, nothing is committed by anybody."""

    def __init__(self, lock: int) -> None:
        self._lock = lock

    def close(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_EX)

    def open(self) -> None:
        fcntl.flock(self._lock, fcntl.LOCK_UN)


def _is_free(path: Path) -> bool:
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _environ(model_url: str, settings: dict[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("HOLDFAST_", "OPENAI_"))}
    own = {"HOLDFAST_MODEL": "openai:small", "HOLDFAST_APPROVALS": "allow", "COLUMNS": "100"}
    url = {"OPENAI_BASE_URL": model_url} if model_url else {}
    return kept | own | url | {f"HOLDFAST_{name.upper()}": text for name, text in settings.items()}
