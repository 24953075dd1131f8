"""One file of the workspace looked at, and replaced by another in one step, from a folder that is open.

Whoever looks sees the old file or the new one. Only a regular file is ever replaced, by a new one beside it:
a link or a second name of the same file elsewhere is not written through. Between the last look at a file and
its replacement nobody else replaces one in the same folder: the open folder is locked, for all processes.
What does not lock it, such as a command, can still come in between, and so can others on a file system that
has no locks.
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
_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK  # A pipe must not hold the call up.
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_LOCK_UNSUPPORTED = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""What a file system says that cannot lock a folder."""
_PAUSE_S = 0.005


class FolderLocked(Exception):
    """Somebody else is replacing a file of this folder at this moment; nothing was done."""


class FolderLockTimeout(ToolError):
    """Somebody has held the folder for so long that nothing was done in it."""


class FileSnapshot(msgspec.Struct, frozen=True):
    """A file as it was found: its content, unless that is larger than CHANGE_BYTES_MAX, and who it is."""

    content: bytes | None
    size_bytes: int
    identity: tuple[int, ...]
    mode: int
    uid: int
    gid: int


def read_snapshot(name: str, folder: int, path: str) -> FileSnapshot | None:
    """What is there now; None if nothing is. Raises Refused for what must not be replaced, OSError."""
    try:
        found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        _check_replaceable(found, path)  # Before it is opened: opening a device may do something.
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
    """Put `content` in the place of what was seen; False, and nothing is changed, if that is not there now.

    With `overwrite`, in the place of whatever is there. Durable on return. Raises Held, Refused, OSError:
    nothing is changed then either.
    """
    # A name of its own each time: a process that was stopped and goes on must not meet a half of ours.
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
    """Remove what was seen; False, and nothing is changed, if that is not there now. Raises as `replace`."""
    with _folder_lock(folder):
        if not is_unchanged(read_snapshot(name, folder, path), snapshot):
            return False
        os.unlink(name, dir_fd=folder)
    os.fsync(folder)
    return True


async def retry_while_locked(
    path: str, operation: Callable[[], T], wait_ms_max: int = CHANGE_WAIT_MS_MAX
) -> T:
    """What `work` does in a thread, tried again while the folder is Held. Raises FolderLockTimeout when it stays so.

    Nobody waits in the thread: there are few of them, and others need them too.
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
    """Whether nobody has changed a file since it was seen."""
    if now is None or before is None:
        return now is before
    # The time alone does not tell two writes apart that follow each other quickly.
    return now.identity == before.identity and now.content == before.content


def digest_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@contextmanager
def _folder_lock(folder: int) -> Iterator[None]:
    """Keep others from replacing files in an open folder, which is opened anew for each call. Raises Held."""
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
        # Said and not left to closing: a process that is just being started has the folder open too.
        with suppress(OSError):
            fcntl.flock(folder, fcntl.LOCK_UN)


def _rename_draft(draft: str, name: str, folder: int, is_new: bool) -> bool:
    """Give the draft its name; False if there is a file of that name where there was none."""
    if is_new:
        try:
            # A second name is given only where there is none: another's new file is not replaced.
            os.link(draft, name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)
        except FileExistsError:
            os.unlink(draft, dir_fd=folder)
            return False
        except OSError:
            pass  # Not every file system has second names.
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
            with suppress(PermissionError):  # Another's file in a folder of ours becomes ours.
                os.fchown(file.fileno(), snapshot.uid, snapshot.gid)
            os.fchmod(file.fileno(), snapshot.mode)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
