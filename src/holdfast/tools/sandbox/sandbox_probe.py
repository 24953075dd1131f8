"""A program of its own: goes behind the walls and tries what they are there to refuse; says what got through.

Changes nothing: what it opens it neither reads nor writes, and what it makes it removes. Like the supervisor
it uses the standard library alone.
"""

import os
import resource
import signal
import socket
import stat
import sys
from collections.abc import Callable

_FAILED = 3
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


def main(enclose: Callable[[str, int, str, str, list[str], list[str]], None]) -> None:
    """A line for each thing that got through. Exit code 3: the walls could not be put up."""
    folder, host, port, server, way, ports, identity, *places = sys.argv[1:]
    end = places.index("")
    signal.alarm(8)
    if way:
        try:
            enclose(way, int(ports), identity, "/", places[:end], places[end + 1 :])
        except OSError:
            sys.exit(_FAILED)
    tries: dict[str, Callable[[], bool]] = {
        "read": lambda: _reads(folder),
        "write": lambda: _writes(folder),
        "rights": lambda: _has_rights(folder),
        "connect": lambda: any(_connects(host, int(port), protocol) for protocol in (0, _MPTCP)),
        "connect ": lambda: _opens_fast(host, int(port)),
        "memory": lambda: any(_opens(f"/proc/{server}/{name}", os.O_RDONLY) for name in ("environ", "mem")),
        "signal": lambda: _signals(int(server)),
        "program": lambda: _makes_folder(os.path.dirname(__file__)),  # noqa: PTH120
        "limits": lambda: any(_succeeds(attempt) for attempt in _changes(int(server))),
        "disks": _reads_disks,
        "kernel": lambda: _opens("/proc/sys/kernel/core_pattern", os.O_WRONLY),
    }
    tries |= {f"starter {name}": lambda path=path: _asks(path) for name, path in _STARTERS}  # type: ignore[misc]
    print("\n".join(dict.fromkeys(name.strip() for name, attempt in tries.items() if _succeeds(attempt))))


def _succeeds(attempt: Callable[[], bool]) -> bool:
    try:
        return attempt()
    except OSError:
        return False


def _some_file(folder: str) -> str | None:
    """A file of the store, if one can be seen."""
    names = sorted(os.listdir(folder))  # noqa: PTH208
    return next((f"{folder}/{name}" for name in names if os.path.isfile(f"{folder}/{name}")), None)  # noqa: PTH113


def _reads(folder: str) -> bool:
    return _succeeds(lambda: _some_file(folder) is not None) or _opens(f"{folder}/format", os.O_RDONLY)


def _writes(folder: str) -> bool:
    return _opens(f"{folder}/format", os.O_WRONLY) or _makes_folder(folder)


def _makes_folder(folder: str) -> bool:
    made = f"{folder}/tried-{os.getpid()}"
    os.mkdir(made)  # noqa: PTH102
    os.rmdir(made)  # noqa: PTH106
    return True


def _changes(process: int) -> list[Callable[[], bool]]:
    """Ways to change another process. Each gives it what it has already."""

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


def _has_rights(folder: str) -> bool:
    path = f"{folder}/format"
    os.chmod(path, stat.S_IMODE(os.stat(path).st_mode))  # noqa: PTH101, PTH116
    return True


def _opens(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def _connects(host: str, port: int, protocol: int) -> bool:
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as line:
            line.settimeout(_WAIT_S)
            line.connect(address)
    return True


def _opens_fast(host: str, port: int) -> bool:
    for family, kind, _, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind) as line:
            line.sendto(b"", _FASTOPEN, address)
    return True


def _signals(process: int) -> bool:
    os.kill(process, 0)
    return True


def _reads_disks() -> bool:
    disks = (f"/dev/{name}" for name in os.listdir("/dev"))  # noqa: PTH208
    return any(stat.S_ISBLK(os.stat(disk).st_mode) and _opens(disk, os.O_RDONLY) for disk in disks)  # noqa: PTH116


def _asks(path: str) -> bool:
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(_WAIT_S)
        line.connect(path.format(user=os.getuid()))
    return True
