"""Connect to an MCP server over HTTP: the SDK's transport over a client that maps each failure.

The SDK closes the whole connection when one request fails. So the client turns failures into JSON-RPC
errors, whose codes say whether the server may have carried out the request. It refuses long answers and
limits the rate at which it reads endless ones.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager

import httpx2
import msgspec
from mcp.client._transport import TransportStreams
from mcp.client.streamable_http import streamable_http_client

from holdfast.domain.limits import MCP_MESSAGE_BYTES_MAX, MCP_STOP_S_MAX
from holdfast.domain.mcp import McpServer
from holdfast.mcp.transport import NOT_SENT, REJECTED, UNREADABLE, McpRateLimiter

_CONNECT_S_MAX = 10.0
_BAD_GATEWAY = 502
_LINES_OF_MESSAGE = 3
"""An event takes three lines: its kind, its data and an empty line."""
_OPENING_MESSAGES = 50
"""Messages that opening a notification stream counts as: the SDK reopens one that ends, at once."""
_UNCERTAIN_STATUSES = frozenset({408})
"""Client errors after which, as after any server error, the server may have carried out the request."""


class McpHttpTransport:
    """The transport to a server at a URL."""

    reports_lost_requests = True

    def __init__(self, server: McpServer) -> None:
        self.close_reason = ""
        self._server = server
        self._closed = asyncio.Event()

    async def wait_closed(self) -> str:
        await self._closed.wait()
        return self.close_reason

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[TransportStreams]:
        transport = _ErrorMappingTransport(httpx2.AsyncHTTPTransport(), self._close)
        # Calls have their own timeout; a notification stream may stay silent for ever.
        timeout = httpx2.Timeout(None, connect=_CONNECT_S_MAX)
        headers, url = {"accept-encoding": "identity"} | self._server.headers, self._server.url
        async with (
            httpx2.AsyncClient(
                headers=headers, transport=transport, timeout=timeout, trust_env=False
            ) as client,
            streamable_http_client(
                url, http_client=client, max_sse_event_size=MCP_MESSAGE_BYTES_MAX
            ) as streams,
        ):
            yield streams

    def _close(self, reason: str) -> None:
        self.close_reason = self.close_reason or reason
        self._closed.set()


class _ErrorMappingTransport(httpx2.AsyncBaseTransport):
    """Send requests and map failures to JSON-RPC errors; `on_lost` receives a fatal one's message."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, on_lost: Callable[[str], None]) -> None:
        self._inner = inner
        self._on_lost = on_lost
        self._has_answered = False
        self._notices_limiter = McpRateLimiter(asyncio.get_running_loop().time())

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        now = asyncio.get_running_loop().time
        if request.method == "GET":
            await self._notices_limiter.throttle(now(), _OPENING_MESSAGES)
        try:
            # Ending the session must not delay a stop; other requests have their own timeouts.
            async with asyncio.timeout(None if request.method in ("POST", "GET") else MCP_STOP_S_MAX):
                response = await self._inner.handle_async_request(request)
        except TimeoutError:
            return self._error_response(UNREADABLE, "it did not answer", ends=True)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.UnsupportedProtocol) as error:
            return self._error_response(NOT_SENT, f"it cannot be reached: {error}", ends=True)
        except httpx2.TransportError as error:
            return self._error_response(UNREADABLE, f"the connection broke: {error}", ends=True)
        if request.method != "POST":
            response.stream = _RateLimitedStream(response, self._notices_limiter)
            return response
        kind = response.headers.get("content-type", "").lower()
        if response.is_error or kind.startswith("application/json"):
            return await self._read_whole(response, kind)
        self._has_answered = True
        response.stream = _RateLimitedStream(response, McpRateLimiter(now()))
        return response

    async def _read_whole(self, response: httpx2.Response, kind: str) -> httpx2.Response:
        """Read an answer that is not a stream to its end."""
        body = bytearray()
        try:
            async for chunk in response.aiter_raw():
                body += chunk
                if len(body) > MCP_MESSAGE_BYTES_MAX:
                    return self._error_response(
                        UNREADABLE, f"it said more than {MCP_MESSAGE_BYTES_MAX:,} bytes"
                    )
        except (httpx2.TransportError, httpx2.StreamError) as error:
            return self._error_response(UNREADABLE, f"the connection broke: {error}", ends=True)
        finally:
            await response.aclose()
        if response.is_error and not (
            kind.startswith("application/json") and _is_json_rpc_error(bytes(body))
        ):
            return self._map_status(response)
        self._has_answered = True
        headers = [
            (name, value) for name, value in response.headers.raw if name.lower() != b"transfer-encoding"
        ]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body))

    def _map_status(self, response: httpx2.Response) -> httpx2.Response:
        status = response.status_code
        message = f"it answered with HTTP {status} {response.reason_phrase}".rstrip()
        if response.is_server_error or status in _UNCERTAIN_STATUSES:
            return self._error_response(UNREADABLE, message)
        # A server that has restarted no longer knows the session.
        return self._error_response(
            REJECTED, message, ends=self._has_answered and status == httpx2.codes.NOT_FOUND
        )

    def _error_response(self, code: int, message: str, ends: bool = False) -> httpx2.Response:
        if ends:
            self._on_lost(message)
        problem = {"jsonrpc": "2.0", "id": None, "error": {"code": code, "message": message}}
        headers = {"content-type": "application/json"}
        return httpx2.Response(_BAD_GATEWAY, headers=headers, content=msgspec.json.encode(problem))

    async def aclose(self) -> None:
        await self._inner.aclose()


class _RateLimitedStream(httpx2.AsyncByteStream):
    """A response body, read no faster than `rate_limiter` allows."""

    def __init__(self, response: httpx2.Response, rate_limiter: McpRateLimiter) -> None:
        assert isinstance(response.stream, httpx2.AsyncByteStream), "it comes from the network"
        self._inner = response.stream
        self._rate_limiter = rate_limiter

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        now = asyncio.get_running_loop().time
        async for chunk in self._inner:
            lines = chunk.count(b"\n") or chunk.count(b"\r")
            await self._rate_limiter.throttle(now(), lines / _LINES_OF_MESSAGE)
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()


def _is_json_rpc_error(body: bytes) -> bool:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return False
    return isinstance(found, dict) and isinstance(found.get("error"), dict)
