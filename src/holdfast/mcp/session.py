"""A connection to an MCP server by the official SDK, whatever its transport.

Whether a call may have been carried out is decided here. An error that the server answers with is a result;
where the answer cannot come any more, or cannot be read, the call is lost. Nothing here makes a call twice.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from mcp.client.client import Client
from mcp.client.session import IncomingMessage
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter, ValidationError

from holdfast.domain.limits import MCP_ERROR_CHARS_MAX, MCP_PAGES_MAX
from holdfast.domain.mcp import McpServer
from holdfast.mcp.ports import LinkBroken, Listing, Lost, NoAnswer, NotSent, said_of
from holdfast.mcp.results import listing_of, result_of
from holdfast.mcp.tool_filter import TOOLS_READ_MAX, Sieve
from holdfast.mcp.transport import NOT_SENT, NOT_TAKEN, UNREADABLE, Transport
from holdfast.tools.arguments import Refused, failed
from holdfast.tools.ports import Keep, ToolResult

_LISTEN_AGAIN_S = 30.0
_LINE_CHARS_MAX = 500
_LOST = frozenset({types.CONNECTION_CLOSED, types.PARSE_ERROR})
"""What the SDK answers in a server's place whose answer over HTTP ends too early, or is none."""
_CLOSED = "Connection closed"
"""What the SDK answers a request with that is under way when a connection ends."""
_LOGGERS = ("mcp", "client", "httpx2", "httpcore2")
_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


@asynccontextmanager
async def linked(server: McpServer, transport: Transport, version: str) -> "AsyncIterator[SdkLink]":
    """Connect over `transport`. Raises LinkBroken, and what the SDK raises."""
    for name in _LOGGERS:  # What a server says wrong is not ours to print.
        logging.getLogger(name).propagate = False
        logging.getLogger(name).addHandler(logging.NullHandler())
    changed = asyncio.Event()

    async def heard(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            changed.set()

    ours = types.Implementation(name="holdfast", version=version)
    async with transport.opened() as (reading, writing):
        sieve = Sieve(reading)
        try:
            client = Client(_Given((sieve, writing)), message_handler=heard, client_info=ours, cache=None)
            async with client:
                sieve.version = client.protocol_version
                yield SdkLink(server, transport, client, changed, sieve)
        # Errors come in groups, of the tasks that the SDK has: what the way itself knows says more.
        except Exception as error:
            raise LinkBroken(transport.why or said_of(error)) from error


class _Given:
    """Streams that are open already, as the SDK takes a transport."""

    def __init__(self, streams: Any) -> None:
        self._streams = streams

    async def __aenter__(self) -> Any:
        return self._streams

    async def __aexit__(self, *error: object) -> None:
        return None


class SdkLink:
    """As its port says."""

    def __init__(
        self,
        server: McpServer,
        transport: Transport,
        client: Client,
        changed: asyncio.Event,
        sieve: Sieve,
    ) -> None:
        self.changed = changed
        self._sieve = sieve
        self._server = server
        self._transport = transport
        self._client = client

    @property
    def why(self) -> str:
        return self._transport.why

    async def tools(self) -> Listing:
        listed: list[types.Tool] = []
        cursor: str | None = None
        self._sieve.taken_out.clear()
        try:
            for _ in range(MCP_PAGES_MAX):
                page = await self._client.session.list_tools(
                    params=types.PaginatedRequestParams(cursor=cursor) if cursor else None
                )
                listed += page.tools
                cursor = page.next_cursor
                if not cursor or len(listed) > TOOLS_READ_MAX:
                    break
        except MCPError as error:
            if error.code == types.METHOD_NOT_FOUND:  # It has none.
                return Listing()
            raise LinkBroken(self._transport.why or f"it did not list its tools: {error.message}") from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"])
            raise LinkBroken(f"its list of tools is not valid: {where}: {first['msg']}") from error
        return listing_of(self._server, listed, self._sieve.taken_out)

    async def call(
        self, name: str, arguments: Mapping[str, Any], within_s: float, say: Callable[[str], None], keep: Keep
    ) -> ToolResult:
        if self._transport.why:
            raise NotSent(self._transport.why)
        try:
            async with asyncio.timeout(within_s):
                answer = await self._answer(name, arguments, say)
        except TimeoutError:
            self.changed.set()  # One that answers nothing at all is found out by that, and connected anew.
            raise NoAnswer(
                f"{self._whom} did not answer within {within_s:g} s; it may have done it."
            ) from None
        if isinstance(answer, types.InputRequiredResult):
            return failed(Refused("It asks for something that cannot be given here; it was not finished."))
        return await result_of(answer, keep)

    async def _answer(
        self, name: str, arguments: Mapping[str, Any], say: Callable[[str], None]
    ) -> types.CallToolResult | types.InputRequiredResult:
        async def progressed(progress: float, total: float | None, message: str | None) -> None:
            of = f" of {total:g}" if total else ""
            say(" ".join(f"{progress:g}{of} {message or ''}".split())[:_LINE_CHARS_MAX])

        params = types.CallToolRequestParams(name=name, arguments=dict(arguments))
        try:
            return await self._client.session.send_request(
                types.CallToolRequest(params=params), _ANSWER, progress_callback=progressed
            )
        except MCPError as error:
            return self._judged(error)
        except ValidationError as error:
            raise Lost(f"What {self._whom} answered cannot be read; it may have done it.") from error

    def _judged(self, error: MCPError) -> types.CallToolResult:
        """An error that the server answered with. Raises NotSent, Lost for one that it did not."""
        if error.code == NOT_SENT:
            raise NotSent(f"{self._whom}: {error.message}") from error
        # Over a pipe, who uses the SDK's own codes is a server that means an error of its own by them.
        lost = error.code == UNREADABLE or (error.code in _LOST and self._transport.says_closed)
        if lost or (error.code == types.CONNECTION_CLOSED and error.message == _CLOSED):
            said = self._transport.why or error.message
            raise Lost(f"The connection to {self._whom} was lost ({said}); it may have done it.") from error
        said = error.message if error.code == NOT_TAKEN else f"error {error.code}: {error.message}"
        text = types.TextContent(type="text", text=said[:MCP_ERROR_CHARS_MAX])
        return types.CallToolResult(content=[text], is_error=True)

    async def broken(self) -> str:
        listening = asyncio.ensure_future(self._listen())
        try:
            return await self._transport.broken()
        finally:
            listening.cancel()

    async def _listen(self) -> None:
        """Hear of changed tools, where that has to be asked for."""
        has_tools = self._client.server_capabilities.tools
        tells = has_tools is not None and has_tools.list_changed
        while tells and self._client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            try:
                async with self._client.listen(tools_list_changed=True) as events:
                    self.changed.set()  # What changed before this was not heard.
                    async for _ in events:
                        self.changed.set()
            except (MCPError, SubscriptionLost, TimeoutError):
                pass
            await asyncio.sleep(_LISTEN_AGAIN_S)

    @property
    def _whom(self) -> str:
        return f"the MCP server {self._server.name}"
