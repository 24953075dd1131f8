"""A standalone program: run one command for the server and stop every process that it started.

It imports nothing from Holdfast and uses only the standard library, so it starts in a few milliseconds. Its
standard input is a socket to the server, from which it reads a request: the length in four bytes, then words
separated by zero bytes. The command runs in its own session. When it ends, when it runs out of time, or when
the socket closes (the call was cancelled, or the server is dead), the supervisor ends every process that the
command started, first with SIGTERM, then with SIGKILL. It holds a lock until none of them is left.

It sends frames to the server: one letter, the length of the body in four bytes, the body. `p` is the
command's process id, `o` and `e` are its output and error output, `n` is the number of bytes left out before
the `o` and `e` that follow, and `x` says how it ended; `x` is always last.
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
"""The shell's command line, which everyone can see; only its user can see its environment."""
_LINUX = sys.platform == "linux"

EnterSandbox = Callable[[str, int, str, str, list[str], list[str]], None]
"""Sandbox the calling process: mechanism, port ruleset, identity, workspace, hidden and read-only paths."""


class ParsedCommandSpec:
    """The command, its limits and its sandbox, from the server's request."""

    def __init__(self, words: list[str]) -> None:
        self.lock, self.workspace, self.shell, self.command = words[:4]
        timeout_ms, grace_ms, self.head_bytes, self.tail_bytes = (int(word) for word in words[4:8])
        self.timeout_s, self.grace_s = timeout_ms / 1000 or float("inf"), grace_ms / 1000
        # Open files for the command's standard input and output; -1 without them.
        self.input, self.output = int(words[8]), int(words[9])
        # An empty mechanism means no sandbox.
        self.mechanism, self.port_ruleset, self.identity, paths = (
            words[10],
            int(words[11]),
            words[12],
            words[13:],
        )
        end = paths.index("")
        self.hidden, self.read_only = paths[:end], paths[end + 1 :]


class ServerConnection:
    """The socket to the server. Sending never blocks, and once nobody reads, it discards frames."""

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
        """Set `closed` if the server has closed its end; after the request it sends nothing."""
        try:
            self.closed = self.closed or not os.read(self.fd, 1)
        except BlockingIOError:
            pass
        except OSError:
            self.closed = True

    def drain(self) -> None:
        """Wait until all frames are sent or the server is gone."""
        poll = select.poll()
        poll.register(self.fd, select.POLLOUT)
        while self.pending:
            poll.poll()
            self.flush()


class HeadTailBuffer:
    """Send the first bytes at once, then keep only the last ones and send them at the end."""

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
    """All descendants of this process, however deep and in whatever session.

    On Linux the kernel gives us orphans as children, so no child means no descendant. Elsewhere we cannot
    find a process that left its group and lost its parent before we first looked.
    """

    def __init__(self, leader: int, is_subreaper: bool) -> None:
        self._leader = leader
        self._is_subreaper = is_subreaper
        self._orphans: set[int] = set()
        self.leader_status: int | None = None

    def reap(self) -> bool:
        """Reap dead children, and return whether no process is left."""
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
            _signal(pid, signal.SIGCONT)  # A stopped process would not handle the signal.

    def kill(self) -> bool:
        """Kill all processes that can be found, and return whether none is left."""
        _signal(-self._leader, signal.SIGKILL)
        for _ in range(_KILL_ROUNDS_MAX):
            members = self._live_members()
            for pid in members:
                _signal(pid, signal.SIGSTOP)  # Stop all first: a process that forks could escape.
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
        pass  # It has died meanwhile, and its children are now our own.
    return children


def _parents() -> dict[int, int]:
    """Return every process with its parent, for systems without a list of children."""
    with os.popen("/bin/ps -A -o pid= -o ppid=") as listing:
        rows = [line.split() for line in listing]
    return {int(row[0]): int(row[1]) for row in rows if len(row) == 2}


def _signal(pid: int, number: int) -> None:
    # It is gone, or belongs to another user, as with sudo: then the lock stays held until it ends by itself.
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
    """Read the request's words, or none if the server died before it had sent all of them."""
    size = int.from_bytes(_read_exactly(fd, 4), "big")
    body = _read_exactly(fd, size)
    return os.fsdecode(body).split("\0") if size and len(body) == size else []


def _read_exactly(fd: int, size: int) -> bytes:
    found = b""
    while len(found) < size and (chunk := os.read(fd, size - len(found))):
        found += chunk
    return found


def _acquire_lock(path: str) -> bool:
    """Acquire the call's lock for the lifetime of this process, and return whether it was free."""
    deadline = time.monotonic() + _LOCK_WAIT_S  # `is_finished` holds it for an instant.
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
    spec: ParsedCommandSpec,
    enter_sandbox: EnterSandbox,
    output: int,
    errors: int,
    gate: int,
    supervisor: int,
) -> None:
    """Execute the command in the child process once `gate` has a byte. Returns only on failure."""
    os.setsid()
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # In case somebody kills the supervisor.
    if not os.read(gate, 1) or os.getppid() != supervisor:
        return  # The supervisor is gone.
    os.dup2(spec.input if spec.input >= 0 else os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(spec.output if spec.output >= 0 else output, 1)
    os.dup2(errors, 2)
    # All signals, because a server that was started in the background inherited some as ignored.
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
    """Run one command until no process of it is left."""

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

    def _start(self) -> tuple[int, dict[int, bytes]]:
        (output, output_end), (errors, errors_end), (gate, gate_end) = os.pipe(), os.pipe(), os.pipe()
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            try:
                os.close(gate_end)
                _exec_command(self._spec, self._enter_sandbox, output_end, errors_end, gate, supervisor)
            finally:
                os._exit(127)
        # Sent before the command can kill the supervisor: the server must know that it ran.
        self._connection.send(b"p", str(pid).encode())
        os.write(gate_end, b"\0")
        for fd in (gate, gate_end, output_end, errors_end, self._spec.input, self._spec.output):
            if fd >= 0:
                os.close(fd)
        for fd in (output, errors):
            os.set_blocking(fd, False)
        return pid, {output: b"o", errors: b"e"}

    def run(self) -> str:
        """Wait until no process of the command is left, and return how it ended."""
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
        """Terminate the command if there is a reason, later kill it, and return whether all is over."""
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
        """Wait for output, a dead child, the server or the next deadline, whichever comes first."""
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
    """Run the request from the socket. The last frame, not the exit code, says how it ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # Only a closed socket ends a call.
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
    # The lock comes first: if the server is dead and the lock is free, nothing can start any more.
    connection.check_closed()
    ending = "stopped" if connection.closed else CommandSupervisor(spec, connection, enter_sandbox).run()
    os.unlink(spec.lock)  # noqa: PTH108
    connection.send(b"x", ending.encode())
    connection.drain()
    os._exit(0)  # The server waits, so skip the interpreter's cleanup.
