"""The connection to a model's server that was made over HTTP: a file of its own, for its owner's eyes."""

import json
import tomllib
from pathlib import Path

import msgspec

from holdfast.administration.settings_file import write_whole
from holdfast.config import ConfigError

FILE_NAME = "connection.toml"
_MODE = 0o600
_HEAD = "# The model server that was connected in the settings. Holds its key: keep it to yourself.\n"


class Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a model is asked, and with which key."""

    base_url: str
    key: str = ""

    def __repr__(self) -> str:
        return "Saved(…)"


def read_connection(folder: Path) -> Saved | None:
    """What is saved in a data folder. Raises ConfigError for a file that cannot be read."""
    path = folder / FILE_NAME
    try:
        return msgspec.convert(tomllib.loads(path.read_text("utf-8")), Saved)
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError):
        # Not what it says: the key may be in that.
        problem = f"this is no connection to a model; remove the file {path} and connect again"
        raise ConfigError(where=path, problem=problem) from None


def write_connection(folder: Path, saved: Saved | None) -> None:
    """Put a connection in place of what was saved; None: there is none any more."""
    path = folder / FILE_NAME
    if saved is None:
        path.unlink(missing_ok=True)
        return
    if path.exists():
        path.chmod(_MODE)
    lines = (
        f"{name} = {_spelt(text)}\n" for name, text in (("base_url", saved.base_url), ("key", saved.key))
    )
    write_whole(path, _HEAD + "".join(lines))


def _spelt(text: str) -> str:
    return json.dumps(text).replace("\x7f", "\\u007f")
