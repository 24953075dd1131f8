"""A standalone program: enter the sandbox, try what it should refuse, and print what succeeded.

It changes nothing: it neither reads nor writes what it opens, and removes what it creates. Like the
supervisor, it uses only the standard library.
"""

import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Callable

_SANDBOX_FAILED_EXIT_CODE = 3
_WAIT_S = 0.5
_MPTCP, _FASTOPEN = 262, 0x20000000
_STARTERS = (
    ("systemd", "/run/user/{user}/systemd/private"),
    ("systemd", "/run/user/{user}/bus"),
    ("systemd", "/run/systemd/private"),
    ("docker", "/run/docker.sock"),
    ("docker", "/run/user/{user}/docker.sock"),
    ("podman", "/run/podman/podman.sock"),
    ("podman", "/run/user/{user}/podman/podman.sock"),
    ("containerd", "/run/containerd/containerd.sock"),
    ("tmux", "/tmp/tmux-{user}/default"),
)


def main(enter_sandbox: Callable[[str, int, str, str, list[str], list[str]], None]) -> None:
    """Print a line for each attempt that succeeded. Exit code 3 means that the sandbox failed to start."""
    folder, host, port, server, mechanism, port_ruleset, identity, *paths = sys.argv[1:]
    end = paths.index("")
    signal.alarm(8)
    if mechanism:
        try:
            enter_sandbox(mechanism, int(port_ruleset), identity, "/", paths[:end], paths[end + 1 :])
        except OSError:
            sys.exit(_SANDBOX_FAILED_EXIT_CODE)
    attempts: dict[str, Callable[[], bool]] = {
        "read": lambda: _can_read(folder),
        "write": lambda: _can_write(folder),
        "rights": lambda: _can_chmod(folder),
        "connect": lambda: any(_can_connect(host, int(port), protocol) for protocol in (0, _MPTCP)),
        "connect ": lambda: _can_fast_open(host, int(port)),
        "memory": lambda: any(
            _can_open(f"/proc/{server}/{name}", os.O_RDONLY) for name in ("environ", "mem")
        ),
        "signal": lambda: _can_signal(int(server)),
        "program": lambda: _can_make_folder(os.path.dirname(__file__)),  # noqa: PTH120
        "limits": lambda: any(_succeeds(attempt) for attempt in _changes_to_process(int(server))),
        "disks": _can_read_disks,
        "kernel": lambda: _can_open("/proc/sys/kernel/core_pattern", os.O_WRONLY),
    }
    attempts |= {f"starter {name}": lambda path=path: _can_reach_starter(path) for name, path in _STARTERS}  # type: ignore[misc]
    print("\n".join(dict.fromkeys(name.strip() for name, attempt in attempts.items() if _succeeds(attempt))))


def _succeeds(attempt: Callable[[], bool]) -> bool:
    try:
        return attempt()
    except OSError:
        return False


def _find_file(folder: str) -> str | None:
    """Return a file of the store if one is visible."""
    names = sorted(os.listdir(folder))  # noqa: PTH208
    return next((f"{folder}/{name}" for name in names if os.path.isfile(f"{folder}/{name}")), None)  # noqa: PTH113


def _can_read(folder: str) -> bool:
    return _succeeds(lambda: _find_file(folder) is not None) or _can_open(f"{folder}/format", os.O_RDONLY)


def _can_write(folder: str) -> bool:
    return _can_open(f"{folder}/format", os.O_WRONLY) or _can_make_folder(folder)


def _can_make_folder(folder: str) -> bool:
    path = f"{folder}/tried-{os.getpid()}"
    os.mkdir(path)  # noqa: PTH102
    os.rmdir(path)  # noqa: PTH106
    return True


def _changes_to_process(process: int) -> list[Callable[[], bool]]:
    """Return attempts to change another process, each to the values that it already has."""

    def limits() -> bool:
        resource.prlimit(process, resource.RLIMIT_NOFILE, resource.prlimit(process, resource.RLIMIT_NOFILE))
        return True

    def priority() -> bool:
        os.setpriority(os.PRIO_PROCESS, process, os.getpriority(os.PRIO_PROCESS, process))
        return True

    def processors() -> bool:
        os.sched_setaffinity(process, os.sched_getaffinity(process))
        return True

    return [limits, priority, processors]


def _can_chmod(folder: str) -> bool:
    path = f"{folder}/format"
    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))  # noqa: PTH101, PTH116
    return True


def _can_open(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _can_connect(host: str, port: int, protocol: int) -> bool:
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as connection:
            connection.settimeout(_WAIT_S)
            connection.connect(address)
    return True


def _can_fast_open(host: str, port: int) -> bool:
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind) as connection:
            connection.sendto(b"", _FASTOPEN, address)
    return True


def _can_signal(process: int) -> bool:
    os.kill(process, 0)
    return True


def _can_read_disks() -> bool:
    disks = (f"/dev/{name}" for name in os.listdir("/dev"))  # noqa: PTH208
    return any(stat.S_ISBLK(os.stat(disk).st_mode) and _can_open(disk, os.O_RDONLY) for disk in disks)  # noqa: PTH116


def _can_reach_starter(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(_WAIT_S)
        connection.connect(path.format(user=os.getuid()))
    return True
