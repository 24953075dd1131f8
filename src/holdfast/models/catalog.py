"""What is known of models before anybody asks: their windows, and what they cost, from a file with a date."""

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
"""How providers end the name of one version of a model."""
_FAMILY_WINDOWS = (("gpt-5", 272_000), ("gpt-4.1", 1_000_000), ("claude-", 200_000), ("gemini-", 1_000_000))
"""Windows by how a model's name begins, wherever it is asked."""


class Price(msgspec.Struct, frozen=True):
    """US dollars for a million tokens. Above `long_from` tokens of input all of a request costs `long`.

    `cached` is for input read from the provider's cache, `written` for input put into it.
    """

    input: float
    output: float
    cached: float | None = None
    long_from: int = 0
    long: "Price | None" = None
    written: float | None = None

    def apply_to(self, usage: Usage) -> Usage:
        """`usage` with what it costs. Where what was kept has no price of its own, it costs like the rest.

        A provider that counts no input gives no counts at all: what it costs is known only where it is free.
        """
        if not usage.input_tokens and (self.input or self.output):
            return usage
        price = self.long if self.long is not None and usage.input_tokens > self.long_from else self
        cached_tokens = min(usage.cached_tokens, usage.input_tokens)
        cached_price = price.input if price.cached is None else price.cached
        written_tokens = min(usage.written_tokens, usage.input_tokens - cached_tokens)
        written_price = price.input if price.written is None else price.written
        # Dollars for a million tokens are millionths of a dollar for one.
        micros = (
            (usage.input_tokens - cached_tokens - written_tokens) * price.input
            + cached_tokens * cached_price
            + written_tokens * written_price
            + usage.output_tokens * price.output
        )
        return replace(usage, cost_micros=round(max(0, min(COUNT_MAX, micros))))


FREE = Price(0, 0, 0)
"""A model on this machine."""


class CatalogEntry(msgspec.Struct, frozen=True):
    """What is known of one model; None is not known."""

    window_tokens: int | None = None
    answer_tokens: int | None = None
    price: Price | None = None


class ModelOverrides(msgspec.Struct, frozen=True):
    """What whoever runs the server says of one model, which goes before everything else; None is nothing."""

    window_tokens: int | None = None
    takes: frozenset[FileKind] | None = None

    @property
    def description(self) -> str:
        """For people to read; empty where nothing is said."""
        window = f"reads {self.window_tokens:,} tokens at once" if self.window_tokens else ""
        files = f"takes {' and '.join(sorted(self.takes))}" if self.takes else ""
        text = " and ".join(each for each in (window, files) if each)
        return f"It {text}, as the settings say." if text else ""


NO_OVERRIDES = ModelOverrides()


class ModelCatalog:
    """What is known of all of them, and as of when; and what was `said` of some, by their whole names."""

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
        """What was said of a model such as `openai:NAME`."""
        return self._overrides.get(name, NO_OVERRIDES)

    def entry_for(self, endpoint: Endpoint) -> CatalogEntry:
        """What is known of the model behind an endpoint: the price only where its own provider is asked.

        What is asked on this machine is free, whoever made it.
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
    """What this package's file says, beside what is `said`."""
    document = tomllib.loads(files("holdfast.models").joinpath(FILE_NAME).read_text("utf-8"))
    as_of = document.pop("as_of")
    models = {
        provider: MappingProxyType({name: _parse_entry(each) for name, each in listed.items()})
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
