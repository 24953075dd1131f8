"""The models that a server says it has, and what it says of each: in every shape that providers list them in.

OpenAI's list has names alone. OpenRouter, Mistral, Groq, vLLM and Anthropic say more in it, each in words of
its own; llama.cpp says it in a second list beside the first.
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
"""How long a list is kept."""
FAILURE_CACHE_S = 15.0
"""How long it is kept that a server gave none."""
LIST_TIMEOUT_S = 3.0
"""For a server to give its list."""
MODELS_MAX = 1_000
"""As many of a list are told."""
TEXT_ONLY: frozenset[FileKind] = frozenset({"text"})
TEXT_AND_IMAGES: frozenset[FileKind] = frozenset({"text", "image"})
ALL_KINDS: frozenset[FileKind] = frozenset({"text", "image", "pdf"})
_NOT_FOR_CHAT = ("embed", "rerank", "whisper", "tts", "moderation", "dall-e", "transcribe", "imagen", "veo-")
_WINDOW_KEYS = ("max_model_len", "context_length", "max_context_length", "context_window", "max_input_tokens")
_ANSWER_LIMIT_KEYS = ("max_completion_tokens", "max_tokens")


class ListedModel(msgspec.Struct, frozen=True):
    """A model as its server lists it; what is None was not said."""

    name: str
    window_tokens: int | None = None
    answer_tokens: int | None = None
    takes: frozenset[FileKind] | None = None
    price: Price | None = None
    owned_by: str = ""


class ModelListing(msgspec.Struct, frozen=True):
    """What a server has, those that cannot be talked to left out; `problem` says why there is no list.

    `is_named`: it calls itself a list, as the protocol has it.
    """

    models: tuple[ListedModel, ...] = ()
    declares_list: bool = False
    problem: str = ""


def list_url(endpoint: Endpoint) -> URL:
    """Where the list is; Anthropic gives it in pages."""
    url = endpoint.url("models")
    return url.update_query(limit=MODELS_MAX) if endpoint.protocol == "messages" else url


def parse_listing(body: bytes) -> ModelListing | None:
    """The models in an answer; None if it holds no list of them."""
    try:
        document = _LIST.decode(body)
    except ValueError:
        return None
    loaded = [each for each in document.models or () if isinstance(each, dict)]
    with_vision = {
        name for each in loaded if "multimodal" in each.get("capabilities", ()) for name in _model_names(each)
    }
    text_only = {name for each in loaded for name in _model_names(each)} - with_vision
    models = [
        _parse_model(each, with_vision, text_only)
        for each in document.data or ()
        if isinstance(each.get("id"), str)
    ]
    if document.data is None or len(models) < len(document.data):
        return None
    # Anthropic's list has no name, and cannot be mistaken: each of its models has.
    declares_list = document.object == "list" or bool(
        document.data and all(e.get("type") == "model" for e in document.data)
    )
    return ModelListing(tuple(each for each in models if _is_for_chat(each))[:MODELS_MAX], declares_list)


class ListingCache:
    """The list of each provider, fetched when it is first wanted and kept for a while."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._cache: dict[str, tuple[float, str, str, ModelListing]] = {}
        self._locks: dict[str, asyncio.Lock] = {}

    async def get(self, endpoint: Endpoint, wait_s: float = LIST_TIMEOUT_S) -> ModelListing:
        """What the provider has that `endpoint` belongs to; never raises."""
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
    """What a server lists now."""
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
    # Google's list has names as its own protocol spells them.
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
    """The first that is a number of tokens."""
    return next((each for each in values if isinstance(each, int) and each > 0), None)


def _parse_takes(entry: dict[str, Any]) -> frozenset[FileKind] | None:
    """Which files it takes, if that is said: as OpenRouter does, as Mistral does, or as Anthropic does."""
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
    """What OpenRouter says that a model costs: dollars for one token, as text; no amount is no price."""
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
    """Of a model as llama.cpp lists it a second time."""
    return {loaded.get("name"), loaded.get("model")}


class _ModelList(msgspec.Struct, frozen=True):
    data: list[dict[str, Any]] | None = None
    models: list[Any] | None = None
    object: str = ""


_LIST = msgspec.json.Decoder(_ModelList)
