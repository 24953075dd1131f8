"""Detect which sandbox this machine offers for commands, and probe what it does not prevent."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.tools.sandbox.linux_sandbox import (
    LANDLOCK,
    MOUNTS,
    create_port_ruleset,
    folder_identity,
    landlock_abi,
)

_PROGRAM = (
    "import sys; sys.path.append(sys.argv.pop(1)); import linux_sandbox, sandbox_probe;"
    "sandbox_probe.main(linux_sandbox.enter_sandbox)"
)
_FOLDER = Path(__file__).parent
_MOUNTS = Path("/proc/self/mountinfo")
_PROBE_S_MAX = 10.0
_SHARED = frozenset({Path("/"), Path("/usr"), Path("/usr/local")})
"""Prefixes that an interpreter shares with other programs; only its own folders in them are protected."""
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
_PROBE_FAILED = "What a command can do to this server could not be tried: expect no protection."
_NOT_LINUX = (
    "Commands are not confined on this system: they can read the data folder and stop this server.",
    "A process that a command leaves behind in a group of its own is not found when the command is stopped.",
)
_ROOT_SENTENCE = (
    "Running as root, so commands can change any file here except Holdfast's data and program."
    " Use an ordinary user account."
)
_STARTER_SENTENCE = "A command can have {names} run programs outside of its walls, which also outlive it."


class Sandbox(NamedTuple):
    """The sandbox of commands: the mechanism, and the identity and paths of the hidden data folder."""

    mechanism: str
    port_ruleset: int
    """An open file, or -1; it stays open as long as the server starts commands."""
    identity: str
    hidden: tuple[str, ...]
    read_only: tuple[str, ...] = ()

    def to_args(self) -> list[str]:
        """Return the sandbox as command-line words for the supervisor."""
        return [self.mechanism, str(self.port_ruleset), self.identity, *self.hidden, "", *self.read_only]

    def inherited_fds(self) -> tuple[int, ...]:
        """Return the open files that the supervisor must inherit."""
        return (self.port_ruleset,) if self.port_ruleset >= 0 else ()


NO_SANDBOX = Sandbox("", -1, "", ())


class SandboxReport(NamedTuple):
    """The sandbox, its description, and one sentence for each thing that it does not protect here."""

    sandbox: Sandbox
    description: str
    gaps: tuple[str, ...]


def detect_sandbox(
    folder: Path, host: str, port: int, mechanisms: tuple[str, ...] = (MOUNTS, LANDLOCK)
) -> SandboxReport:
    """Return the first of `mechanisms` that works here, as a process in the sandbox finds out.

    `folder` is the data folder of this process, which listens on `port`. Takes 0.2 s; never raises.
    """
    if sys.platform != "linux":
        return SandboxReport(NO_SANDBOX, "none", _NOT_LINUX)
    folder = folder.resolve()
    try:
        port_ruleset, identity, hidden = (
            create_port_ruleset(port),
            folder_identity(str(folder)),
            all_paths_of(folder),
        )
        read_only = tuple(alias for path in program_paths() for alias in all_paths_of(path))
    except OSError:
        return SandboxReport(NO_SANDBOX, "none", (_PROBE_FAILED,))
    for mechanism in mechanisms:
        sandbox = Sandbox(mechanism, port_ruleset, identity, hidden, read_only)
        breaches = _probe(sandbox, folder, host, port)
        if breaches is not None:
            return SandboxReport(sandbox, _describe(sandbox), _gaps(breaches))
    if port_ruleset >= 0:
        os.close(port_ruleset)
    breaches = _probe(NO_SANDBOX, folder, host, port)
    return SandboxReport(NO_SANDBOX, "none", (_PROBE_FAILED,) if breaches is None else _gaps(breaches))


def _describe(sandbox: Sandbox) -> str:
    landlock = (f"landlock {landlock_abi()}",) if landlock_abi() else ()
    return ", ".join(((MOUNTS,) if sandbox.mechanism == MOUNTS else ()) + landlock)


def _probe(sandbox: Sandbox, folder: Path, host: str, port: int) -> list[str] | None:
    """Return the names of the successful breaches, or None if the sandbox cannot be set up."""
    args = [str(folder), host, str(port), str(os.getpid()), *sandbox.to_args()]
    try:
        completed = subprocess.run(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, str(_FOLDER), *args],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            pass_fds=sandbox.inherited_fds(),
            timeout=_PROBE_S_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return completed.stdout.decode(errors="replace").splitlines() if completed.returncode == 0 else None


def _gaps(breaches: list[str]) -> tuple[str, ...]:
    sentences = [sentence for name, sentence in _SENTENCES if name in breaches]
    starters = [name.removeprefix("starter ") for name in breaches if name.startswith("starter ")]
    if starters:
        sentences.append(_STARTER_SENTENCE.format(names=" and ".join(starters)))
    return (*sentences, _ROOT_SENTENCE) if os.geteuid() == 0 else tuple(sentences)


def program_paths() -> list[Path]:
    """Return the files and folders that the server runs from, as far as its user can change them.

    These are its package, its environment, the interpreter, and every folder that something was imported
    from. None of them lies in another.
    """
    loaded = [file for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))]
    candidates = (
        str(Path(__file__).parents[2]),
        sys.prefix,
        sys.base_prefix,
        sys.executable,
        *_import_roots(loaded),
    )
    found = {path for path in (Path(name).resolve() for name in candidates) if path.exists()}.difference(
        _SHARED
    )
    return sorted(
        path
        for path in found
        if os.access(path, os.W_OK) or path.stat().st_uid == os.geteuid()
        if not any(other in found for other in path.parents)
    )


def _import_roots(files: Sequence[str]) -> set[str]:
    """Return the folders of `sys.path` that files were imported from: for each, the nearest one above."""
    above = [[path for path in sys.path if path and Path(file).is_relative_to(path)] for file in files]
    return {max(paths, key=len) for paths in above if paths}


def all_paths_of(folder: Path) -> tuple[str, ...]:
    """Return every path of a folder: its own, and those through other mounts of its file system."""
    mounts = [_Mount.read(line) for line in _MOUNTS.read_text("utf-8", "surrogateescape").splitlines()]
    above = [mount for mount in mounts if folder.is_relative_to(mount.point)]
    # A later mount on the same point hides the earlier one.
    containing = max(reversed(above), key=lambda mount: len(mount.point.parts))
    inside = containing.root / folder.relative_to(containing.point)
    found = {folder: None}
    for other in mounts:
        if other.device == containing.device and inside.is_relative_to(other.root):
            path = other.point / inside.relative_to(other.root)
            if path.exists() and path.samefile(folder):
                found[path] = None
    return tuple(map(str, found))


class _Mount(NamedTuple):
    """A mount of a device's folder `root` at `point`."""

    device: str
    root: Path
    point: Path

    @classmethod
    def read(cls, line: str) -> "_Mount":
        fields = line.split(" ")
        return cls(fields[2], Path(_unescape(fields[3])), Path(_unescape(fields[4])))


def _unescape(field: str) -> str:
    return field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
