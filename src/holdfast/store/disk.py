"""Plain files and folders: bringing them to the disk itself, locking them, removing them."""

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def sync(path: Path) -> None:
    """Bring a file's content, or a folder's names, to the disk itself."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
        if hasattr(fcntl, "F_FULLFSYNC"):
            # macOS: the plain call stops at the drive's own memory.
            fcntl.fcntl(handle, fcntl.F_FULLFSYNC)
    finally:
        os.close(handle)


def sync_names(folder: Path) -> None:
    """Sync a folder and all above it: one that was just made can vanish with everything in it."""
    for each in (folder.resolve(), *folder.resolve().parents):
        # One that may be passed through but not read was not made by us.
        if os.access(each, os.R_OK):
            sync(each)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait until no other process has the lock on a folder, and hold it."""
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def remove_tree(folder: Path) -> None:
    """Remove a folder with all that is in it, as far as that is allowed; of a link only the link."""
    if folder.is_symlink():
        folder.unlink(missing_ok=True)
        return
    for at, folders, _ in os.walk(folder):
        # Before they are entered: some programs take the right to write from folders.
        for each in (Path(at, name) for name in folders):
            with suppress(OSError):
                if not each.is_symlink():
                    each.chmod(0o700)
    shutil.rmtree(folder, ignore_errors=True)
