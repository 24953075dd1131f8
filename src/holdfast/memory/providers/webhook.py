"""Use a memory behind a webhook: one signed POST for each call, to one URL.

Every fault of the receiver becomes a ProviderFailure with a sentence for people. The sentence contains
neither the secret nor any part of the URL but the host.
"""

import asyncio
import os
from collections.abc import Callable, Sequence
from typing import TypeVar
from urllib.parse import parse_qsl, unquote, urlsplit

import aiohttp
import msgspec

from holdfast.domain.clock import Clock
from holdfast.domain.errors import BadCursor, HoldfastError, NoSuchMemory, TooLarge
from holdfast.domain.limits import (
    COMMIT_S_MAX,
    MEMORY_CHARS_MAX,
    PROVIDER_HEALTH_S_MAX,
    PROVIDER_REQUEST_S_MAX,
    WEBHOOK_ANSWER_BYTES_MAX,
)
from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.domain.secrets import SecretMask
from holdfast.domain.webhook_signing import KEY_PREFIX, decode_key, signature_headers
from holdfast.memory.ports import Health, ProviderCannot, ProviderFailure, Segment
from holdfast.memory.providers import webhook_wire as wire

RECEIVER_TEXT_CHARS_MAX = 200
"""Longer error texts of a receiver are cut."""
_KEEP_S = 4
"""The keep-alive of an idle connection: shorter than that of most servers, so that reuse does not race it."""
T = TypeVar("T")


class MemoryWebhookTimeouts(msgspec.Struct, frozen=True):
    """The timeouts for a whole answer, in seconds."""

    commit_s: float = COMMIT_S_MAX
    ask_s: float = PROVIDER_REQUEST_S_MAX
    health_s: float = PROVIDER_HEALTH_S_MAX


DEFAULT_TIMEOUTS = MemoryWebhookTimeouts()


class WebhookProvider:
    """A provider that calls the receiver at `url`. `secret` is `whsec_…`; `new_id` creates ids for queries.

    The format requires a receiver to remember the same key once. The first call creates the HTTP client, in
    its loop. Raises ValueError if the secret is malformed.
    """

    def __init__(
        self,
        url: str,
        secret: str,
        clock: Clock,
        new_id: Callable[[], str],
        timeouts: MemoryWebhookTimeouts = DEFAULT_TIMEOUTS,
    ) -> None:
        self._url = url
        self._key = decode_key(secret)
        self._clock = clock
        self._new_id = new_id
        self._timeouts = timeouts
        self._host = urlsplit(url).netloc.rpartition("@")[2]
        self._mask = SecretMask((secret, secret.removeprefix(KEY_PREFIX), *_secrets_in_url(url)))
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    @property
    def name(self) -> str:
        return "webhook"

    @property
    def takes_key(self) -> bool:
        return True

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        body = await self._request(wire.WebhookRecall(query, scope, limit), "recall", self._timeouts.ask_s)
        found = self._decode(body, wire.WebhookMemoryPage).page().memories
        return tuple(_truncated(memory) for memory in found[:limit])

    async def commit(self, segment: Segment) -> str:
        body = await self._request(wire.commit_request(segment), "be told", self._timeouts.commit_s)
        return self._decode(body, wire.WebhookReceipt).receipt

    async def retract(self, key: str, receipt: str) -> None:
        await self._request(
            wire.WebhookRetract(key, receipt), "take a conversation back", self._timeouts.commit_s
        )

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        request = wire.WebhookRemember(key, _validated(text), scope, origin)
        body = await self._request(request, "remember one thing", self._timeouts.ask_s)
        return self._decode(body, wire.WebhookMemory).memory()

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        request = wire.WebhookList(scope, words, cursor, limit)
        page = self._decode(
            await self._request(request, "list", self._timeouts.ask_s), wire.WebhookMemoryPage
        ).page()
        if len(page.memories) > limit:
            raise self._failure(f"gave {len(page.memories)} memories where {limit} were asked for")
        return page

    async def edit(self, memory_id: str, text: str) -> Memory:
        request = wire.WebhookEdit(memory_id, _validated(text))
        body = await self._request(request, "change a memory", self._timeouts.ask_s)
        return self._decode(body, wire.WebhookMemory).memory()

    async def forget(self, memory_id: str) -> None:
        await self._request(wire.WebhookForget(memory_id), "forget one thing", self._timeouts.ask_s)

    async def health(self) -> Health:
        try:
            await self._request(wire.WebhookHealthCheck(), "say how it is", self._timeouts.health_s)
        except ProviderCannot:
            return Health(True)  # The receiver accepted the signature: that is enough.
        except HoldfastError as error:
            return Health(False, str(error.fields.get("detail", error)))
        return Health(True)

    async def close(self) -> None:
        """Close all connections; running and later requests fail."""
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    async def _request(self, request: wire.WebhookRequest, verb: str, timeout_s: float) -> bytes:
        """Return the body of a 2xx answer. Raises what a Provider may."""
        try:
            body = msgspec.json.encode(request)
        except UnicodeEncodeError:
            raise ProviderFailure(detail="this cannot be sent: it holds half a character") from None
        if self._is_closed:
            raise ProviderFailure(detail=f"the connection to {self._host} was closed")
        try:
            async with asyncio.timeout(timeout_s):
                status, answer = await self._post(wire.request_id(request, self._new_id()), body)
        except TimeoutError:
            raise self._failure(f"gave no whole answer within {timeout_s:g} s") from None
        except aiohttp.ClientPayloadError:
            raise self._failure("broke off in the middle of its answer") from None
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ProviderFailure(
                detail=f"no answer from {self._host}: {_connection_error_text(error)}"
            ) from None
        if not 200 <= status < 300:
            raise self._error_for(request, verb, status, answer)
        if len(answer) > WEBHOOK_ANSWER_BYTES_MAX:
            raise self._failure(f"answered with more than {WEBHOOK_ANSWER_BYTES_MAX} bytes")
        return answer

    async def _post(self, message_id: str, body: bytes) -> tuple[int, bytes]:
        """Return the status and the body, read up to one byte past the limit."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "application/json",
            "Accept-Encoding": "identity",
            "User-Agent": "holdfast",
            **signature_headers(self._key, message_id, self._clock.now_ms(), body),
        }
        # Redirects are not followed: a conversation goes only to its configured server.
        request = self._client().post(self._url, data=body, headers=headers, allow_redirects=False)
        async with request as response:
            answer = bytearray()
            async for piece in response.content.iter_any():
                answer += piece
                if len(answer) > WEBHOOK_ANSWER_BYTES_MAX:
                    response.close()
                    break
            return response.status, bytes(answer[: WEBHOOK_ANSWER_BYTES_MAX + 1])

    def _client(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_S),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None),  # `_request` sets the timeout.
                auto_decompress=False,  # A small body could expand past the limit.
            )
        return self._session

    def _error_for(
        self, request: wire.WebhookRequest, verb: str, status: int, answer: bytes
    ) -> HoldfastError:
        error = wire.parse_error(answer)
        match status, error.code, request:
            case (404, "no_such_memory", wire.WebhookEdit(memory_id) | wire.WebhookForget(memory_id)):
                return NoSuchMemory(memory_id=memory_id)
            case (400, "bad_cursor", wire.WebhookList(cursor=str() as cursor)):
                return BadCursor(cursor=cursor)
            case (501, _, _) | (404, "no_such_verb", _):
                return ProviderCannot(verb=verb)
            case _ if 300 <= status < 400:
                return self._failure(f"sends elsewhere (status {status}), where nothing is sent")
        text = self._receiver_text(error.detail)
        return self._failure(f"answered with status {status}" + (f": {text}" if text else ""))

    def _decode(self, body: bytes, kind: type[T]) -> T:
        try:
            return msgspec.json.decode(body, type=kind)
        except msgspec.ValidationError as error:
            raise self._failure(
                f"gave an answer of the wrong shape: {self._receiver_text(str(error))}"
            ) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise self._failure("gave an answer that is not JSON") from None

    def _failure(self, what: str) -> ProviderFailure:
        return ProviderFailure(detail=f"{self._host} {what}")

    def _receiver_text(self, text: str) -> str:
        """Return a receiver's text fit to show: one line, cut, masked."""
        line = self._mask.mask_with_patterns(" ".join(text.split()))
        if len(line) > RECEIVER_TEXT_CHARS_MAX:
            line = line[: RECEIVER_TEXT_CHARS_MAX - 1].rstrip() + "…"
        return line.rstrip(".")


def _connection_error_text(error: Exception) -> str:
    """Return the cause in our own words: the library's message may contain the URL."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return "its certificate was refused"
        case aiohttp.ClientConnectorDNSError():
            return "there is no server of that name"
        case aiohttp.ClientConnectorError():
            number = error.os_error.errno
            return os.strerror(number) if number else "it cannot be reached"
        case aiohttp.InvalidURL():
            return "its address is not one"
        case aiohttp.ServerDisconnectedError() | ConnectionError():
            return "it closed the connection"
        case aiohttp.ClientResponseError():
            return "what came is not HTTP"
    return "the connection broke"


def _secrets_in_url(url: str) -> tuple[str, ...]:
    """Return the secret parts of a URL: the password, the query and its values."""
    parts = urlsplit(url)
    secrets = (parts.password or "", parts.query, *(value for _, value in parse_qsl(parts.query)))
    return (*secrets, *(unquote(each) for each in secrets))


def _validated(text: str) -> str:
    if len(text) > MEMORY_CHARS_MAX:
        raise TooLarge(what="A memory", size=f"{len(text)} characters", limit=MEMORY_CHARS_MAX)
    return text


def _truncated(memory: Memory) -> Memory:
    """Return `memory` with its text cut, so that one memory cannot crowd out the others."""
    if len(memory.text) <= MEMORY_CHARS_MAX:
        return memory
    return msgspec.structs.replace(memory, text=memory.text[: MEMORY_CHARS_MAX - 1] + "…")
