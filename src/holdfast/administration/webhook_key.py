"""The keys that webhooks are signed with: files in the data folder that only their owner can read."""

import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from holdfast.domain.errors import HoldfastError
from holdfast.domain.webhook_signing import key_of, written_of

FOR_MEMORY, FOR_CHANNEL = "memory-webhook.key", "channel-webhook.key"
_CHANCE_BYTES = 32
_MODE = 0o600
_OTHERS = 0o077
_BYTES_MAX = 1_000


class BadWebhookKey(HoldfastError):
    """{path} is not a key of yours for webhooks: {why}."""

    code, status = "bad_webhook_key", 409
    remedy = "Delete it; `holdfast serve` makes a new one, which your receiver needs then."


def webhook_key(
    path: Path, note: Callable[[str], None], chance: Callable[[int], bytes] = secrets.token_bytes
) -> str:
    """The key at `path`, `whsec_…`, made when it is missing. Raises BadWebhookKey or OSError."""
    if not os.path.lexists(path):
        _make(path, written_of(chance(_CHANCE_BYTES)))
    return _read(path, note)


def _make(path: Path, secret: str) -> None:
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
        _sync(path.parent)
    finally:
        fresh.unlink(missing_ok=True)


def _read(path: Path, note: Callable[[str], None]) -> str:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise BadWebhookKey(path=path, why=error.strerror) from None
    found = os.fstat(handle)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
        os.close(handle)
        raise BadWebhookKey(path=path, why="another user owns it, or it is not a file")
    with os.fdopen(handle) as file:
        if found.st_mode & _OTHERS:
            os.fchmod(file.fileno(), _MODE)
            note(f"{path} could be read by others; now it cannot. If they may have, delete it and restart.")
        try:
            text = file.read(_BYTES_MAX).strip()
            key_of(text)
        except ValueError as error:  # Text that is none is one, too.
            why = "it is not text" if isinstance(error, UnicodeDecodeError) else f"it is {error}"
            raise BadWebhookKey(path=path, why=why) from None
    return text


def _sync(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
