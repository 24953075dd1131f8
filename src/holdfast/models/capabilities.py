"""Determine which files a model accepts: from documentation, else its server, else its name.

The protocols have no field for it. OpenRouter, Mistral and Anthropic report it in their list of models,
llama.cpp beside that list, and Ollama for one model at a time. PDF files go only to OpenAI's and Anthropic's
own servers: others that speak their protocols rarely accept them, and none of them reports it.
"""

import re
from collections.abc import Callable
from time import monotonic

import msgspec

from holdfast.domain.files import FileKind, SupportedFiles
from holdfast.models.endpoint import OPENAI_URL, Endpoint
from holdfast.models.listing import (
    ALL_KINDS,
    TEXT_AND_IMAGES,
    TEXT_ONLY,
    ListedModel,
    list_url,
    parse_listing,
)
from holdfast.models.providers import find_provider
from holdfast.models.transport import fetch_once

TIMEOUT_S = 1.0
"""Limit for a server's reply about its model."""
RETRY_AFTER_S = 30.0
"""Wait before another query to a server that did not answer."""
_OPENAI_TEXT_ONLY = re.compile(
    r"gpt-3\.5|gpt-4(-0|-32k|$)|o1-(mini|preview)|o3-mini|davinci|babbage|.*(audio|realtime|search)"
)
"""OpenAI's models that accept no images."""
_VISION_NAMES = re.compile(
    r"\b(gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-[5-9]|o3|o4|claude|gemini|llava|pixtral|internvl|minicpm-v|molmo"
    r"|gemma-?[34]|llama-?4|mistral-medium)|vision|[-_.\d]vl\b|multimodal",
    re.IGNORECASE,
)
"""Names of models that accept images on any server; for servers that do not report it."""
_OLLAMA_OWNER = "library"
"""The owner that Ollama lists for each of its models."""


class ModelCapabilities:
    """Determine which files one model accepts. Its server is queried on first use, and a reply is cached.

    `listed_model` is the entry in its server's list, once that was read.
    """

    def __init__(self, endpoint: Endpoint, now: Callable[[], float] = monotonic) -> None:
        self.listed_model: ListedModel | None = None
        self._endpoint = endpoint
        self._now = now
        self._queried_at: float | None = None
        known = documented_file_kinds(endpoint)
        self._takes = self._known_or_guessed(known)
        self._is_settled = known is not None

    async def supported_files(self) -> SupportedFiles:
        """Return the kinds of files that are known, or else those that the name suggests."""
        is_due = self._queried_at is None or self._now() - self._queried_at >= RETRY_AFTER_S
        if not self._is_settled and is_due:
            self._queried_at = self._now()
            reported, self._is_settled = await self._query_server()
            self._takes = self._known_or_guessed(reported)
        return self._takes

    def _known_or_guessed(self, known: frozenset[FileKind] | None) -> SupportedFiles:
        return (
            SupportedFiles(guess_file_kinds(self._endpoint.model), guessed=True)
            if known is None
            else SupportedFiles(known)
        )

    async def _query_server(self) -> tuple[frozenset[FileKind] | None, bool]:
        """Return the kinds of files that the server reports, if any, and whether the result is final."""
        reply = await fetch_once(self._endpoint, list_url(self._endpoint), TIMEOUT_S)
        if reply is None or reply.status >= 500:
            return None, False
        listing = parse_listing(reply.body)
        models = listing.models if listing is not None else ()
        self.listed_model = next((model for model in models if model.name == self._endpoint.model), None)
        if self.listed_model is not None and self.listed_model.owned_by == _OLLAMA_OWNER:
            return await self._query_ollama()
        return (self.listed_model.takes if self.listed_model is not None else None), True

    async def _query_ollama(self) -> tuple[frozenset[FileKind] | None, bool]:
        url = self._endpoint.url("models").with_path("/api/show")
        reply = await fetch_once(
            self._endpoint, url, TIMEOUT_S, msgspec.json.encode({"model": self._endpoint.model})
        )
        try:
            details = (
                _OLLAMA_DETAILS.decode(reply.body) if reply is not None and reply.status == 200 else None
            )
        except ValueError:
            details = None
        if details is None or details.capabilities is None:
            return None, reply is not None
        return TEXT_AND_IMAGES if "vision" in details.capabilities else TEXT_ONLY, True


def documented_file_kinds(endpoint: Endpoint) -> frozenset[FileKind] | None:
    """Return the kinds of files that the model's own provider documents; None if unknown."""
    url = endpoint.base_url.rstrip("/")
    if url == OPENAI_URL:
        return TEXT_ONLY if _OPENAI_TEXT_ONLY.match(endpoint.model) else ALL_KINDS
    provider = find_provider(endpoint.provider)
    is_anthropic = endpoint.protocol == "messages" and provider is not None and url == provider.base_url
    return ALL_KINDS if is_anthropic else None


def guess_file_kinds(model: str) -> frozenset[FileKind]:
    """Return the kinds of files that a model's name suggests."""
    return TEXT_AND_IMAGES if _VISION_NAMES.search(model) else TEXT_ONLY


class _OllamaDetails(msgspec.Struct, frozen=True):
    capabilities: list[str] | None = None


_OLLAMA_DETAILS = msgspec.json.Decoder(_OllamaDetails)
