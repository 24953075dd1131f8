"""Which files a model behind Chat Completions takes: by what its server says, else by what its name suggests.

Nothing in the protocol says it. OpenRouter and Mistral say it in their list of models, llama.cpp beside that
list, Ollama when it is asked for one model. PDF files go to OpenAI's own server alone: others that speak this
protocol rarely take its `file` parts, and none of them says so.
"""

import asyncio
import re
from collections.abc import Callable
from time import monotonic

import aiohttp
import msgspec
from yarl import URL

from holdfast.agent.models.endpoint import OPENAI_URL, Endpoint
from holdfast.domain.files import FileKind

ASK_S = 1.0
"""For a server to say what its model takes."""
AGAIN_S = 30.0
"""Until one that was not there is asked again."""
ANSWER_BYTES_MAX = 4_000_000
"""A list of models; that of a large gateway is half of this."""
_WORDS: frozenset[FileKind] = frozenset({"text"})
_PICTURES: frozenset[FileKind] = frozenset({"text", "image"})
_ALL: frozenset[FileKind] = frozenset({"text", "image", "pdf"})
_BLIND = re.compile(
    r"gpt-3\.5|gpt-4(-0|-32k|$)|o1-(mini|preview)|o3-mini|davinci|babbage|.*(audio|realtime|search)"
)
"""OpenAI's models that take no images."""
_SEEING = re.compile(
    r"\b(gpt-4o|gpt-4\.1|gpt-4-turbo|gpt-5|o3|o4|claude|gemini|llava|pixtral|internvl|minicpm-v|molmo"
    r"|gemma-?3|llama-?4)|vision|[-_.\d]vl\b|multimodal",
    re.IGNORECASE,
)
"""Names of models that take images wherever they run; for servers that do not say."""


class Told(msgspec.Struct, frozen=True):
    """What a server answered."""

    status: int
    body: bytes


async def ask_once(endpoint: Endpoint, url: URL, wait_s: float, sent: bytes | None = None) -> Told | None:
    """A short question to a model's server; None if there is no answer in time, or it is too long."""
    headers = endpoint.headers
    if sent is not None:
        headers["Content-Type"] = "application/json"
    method = "GET" if sent is None else "POST"
    try:
        async with (
            asyncio.timeout(wait_s),
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(method, url, data=sent, headers=headers, allow_redirects=False) as response,
        ):
            body = bytearray()
            while len(body) <= ANSWER_BYTES_MAX and (chunk := await response.content.readany()):
                body += chunk
            return Told(response.status, bytes(body)) if len(body) <= ANSWER_BYTES_MAX else None
    except (aiohttp.ClientError, OSError, ValueError):
        return None


class Abilities:
    """What one model takes. Asked for when it is first wanted, and kept once it is known."""

    def __init__(self, endpoint: Endpoint, now: Callable[[], float] = monotonic) -> None:
        self._endpoint = endpoint
        self._now = now
        self._asked_at: float | None = None
        self._takes = _guessed(endpoint.model)
        self._is_known = endpoint.base_url.rstrip("/") == OPENAI_URL
        if self._is_known:
            self._takes = _WORDS if _BLIND.match(endpoint.model) else _ALL

    async def takes(self) -> frozenset[FileKind]:
        """What is known, or else what its name suggests."""
        is_due = self._asked_at is None or self._now() - self._asked_at >= AGAIN_S
        if not self._is_known and is_due:
            self._asked_at = self._now()
            said, self._is_known = await self._ask()
            self._takes = said or _guessed(self._endpoint.model)
        return self._takes

    async def _ask(self) -> tuple[frozenset[FileKind] | None, bool]:
        """What the server says of its model, if it does, and whether asking again would be of no use."""
        told = await ask_once(self._endpoint, self._endpoint.url("models"), ASK_S)
        if told is None or told.status >= 500:
            return None, False
        found = _listed(told.body)
        if found is None:
            return None, True
        model = self._endpoint.model
        listed = next((each for each in found.data or () if each.id == model), None)
        if listed is not None and listed.owned_by == _OLLAMA:
            return await self._ask_ollama()
        says = [listed.sees if listed is not None else None]
        says += [
            "multimodal" in each.capabilities
            for each in found.models or ()
            if model in (each.name, each.model)
        ]
        known = next((sees for sees in says if sees is not None), None)
        return (None if known is None else _PICTURES if known else _WORDS), True

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
        return _PICTURES if "vision" in shown.capabilities else _WORDS, True


def _guessed(model: str) -> frozenset[FileKind]:
    return _PICTURES if _SEEING.search(model) else _WORDS


# What servers say.

_OLLAMA = "library"
"""Who Ollama says owns each of its models."""


class _Architecture(msgspec.Struct, frozen=True):
    input_modalities: list[str] | None = None


class _Capabilities(msgspec.Struct, frozen=True):
    vision: bool | None = None


class _Listed(msgspec.Struct, frozen=True):
    id: str
    owned_by: str | None = None
    architecture: _Architecture | None = None
    capabilities: _Capabilities | list[str] | None = None

    @property
    def sees(self) -> bool | None:
        """Whether it takes images, if that is said: as OpenRouter does, or as Mistral does."""
        if self.architecture is not None and self.architecture.input_modalities is not None:
            return "image" in self.architecture.input_modalities
        return self.capabilities.vision if isinstance(self.capabilities, _Capabilities) else None


class _Loaded(msgspec.Struct, frozen=True):
    """As llama.cpp lists its models a second time."""

    name: str = ""
    model: str = ""
    capabilities: list[str] = msgspec.field(default_factory=list)


class _Found(msgspec.Struct, frozen=True):
    data: list[_Listed] | None = None
    models: list[_Loaded] | None = None


class _Shown(msgspec.Struct, frozen=True):
    capabilities: list[str] | None = None


_FOUND = msgspec.json.Decoder(_Found)
_SHOWN = msgspec.json.Decoder(_Shown)


def _listed(body: bytes) -> _Found | None:
    try:
        return _FOUND.decode(body)
    except ValueError:
        return None
