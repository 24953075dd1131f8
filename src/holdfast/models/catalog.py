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
from holdfast.models.providers import is_on_this_machine, provider_named

FILE_NAME = "prices.toml"
_DATED = re.compile(r"-(?:20\d\d-?[01]\d-?[0-3]\d|latest)\Z")
"""How providers end the name of one version of a model."""
_FAMILIES = (("gpt-5", 272_000), ("gpt-4.1", 1_000_000), ("claude-", 200_000), ("gemini-", 1_000_000))
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

    def of(self, usage: Usage) -> Usage:
        """`usage` with what it costs. Where what was kept has no price of its own, it costs like the rest.

        A provider that counts no input gives no counts at all: what it costs is known only where it is free.
        """
        if not usage.input_tokens and (self.input or self.output):
            return usage
        price = self.long if self.long is not None and usage.input_tokens > self.long_from else self
        kept = min(usage.cached_tokens, usage.input_tokens)
        cached = price.input if price.cached is None else price.cached
        put = min(usage.written_tokens, usage.input_tokens - kept)
        written = price.input if price.written is None else price.written
        # Dollars for a million tokens are millionths of a dollar for one.
        micros = (
            (usage.input_tokens - kept - put) * price.input
            + kept * cached
            + put * written
            + usage.output_tokens * price.output
        )
        return replace(usage, cost_micros=round(max(0, min(COUNT_MAX, micros))))


FREE = Price(0, 0, 0)
"""A model on this machine."""


class Facts(msgspec.Struct, frozen=True):
    """What is known of one model; None is not known."""

    window_tokens: int | None = None
    answer_tokens: int | None = None
    price: Price | None = None


class Said(msgspec.Struct, frozen=True):
    """What whoever runs the server says of one model, which goes before everything else; None is nothing."""

    window_tokens: int | None = None
    takes: frozenset[FileKind] | None = None

    @property
    def in_words(self) -> str:
        """For people to read; empty where nothing is said."""
        window = f"reads {self.window_tokens:,} tokens at once" if self.window_tokens else ""
        files = f"takes {' and '.join(sorted(self.takes))}" if self.takes else ""
        told = " and ".join(each for each in (window, files) if each)
        return f"It {told}, as the settings say." if told else ""


NOTHING_SAID = Said()


class Known:
    """What is known of all of them, and as of when; and what was `said` of some, by their whole names."""

    def __init__(
        self,
        as_of: str = "",
        models: Mapping[str, Mapping[str, Facts]] | None = None,
        said: Mapping[str, Said] | None = None,
    ) -> None:
        self.as_of = as_of
        self._models = models or {}
        self._said = said or {}

    def said_of(self, name: str) -> Said:
        """What was said of a model such as `openai:NAME`."""
        return self._said.get(name, NOTHING_SAID)

    def facts(self, endpoint: Endpoint) -> Facts:
        """What is known of the model behind an endpoint: the price only where its own provider is asked.

        What is asked on this machine is free, whoever made it.
        """
        provider = provider_named(endpoint.provider)
        assert provider is not None, endpoint.provider
        listed = self._models.get(provider.name, {})
        model = endpoint.model
        found = listed.get(model) or listed.get(_DATED.sub("", model)) or Facts()
        if found.window_tokens is None:
            window = next((tokens for start, tokens in _FAMILIES if model.startswith(start)), None)
            found = replace(found, window_tokens=window)
        if is_on_this_machine(endpoint):
            return replace(found, price=FREE)
        return found if endpoint.base_url.rstrip("/") == provider.base_url else replace(found, price=None)


def read_known(said: Mapping[str, Said] | None = None) -> Known:
    """What this package's file says, beside what is `said`."""
    told = tomllib.loads(files("holdfast.models").joinpath(FILE_NAME).read_text("utf-8"))
    as_of = told.pop("as_of")
    models = {
        provider: MappingProxyType({name: _facts(each) for name, each in listed.items()})
        for provider, listed in told.items()
    }
    return Known(as_of, MappingProxyType(models), said)


def _facts(told: Mapping[str, Any]) -> Facts:
    long = _price(told, "long_") if "long_from" in told else None
    price = replace(_price(told), long_from=told.get("long_from", 0), long=long)
    return Facts(told["window"], told.get("answer"), price)


def _price(told: Mapping[str, Any], which: str = "") -> Price:
    cached, written = (told.get(f"{which}{kind}") for kind in ("cached", "written"))
    return Price(told[f"{which}input"], told[f"{which}output"], cached, written=written)
