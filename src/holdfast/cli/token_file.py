"""The token that commands on this machine use: a file in the data folder that only its owner can read."""

from pathlib import Path

from holdfast.cli.command_context import note
from holdfast.cli.errors import BadTokenFile
from holdfast.domain.credentials import new_secret
from holdfast.store.fsync import NotOwn, own_secret

NAME = "token"
_CHARS_MIN = 32


def local_token(folder: Path) -> str:
    """The token in `folder`, made when it is missing. Raises BadTokenFile or OSError."""
    path = folder / NAME
    try:
        token = own_secret(path, new_secret, note)
    except NotOwn as wrong:
        raise BadTokenFile(path=path, why=wrong) from None
    if len(token) < _CHARS_MIN or not token.isascii() or not token.isprintable() or " " in token:
        raise BadTokenFile(path=path, why=f"it does not hold one word of {_CHARS_MIN} characters or more")
    return token
