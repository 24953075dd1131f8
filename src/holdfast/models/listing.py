"""Parse and cache the lists of models that servers send, in the shapes of all providers.

OpenAI lists names alone. OpenRouter, Mistral, Groq, vLLM and Anthropic list more, each in fields of its own.
llama.cpp adds a second list beside the first.
"""

import asyncio
from collections.abc import Callable
from math import inf
from time import monotonic
from typing import Any

import msgspec
from yarl import URL

from holdfast.domain.files import FileKind
from holdfast.models.catalog import Price
from holdfast.models.endpoint import Endpoint
from holdfast.models.transport import HttpReply, fetch_once

CACHE_S = 300.0
"""Lifetime of a cached list."""
FAILURE_CACHE_S = 15.0
"""Lifetime of a cached failure."""
LIST_TIMEOUT_S = 3.0
"""Limit for a server to send its list."""
MODELS_MAX = 1_000
"""Limit of a list; further models are dropped."""
TEXT_ONLY: frozenset[FileKind] = frozenset({"text"})
TEXT_AND_IMAGES: frozenset[FileKind] = frozenset({"text", "image"})
ALL_KINDS: frozenset[FileKind] = frozenset({"text", "image", "pdf"})
_NOT_FOR_CHAT = ("embed", "rerank", "whisper", "tts", "moderation", "dall-e", "transcribe", "imagen", "veo-")
_WINDOW_KEYS = ("max_model_len", "context_length", "max_context_length", "context_window", "max_input_tokens")
_ANSWER_LIMIT_KEYS = ("max_completion_tokens", "max_tokens")


class ListedModel(msgspec.Struct, frozen=True):
    """A model as its server lists it; None means not reported."""

    name: str
    window_tokens: int | None = None
    answer_tokens: int | None = None
    takes: frozenset[FileKind] | None = None
    price: Price | None = None
    owned_by: str = ""


class ModelListing(msgspec.Struct, frozen=True):
    """The chat models of a server, or the `problem` that prevents a list.

    `declares_list`: the reply calls itself a list, as the protocol requires.
    """

    models: tuple[ListedModel, ...] = ()
    declares_list: bool = False
    problem: str = ""


def list_url(endpoint: Endpoint) -> URL:
    """Return the URL of the list, with the largest page size for Anthropic, which sends pages."""
    url = endpoint.url("models")
    return url.update_query(limit=MODELS_MAX) if endpoint.protocol == "messages" else url


def parse_listing(body: bytes) -> ModelListing | None:
    """Return the models in a reply; None if it holds no list."""
    try:
        document = _LIST.decode(body)
    except ValueError:
        return None
    loaded = [entry for entry in document.models or () if isinstance(entry, dict)]
    with_vision = {
        name
        for entry in loaded
        if "multimodal" in entry.get("capabilities", ())
        for name in _model_names(entry)
    }
    text_only = {name for entry in loaded for name in _model_names(entry)} - with_vision
    models = [
        _parse_model(entry, with_vision, text_only)
        for entry in document.data or ()
        if isinstance(entry.get("id"), str)
    ]
    if document.data is None or len(models) < len(document.data):
        return None
    # Anthropic's list does not declare itself, but each model in it declares its type.
    declares_list = document.object == "list" or bool(
        document.data and all(entry.get("type") == "model" for entry in document.data)
    )
    return ModelListing(tuple(model for model in models if _is_for_chat(model))[:MODELS_MAX], declares_list)


class ListingCache:
    """Cache the list of each provider. The first use fetches it."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._cache: dict[str, tuple[float, str, str, ModelListing]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, endpoint: Endpoint, wait_s: float = LIST_TIMEOUT_S) -> ModelListing:
        """Return the models of the endpoint's provider; never raises."""
        async with self._locks.setdefault(endpoint.provider, asyncio.Lock()):
            cached = self._cache.get(endpoint.provider)
            if cached is not None and cached[1:3] == (endpoint.base_url, endpoint.key.reveal()):
                age_s = self._now() - cached[0]
                if age_s < (FAILURE_CACHE_S if cached[3].problem else CACHE_S):
                    return cached[3]
            listing = await fetch_listing(endpoint, wait_s)
            self._cache[endpoint.provider] = self._now(), endpoint.base_url, endpoint.key.reveal(), listing
            return listing


async def fetch_listing(endpoint: Endpoint, wait_s: float) -> ModelListing:
    """Fetch the list of a server. A failure becomes its `problem`."""
    reply = await fetch_once(endpoint, list_url(endpoint), wait_s)
    if reply is None:
        return ModelListing(problem=f"{endpoint.host} does not answer.")
    if reply.status in (401, 403):
        return ModelListing(problem=f"{endpoint.host} refuses the key ({reply.status}).")
    listing = parse_listing(reply.body) if reply.status == 200 else None
    return listing or ModelListing(problem=_no_list_problem(endpoint, reply))


def _no_list_problem(endpoint: Endpoint, reply: HttpReply) -> str:
    return f"{endpoint.host} gives no list of models ({reply.status})."


def _is_for_chat(model: ListedModel) -> bool:
    # Another Holdfast would answer with its own agent; two of them could answer each other for ever.
    is_ours = model.owned_by == "holdfast"
    return bool(model.name) and not is_ours and not any(word in model.name.lower() for word in _NOT_FOR_CHAT)


def _parse_model(entry: dict[str, Any], with_vision: set[str], text_only: set[str]) -> ListedModel:
    # Google lists names with the prefix of its own protocol.
    name = entry["id"].removeprefix("models/")
    top_provider = entry.get("top_provider")
    has_vision = True if name in with_vision else False if name in text_only else None
    takes = _parse_takes(entry) or (
        None if has_vision is None else TEXT_AND_IMAGES if has_vision else TEXT_ONLY
    )
    meta = entry.get("meta")
    windows = [
        *(entry.get(key) for key in _WINDOW_KEYS),
        meta.get("n_ctx") if isinstance(meta, dict) else None,
    ]
    answers = [entry.get(key) for key in _ANSWER_LIMIT_KEYS] + (
        [top_provider.get("max_completion_tokens")] if isinstance(top_provider, dict) else []
    )
    owner = entry.get("owned_by")
    return ListedModel(
        name, _first(windows), _first(answers), takes, _parse_price(entry.get("pricing")),
        owner if isinstance(owner, str) else "",
    )  # fmt: skip


def _first(values: list[Any]) -> int | None:
    """Return the first value that is a number of tokens."""
    return next((value for value in values if isinstance(value, int) and value > 0), None)


def _parse_takes(entry: dict[str, Any]) -> frozenset[FileKind] | None:
    """Return the kinds of files in an entry by OpenRouter, Mistral or Anthropic; None if it has none."""
    architecture, capabilities = entry.get("architecture"), entry.get("capabilities")
    if isinstance(architecture, dict) and isinstance(architecture.get("input_modalities"), list):
        return TEXT_AND_IMAGES if "image" in architecture["input_modalities"] else TEXT_ONLY
    if not isinstance(capabilities, dict):
        return None
    if isinstance(capabilities.get("vision"), bool):
        return TEXT_AND_IMAGES if capabilities["vision"] else TEXT_ONLY
    if isinstance(capabilities.get("image_input"), dict):
        kinds = (("image", "image_input"), ("pdf", "pdf_input"))
        named = {
            kind
            for kind, name in kinds
            if isinstance(capabilities.get(name), dict) and capabilities[name].get("supported")
        }
        return frozenset(kind for kind in ALL_KINDS if kind == "text" or kind in named)
    return None


def _parse_price(pricing: Any) -> Price | None:
    """Return OpenRouter's price, which is in dollars per token and a text; None without valid amounts."""
    if not isinstance(pricing, dict):
        return None
    try:
        input_price, output_price = (float(pricing[name]) * 1e6 for name in ("prompt", "completion"))
        cache_prices = [
            float(pricing[name]) * 1e6 if pricing.get(name) else None
            for name in ("input_cache_read", "input_cache_write")
        ]
    except (KeyError, TypeError, ValueError):
        return None
    if not all(
        0 <= price < inf for price in (input_price, output_price, *(price or 0 for price in cache_prices))
    ):
        return None
    return Price(input_price, output_price, cache_prices[0], written=cache_prices[1])


def _model_names(loaded: dict[str, Any]) -> set[Any]:
    """Return the names of a model in llama.cpp's second list."""
    return {loaded.get("name"), loaded.get("model")}


class _ModelList(msgspec.Struct, frozen=True):
    data: list[dict[str, Any]] | None = None
    models: list[Any] | None = None
    object: str = ""


_LIST = msgspec.json.Decoder(_ModelList)
