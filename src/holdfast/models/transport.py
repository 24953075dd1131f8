"""Send HTTP requests to model servers, and read their responses."""

import asyncio
import contextlib
import math
from collections.abc import Mapping
from types import SimpleNamespace

import aiohttp
import msgspec
from yarl import URL

from holdfast.models import failures
from holdfast.models.endpoint import Endpoint
from holdfast.models.ports import ModelFailure

BODY_BYTES_MAX = 16_000_000
"""Limit of an answer that comes whole instead of streaming."""
READ_BUFFER_BYTES = 1_000_000
"""Buffer for a slow reader. Once it is full, the server is slowed down."""
REPLY_BYTES_MAX = 4_000_000
"""Limit of a short reply. The model list of a large gateway takes half of this."""


class ModelTimeouts(msgspec.Struct, frozen=True):
    """Limits for a server, in seconds."""

    connect_s: float = 10.0
    first_byte_s: float = 300.0
    """From the request to the first byte of the answer: a model on this machine may read for minutes."""
    between_chunks_s: float = 120.0
    error_body_s: float = 5.0
    trailer_s: float = 5.0
    """For usage and the end mark, once the answer is complete."""
    drain_s: float = 0.05
    """For the end of the response, which lets the connection be reused."""


class ModelTransport:
    """Send requests to one endpoint. The first request creates the client, in its event loop."""

    def __init__(self, endpoint: Endpoint, timeouts: ModelTimeouts) -> None:
        self._endpoint = endpoint
        self._timeouts = timeouts
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def post(self, path: str, body: bytes, deadline: float) -> aiohttp.ClientResponse:
        """Return the response once its headers are there; the caller releases it. Raises ModelFailure."""
        headers = {
            "Content-Type": "application/json",
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",  # A compressing proxy would hold tokens back.
            "User-Agent": "holdfast",
            **self._endpoint.headers,
        }
        url = self._endpoint.url(path)
        try:
            async with asyncio.timeout_at(deadline):
                return await self._post_with_retry(url, body, headers)
        except (aiohttp.ClientError, ConnectionError) as error:
            raise failures.from_connection_error(self._endpoint, error) from None
        except TimeoutError:
            raise failures.timed_out(self._endpoint, "first byte", self._timeouts.first_byte_s) from None

    async def _post_with_retry(
        self, url: URL, body: bytes, headers: Mapping[str, str]
    ) -> aiohttp.ClientResponse:
        """Send the request, and send it again if the server had closed a reused connection.

        llama.cpp, for one, closes connections that it promised to keep. Asking a model twice does no harm.
        """
        while True:
            trace = _RequestTrace()
            try:
                # A redirect could send the key to another server than the one that it is for.
                return await self._client().post(
                    url, data=body, headers=headers, allow_redirects=False, trace_request_ctx=trace
                )
            except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionError):
                # Each attempt uses up an old connection, so the loop ends with a new one.
                if not trace.is_old:
                    raise

    async def close(self) -> None:
        """Close all connections. Requests under way fail, and new ones are not possible."""
        self._is_closed = True
        if self._session is not None:
            await self._session.close()

    def _client(self) -> aiohttp.ClientSession:
        assert not self._is_closed, f"{self._endpoint.host} is asked after the model was closed"
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Every run needs its own connection; aiohttp's default would make the 101st wait.
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, connect=self._timeouts.connect_s),
                read_bufsize=READ_BUFFER_BYTES,
                trace_configs=[_trace_reused_connections()],
            )
        return self._session


class _RequestTrace:
    """Record whether a request used an old connection."""

    is_old = False


def _trace_reused_connections() -> aiohttp.TraceConfig:
    async def note(session: object, context: SimpleNamespace, params: object) -> None:
        context.trace_request_ctx.is_old = True

    config = aiohttp.TraceConfig()
    config.on_connection_reuseconn.append(note)
    return config


class ResponseBody:
    """Read a response's body. Bytes that arrived before a failure come before that failure."""

    def __init__(self, response: aiohttp.ClientResponse, endpoint: Endpoint) -> None:
        self._content = response.content
        self._endpoint = endpoint
        self._failure: ModelFailure | None = None
        self._loop = asyncio.get_running_loop()
        self._deadline = math.inf
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, wait_s: float) -> bytes:
        """Return bytes as soon as any have arrived; none at the end.

        Raises ModelFailure if the connection breaks, TimeoutError if nothing comes within `wait_s`.
        """
        if self._failure is not None:
            raise self._failure
        self._arm_timer(wait_s)
        try:
            return await self._content.readany()
        except (aiohttp.ClientError, ConnectionError) as error:
            self._failure = failures.from_connection_error(self._endpoint, error)
        finally:
            self._deadline = math.inf
        # aiohttp raises before it returns its buffer, and has no public way to read that buffer.
        self._content._exception = None
        if buffered := self._content.read_nowait():
            return buffered
        raise self._failure

    def _arm_timer(self, wait_s: float) -> None:
        """Make the read under way fail after `wait_s`. All reads share one timer: most end long before it."""
        self._deadline = self._loop.time() + wait_s
        if self._timer is not None and self._timer.when() > self._deadline:
            self._timer.cancel()
            self._timer = None
        if self._timer is None:
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)

    def _check_deadline(self) -> None:
        self._timer = None
        if self._deadline == math.inf:
            return
        if self._loop.time() >= self._deadline:
            self._content.set_exception(TimeoutError())
        else:
            self._timer = self._loop.call_at(self._deadline, self._check_deadline)

    async def read_some(self, bytes_max: int, wait_s: float) -> bytes:
        """Return the beginning of the body; less of it if it breaks off or takes too long."""
        read = bytearray()
        deadline = asyncio.get_running_loop().time() + wait_s
        with contextlib.suppress(ModelFailure, TimeoutError):
            while len(read) < bytes_max and (chunk := await self.read(_seconds_left(deadline))):
                read += chunk
        return bytes(read[:bytes_max])

    async def read_all(self, wait_s: float) -> bytes:
        """Return the whole body. Raises ModelFailure."""
        read = bytearray()
        deadline = asyncio.get_running_loop().time() + wait_s
        try:
            while chunk := await self.read(_seconds_left(deadline)):
                read += chunk
                if len(read) > BODY_BYTES_MAX:
                    raise failures.unreadable_response(self._endpoint, f"more than {BODY_BYTES_MAX} bytes")
        except TimeoutError:
            raise failures.timed_out(self._endpoint, "whole answer", wait_s) from None
        return bytes(read)

    async def drain(self, wait_s: float) -> None:
        """Wait briefly for the end of the body, so that the connection can be reused."""
        if not self._content.at_eof():
            with contextlib.suppress(ModelFailure, TimeoutError):
                await self.read(wait_s)


def _seconds_left(deadline: float) -> float:
    return max(deadline - asyncio.get_running_loop().time(), 0.0)


class HttpReply(msgspec.Struct, frozen=True):
    """A server's complete reply."""

    status: int
    body: bytes


async def fetch_once(
    endpoint: Endpoint, url: URL, wait_s: float, payload: bytes | None = None
) -> HttpReply | None:
    """Return the reply to a short request; None if it fails, takes too long or is too long."""
    headers = endpoint.headers
    if payload is not None:
        headers["Content-Type"] = "application/json"
    method = "GET" if payload is None else "POST"
    try:
        async with (
            asyncio.timeout(wait_s),
            aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session,
            session.request(method, url, data=payload, headers=headers, allow_redirects=False) as response,
        ):
            body = bytearray()
            while len(body) <= REPLY_BYTES_MAX and (chunk := await response.content.readany()):
                body += chunk
            return HttpReply(response.status, bytes(body)) if len(body) <= REPLY_BYTES_MAX else None
    except (aiohttp.ClientError, OSError, ValueError):
        return None
