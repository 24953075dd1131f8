"""Talk to an MCP server through the official SDK, over any transport.

This module decides whether a server may have carried out a call. An error from the server is a result. If
the answer can no longer arrive, or is unreadable, the call is lost. Nothing here sends a call twice.
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
from holdfast.mcp.ports import CallLost, CallNotSent, CallTimeout, McpConnectionError, ToolListing, error_text
from holdfast.mcp.results import build_listing, to_tool_result
from holdfast.mcp.tool_filter import TOOLS_READ_MAX, ToolListFilter
from holdfast.mcp.transport import NOT_SENT, REJECTED, UNREADABLE, McpTransport
from holdfast.tools.arguments import ToolError, failed_result
from holdfast.tools.ports import KeepBlob, ToolResult

_LISTEN_AGAIN_S = 30.0
_LINE_CHARS_MAX = 500
_LOST_CODES = frozenset({types.CONNECTION_CLOSED, types.PARSE_ERROR})
"""Codes with which the SDK answers in the server's place if an HTTP answer ends early or is malformed."""
_CLOSED = "Connection closed"
"""The SDK's answer to a request that is pending when the connection ends."""
_LOGGERS = ("mcp", "client", "httpx2", "httpcore2")
_ANSWER: TypeAdapter[types.CallToolResult | types.InputRequiredResult] = TypeAdapter(
    types.CallToolResult | types.InputRequiredResult
)


@asynccontextmanager
async def open_session(
    server: McpServer, transport: McpTransport, version: str
) -> "AsyncIterator[SdkSession]":
    """Connect over `transport`. Raises McpConnectionError, and any error of the SDK."""
    for name in _LOGGERS:  # The SDK would print a server's protocol errors on our console.
        logging.getLogger(name).propagate = False
        logging.getLogger(name).addHandler(logging.NullHandler())
    tools_changed = asyncio.Event()

    async def on_message(message: IncomingMessage) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            tools_changed.set()

    client_info = types.Implementation(name="holdfast", version=version)
    async with transport.connect() as (reading, writing):
        tool_filter = ToolListFilter(reading)
        try:
            client = Client(
                _OpenStreams((tool_filter, writing)),
                message_handler=on_message,
                client_info=client_info,
                cache=None,
            )
            async with client:
                tool_filter.version = client.protocol_version
                yield SdkSession(server, transport, client, tools_changed, tool_filter)
        # The SDK's task groups raise error groups; the transport's own reason says more.
        except Exception as error:
            raise McpConnectionError(transport.close_reason or error_text(error)) from error


class _OpenStreams:
    """Open streams in the form in which the SDK takes a transport."""

    def __init__(self, streams: Any) -> None:
        self._streams = streams

    async def __aenter__(self) -> Any:
        return self._streams

    async def __aexit__(self, *error: object) -> None:
        return None


class SdkSession:
    """The McpSession over the SDK's client."""

    def __init__(
        self,
        server: McpServer,
        transport: McpTransport,
        client: Client,
        tools_changed: asyncio.Event,
        tool_filter: ToolListFilter,
    ) -> None:
        self.tools_changed = tools_changed
        self._tool_filter = tool_filter
        self._server = server
        self._transport = transport
        self._client = client

    @property
    def close_reason(self) -> str:
        return self._transport.close_reason

    async def list_tools(self) -> ToolListing:
        listed: list[types.Tool] = []
        cursor: str | None = None
        self._tool_filter.dropped.clear()
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
            if error.code == types.METHOD_NOT_FOUND:  # A server without tools need not know the method.
                return ToolListing()
            raise McpConnectionError(
                self._transport.close_reason or f"it did not list its tools: {error.message}"
            ) from error
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(step) for step in first["loc"])
            raise McpConnectionError(f"its list of tools is not valid: {where}: {first['msg']}") from error
        return build_listing(self._server, listed, self._tool_filter.dropped)

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout_s: float,
        on_progress: Callable[[str], None],
        keep: KeepBlob,
    ) -> ToolResult:
        if self._transport.close_reason:
            raise CallNotSent(self._transport.close_reason)
        try:
            async with asyncio.timeout(timeout_s):
                answer = await self._request_call(name, arguments, on_progress)
        except TimeoutError:
            self.tools_changed.set()  # Listing the tools finds out whether the server still answers at all.
            raise CallTimeout(
                f"{self._server_label} did not answer within {timeout_s:g} s; it may have done it."
            ) from None
        if isinstance(answer, types.InputRequiredResult):
            return failed_result(
                ToolError("It asks for something that cannot be given here; it was not finished.")
            )
        return await to_tool_result(answer, keep)

    async def _request_call(
        self, name: str, arguments: Mapping[str, Any], on_progress: Callable[[str], None]
    ) -> types.CallToolResult | types.InputRequiredResult:
        async def report_progress(progress: float, total: float | None, message: str | None) -> None:
            of = f" of {total:g}" if total else ""
            on_progress(" ".join(f"{progress:g}{of} {message or ''}".split())[:_LINE_CHARS_MAX])

        params = types.CallToolRequestParams(name=name, arguments=dict(arguments))
        try:
            return await self._client.session.send_request(
                types.CallToolRequest(params=params), _ANSWER, progress_callback=report_progress
            )
        except MCPError as error:
            return self._error_result(error)
        except ValidationError as error:
            raise CallLost(
                f"What {self._server_label} answered cannot be read; it may have done it."
            ) from error

    def _error_result(self, error: MCPError) -> types.CallToolResult:
        """Return an error of the server as a result. Raises CallNotSent, CallLost for any other."""
        if error.code == NOT_SENT:
            raise CallNotSent(f"{self._server_label}: {error.message}") from error
        # Over a pipe the SDK does not send these codes, so there they are the server's own errors.
        lost = error.code == UNREADABLE or (
            error.code in _LOST_CODES and self._transport.reports_lost_requests
        )
        if lost or (error.code == types.CONNECTION_CLOSED and error.message == _CLOSED):
            message = self._transport.close_reason or error.message
            raise CallLost(
                f"The connection to {self._server_label} was lost ({message}); it may have done it."
            ) from error
        message = error.message if error.code == REJECTED else f"error {error.code}: {error.message}"
        text = types.TextContent(type="text", text=message[:MCP_ERROR_CHARS_MAX])
        return types.CallToolResult(content=[text], is_error=True)

    async def wait_closed(self) -> str:
        listening = asyncio.ensure_future(self._watch_tool_changes())
        try:
            return await self._transport.wait_closed()
        finally:
            listening.cancel()

    async def _watch_tool_changes(self) -> None:
        """Subscribe to tool changes if the protocol version requires a subscription."""
        has_tools = self._client.server_capabilities.tools
        notifies = has_tools is not None and has_tools.list_changed
        while notifies and self._client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            try:
                async with self._client.listen(tools_list_changed=True) as events:
                    self.tools_changed.set()  # Changes before the subscription went unnoticed.
                    async for _ in events:
                        self.tools_changed.set()
            except (MCPError, SubscriptionLost, TimeoutError):
                pass
            await asyncio.sleep(_LISTEN_AGAIN_S)

    @property
    def _server_label(self) -> str:
        return f"the MCP server {self._server.name}"
