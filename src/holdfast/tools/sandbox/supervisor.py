"""A program of its own: runs one command for the server and leaves nothing of it behind.

It knows nothing of Holdfast and uses the standard library alone, so that it starts in a few milliseconds.
Its standard input is a socket to the server, from which it reads its order: the length in four bytes, then
words with a zero byte between them. The command runs in a session of its own; when it ends, runs out
of time, or the socket is closed (the call was cancelled, or the server is dead), everything it started is
ended: asked with SIGTERM, then killed. A lock is held until nothing of it is left.

To the server go frames: one letter, the length of the body in four bytes, the body. `p` the command's process
id, `o` and `e` its output and error output, `n` how many bytes were left out before the `o` and `e` that
follow, `x` how it ended; always last.
"""

import fcntl
import os
import select
import signal
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

_CHUNK_BYTES = 65_536
_LOCK_WAIT_S = 1.0
_KILL_AGAIN_S, _KILL_AGAIN_S_MAX = 0.02, 0.5
_KILL_ROUNDS_MAX = 50
_POLL_S_MAX = 3_600
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_COMMAND = "_HOLDFAST_COMMAND"
_EVAL_COMMAND = f'eval "unset {_COMMAND}; ${_COMMAND}"'
"""What the shell is told on its command line, which everyone can see; its environment others cannot."""
_LINUX = sys.platform == "linux"

EnterSandbox = Callable[[str, int, str, str, list[str], list[str]], None]
"""Walls in who calls it: the way, the ruleset for ports, what is hidden, the workspace, where it lies, what
cannot be changed."""


class ParsedCommandSpec:
    """What to run and within which bounds, as the server has sent it."""

    def __init__(self, words: list[str]) -> None:
        self.lock, self.workspace, self.shell, self.command = words[:4]
        timeout_ms, grace_ms, self.head_bytes, self.tail_bytes = (int(word) for word in words[4:8])
        self.timeout_s, self.grace_s = timeout_ms / 1000 or float("inf"), grace_ms / 1000
        # Files that somebody at the other end talks with the command through; none is -1.
        self.input, self.output = int(words[8]), int(words[9])
        # With no way given there are no walls.
        self.mechanism, self.port_ruleset, self.identity, paths = (
            words[10],
            int(words[11]),
            words[12],
            words[13:],
        )
        end = paths.index("")
        self.hidden, self.read_only = paths[:end], paths[end + 1 :]


class ServerConnection:
    """The way back to the server. Never blocks; once nobody reads, what is sent is forgotten."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self.fd = fd
        self.closed = False
        self.pending = bytearray()
        self._broken = False

    def send(self, tag: bytes, body: bytes) -> None:
        self.pending += tag + len(body).to_bytes(4, "big") + body
        self.flush()

    def flush(self) -> None:
        try:
            while self.pending and not self._broken:
                del self.pending[: os.write(self.fd, self.pending[:_CHUNK_BYTES])]
        except BlockingIOError:
            return
        except OSError:
            self._broken = True
        if self._broken:
            self.pending.clear()

    def check_closed(self) -> None:
        """See whether the server has closed its end; it never says anything else."""
        try:
            self.closed = self.closed or not os.read(self.fd, 1)
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def drain(self) -> None:
        """Wait until everything is sent or the server is gone."""
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        while self.pending:
            poll.poll()
            self.flush()


class HeadTailBuffer:
    """Passes on the first bytes as they come, then keeps only the last ones, for the end."""

    def __init__(self, connection: ServerConnection, head_bytes: int, tail_bytes: int) -> None:
        self._connection = connection
        self._head_room = head_bytes
        self._tail_bytes = tail_bytes
        self._tail: deque[tuple[bytes, bytes]] = deque()
        self._tail_size_bytes = self._left_out = 0

    def write(self, tag: bytes, chunk: bytes) -> None:
        now, later = chunk[: self._head_room], chunk[self._head_room :]
        self._head_room -= len(now)
        if now:
            self._connection.send(tag, now)
        if later:
            self._tail.append((tag, later))
            self._tail_size_bytes += len(later)
        while self._tail_size_bytes > self._tail_bytes:
            first, bytes_ = self._tail.popleft()
            over = min(self._tail_size_bytes - self._tail_bytes, len(bytes_))
            self._tail_size_bytes -= over
            self._left_out += over
            if over < len(bytes_):
                self._tail.appendleft((first, bytes_[over:]))

    def finish(self) -> None:
        if self._left_out:
            self._connection.send(b"n", str(self._left_out).encode())
        for tag, chunk in self._tail:
            self._connection.send(tag, chunk)


class ProcessTree:
    """Every process that comes from this one, however deep and in whatever session.

    On Linux orphans come back to us, so that having no child is having no descendant. Elsewhere a process
    that left its group and lost its parent before it was first looked for cannot be found.
    """

    def __init__(self, leader: int, is_subreaper: bool) -> None:
        self._leader = leader
        self._is_subreaper = is_subreaper
        self._orphans: set[int] = set()
        self.leader_status: int | None = None

    def reap(self) -> bool:
        """Take leave of those who have died; whether nobody is left."""
        try:
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return False
                if pid == self._leader:
                    self.leader_status = status
        except ChildProcessError:
            pass
        return self._is_subreaper or not (_exists(-self._leader) or any(map(_exists, self._orphans)))

    def terminate(self) -> None:
        _signal(-self._leader, signal.SIGTERM)
        for pid in self._live_members():
            _signal(pid, signal.SIGTERM)
            _signal(pid, signal.SIGCONT)  # One that is stopped would never hear of it.

    def kill(self) -> bool:
        """Kill all that can be found; whether nobody is left."""
        _signal(-self._leader, signal.SIGKILL)
        for _ in range(_KILL_ROUNDS_MAX):
            members = self._live_members()
            for pid in members:
                _signal(pid, signal.SIGSTOP)  # First hold all of them: one that forks would stay ahead.
            for pid in members:
                _signal(pid, signal.SIGKILL)
            if self.reap():
                return True
            if not _LINUX:
                return False
        return False

    def _live_members(self) -> list[int]:
        found = _descendants(os.getpid())
        if self._is_subreaper:
            return found
        self._orphans = {pid for pid in self._orphans.union(found) if _exists(pid)}
        return list(self._orphans)


def _descendants(root: int) -> list[int]:
    found, waiting = [], [root]
    parents = None if os.path.exists(f"/proc/{root}/task/{root}/children") else _parents()  # noqa: PTH110
    while waiting:
        parent = waiting.pop()
        children = _children(parent) if parents is None else [p for p, q in parents.items() if q == parent]
        found += children
        waiting += children
    return found


def _children(pid: int) -> list[int]:
    children: list[int] = []
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:  # noqa: PTH123
                children += map(int, file.read().split())
    except OSError:
        pass  # It has died meanwhile; its children are ours now and will be found there.
    return children


def _parents() -> dict[int, int]:
    """Every process with its parent, for systems without a list of children."""
    with os.popen("/bin/ps -A -o pid= -o ppid=") as listing:
        rows = [line.split() for line in listing]
    return {int(row[0]): int(row[1]) for row in rows if len(row) == 2}


def _signal(pid: int, number: int) -> None:
    # It is gone; or another user's, as with sudo: then the lock stays held until it has ended by itself.
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _prctl(option: int, value: int) -> bool:
    if not _LINUX:
        return False
    import ctypes

    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


def _receive_words(fd: int) -> list[str]:
    """The words of the order; none if the server was gone before it had sent all of them."""
    size = int.from_bytes(_read_exactly(fd, 4), "big")
    body = _read_exactly(fd, size)
    return os.fsdecode(body).split("\0") if size and len(body) == size else []


def _read_exactly(fd: int, size: int) -> bytes:
    found = b""
    while len(found) < size and (chunk := os.read(fd, size - len(found))):
        found += chunk
    return found


def _acquire_lock(path: str) -> bool:
    """Take the call's lock for as long as this process lives."""
    deadline = time.monotonic() + _LOCK_WAIT_S  # Someone who only looks holds it for an instant.
    while time.monotonic() < deadline:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.fstat(fd), os.stat(path)):  # noqa: PTH116
                return True
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(fd)
        time.sleep(0.01)
    return False


def _exec_command(
    spec: ParsedCommandSpec, enter_sandbox: EnterSandbox, output: int, errors: int, supervisor: int
) -> None:
    """In the child: turn into the command. Returns only when that fails."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # Should the supervisor itself be killed.
    if os.getppid() != supervisor:
        return
    os.dup2(spec.input if spec.input >= 0 else os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(spec.output if spec.output >= 0 else output, 1)
    os.dup2(errors, 2)
    # All that can be set: a server started in the background was itself started with some of them ignored.
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    try:
        if spec.mechanism:
            enter_sandbox(
                spec.mechanism, spec.port_ruleset, spec.identity, spec.workspace, spec.hidden, spec.read_only
            )  # fmt: skip
        os.chdir(spec.workspace)
        os.execve(spec.shell, [spec.shell, "-c", _EVAL_COMMAND], {**os.environ, _COMMAND: spec.command})
    except (OSError, ValueError) as error:
        os.write(2, f"The command cannot be started: {error}\n".encode(errors="replace"))


class CommandSupervisor:
    """One command, from its start until nothing of it is left."""

    def __init__(
        self, spec: ParsedCommandSpec, connection: ServerConnection, enter_sandbox: EnterSandbox
    ) -> None:
        self._spec = spec
        self._enter_sandbox = enter_sandbox
        self._connection = connection
        self._output = HeadTailBuffer(connection, spec.head_bytes, spec.tail_bytes)
        is_subreaper = _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self._wakeup_fd, wake_end = os.pipe()
        os.set_blocking(wake_end, False)
        signal.set_wakeup_fd(wake_end, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda number, frame: None)
        leader, self._pipes = self._start()
        self._processes = ProcessTree(leader, is_subreaper)
        self._deadline = time.monotonic() + spec.timeout_s
        self._next_action_at = self._deadline
        self._kill_again_s = _KILL_AGAIN_S
        self._ending = ""
        connection.send(b"p", str(leader).encode())

    def _start(self) -> tuple[int, dict[int, bytes]]:
        (output, output_end), (errors, errors_end) = os.pipe(), os.pipe()
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                _exec_command(self._spec, self._enter_sandbox, output_end, errors_end, supervisor)
            finally:
                os._exit(127)
        for fd in (output_end, errors_end, self._spec.input, self._spec.output):
            if fd >= 0:
                os.close(fd)
        for fd in (output, errors):
            os.set_blocking(fd, False)
        return pid, {output: b"o", errors: b"e"}

    def run(self) -> str:
        """Until nothing of the command is left; how it ended."""
        while not self._processes.reap() and not self._advance_shutdown():
            self._poll_events()
        for fd in tuple(self._pipes):
            while self._read(fd):
                pass
        self._output.finish()
        if self._ending not in ("", "ended"):
            return self._ending
        assert self._processes.leader_status is not None, "nobody is left, and the command has not ended"
        code = os.waitstatus_to_exitcode(self._processes.leader_status)
        return f"exit {code}" if code >= 0 else f"signal {-code}"

    def _advance_shutdown(self) -> bool:
        """Begin to end it where there is a reason, kill where asking did not help; whether it is all over."""
        if not self._ending:
            if self._processes.leader_status is not None:
                self._ending = "ended"
            elif self._connection.closed:
                self._ending = "stopped"
            elif time.monotonic() >= self._deadline:
                self._ending = "timeout"
            else:
                return False
            self._processes.terminate()
            self._next_action_at = time.monotonic() + self._spec.grace_s
        elif time.monotonic() >= self._next_action_at:
            if self._processes.kill():
                return True
            self._next_action_at = time.monotonic() + self._kill_again_s
            self._kill_again_s = min(2 * self._kill_again_s, _KILL_AGAIN_S_MAX)
        return False

    def _poll_events(self) -> None:
        """Wait for output, a death, the server or the time to act, whichever comes first."""
        poll = select.poll()
        for fd in (self._wakeup_fd, *self._pipes):
            poll.register(fd, select.POLLIN)
        events = (0 if self._connection.closed else select.POLLIN) | (
            select.POLLOUT if self._connection.pending else 0
        )
        if events:
            poll.register(self._connection.fd, events)
        wait_s = min(max(0.0, self._next_action_at - time.monotonic()), _POLL_S_MAX)
        for fd, _ in poll.poll(wait_s * 1000 + 1):
            if fd == self._connection.fd:
                self._connection.check_closed()
                self._connection.flush()
            elif fd == self._wakeup_fd:
                os.read(fd, _CHUNK_BYTES)
            else:
                self._read(fd)

    def _read(self, fd: int) -> bool:
        try:
            chunk = os.read(fd, _CHUNK_BYTES)
        except BlockingIOError:
            return False
        if chunk:
            self._output.write(self._pipes[fd], chunk)
        else:
            del self._pipes[fd]
            os.close(fd)
        return bool(chunk)


def main(enter_sandbox: EnterSandbox) -> None:
    """Carry out the order that comes first. The exit code says nothing; the last frame does."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Only the server ends a call: by closing, or by dying.
    words = _receive_words(0)
    if not words:
        return
    spec, connection = ParsedCommandSpec(words), ServerConnection(0)
    for fd in (spec.port_ruleset, spec.input, spec.output):
        if fd >= 0:
            os.set_inheritable(fd, False)
    if not _acquire_lock(spec.lock):
        connection.send(b"x", b"busy")
        return
    # The lock comes first: whoever finds the server dead and the lock free may be sure that nothing starts.
    connection.check_closed()
    ending = "stopped" if connection.closed else CommandSupervisor(spec, connection, enter_sandbox).run()
    os.unlink(spec.lock)  # noqa: PTH108
    connection.send(b"x", ending.encode())
    connection.drain()
    os._exit(0)  # Nothing is left to tidy up, and the server waits.
