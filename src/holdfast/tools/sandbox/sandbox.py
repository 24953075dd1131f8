"""Which walls there are for commands on this machine, and what they do not keep out: found by trying it."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.tools.sandbox.linux_sandbox import LANDLOCK, MOUNTS, abi, close_port, identity_of

_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); import linux_sandbox, sandbox_probe;"
    "sandbox_probe.main(linux_sandbox.enclose)"
)
_FOLDER = Path(__file__).parent
_MOUNTS = Path("/proc/self/mountinfo")
_PROBE_S_MAX = 10.0
_SHARED = frozenset({Path("/"), Path("/usr"), Path("/usr/local")})
"""Prefixes that an interpreter shares with other programs; its own folders in them are the server's."""
_SENTENCES = (
    ("read", "A command can read the data folder: every conversation, and the token of this machine."),
    ("write", "A command can change the data folder."),
    ("rights", "A command can see the sizes of files in the data folder and change who may open them."),
    ("connect", "A command can connect to this server's own port; signing in is all that keeps it out."),
    ("memory", "A command can read the memory of this server and the environment that it was started with."),
    ("signal", "A command can stop this server."),
    ("program", "A command can change Holdfast's own program, which runs outside of the walls."),
    ("limits", "A command can change the limits, priority and processors of this server and other programs."),
    ("disks", "A command can read a disk as a device, and so every file on it."),
    ("kernel", "A command can change settings of the kernel, and so run programs outside of its walls."),
)
_NOT_TRIED = "What a command can do to this server could not be tried: expect no protection."
_NOT_LINUX = (
    "Commands are not confined on this system: they can read the data folder and stop this server.",
    "A process that a command leaves behind in a group of its own is not found when the command is stopped.",
)
_ROOT = (
    "Running as root, so commands can change any file here except Holdfast's data and program."
    " Use an ordinary user account."
)
_STARTERS = "A command can have {names} run programs outside of its walls, which also outlive it."


class Walls(NamedTuple):
    """What commands are walled in with: how the data folder is hidden, which it is and where it is found."""

    way: str
    ports: int
    """An open file, or -1; it stays open as long as commands are started."""
    identity: str
    hidden: tuple[str, ...]
    read_only: tuple[str, ...] = ()

    def words(self) -> list[str]:
        """As the supervisor reads them."""
        return [self.way, str(self.ports), self.identity, *self.hidden, "", *self.read_only]

    def files(self) -> tuple[int, ...]:
        """What the supervisor must inherit."""
        return (self.ports,) if self.ports >= 0 else ()


NO_WALLS = Walls("", -1, "", ())


class Confinement(NamedTuple):
    """The walls, what they are made of, and in plain sentences what is not protected here."""

    walls: Walls
    made_of: str
    gaps: tuple[str, ...]


def confine(folder: Path, host: str, port: int, ways: tuple[str, ...] = (MOUNTS, LANDLOCK)) -> Confinement:
    """The first of `ways` that holds here, tried by a process behind the walls. Takes 0.2 s; never raises.

    `folder` is the data folder of this process, which listens on `port`.
    """
    if sys.platform != "linux":
        return Confinement(NO_WALLS, "none", _NOT_LINUX)
    folder = folder.resolve()
    try:
        ports, identity, hidden = close_port(port), identity_of(str(folder)), places_of(folder)
        read_only = tuple(place for path in program() for place in places_of(path))
    except OSError:
        return Confinement(NO_WALLS, "none", (_NOT_TRIED,))
    for way in ways:
        walls = Walls(way, ports, identity, hidden, read_only)
        passed = _tried(walls, folder, host, port)
        if passed is not None:
            return Confinement(walls, _made_of(walls), _gaps(passed))
    if ports >= 0:
        os.close(ports)
    passed = _tried(NO_WALLS, folder, host, port)
    return Confinement(NO_WALLS, "none", (_NOT_TRIED,) if passed is None else _gaps(passed))


def _made_of(walls: Walls) -> str:
    landlock = (f"landlock {abi()}",) if abi() else ()
    return ", ".join(((MOUNTS,) if walls.way == MOUNTS else ()) + landlock)


def _tried(walls: Walls, folder: Path, host: str, port: int) -> list[str] | None:
    """What got through the walls; None when they cannot be put up."""
    words = [str(folder), host, str(port), str(os.getpid()), *walls.words()]
    try:
        ended = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_FOLDER), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            pass_fds=walls.files(),
            timeout=_PROBE_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ended.stdout.decode(errors="replace").splitlines() if ended.returncode == 0 else None


def _gaps(passed: list[str]) -> tuple[str, ...]:
    told = [sentence for name, sentence in _SENTENCES if name in passed]
    starters = [each.removeprefix("starter ") for each in passed if each.startswith("starter ")]
    if starters:
        told.append(_STARTERS.format(names=" and ".join(starters)))
    return (*told, _ROOT) if os.geteuid() == 0 else tuple(told)


def program() -> list[Path]:
    """Return the files and folders that the server runs from, as far as its user can change them.

    These are its package, its environment, the interpreter, and every folder that something was imported
    from. None of them lies in another.
    """
    loaded = [file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]
    named = (str(Path(__file__).parents[2]), sys.prefix, sys.base_prefix, sys.executable, *_sources(loaded))
    found = {path for path in (Path(each).resolve() for each in named) if path.exists()}.difference(_SHARED)
    return sorted(
        path
        for path in found
        if os.access(path, os.W_OK) or path.stat().st_uid == os.geteuid()
        if not any(other in found for other in path.parents)
    )


def _sources(files: Sequence[str]) -> set[str]:
    """Return the folders of `sys.path` that files were imported from: of each file, the nearest one above."""
    above = [[path for path in sys.path if path and Path(file).is_relative_to(path)] for file in files]
    return {max(paths, key=len) for paths in above if paths}


def places_of(folder: Path) -> tuple[str, ...]:
    """The paths under which the folder is found: its own, and those that further mounts give it."""
    mounts = [_Mount.read(line) for line in _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()]
    above = [mount for mount in mounts if folder.is_relative_to(mount.point)]
    # Of two mounts on one point the later one is seen.
    holds = max(reversed(above), key=lambda mount: len(mount.point.parts))
    inside = holds.root / folder.relative_to(holds.point)
    found = {folder: None}
    for other in mounts:
        if other.device == holds.device and inside.is_relative_to(other.root):
            place = other.point / inside.relative_to(other.root)
            if place.exists() and place.samefile(folder):
                found[place] = None
    return tuple(map(str, found))


class _Mount(NamedTuple):
    """A part of a disk, from `root` down, that is seen at `point`."""

    device: str
    root: Path
    point: Path

    @classmethod
    def read(cls, line: str) -> "_Mount":
        fields = line.split(" ")
        return cls(fields[2], Path(_unescaped(fields[3])), Path(_unescaped(fields[4])))


def _unescaped(field: str) -> str:
    return field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
