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
from holdfast.models.transport import Told, ask_once

FRESH_S = 300.0
"""How long a list is kept."""
FAILED_S = 15.0
"""How long it is kept that a server gave none."""
LIST_S = 3.0
"""For a server to give its list."""
MODELS_MAX = 1_000
"""As many of a list are told."""
WORDS: frozenset[FileKind] = frozenset({"text"})
PICTURES: frozenset[FileKind] = frozenset({"text", "image"})
ALL: frozenset[FileKind] = frozenset({"text", "image", "pdf"})
_NOT_FOR_CHAT = ("embed", "rerank", "whisper", "tts", "moderation", "dall-e", "transcribe", "imagen", "veo-")
_WINDOWS = ("max_model_len", "context_length", "max_context_length", "context_window", "max_input_tokens")
_ANSWERS = ("max_completion_tokens", "max_tokens")


class Offer(msgspec.Struct, frozen=True):
    """A model as its server lists it; what is None was not said."""

    name: str
    window_tokens: int | None = None
    answer_tokens: int | None = None
    takes: frozenset[FileKind] | None = None
    price: Price | None = None
    owned_by: str = ""


class Listed(msgspec.Struct, frozen=True):
    """What a server has, those that cannot be talked to left out; `problem` says why there is no list.

    `is_named`: it calls itself a list, as the protocol has it.
    """

    offers: tuple[Offer, ...] = ()
    is_named: bool = False
    problem: str = ""


def list_url(endpoint: Endpoint) -> URL:
    """Where the list is; Anthropic gives it in pages."""
    url = endpoint.url("models")
    return url.update_query(limit=MODELS_MAX) if endpoint.protocol == "messages" else url


def listed_in(body: bytes) -> Listed | None:
    """The models in an answer; None if it holds no list of them."""
    try:
        found = _LIST.decode(body)
    except ValueError:
        return None
    loaded = [each for each in found.models or () if isinstance(each, dict)]
    seeing = {
        name for each in loaded if "multimodal" in each.get("capabilities", ()) for name in _names(each)
    }
    blind = {name for each in loaded for name in _names(each)} - seeing
    offers = [_offer(each, seeing, blind) for each in found.data or () if isinstance(each.get("id"), str)]
    if found.data is None or len(offers) < len(found.data):
        return None
    # Anthropic's list has no name, and cannot be mistaken: each of its models has.
    is_named = found.object == "list" or bool(
        found.data and all(e.get("type") == "model" for e in found.data)
    )
    return Listed(tuple(each for each in offers if _is_for_chat(each))[:MODELS_MAX], is_named)


class Lists:
    """The list of each provider, fetched when it is first wanted and kept for a while."""

    def __init__(self, now: Callable[[], float] = monotonic) -> None:
        self._now = now
        self._kept: dict[str, tuple[float, str, str, Listed]] = {}
        self._turns: dict[str, asyncio.Lock] = {}

    async def of(self, endpoint: Endpoint, wait_s: float = LIST_S) -> Listed:
        """What the provider has that `endpoint` belongs to; never raises."""
        async with self._turns.setdefault(endpoint.provider, asyncio.Lock()):
            kept = self._kept.get(endpoint.provider)
            if kept is not None and kept[1:3] == (endpoint.base_url, endpoint.key.reveal()):
                age_s = self._now() - kept[0]
                if age_s < (FAILED_S if kept[3].problem else FRESH_S):
                    return kept[3]
            listed = await fetched(endpoint, wait_s)
            self._kept[endpoint.provider] = self._now(), endpoint.base_url, endpoint.key.reveal(), listed
            return listed


async def fetched(endpoint: Endpoint, wait_s: float) -> Listed:
    """What a server lists now."""
    told = await ask_once(endpoint, list_url(endpoint), wait_s)
    if told is None:
        return Listed(problem=f"{endpoint.host} does not answer.")
    if told.status in (401, 403):
        return Listed(problem=f"{endpoint.host} refuses the key ({told.status}).")
    listed = listed_in(told.body) if told.status == 200 else None
    return listed or Listed(problem=_no_list(endpoint, told))


def _no_list(endpoint: Endpoint, told: Told) -> str:
    return f"{endpoint.host} gives no list of models ({told.status})."


def _is_for_chat(offer: Offer) -> bool:
    # Another Holdfast would answer with its own agent; two of them could answer each other for ever.
    is_ours = offer.owned_by == "holdfast"
    return bool(offer.name) and not is_ours and not any(word in offer.name.lower() for word in _NOT_FOR_CHAT)


def _offer(told: dict[str, Any], seeing: set[str], blind: set[str]) -> Offer:
    # Google's list has names as its own protocol spells them.
    name = told["id"].removeprefix("models/")
    best = told.get("top_provider")
    sees = True if name in seeing else False if name in blind else None
    takes = _takes(told) or (None if sees is None else PICTURES if sees else WORDS)
    meta = told.get("meta")
    windows = [*(told.get(key) for key in _WINDOWS), meta.get("n_ctx") if isinstance(meta, dict) else None]
    answers = [told.get(key) for key in _ANSWERS] + (
        [best.get("max_completion_tokens")] if isinstance(best, dict) else []
    )
    owner = told.get("owned_by")
    return Offer(
        name, _first(windows), _first(answers), takes, _price(told.get("pricing")),
        owner if isinstance(owner, str) else "",
    )  # fmt: skip


def _first(values: list[Any]) -> int | None:
    """The first that is a number of tokens."""
    return next((each for each in values if isinstance(each, int) and each > 0), None)


def _takes(told: dict[str, Any]) -> frozenset[FileKind] | None:
    """Which files it takes, if that is said: as OpenRouter does, as Mistral does, or as Anthropic does."""
    architecture, can = told.get("architecture"), told.get("capabilities")
    if isinstance(architecture, dict) and isinstance(architecture.get("input_modalities"), list):
        return PICTURES if "image" in architecture["input_modalities"] else WORDS
    if not isinstance(can, dict):
        return None
    if isinstance(can.get("vision"), bool):
        return PICTURES if can["vision"] else WORDS
    if isinstance(can.get("image_input"), dict):
        kinds = (("image", "image_input"), ("pdf", "pdf_input"))
        named = {
            kind for kind, name in kinds if isinstance(can.get(name), dict) and can[name].get("supported")
        }
        return frozenset(kind for kind in ALL if kind == "text" or kind in named)
    return None


def _price(told: Any) -> Price | None:
    """What OpenRouter says that a model costs: dollars for one token, as text; no amount is no price."""
    if not isinstance(told, dict):
        return None
    try:
        each, written = (float(told[name]) * 1e6 for name in ("prompt", "completion"))
        kept = [
            float(told[name]) * 1e6 if told.get(name) else None
            for name in ("input_cache_read", "input_cache_write")
        ]
    except (KeyError, TypeError, ValueError):
        return None
    if not all(0 <= price < inf for price in (each, written, *(price or 0 for price in kept))):
        return None
    return Price(each, written, kept[0], written=kept[1])


def _names(loaded: dict[str, Any]) -> set[Any]:
    """Of a model as llama.cpp lists it a second time."""
    return {loaded.get("name"), loaded.get("model")}


class _ModelList(msgspec.Struct, frozen=True):
    data: list[dict[str, Any]] | None = None
    models: list[Any] | None = None
    object: str = ""


_LIST = msgspec.json.Decoder(_ModelList)
