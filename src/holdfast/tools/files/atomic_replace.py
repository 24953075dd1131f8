"""Read a file and replace it atomically, relative to an open folder.

A reader sees either the old file or the new one. A replacement renames a new file onto a regular file, so it
never writes through a link or into a second name of the file elsewhere. It locks the open folder from its
last check of a file until it has replaced it, against all processes that take the lock. Others, such as
commands, can still interfere, and so can any process on a file system without locks.
"""

import asyncio
import errno
import fcntl
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TypeVar

import msgspec

from holdfast.domain.limits import CHANGE_BYTES_MAX, CHANGE_WAIT_MS_MAX
from holdfast.tools.arguments import ToolError
from holdfast.tools.files.workspace import quote_path

T = TypeVar("T")
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # Opening a pipe must not block the call.
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_UNSUPPORTED = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""Errors of file systems that cannot lock a folder."""
_PAUSE_S = 0.005


class FolderLocked(Exception):
    """Somebody else holds the folder's lock; nothing was changed."""


class FolderLockTimeout(ToolError):
    """Somebody else held the folder's lock for too long; nothing was changed."""


class FileSnapshot(msgspec.Struct, frozen=True):
    """A file at one moment; `content` is None if it is larger than CHANGE_BYTES_MAX."""

    content: bytes | None
    size_bytes: int
    identity: tuple[int, ...]
    mode: int
    uid: int
    gid: int


def read_snapshot(name: str, folder: int, path: str) -> FileSnapshot | None:
    """Return the current file, or None if there is none.

    Raises OSError, and ToolError for anything that must not be replaced.
    """
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        _check_replaceable(found, path)  # Checked before opening, since opening a device may have an effect.
        fd = os.open(name, _READ, dir_fd=folder)
    except FileNotFoundError:
        return None
    with os.fdopen(fd, "rb") as file:
        found = os.fstat(file.fileno())
        _check_replaceable(found, path)
        content = file.read(CHANGE_BYTES_MAX + 1)
    snapshot_content = content if len(content) <= CHANGE_BYTES_MAX else None
    identity = (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    size = len(content) if snapshot_content is not None else found.st_size
    return FileSnapshot(
        snapshot_content, size, identity, stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid
    )


def replace_file(
    name: str, folder: int, path: str, snapshot: FileSnapshot | None, content: bytes, overwrite: bool = False
) -> bool:
    """Replace the file in `snapshot` durably, or return False and change nothing if the file has changed.

    With `overwrite`, replace whatever file is there. Raises FolderLocked, ToolError or OSError, and then
    changes nothing either.
    """
    # A random name, so that a process that was suspended and resumes cannot use our half-written draft.
    draft = f".holdfast-{secrets.token_hex(8)}.tmp"
    with _folder_lock(folder):
        try:
            _write_draft(draft, folder, content, snapshot)
            if not is_unchanged(read_snapshot(name, folder, path), snapshot) and not overwrite:
                os.unlink(draft, dir_fd=folder)
                return False
            if not _rename_draft(draft, name, folder, is_new=snapshot is None and not overwrite):
                return False
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(draft, dir_fd=folder)
            raise
    os.fsync(folder)
    return True


def remove_file(name: str, folder: int, path: str, snapshot: FileSnapshot | None) -> bool:
    """Remove the file in `snapshot`, or return False and change nothing if the file has changed.

    Raises what `replace_file` raises.
    """
    with _folder_lock(folder):
        if not is_unchanged(read_snapshot(name, folder, path), snapshot):
            return False
        os.unlink(name, dir_fd=folder)
    os.fsync(folder)
    return True


async def retry_while_locked(
    path: str, operation: Callable[[], T], wait_ms_max: int = CHANGE_WAIT_MS_MAX
) -> T:
    """Run `operation` in a thread, again as long as it raises FolderLocked. Raises FolderLockTimeout.

    The wait happens outside the thread, because threads are few and shared.
    """
    clock = asyncio.get_running_loop().time
    deadline = clock() + wait_ms_max / 1000
    while True:
        try:
            return await asyncio.to_thread(operation)
        except FolderLocked:
            if clock() >= deadline:
                break
        await asyncio.sleep(_PAUSE_S)
    raise FolderLockTimeout(
        f"somebody else holds the folder of {quote_path(path)}; nothing was done to it, so try later"
    )


def is_unchanged(now: FileSnapshot | None, before: FileSnapshot | None) -> bool:
    """Return whether two snapshots show the same file with the same content."""
    if now is None or before is None:
        return now is before
    # Timestamps alone do not distinguish two writes in quick succession.
    return now.identity == before.identity and now.content == before.content


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def _folder_lock(folder: int) -> Iterator[None]:
    """Hold the exclusive lock of an open folder, which each call must open anew. Raises FolderLocked."""
    try:
        fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise FolderLocked from None
    except OSError as error:
        if error.errno not in _LOCK_UNSUPPORTED:
            raise
    try:
        yield
    finally:
        # Closing is not enough: a child process that is just starting may still have the folder open.
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_UN)


def _rename_draft(draft: str, name: str, folder: int, is_new: bool) -> bool:
    """Rename the draft; return False if `is_new` and a file of that name exists."""
    if is_new:
        try:
            # Unlike a rename, a link fails if somebody else has made the file meanwhile.
            os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            os.unlink(draft, dir_fd=folder)
            return False
        except OSError:
            pass  # Not every file system has hard links.
        else:
            os.unlink(draft, dir_fd=folder)
            return True
    os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)
    return True


def _check_replaceable(found: os.stat_result, path: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise ToolError(f"{quote_path(path)} is a folder")
    if not stat.S_ISREG(found.st_mode):
        raise ToolError(f"{quote_path(path)} is not a regular file")
    if not found.st_mode & 0o222:
        raise ToolError(f"{quote_path(path)} is write-protected")


def _write_draft(name: str, folder: int, content: bytes, snapshot: FileSnapshot | None) -> None:
    with os.fdopen(os.open(name, _CREATE, 0o666, dir_fd=folder), "wb") as file:
        if snapshot is not None:
            with suppress(PermissionError):  # Another user's file in a folder of ours becomes ours.
                os.fchown(file.fileno(), snapshot.uid, snapshot.gid)
            os.fchmod(file.fileno(), snapshot.mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
