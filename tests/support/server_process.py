"""`holdfast serve` as a test sees it: a real process, started, killed, stopped, continued, started again."""

import asyncio
import fcntl
import json
import os
import signal
import sys
import time
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.support import repeating_store
from tests.support.auth_tokens import leave_token
from tests.support.free_ports import own_port

PROGRAM = repeating_store.__file__
"""`holdfast` over a store that runs every decision twice."""
START_S_MAX = 60.0
STOP_S_MAX = 60.0


class Server:
    """One server on a port of its own, which stays the same whatever happens to the process."""

    def __init__(
        self, folder: Path, model_url: str, environ: Mapping[str, str] | None = None, **settings: str
    ) -> None:
        self.folder = folder
        self.address = f"http://127.0.0.1:{own_port()}"
        self.ready_at = 0.0
        self._start_s = 0.0
        self._environ = _environ(model_url, settings) | dict(environ or {})
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
        began = time.monotonic()
        process = await self._spawn()
        assert process.stdout is not None
        async with asyncio.timeout(START_S_MAX):
            async for line in process.stdout:
                if line.startswith(b"http://"):
                    self.ready_at = time.monotonic()
                    self._start_s = self.ready_at - began
                    return
        raise AssertionError(f"the server ended by itself:\n{self.errors}")

    async def start_and_kill(self, share: float) -> None:
        """Start it, and kill it after a share of the time that it needed to start before."""
        await self._spawn()
        await asyncio.sleep(share * self._start_s)
        await self.kill()

    def change(self, **settings: str) -> None:
        """Other settings, from the next start on."""
        self._environ |= _spelt(settings)

    async def start_to_fall(self) -> None:
        """Start it, and wait until something inside it has killed it."""
        await self._spawn()
        await self.bury()

    async def _spawn(self) -> Process:
        port = self.address.rpartition(":")[2]
        leave_token(self.folder)
        with self._errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", PROGRAM, "serve", "--port", port, "--data", str(self.folder),
                env=self._environ, stdin=DEVNULL, stdout=PIPE, stderr=errors,
            )  # fmt: skip
        return self._process

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
async def serving(
    folder: Path, model_url: str, environ: Mapping[str, str] | None = None, **settings: str
) -> AsyncIterator[Server]:
    """A server over `folder` that has been started; `environ` is what it finds there besides its settings."""
    server = Server(folder, model_url, environ, **settings)
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
def turnstile(folder: Path) -> Iterator["Turnstile"]:
    """Closed to begin with, and open when it is left."""
    with (folder / "write.next.lock").open("rb") as waiting, (folder / "write.lock").open("rb") as writing:
        found = Turnstile(waiting.fileno(), writing.fileno())
        found.close()
        yield found


TRIES_MAX = 10
"""How often a moment between two commits is looked for."""
MISSED = "a second one had passed each time before the turnstile was closed"


class Turnstile:
    """Takes its turn among a store's writers, as any process may, and so lets them pass one by one.

    Whoever waits to write holds `waiting` until it holds `writing`. On a busy machine a second one may pass
    before this process is woken: whoever needs the moment between the two looks whether that was so, and
    tries again.
    """

    def __init__(self, waiting: int, writing: int) -> None:
        self._waiting = waiting
        self._writing = writing

    def close(self) -> None:
        """From here on nothing is committed by anybody."""
        fcntl.flock(self._writing, fcntl.LOCK_EX)

    def is_awaited(self) -> bool:
        try:
            fcntl.flock(self._waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._waiting, fcntl.LOCK_UN)
        return False

    def let_one_pass(self) -> None:
        """One commit of one writer, which must be waiting."""
        fcntl.flock(self._writing, fcntl.LOCK_UN)
        fcntl.flock(self._waiting, fcntl.LOCK_EX)
        fcntl.flock(self._writing, fcntl.LOCK_EX)
        fcntl.flock(self._waiting, fcntl.LOCK_UN)

    async def let_pass_until(self, is_so: Callable[[], bool]) -> None:
        """Commit by commit, until what was committed has been seen."""
        async with asyncio.timeout(STOP_S_MAX):
            while not is_so():
                if self.is_awaited():
                    self.let_one_pass()
                await asyncio.sleep(0.01)


def _is_free(path: Path) -> bool:
    with path.open("rb") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def _environ(model_url: str, settings: dict[str, str]) -> dict[str, str]:
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("HOLDFAST_", "OPENAI_"))}
    own = {"HOLDFAST_MODEL": "openai:small", "HOLDFAST_APPROVALS": "allow", "COLUMNS": "100"}
    url = {"OPENAI_BASE_URL": model_url} if model_url else {}
    return kept | own | url | _spelt(settings)


def _spelt(settings: dict[str, str]) -> dict[str, str]:
    return {f"HOLDFAST_{name.upper()}": text for name, text in settings.items()}
