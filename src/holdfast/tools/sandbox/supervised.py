"""Start a command under its supervisor, read its output and stop it."""

import asyncio
import fcntl
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from holdfast.domain.limits import SHELL_GRACE_MS, SHELL_HEAD_BYTES_MAX, SHELL_TAIL_BYTES_MAX
from holdfast.tools.sandbox.sandbox import Sandbox

# Imported rather than run as a file, so that Python caches the bytecode between calls.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); import linux_sandbox, supervisor;"
    "supervisor.main(linux_sandbox.enter_sandbox)"
)
_FOLDER = Path(__file__).parent
_CHUNK_BYTES = 65_536
_HEADER_BYTES = 5
_POLL_S = 0.002
_SEND_TIMEOUT_S = 5
"""Seconds that a supervisor has to start and read its request, if the socket cannot buffer all of it."""


class CommandSpec(NamedTuple):
    """A command to run, with its workspace, environment, time limit, sandbox and lock.

    With a time limit of 0 it runs until it is stopped. `stdio_fds` are two open files for its standard input
    and output; then only its error output comes as frames.
    """

    command: str
    shell: str
    workspace: Path
    lock: Path
    timeout_s: int
    environ: Mapping[str, str]
    sandbox: Sandbox
    stdio_fds: tuple[int, int] | None = None

    def encode(self) -> bytes:
        """Encode the request for the supervisor's socket, since everyone can see a command line."""
        words = [
            str(self.lock), str(self.workspace), self.shell, self.command,
            str(self.timeout_s * 1000), str(SHELL_GRACE_MS),
            str(SHELL_HEAD_BYTES_MAX), str(SHELL_TAIL_BYTES_MAX),
            *map(str, self.stdio_fds or (-1, -1)), *self.sandbox.to_args(),
        ]  # fmt: skip
        assert not any("\0" in word for word in words), "no path and no command holds what parts them"
        body = b"\0".join(map(os.fsencode, words))
        return len(body).to_bytes(4, "big") + body

    def inherited_fds(self) -> tuple[int, ...]:
        """Return the open files that the supervisor must inherit."""
        return (*self.sandbox.inherited_fds(), *(self.stdio_fds or ()))


def is_finished(lock: Path) -> bool:
    """Return whether no process of the command with this lock is left: the lock is free or does not exist."""
    try:
        file = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(file)
    return True


class SupervisedProcess:
    """One command and all that it starts. The caller must await `stop` once `start` has returned."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self._process = process
        self._connection = connection
        self._leader: int | None = None
        self._has_ended = False
        self._buffer = bytearray()
        """The received part of an incomplete frame."""

    @property
    def has_started(self) -> bool:
        """True once the supervisor has reported that it started the command."""
        return self._leader is not None

    @classmethod
    def start(cls, spec: CommandSpec) -> "SupervisedProcess":
        """Start the command. Raises OSError; then nothing runs."""
        request = spec.encode()
        ours, theirs = socket.socketpair()
        try:
            process = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_FOLDER)],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=dict(spec.environ),
                pass_fds=spec.inherited_fds(),
                start_new_session=True,  # A signal to the server's group must not stop the supervisor.
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        try:
            ours.settimeout(_SEND_TIMEOUT_S)
            ours.sendall(request)
            ours.setblocking(False)
        except BaseException:
            ours.close()  # The supervisor ignores an incomplete request.
            process.kill()
            process.wait()
            raise
        return cls(process, ours)

    async def frames(self) -> AsyncIterator[tuple[str, bytes]]:
        """Yield the frames that `supervisor.py` describes until the supervisor exits.

        The last is `x`; without it, the supervisor was killed and nobody knows how the command ended.
        """
        loop, buffer = asyncio.get_running_loop(), self._buffer
        while chunk := await self._receive(loop):
            buffer += chunk
            while len(buffer) >= _HEADER_BYTES:
                end = _HEADER_BYTES + int.from_bytes(buffer[1:_HEADER_BYTES], "big")
                if len(buffer) < end:
                    break
                tag, body = chr(buffer[0]), bytes(buffer[_HEADER_BYTES:end])
                del buffer[:end]
                if tag == "p":
                    self._leader = int(body)
                    continue
                self._has_ended = tag == "x"
                yield tag, body

    async def _receive(self, loop: asyncio.AbstractEventLoop) -> bytes:
        try:
            return await loop.sock_recv(self._connection, _CHUNK_BYTES)
        except ConnectionResetError:
            return b""

    async def stop(self, timeout_s: float) -> bool:
        """Stop all that is left, wait at most `timeout_s`, and return whether everything has ended."""
        try:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(timeout_s):
                async for _ in self.frames():
                    pass
                # Polled, because a waiting thread could not be cancelled at the timeout.
                while True:
                    if self._process.poll() is not None:
                        return True
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            if self._process.poll() is not None:
                return True  # It ended while this process was suspended.
            # Reaped in the background, because no caller waits for it any more.
            threading.Thread(target=self._process.wait, daemon=True).start()
            return False
        finally:
            self._connection.close()
            if self._process.returncode is not None and not self._has_ended and self._leader is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._leader, signal.SIGKILL)  # Somebody killed the supervisor.
