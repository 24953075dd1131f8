"""Read and write the saved model connections, in a file that only its owner can read.

The top level holds the connection of OpenAI or of its replacement: older versions knew no other.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from holdfast.models.providers import PROVIDERS, SavedConnection
from holdfast.settings.secret_file import read_secret, write_secret
from holdfast.settings.settings import ConfigError

FILE_NAME = "connection.toml"
DEFAULT_PROVIDER = PROVIDERS[0].name
_HEADER = "# The model servers that were connected in the settings. Holds their keys: keep it to yourself.\n"
_DESCRIPTION = "connection to a model"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    base_url: str = ""
    key: str = ""
    providers: dict[str, SavedConnection] = msgspec.field(default_factory=dict)


def read_connections(folder: Path) -> Mapping[str, SavedConnection]:
    """Return the connections saved in a data folder, by provider. Raises ConfigError if unreadable."""
    path = folder / FILE_NAME
    found = read_secret(path, _File, _DESCRIPTION)
    if found is None:
        return {}
    known = {provider.name for provider in PROVIDERS}
    if not known.issuperset(found.providers) or not (found.base_url or found.providers):
        raise ConfigError(
            where=path, problem=f"this is no {_DESCRIPTION}; remove the file {path} and connect again"
        )
    first = {DEFAULT_PROVIDER: SavedConnection(found.base_url, found.key)} if found.base_url else {}
    return {**first, **found.providers}


def read_connections_or_empty(folder: Path) -> Mapping[str, SavedConnection]:
    """Return the same, or nothing for an unreadable file, which `connection_problem` reports."""
    try:
        return read_connections(folder)
    except ConfigError:
        return {}


def connection_problem(folder: Path) -> str:
    """Return what is wrong with the file, as a sentence; empty if nothing is."""
    try:
        read_connections(folder)
    except ConfigError as error:
        return f"{FILE_NAME}: {error.fields['problem']}."
    return ""


def write_connections(folder: Path, saved: Mapping[str, SavedConnection]) -> None:
    """Replace the saved connections. Raises OSError."""
    first = saved.get(DEFAULT_PROVIDER, SavedConnection(""))
    others = {name: connection for name, connection in sorted(saved.items()) if name != DEFAULT_PROVIDER}
    whole = _File(first.base_url, first.key, others) if saved else None
    write_secret(folder / FILE_NAME, whole, _HEADER)
