"""Operations on plain files and folders: sync, lock, replace and remove them, and keep secrets in them."""

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
    """Sync a file's content, or a folder's names, to the disk."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
        if hasattr(fcntl, "F_FULLFSYNC"):
            # On macOS, fsync stops at the drive's own cache.
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    finally:
        os.close(handle)


def create_private_file(path: Path) -> None:
    """Create an empty file that only its owner can read, in any folder. An existing file stays."""
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))


def make_private(path: Path) -> None:
    """Remove the access of everyone but the owner. A link stays as it is."""
    with suppress(FileNotFoundError):
        found = path.lstat()
        if found.st_mode & 0o077 and found.st_uid == os.geteuid() and not stat.S_ISLNK(found.st_mode):
            path.chmod(stat.S_IMODE(found.st_mode) & ~0o077)


def fsync_folders(folder: Path) -> None:
    """Sync a folder and all its parents: a crash can lose a new folder with everything in it."""
    for each in (folder.resolve(), *folder.resolve().parents):
        # We cannot have created a folder that we may traverse but not read.
        if os.access(each, os.R_OK):
            fsync_path(each)


@contextmanager
def folder_lock(folder: Path, wait_s: float) -> Iterator[bool]:
    """Hold the lock on a folder. Yield False if another process does not release it in time."""
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
    """Yield an empty private file beside `path`; on leaving, rename it to `path`.

    `path` is then complete and on disk. After an error nothing is left behind, and `path` is unchanged.
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
    """Remove a folder and all its content as far as permissions allow; of a link, only the link."""
    if folder.is_symlink():
        folder.unlink(missing_ok=True)
        return
    _make_writable(folder)
    for at, folders, _ in os.walk(folder):
        for name in folders:
            _make_writable(Path(at, name))
    shutil.rmtree(folder, ignore_errors=True)


def _make_writable(folder: Path) -> None:
    """Add write access, which some programs remove from their folders. A link stays as it is."""
    with suppress(OSError):
        # Open it first: a program could replace it by a link. O_PATH also opens unreadable folders.
        flags = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        handle = os.open(folder, flags)
        try:
            os.chmod(f"/proc/self/fd/{handle}" if hasattr(os, "O_PATH") else handle, 0o700)  # noqa: PTH101
        finally:
            os.close(handle)


class BadSecretFile(Exception):
    """A file is not a secret of this user; the message says why."""


def read_or_create_secret(path: Path, create: Callable[[], str], warn: Callable[[str], None]) -> str:
    """Return the secret in a file, after creating a missing one; `warn` if others could read it.

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
    """Create a secret file atomically; if several processes create one, the first one's stays."""
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
