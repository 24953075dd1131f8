"""The connection to a model's server that was made over HTTP: a file of its own, for its owner's eyes."""

from pathlib import Path

import msgspec

from holdfast.administration.secret_file import read_secret, write_secret

FILE_NAME = "connection.toml"
_HEAD = "# The model server that was connected in the settings. Holds its key: keep it to yourself.\n"


class Saved(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where a model is asked, and with which key."""

    base_url: str
    key: str = ""

    def __repr__(self) -> str:
        return "Saved(…)"


def read_connection(folder: Path) -> Saved | None:
    """What is saved in a data folder. Raises ConfigError for a file that cannot be read."""
    return read_secret(folder / FILE_NAME, Saved, "connection to a model")


def write_connection(folder: Path, saved: Saved | None) -> None:
    """Put a connection in place of what was saved; None: there is none any more. Raises OSError."""
    write_secret(folder / FILE_NAME, saved, _HEAD)
