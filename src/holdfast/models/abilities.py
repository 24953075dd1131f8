"""What a model takes: by what its server says, else by what is known of it, or by what its name suggests.

Nothing in the protocols says it. OpenRouter, Mistral and Anthropic say it in their list of models, llama.cpp
beside that list, Ollama when it is asked for one model. PDF files go to OpenAI's and Anthropic's own servers
alone: others that speak their protocols rarely take them, and none of them says so.
"""

import re
from collections.abc import Callable
from time import monotonic

import msgspec

from holdfast.domain.files import FileKind, Takes
from holdfast.models.endpoint import OPENAI_URL, Endpoint
from holdfast.models.listing import ALL, PICTURES, WORDS, Offer, list_url, listed_in
from holdfast.models.providers import provider_named
from holdfast.models.transport import ask_once

ASK_S = 1.0
"""For a server to say what its model takes."""
AGAIN_S = 30.0
"""Until one that was not there is asked again."""
_BLIND = re.compile(
    r"gpt-3\.5|gpt-4(-0|-32k|$)|o1-(mini|preview)|o3-mini|davinci|babbage|.*(audio|realtime|search)"
)
"""OpenAI's models that take no images."""
_SEEING = re.compile(
    r"\b(gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-[5-9]|o3|o4|claude|gemini|llava|pixtral|internvl|minicpm-v|molmo"
    r"|gemma-?[34]|llama-?4|mistral-medium)|vision|[-_.\d]vl\b|multimodal",
    re.IGNORECASE,
)
"""Names of models that take images wherever they run; for servers that do not say."""
_OLLAMA = "library"
"""Who Ollama says owns each of its models."""


class Abilities:
    """What one model takes. Asked for when it is first wanted, and kept once it is known.

    `offer` is what its server lists of it, once that was read.
    """

    def __init__(self, endpoint: Endpoint, now: Callable[[], float] = monotonic) -> None:
        self.offer: Offer | None = None
        self._endpoint = endpoint
        self._now = now
        self._asked_at: float | None = None
        known = known_of(endpoint)
        self._takes = self._or_guessed(known)
        self._is_settled = known is not None

    async def takes(self) -> Takes:
        """What is known, or else what its name suggests."""
        is_due = self._asked_at is None or self._now() - self._asked_at >= AGAIN_S
        if not self._is_settled and is_due:
            self._asked_at = self._now()
            said, self._is_settled = await self._ask()
            self._takes = self._or_guessed(said)
        return self._takes

    def _or_guessed(self, known: frozenset[FileKind] | None) -> Takes:
        return Takes(guessed(self._endpoint.model), guessed=True) if known is None else Takes(known)

    async def _ask(self) -> tuple[frozenset[FileKind] | None, bool]:
        """What the server says of its model, if it does, and whether asking again would be of no use."""
        told = await ask_once(self._endpoint, list_url(self._endpoint), ASK_S)
        if told is None or told.status >= 500:
            return None, False
        found = listed_in(told.body)
        offers = found.offers if found is not None else ()
        self.offer = next((each for each in offers if each.name == self._endpoint.model), None)
        if self.offer is not None and self.offer.owned_by == _OLLAMA:
            return await self._ask_ollama()
        return (self.offer.takes if self.offer is not None else None), True

    async def _ask_ollama(self) -> tuple[frozenset[FileKind] | None, bool]:
        url = self._endpoint.url("models").with_path("/api/show")
        told = await ask_once(
            self._endpoint, url, ASK_S, msgspec.json.encode({"model": self._endpoint.model})
        )
        try:
            shown = _SHOWN.decode(told.body) if told is not None and told.status == 200 else None
        except ValueError:
            shown = None
        if shown is None or shown.capabilities is None:
            return None, told is not None
        return PICTURES if "vision" in shown.capabilities else WORDS, True


def known_of(endpoint: Endpoint) -> frozenset[FileKind] | None:
    """What a model takes that its own provider has documented."""
    url = endpoint.base_url.rstrip("/")
    if url == OPENAI_URL:
        return WORDS if _BLIND.match(endpoint.model) else ALL
    provider = provider_named(endpoint.provider)
    is_anthropics = endpoint.protocol == "messages" and provider is not None and url == provider.base_url
    return ALL if is_anthropics else None


def guessed(model: str) -> frozenset[FileKind]:
    """What a model's name suggests."""
    return PICTURES if _SEEING.search(model) else WORDS


class _Shown(msgspec.Struct, frozen=True):
    capabilities: list[str] | None = None


_SHOWN = msgspec.json.Decoder(_Shown)
