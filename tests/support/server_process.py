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
from tests.support.auth_tokens import write_token
from tests.support.free_ports import own_port

PROGRAM = repeating_store.__file__
"""`holdfast` over a store that runs every decision twice."""
START_S_MAX = 60.0
STOP_S_MAX = 60.0


class ServerProcess:
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
        started_at = time.monotonic()
        process = await self._spawn()
        assert process.stdout is not None
        async with asyncio.timeout(START_S_MAX):
            async for line in process.stdout:
                if line.startswith(b"http://"):
                    self.ready_at = time.monotonic()
                    self._start_s = self.ready_at - started_at
                    return
        raise AssertionError(f"the server ended by itself:\n{self.errors}")

    async def start_and_kill(self, share: float) -> None:
        """Start it, and kill it after a share of the time that it needed to start before."""
        await self._spawn()
        await asyncio.sleep(share * self._start_s)
        await self.kill()

    def change_settings(self, **settings: str) -> None:
        """Other settings, from the next start on."""
        self._environ |= _setting_environ(settings)

    async def start_and_wait_killed(self) -> None:
        """Start it, and wait until something inside it has killed it."""
        await self._spawn()
        await self.wait_killed()

    async def _spawn(self) -> Process:
        port = self.address.rpartition(":")[2]
        write_token(self.folder)
        with self._errors.open("ab") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-P", PROGRAM, "serve", "--port", port, "--data", str(self.folder),
                env=self._environ, stdin=DEVNULL, stdout=PIPE, stderr=errors,
            )  # fmt: skip
        return self._process

    def send_kill(self) -> None:
        """SIGKILL, at once; `bury` it then."""
        os.kill(self.pid, signal.SIGKILL)

    async def wait_killed(self) -> None:
        """Wait until the killed process is gone. Raises AssertionError when it had ended by itself."""
        code = await self._wait_exit()
        assert code == -signal.SIGKILL, f"the server ended by itself with {code}:\n{self.errors}"

    async def kill(self) -> None:
        self.send_kill()
        await self.wait_killed()

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    async def shut_down(self) -> None:
        """SIGTERM, and wait. Raises AssertionError unless it ended well."""
        self.terminate()
        code = await self._wait_exit()
        assert code == 0, f"the server ended with {code}:\n{self.errors}"

    async def suspend(self) -> None:
        """SIGSTOP between two commits: whoever is stopped inside one stalls every other writer with it."""
        for _ in range(200):
            os.kill(self.pid, signal.SIGSTOP)
            await asyncio.sleep(0.02)
            if _is_free(self.folder / "write.lock") and _is_free(self.folder / "write.next.lock"):
                return
            os.kill(self.pid, signal.SIGCONT)
            await asyncio.sleep(0.003)
        raise AssertionError("it is always inside a commit")

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    async def _wait_exit(self) -> int:
        assert self._process is not None
        async with asyncio.timeout(STOP_S_MAX):
            # Not `wait` alone: what is left in the pipe keeps its transport open.
            await self._process.communicate()
        assert self._process.returncode is not None
        return self._process.returncode

    async def clean_up(self) -> None:
        """Leave nobody behind, however the test went."""
        if self._process is not None and self._process.returncode is None:
            for number in (signal.SIGCONT, signal.SIGKILL):
                os.kill(self.pid, number)
            await self._wait_exit()


@asynccontextmanager
async def server_process(
    folder: Path, model_url: str, environ: Mapping[str, str] | None = None, **settings: str
) -> AsyncIterator[ServerProcess]:
    """A server over `folder` that has been started; `environ` is what it finds there besides its settings."""
    server = ServerProcess(folder, model_url, environ, **settings)
    try:
        await server.start()
        yield server
    finally:
        await server.clean_up()


async def run_doctor(folder: Path) -> dict[str, Any]:
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
def commit_gate(folder: Path) -> Iterator["CommitGate"]:
    """Closed to begin with, and open when it is left."""
    with (folder / "write.next.lock").open("rb") as waiting, (folder / "write.lock").open("rb") as writing:
        gate = CommitGate(waiting.fileno(), writing.fileno())
        gate.close()
        yield gate


ATTEMPTS_MAX = 10
"""How often a moment between two commits is looked for."""
MISSED_COMMIT = "a second one had passed each time before the turnstile was closed"


class CommitGate:
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

    def has_waiter(self) -> bool:
        try:
            fcntl.flock(self._waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._waiting, fcntl.LOCK_UN)
        return False

    def allow_one_commit(self) -> None:
        """One commit of one writer, which must be waiting."""
        fcntl.flock(self._writing, fcntl.LOCK_UN)
        fcntl.flock(self._waiting, fcntl.LOCK_EX)
        fcntl.flock(self._writing, fcntl.LOCK_EX)
        fcntl.flock(self._waiting, fcntl.LOCK_UN)

    async def allow_commits_until(self, condition: Callable[[], bool]) -> None:
        """Commit by commit, until what was committed has been seen."""
        async with asyncio.timeout(STOP_S_MAX):
            while not condition():
                if self.has_waiter():
                    self.allow_one_commit()
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
    return kept | own | url | _setting_environ(settings)


def _setting_environ(settings: dict[str, str]) -> dict[str, str]:
    return {f"HOLDFAST_{name.upper()}": text for name, text in settings.items()}
