"""Look up the known windows and prices of models, in a file with a date."""

import re
import tomllib
from collections.abc import Mapping
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.files import FileKind
from holdfast.domain.usage import COUNT_MAX, Usage
from holdfast.models.endpoint import Endpoint
from holdfast.models.providers import find_provider, is_on_this_machine

FILE_NAME = "prices.toml"
_VERSION_SUFFIX = re.compile(r"-(?:20\d\d-?[01]\d-?[0-3]\d|latest)\Z")
"""Endings by which providers name one version of a model."""
_FAMILY_WINDOWS = (("gpt-5", 272_000), ("gpt-4.1", 1_000_000), ("claude-", 200_000), ("gemini-", 1_000_000))
"""Windows by the beginning of a model's name, at any provider."""


class Price(msgspec.Struct, frozen=True):
    """US dollars for a million tokens. Above `long_from` tokens of input, the whole request costs `long`.

    `cached` is for input read from the provider's cache, `written` for input written to it.
    """

    input: float
    output: float
    cached: float | None = None
    long_from: int = 0
    long: "Price | None" = None
    written: float | None = None

    def apply_to(self, usage: Usage) -> Usage:
        """Return `usage` with its cost. Cached and written input without own prices cost like the rest.

        A provider that counts no input sends no counts at all: the cost is then known only if it is free.
        """
        if not usage.input_tokens and (self.input or self.output):
            return usage
        price = self.long if self.long is not None and usage.input_tokens > self.long_from else self
        cached_tokens = min(usage.cached_tokens, usage.input_tokens)
        cached_price = price.input if price.cached is None else price.cached
        written_tokens = min(usage.written_tokens, usage.input_tokens - cached_tokens)
        written_price = price.input if price.written is None else price.written
        # One dollar for a million tokens is a millionth of a dollar for one token.
        micros = (
            (usage.input_tokens - cached_tokens - written_tokens) * price.input
            + cached_tokens * cached_price
            + written_tokens * written_price
            + usage.output_tokens * price.output
        )
        return replace(usage, cost_micros=round(max(0, min(COUNT_MAX, micros))))


FREE = Price(0, 0, 0)
"""The price of a model on this machine."""


class CatalogEntry(msgspec.Struct, frozen=True):
    """Known facts of one model; None means unknown."""

    window_tokens: int | None = None
    answer_tokens: int | None = None
    price: Price | None = None


class ModelOverrides(msgspec.Struct, frozen=True):
    """Facts of one model from the settings, which take precedence over all others; None means no override."""

    window_tokens: int | None = None
    takes: frozenset[FileKind] | None = None

    @property
    def description(self) -> str:
        """Return a sentence for people; empty without overrides."""
        window = f"reads {self.window_tokens:,} tokens at once" if self.window_tokens else ""
        files = f"takes {' and '.join(sorted(self.takes))}" if self.takes else ""
        text = " and ".join(clause for clause in (window, files) if clause)
        return f"It {text}, as the settings say." if text else ""


NO_OVERRIDES = ModelOverrides()


class ModelCatalog:
    """The known facts of all models as of a date, and the overrides of some, by full name."""

    def __init__(
        self,
        as_of: str = "",
        models: Mapping[str, Mapping[str, CatalogEntry]] | None = None,
        overrides: Mapping[str, ModelOverrides] | None = None,
    ) -> None:
        self.as_of = as_of
        self._models = models or {}
        self._overrides = overrides or {}

    def overrides_for(self, name: str) -> ModelOverrides:
        """Return the overrides of a model such as `openai:NAME`."""
        return self._overrides.get(name, NO_OVERRIDES)

    def entry_for(self, endpoint: Endpoint) -> CatalogEntry:
        """Return the known facts of the model behind an endpoint.

        A price holds only at the provider's own address. On this machine every model is free.
        """
        provider = find_provider(endpoint.provider)
        assert provider is not None, endpoint.provider
        entries = self._models.get(provider.name, {})
        model = endpoint.model
        entry = entries.get(model) or entries.get(_VERSION_SUFFIX.sub("", model)) or CatalogEntry()
        if entry.window_tokens is None:
            window = next((tokens for start, tokens in _FAMILY_WINDOWS if model.startswith(start)), None)
            entry = replace(entry, window_tokens=window)
        if is_on_this_machine(endpoint):
            return replace(entry, price=FREE)
        return entry if endpoint.base_url.rstrip("/") == provider.base_url else replace(entry, price=None)


def load_catalog(overrides: Mapping[str, ModelOverrides] | None = None) -> ModelCatalog:
    """Return the catalog in this package's file, with `overrides`."""
    document = tomllib.loads(files("holdfast.models").joinpath(FILE_NAME).read_text("utf-8"))
    as_of = document.pop("as_of")
    models = {
        provider: MappingProxyType({name: _parse_entry(raw) for name, raw in listed.items()})
        for provider, listed in document.items()
    }
    return ModelCatalog(as_of, MappingProxyType(models), overrides)


def _parse_entry(raw: Mapping[str, Any]) -> CatalogEntry:
    long = _parse_price(raw, "long_") if "long_from" in raw else None
    price = replace(_parse_price(raw), long_from=raw.get("long_from", 0), long=long)
    return CatalogEntry(raw["window"], raw.get("answer"), price)


def _parse_price(raw: Mapping[str, Any], prefix: str = "") -> Price:
    cached, written = (raw.get(f"{prefix}{kind}") for kind in ("cached", "written"))
    return Price(raw[f"{prefix}input"], raw[f"{prefix}output"], cached, written=written)
