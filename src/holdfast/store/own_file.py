"""Secrets in files that only their owner can read, each made once."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

from holdfast.store.fsync import sync

_MODE = 0o600
_OTHERS = 0o077
_BYTES_MAX = 1_000


class NotOwn(Exception):
    """A file is not a secret of this user; the message says why."""


def own_secret(path: Path, fresh: Callable[[], str], note: Callable[[str], None]) -> str:
    """The secret in a file, `fresh` where there is no such file yet; `note` is told if others could read it.

    Raises NotOwn or OSError.
    """
    if not os.path.lexists(path):
        _keep(path, fresh())
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise NotOwn(error.strerror) from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(handle)
        raise NotOwn("another user owns it, or it is not a file")
    with os.fdopen(handle) as file:
        if found.st_mode & _OTHERS:
            os.fchmod(file.fileno(), _MODE)
            note(f"{path} could be read by others; now it cannot. If they may have, delete it and restart.")
        try:
            return file.read(_BYTES_MAX).strip()
        except UnicodeDecodeError:
            raise NotOwn("it is not text") from None


def _keep(path: Path, secret: str) -> None:
    """It appears whole or not at all; of several who make one, the first one's stays."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)
        except FileExistsError:
            return
        sync(path.parent)
    finally:
        fresh.unlink(missing_ok=True)
