"""`holdfast serve` as a real process: started, killed, suspended, continued, restarted."""

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
    """A server on a port of its own, which stays the same over restarts."""

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
        """Start the server, and return once it answers."""
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
        """Start the server, and kill it after a share of the duration of its last start."""
        await self._spawn()
        await asyncio.sleep(share * self._start_s)
        await self.kill()

    def change_settings(self, **settings: str) -> None:
        """Change settings from the next start on."""
        self._environ |= _setting_environ(settings)

    async def start_and_wait_killed(self) -> None:
        """Start the server, and wait until something inside it has killed it."""
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
        """Send SIGKILL at once; call `wait_killed` afterwards."""
        os.kill(self.pid, signal.SIGKILL)

    async def wait_killed(self) -> None:
        """Wait until the killed process is gone. Raise AssertionError when it had ended by itself."""
        code = await self._wait_exit()
        assert code == -signal.SIGKILL, f"the server ended by itself with {code}:\n{self.errors}"

    async def kill(self) -> None:
        self.send_kill()
        await self.wait_killed()

    def terminate(self) -> None:
        os.kill(self.pid, signal.SIGTERM)

    async def shut_down(self) -> None:
        """Send SIGTERM, and wait. Raise AssertionError unless the exit was clean."""
        self.terminate()
        code = await self._wait_exit()
        assert code == 0, f"the server ended with {code}:\n{self.errors}"

    async def suspend(self) -> None:
        """Send SIGSTOP between two commits: a process that stops inside one blocks every other writer."""
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
        """Leave no process behind, however the test ended."""
        if self._process is not None and self._process.returncode is None:
            for number in (signal.SIGCONT, signal.SIGKILL):
                os.kill(self.pid, number)
            await self._wait_exit()


@asynccontextmanager
async def server_process(
    folder: Path, model_url: str, environ: Mapping[str, str] | None = None, **settings: str
) -> AsyncIterator[ServerProcess]:
    """Start a server over `folder`; `environ` is its environment besides its settings."""
    server = ServerProcess(folder, model_url, environ, **settings)
    try:
        await server.start()
        yield server
    finally:
        await server.clean_up()


async def run_doctor(folder: Path) -> dict[str, Any]:
    """Run `holdfast doctor` on a folder, and return its report."""
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
    """Hold a commit gate, closed at first, and open it at the end."""
    with (folder / "write.next.lock").open("rb") as waiting, (folder / "write.lock").open("rb") as writing:
        gate = CommitGate(waiting.fileno(), writing.fileno())
        gate.close()
        yield gate


ATTEMPTS_MAX = 10
"""How often to look for a moment between two commits."""
MISSED_COMMIT = "a second one had passed each time before the turnstile was closed"


class CommitGate:
    """Hold the write lock of a store, as another process may, and let its writers pass one by one.

    A writer that waits holds `waiting` until it holds `writing`. On a busy machine a second one may pass
    before this process wakes: a test that needs the moment between the two checks for that, and retries.
    """

    def __init__(self, waiting: int, writing: int) -> None:
        self._waiting = waiting
        self._writing = writing

    def close(self) -> None:
        """Close the gate: no process commits from here on."""
        fcntl.flock(self._writing, fcntl.LOCK_EX)

    def has_waiter(self) -> bool:
        try:
            fcntl.flock(self._waiting, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._waiting, fcntl.LOCK_UN)
        return False

    def allow_one_commit(self) -> None:
        """Let one waiting writer make one commit."""
        fcntl.flock(self._writing, fcntl.LOCK_UN)
        fcntl.flock(self._waiting, fcntl.LOCK_EX)
        fcntl.flock(self._writing, fcntl.LOCK_EX)
        fcntl.flock(self._waiting, fcntl.LOCK_UN)

    async def allow_commits_until(self, condition: Callable[[], bool]) -> None:
        """Let commits pass one by one, until `condition` holds."""
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
