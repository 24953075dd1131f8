"""A command under its supervisor, as the server sees it: started, listened to, stopped."""

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

# Imported by a line of code and not run as a file: so its compiled form is kept between calls.
_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); import linux_sandbox, supervisor;"
    "supervisor.main(linux_sandbox.enter_sandbox)"
)
_FOLDER = Path(__file__).parent
_CHUNK_BYTES = 65_536
_HEADER_BYTES = 5
_POLL_S = 0.002
_SEND_TIMEOUT_S = 5
"""How long a supervisor may take to come up and take its order, where the socket cannot hold all of it."""


class CommandSpec(NamedTuple):
    """What to run: where, with what, for how long, behind which walls; and the lock held meanwhile.

    Without a time limit, 0, it runs until it is stopped. `talk` are two open files to be its standard input
    and output, where somebody talks with it: then only what it says on the side comes as frames.
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
        """As the supervisor reads it. Everyone can see a command line, so it does not stand there."""
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
        """What the supervisor must inherit."""
        return (*self.sandbox.inherited_fds(), *(self.stdio_fds or ()))


def is_finished(lock: Path) -> bool:
    """Whether nothing of what was ordered with this lock is left on this machine: it is free or not there."""
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
    """One command and all it starts. `end` must be awaited once `start` has returned."""

    def __init__(self, process: subprocess.Popen[bytes], connection: socket.socket) -> None:
        self._process = process
        self._connection = connection
        self._leader: int | None = None
        self._has_ended = False
        self._buffer = bytearray()
        """What has come of a frame that is not whole yet."""

    @property
    def has_started(self) -> bool:
        """Whether the command was started, as far as was heard."""
        return self._leader is not None

    @classmethod
    def start(cls, spec: CommandSpec) -> "SupervisedProcess":
        """Start it. Raises OSError; then nothing runs."""
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
                start_new_session=True,  # What stops the server's group must not stop the one who cleans up.
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
            ours.close()  # It begins with a whole order or not at all.
            process.kill()
            process.wait()
            raise
        return cls(process, ours)

    async def frames(self) -> AsyncIterator[tuple[str, bytes]]:
        """What the supervisor says, as `supervisor.py` explains; ends when it has gone.

        The last is `x`; without one, the supervisor was killed and what became of the command is not known.
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
        """Stop whatever is left and wait until it is gone, at most `timeout_s`; whether it is."""
        try:
            with suppress(OSError):
                self._connection.shutdown(socket.SHUT_WR)
            async with asyncio.timeout(timeout_s):
                async for _ in self.frames():
                    pass
                # A thread that waits could not be taken back when patience ends.
                while True:
                    if self._process.poll() is not None:
                        return True
                    await asyncio.sleep(_POLL_S)
        except TimeoutError:
            if self._process.poll() is not None:
                return True  # It ended while this process stood still.
            # Reap it in the background: no caller waits for it any more.
            threading.Thread(target=self._process.wait, daemon=True).start()
            return False
        finally:
            self._connection.close()
            if self._process.returncode is not None and not self._has_ended and self._leader is not None:
                with suppress(ProcessLookupError, PermissionError):
                    os.killpg(self._leader, signal.SIGKILL)  # Someone killed its keeper.
