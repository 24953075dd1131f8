"""Bringing files to the disk itself."""

import fcntl
import os
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
