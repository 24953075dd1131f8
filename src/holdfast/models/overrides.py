"""Read the overrides of models in the settings: windows, and the files that they accept."""

from collections.abc import Mapping
from itertools import chain
from typing import get_args

from msgspec.structs import replace

from holdfast.domain.files import FileKind
from holdfast.models.catalog import NO_OVERRIDES, ModelOverrides
from holdfast.models.listing import TEXT_ONLY
from holdfast.models.providers import PROVIDERS, find_provider
from holdfast.settings.settings import FILE_NAME, PREFIX, ConfigError, Settings

_KINDS: tuple[FileKind, ...] = get_args(FileKind)


def read_overrides(settings: Settings) -> Mapping[str, ModelOverrides]:
    """Return the overrides by the full name of each model. Raises ConfigError for an unknown provider."""
    windows = dict(_parse_line("model_windows", line, settings) for line in settings.model_windows)
    takes = dict(_parse_line("model_takes", line, settings) for line in settings.model_takes)
    overrides = dict.fromkeys(chain(windows, takes), NO_OVERRIDES)
    overrides |= {
        name: replace(overrides[name], window_tokens=int(tokens)) for name, tokens in windows.items()
    }
    return overrides | {
        name: replace(overrides[name], takes=_parse_kinds(words)) for name, words in takes.items()
    }


def _parse_kinds(value: str) -> frozenset[FileKind]:
    named = value.split("+")
    return TEXT_ONLY | frozenset(kind for kind in _KINDS if kind in named)


def _parse_line(setting: str, line: str, settings: Settings) -> tuple[str, str]:
    name, _, value = line.rpartition("=")
    provider = name.partition(":")[0]
    if find_provider(provider) is None:
        is_from_file = settings.origins.get(setting) == "file"
        where = settings.data / FILE_NAME if is_from_file else f"{PREFIX}{setting.upper()}"
        known = ", ".join(provider.name for provider in PROVIDERS)
        problem = f"{setting} names {name}, but there is no provider {provider}; there are {known}"
        raise ConfigError(where=where, problem=problem)
    return name, value
