"""What the settings say of models where their servers do not, or are wrong: windows, and files they take."""

from collections.abc import Mapping
from itertools import chain
from typing import get_args

from msgspec.structs import replace

from holdfast.domain.files import FileKind
from holdfast.models.catalog import NOTHING_SAID, Said
from holdfast.models.listing import WORDS
from holdfast.models.providers import PROVIDERS, provider_named
from holdfast.settings.settings import FILE_NAME, PREFIX, ConfigError, Settings

_KINDS: tuple[FileKind, ...] = get_args(FileKind)


def said_in(settings: Settings) -> Mapping[str, Said]:
    """What is said, by the whole name of each model. Raises ConfigError for a provider that there is not."""
    windows = dict(_split("model_windows", line, settings) for line in settings.model_windows)
    takes = dict(_split("model_takes", line, settings) for line in settings.model_takes)
    said = dict.fromkeys(chain(windows, takes), NOTHING_SAID)
    said |= {name: replace(said[name], window_tokens=int(tokens)) for name, tokens in windows.items()}
    return said | {name: replace(said[name], takes=_kinds(words)) for name, words in takes.items()}


def _kinds(words: str) -> frozenset[FileKind]:
    named = words.split("+")
    return WORDS | frozenset(kind for kind in _KINDS if kind in named)


def _split(setting: str, line: str, settings: Settings) -> tuple[str, str]:
    name, _, said = line.rpartition("=")
    provider = name.partition(":")[0]
    if provider_named(provider) is None:
        is_written = settings.origins.get(setting) == "file"
        where = settings.data / FILE_NAME if is_written else f"{PREFIX}{setting.upper()}"
        known = ", ".join(each.name for each in PROVIDERS)
        problem = f"{setting} names {name}, but there is no provider {provider}; there are {known}"
        raise ConfigError(where=where, problem=problem)
    return name, said
