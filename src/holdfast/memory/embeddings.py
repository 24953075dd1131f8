"""Get embeddings from an OpenAI-compatible server over HTTP.

The server may be slow, unreachable, or answer with anything. Each such fault becomes a ProviderFailure with
its cause, without the key.
"""

import asyncio
from collections.abc import Sequence
from typing import Annotated

import aiohttp
import msgspec
from yarl import URL

from holdfast.memory.ports import ProviderFailure

ANSWER_BYTES_MAX = 16_000_000
DIMENSIONS_MAX = 16_384
"""Numbers in one embedding."""
_ERROR_BYTES_MAX = 4_000
_ERROR_CHARS_MAX = 200


class _Request(msgspec.Struct, frozen=True):
    model: str
    input: Sequence[str]


class _Vector(msgspec.Struct, frozen=True):
    embedding: Annotated[list[float], msgspec.Meta(min_length=1, max_length=DIMENSIONS_MAX)]
    index: int | None = None


class _Answer(msgspec.Struct, frozen=True):
    data: list[_Vector]


class EmbeddingClient:
    """A client of one server; an instance is a `memory.ports.EmbedTexts`. Close it after use.

    `url` is the base, as in http://127.0.0.1:11434/v1. The first call creates the HTTP client, in its loop.
    """

    def __init__(self, url: str, model: str, key: str = "", timeout_s: float = 30.0) -> None:
        base = URL(url)
        # One kind of credentials per request: the key takes precedence over a password in the URL.
        base = base.with_user(None) if key else base
        self._url = base.with_path(f"{base.path.rstrip('/')}/embeddings").with_query(base.query)
        self._host = f"{base.host}:{base.port}"
        self._model = model
        self._key = key
        self._timeout_s = timeout_s
        self._client: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"Embeddings({self._host}, {self._model!r})"

    async def __call__(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Return one vector for each text, in their order, all of one length. Raises ProviderFailure."""
        try:
            async with asyncio.timeout(self._timeout_s):
                body = await self._post(msgspec.json.encode(_Request(self._model, texts)))
        except TimeoutError:
            raise self._failure(f"did not answer within {self._timeout_s:g} s") from None
        except (aiohttp.ClientError, OSError) as error:
            raise self._failure(f"cannot be asked ({type(error).__name__})") from None
        return self._vectors(body, len(texts))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    async def _post(self, body: bytes) -> bytes:
        headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "holdfast"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        if self._client is None:
            self._client = aiohttp.ClientSession(
                cookie_jar=aiohttp.DummyCookieJar(), timeout=aiohttp.ClientTimeout(total=None)
            )
        # Redirects are not followed: the key goes only to its server.
        async with self._client.post(self._url, data=body, headers=headers, allow_redirects=False) as answer:
            if answer.status != 200:
                error_body = await _read_prefix(answer, _ERROR_BYTES_MAX)
                raise self._failure(f"answered {answer.status}{self._error_text(error_body)}")
            content = await _read_prefix(answer, ANSWER_BYTES_MAX + 1)
            if len(content) > ANSWER_BYTES_MAX:
                raise self._failure(f"answered with more than {ANSWER_BYTES_MAX} bytes")
            return content

    def _vectors(self, body: bytes, count: int) -> list[list[float]]:
        try:
            found = msgspec.json.decode(body, type=_Answer).data
        except (msgspec.DecodeError, RecursionError):
            raise self._failure("did not answer as it should") from None
        # Sorted by index if the server numbers them, else in the order received.
        if sorted(each.index for each in found if each.index is not None) == list(range(len(found))):
            found = sorted(found, key=lambda each: each.index or 0)
        if len(found) != count or len({len(each.embedding) for each in found}) > 1:
            raise self._failure("did not answer for each text alike")
        return [each.embedding for each in found]

    def _error_text(self, body: bytes) -> str:
        text = " ".join(body.decode("utf-8", "replace").split())
        if self._key:
            text = text.replace(self._key, "***")
        return f": {text[:_ERROR_CHARS_MAX]}" if text else ""

    def _failure(self, what: str) -> ProviderFailure:
        return ProviderFailure(detail=f"the embedding server at {self._host} {what}")


async def _read_prefix(answer: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    content = bytearray()
    while len(content) < bytes_max and (chunk := await answer.content.readany()):
        content += chunk
    return bytes(content[:bytes_max])
