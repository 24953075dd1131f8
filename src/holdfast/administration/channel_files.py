"""The secrets of chat apps in the data folder: files of their own, for their owner's eyes."""

import json
import os
import secrets
import stat
import tomllib
from pathlib import Path

import msgspec

from holdfast.administration.settings_file import write_whole
from holdfast.config import ConfigError
from holdfast.gateway.channels.webhook_signing import key_of, written_of

KEY_NAME, TOKEN_NAME = "channel-webhook.key", "telegram.toml"
_MODE, _OTHERS = 0o600, 0o077
_KEY_BYTES, _BYTES_MAX = 32, 1_000
_HEAD = "# The Telegram bot that was connected in the settings. Holds its token: keep it to yourself.\n"


class Bot(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What lets one speak as a bot."""

    token: str

    def __repr__(self) -> str:
        return "Bot(…)"


def webhook_key(folder: Path) -> bytes:
    """The key of the webhook channel, made when it is missing. Raises ConfigError, OSError."""
    path = folder / KEY_NAME
    if not os.path.lexists(path):
        _make(path)
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigError(where=path, problem=f"this cannot be read: {error.strerror}") from None
    with os.fdopen(handle, "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
            raise ConfigError(where=path, problem="another user owns this, or it is not a file")
        if found.st_mode & _OTHERS:
            os.fchmod(file.fileno(), _MODE)
        written = file.read(_BYTES_MAX)
    try:
        return key_of(written.decode("ascii"))
    except ValueError:
        # Not what it says: it may be most of a key.
        problem = "this is no key of the webhook channel; remove the file, and a new one is made"
        raise ConfigError(where=path, problem=problem) from None


def _make(path: Path) -> None:
    """It appears whole or not at all; of several who make one, the first one's stays."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _MODE)
    try:
        with os.fdopen(handle, "w") as file:
            file.write(written_of(secrets.token_bytes(_KEY_BYTES)) + "\n")
            file.flush()
            os.fsync(file.fileno())
        if not os.path.lexists(path):
            os.link(fresh, path)
    except FileExistsError:
        return
    finally:
        fresh.unlink(missing_ok=True)
    parent = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(parent)
    finally:
        os.close(parent)


def read_bot(folder: Path) -> Bot | None:
    """The bot that was connected. Raises ConfigError for a file that cannot be read."""
    path = folder / TOKEN_NAME
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), Bot)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError):
        # Not what it says: the token may be in that.
        problem = f"this is no connection to Telegram; remove the file {path} and connect again"
        raise ConfigError(where=path, problem=problem) from None


def write_bot(folder: Path, bot: Bot | None) -> None:
    """Put a bot in place of what was saved; None: there is none any more. Raises OSError."""
    path = folder / TOKEN_NAME
    if bot is None:
        path.unlink(missing_ok=True)
        return
    if path.exists():
        path.chmod(_MODE)
    spelt = json.dumps(bot.token).replace("\x7f", "\\u007f")
    write_whole(path, f"{_HEAD}token = {spelt}\n")
