"""What a model takes: by what its server says, else by what is known of it, or by what its name suggests.

Nothing in the protocols says it. OpenRouter, Mistral and Anthropic say it in their list of models, llama.cpp
beside that list, Ollama when it is asked for one model. PDF files go to OpenAI's and Anthropic's own servers
alone: others that speak their protocols rarely take them, and none of them says so.
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
"""For a server to say what its model takes."""
RETRY_AFTER_S = 30.0
"""Until one that was not there is asked again."""
_OPENAI_TEXT_ONLY = re.compile(
    r"gpt-3\.5|gpt-4(-0|-32k|$)|o1-(mini|preview)|o3-mini|davinci|babbage|.*(audio|realtime|search)"
)
"""OpenAI's models that take no images."""
_VISION_NAMES = re.compile(
    r"\b(gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-[5-9]|o3|o4|claude|gemini|llava|pixtral|internvl|minicpm-v|molmo"
    r"|gemma-?[34]|llama-?4|mistral-medium)|vision|[-_.\d]vl\b|multimodal",
    re.IGNORECASE,
)
"""Names of models that take images wherever they run; for servers that do not say."""
_OLLAMA_OWNER = "library"
"""Who Ollama says owns each of its models."""


class ModelCapabilities:
    """What one model takes. Asked for when it is first wanted, and kept once it is known.

    `offer` is what its server lists of it, once that was read.
    """

    def __init__(self, endpoint: Endpoint, now: Callable[[], float] = monotonic) -> None:
        self.listed_model: ListedModel | None = None
        self._endpoint = endpoint
        self._now = now
        self._queried_at: float | None = None
        known = documented_file_kinds(endpoint)
        self._takes = self._known_or_guessed(known)
        self._is_settled = known is not None

    async def takes(self) -> SupportedFiles:
        """What is known, or else what its name suggests."""
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
        """What the server says of its model, if it does, and whether asking again would be of no use."""
        reply = await fetch_once(self._endpoint, list_url(self._endpoint), TIMEOUT_S)
        if reply is None or reply.status >= 500:
            return None, False
        listing = parse_listing(reply.body)
        models = listing.models if listing is not None else ()
        self.listed_model = next((each for each in models if each.name == self._endpoint.model), None)
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
    """What a model takes that its own provider has documented."""
    url = endpoint.base_url.rstrip("/")
    if url == OPENAI_URL:
        return TEXT_ONLY if _OPENAI_TEXT_ONLY.match(endpoint.model) else ALL_KINDS
    provider = find_provider(endpoint.provider)
    is_anthropics = endpoint.protocol == "messages" and provider is not None and url == provider.base_url
    return ALL_KINDS if is_anthropics else None


def guess_file_kinds(model: str) -> frozenset[FileKind]:
    """What a model's name suggests."""
    return TEXT_AND_IMAGES if _VISION_NAMES.search(model) else TEXT_ONLY


class _OllamaDetails(msgspec.Struct, frozen=True):
    capabilities: list[str] | None = None


_OLLAMA_DETAILS = msgspec.json.Decoder(_OllamaDetails)
