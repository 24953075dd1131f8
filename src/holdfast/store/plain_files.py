"""Plain files and folders: sync them to the disk, lock, replace and remove them, keep secrets in them."""

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_LOCK_POLL_S = 0.02
_MODE = 0o600
_OTHERS = 0o077
_BYTES_MAX = 1_000


def fsync_path(path: Path) -> None:
    """Bring a file's content, or a folder's names, to the disk itself."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
        if hasattr(fcntl, "F_FULLFSYNC"):
            # macOS: the plain call stops at the drive's own memory.
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    finally:
        os.close(handle)


def create_private_file(path: Path) -> None:
    """Make an empty file that only its owner can read, in any folder. An existing file stays."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def make_private(path: Path) -> None:
    """Take the rights to a file or folder from everybody but its owner. A link is left alone."""
    with suppress(FileNotFoundError):
        found = path.lstat()
        if found.st_mode & 0o077 and found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode):
            path.chmod(stat.S_IMODE(found.st_mode) & ~0o077)


def fsync_folders(folder: Path) -> None:
    """Sync a folder and all above it: one that was just made can vanish with everything in it."""
    for each in (folder.resolve(), *folder.resolve().parents):
        # One that may be passed through but not read was not made by us.
        if os.access(each, os.R_OK):
            fsync_path(each)


@contextmanager
def folder_lock(folder: Path, wait_s: float) -> Iterator[bool]:
    """Hold the lock on a folder. Yield False where another process has not let go of it in time."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    deadline = time.monotonic() + wait_s
    try:
        while not (is_held := try_lock(handle)) and time.monotonic() < deadline:
            time.sleep(_LOCK_POLL_S)
        yield is_held
    finally:
        os.close(handle)


def try_lock(handle: int) -> bool:
    """Lock an open file or folder, unless another process has the lock. Return whether it is held."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


@contextmanager
def atomic_write(path: Path) -> Iterator[Path]:
    """Yield an empty file beside `path`, readable by its owner alone; on leaving, it takes that name.

    `path` is then whole and on disk. After an error nothing is left behind, and `path` is as it was.
    """
    handle, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    os.close(handle)
    part = Path(name)
    try:
        yield part
        fsync_path(part)
        part.replace(path)
        fsync_path(path.parent)
    finally:
        part.unlink(missing_ok=True)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that is allowed; of a link only the link."""
    if folder.is_symlink():
        folder.unlink(missing_ok=True)
        return
    _make_writable(folder)
    for at, folders, _ in os.walk(folder):
        for name in folders:
            _make_writable(Path(at, name))
    shutil.rmtree(folder, ignore_errors=True)


def _make_writable(folder: Path) -> None:
    """Some programs take the right to write from their folders. A link is left alone."""
    with suppress(OSError):
        # Opened first: a program could put a link in its place. O_PATH also opens what may not be read.
        flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(folder, flags)
        try:
            os.chmod(f"/proc/self/fd/{handle}" if hasattr(os, "O_PATH") else handle, 0o700)  # noqa: PTH101
        finally:
            os.close(handle)


class BadSecretFile(Exception):
    """A file is not a secret of this user; the message says why."""


def read_or_create_secret(path: Path, create: Callable[[], str], warn: Callable[[str], None]) -> str:
    """The secret in a file, `fresh` where there is no such file yet; `note` is told if others could read it.

    Raises BadSecretFile or OSError.
    """
    if not os.path.lexists(path):
        _create_secret(path, create())
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadSecretFile(error.strerror) from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(handle)
        raise BadSecretFile("another user owns it, or it is not a file")
    with os.fdopen(handle) as file:
        if found.st_mode & _OTHERS:
            os.fchmod(file.fileno(), _MODE)
            warn(f"{path} could be read by others; now it cannot. If they may have, delete it and restart.")
        try:
            return file.read(_BYTES_MAX).strip()
        except UnicodeDecodeError:
            raise BadSecretFile("it is not text") from None


def _create_secret(path: Path, secret: str) -> None:
    """It appears whole or not at all; of several who make one, the first one's stays."""
    part = path.with_name(f"{path.name}.{os.getpid()}.new")
    part.unlink(missing_ok=True)
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(part, path)
        except FileExistsError:
            return
        fsync_path(path.parent)
    finally:
        part.unlink(missing_ok=True)
