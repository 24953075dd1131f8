"""The connections to providers of models that were made over HTTP: a file of its own, for its owner's eyes.

What stands at its top is OpenAI's, or what stands in for it: for long there was no other.
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
    """What is saved in a data folder, by provider. Raises ConfigError for a file that cannot be read."""
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
    """The same; a file that cannot be read counts as none, and `connection_problem` tells of it."""
    try:
        return read_connections(folder)
    except ConfigError:
        return {}


def connection_problem(folder: Path) -> str:
    """What is wrong with the file that is there now, in a sentence; nothing if all is well."""
    try:
        read_connections(folder)
    except ConfigError as error:
        return f"{FILE_NAME}: {error.fields['problem']}."
    return ""


def write_connections(folder: Path, saved: Mapping[str, SavedConnection]) -> None:
    """Put connections in place of what was saved. Raises OSError."""
    first = saved.get(DEFAULT_PROVIDER, SavedConnection(""))
    others = {name: each for name, each in sorted(saved.items()) if name != DEFAULT_PROVIDER}
    whole = _File(first.base_url, first.key, others) if saved else None
    write_secret(folder / FILE_NAME, whole, _HEADER)
