"""The token that commands on this machine use: a file in the data folder that only its owner can read."""

import os
import stat
from pathlib import Path

from holdfast.cli.desk import note
from holdfast.cli.errors import BadTokenFile
from holdfast.domain.keys import new_secret

NAME = "token"
_MODE = 0o600
_OTHERS = 0o077
_CHARS_MIN, _BYTES_MAX = 32, 1_000


def local_token(folder: Path) -> str:
    """The token in `folder`, made when it is missing. Raises BadTokenFile or OSError."""
    path = folder / NAME
    if not os.path.lexists(path):
        _make(path)
    return _read(path)


def _make(path: Path) -> None:
    """It appears whole or not at all; of several who make one, the first one's stays."""
    fresh = path.with_name(f"{NAME}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(new_secret() + "\n")
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(fresh, path)
        except FileExistsError:
            return
        _sync(path.parent)
    finally:
        fresh.unlink(missing_ok=True)


def _read(path: Path) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise BadTokenFile(path=path, why=error.strerror) from None
    with os.fdopen(handle) as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise BadTokenFile(path=path, why="another user owns it, or it is not a file")
        if found.st_mode & _OTHERS:
            os.fchmod(file.fileno(), _MODE)
            note(f"{path} could be read by others; now it cannot. If they may have, delete it and restart.")
        try:
            token = file.read(_BYTES_MAX).strip()
        except UnicodeDecodeError:
            token = ""
    if len(token) < _CHARS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise BadTokenFile(path=path, why=f"it does not hold one word of {_CHARS_MIN} characters or more")
    return token


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
