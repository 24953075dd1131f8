"""Keep one MCP server connected: connect, list its tools, and retry with a backoff.

Each connection runs in its own task; calls come from other tasks. While the task retries, the connection
still offers its tools, and a call waits briefly for it. After several failures in a row it does neither.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress

from holdfast.domain.clock import Clock, Instant
from holdfast.domain.limits import (
    MCP_ERROR_CHARS_MAX,
    MCP_FAILURES_MAX,
    MCP_LIST_PAUSE_S,
    MCP_LIST_S_MAX,
    MCP_RETRY_MS,
    MCP_RETRY_MS_MAX,
    MCP_STABLE_S,
    MCP_WAIT_S_MAX,
)
from holdfast.domain.mcp import McpServer, McpServerInfo, McpState
from holdfast.domain.secrets import MaskFunction, mask_value
from holdfast.mcp.ports import (
    CallNotSent,
    McpConnectionError,
    McpSession,
    OfferedTool,
    OpenSession,
    ToolListing,
    error_text,
)
from holdfast.mcp.tool import McpTool, tool_name_for
from holdfast.mcp.tool_cache import ToolCache
from holdfast.models.ports import ToolSpec
from holdfast.tools.ports import Tool

_FIRST = asyncio.FIRST_COMPLETED


class McpConnection:
    """A connection to one server that reconnects itself. Belongs to one event loop.

    `wrap` decorates each tool before the connection offers it.
    """

    def __init__(
        self,
        server: McpServer,
        open_session: OpenSession,
        tool_cache: ToolCache,
        wrap: Callable[[Tool], Tool],
        is_finished: Callable[[], bool],
        clock: Clock,
        rng: Callable[[], float],
        mask: MaskFunction,
    ) -> None:
        self.server = server
        self._open_session = open_session
        self._tool_cache = tool_cache
        self._wrap = wrap
        self._is_finished = is_finished
        self._clock = clock
        self._rng = rng
        self._mask = mask
        self._state: McpState = "connecting"
        self._session: McpSession | None = None
        self._is_ready = asyncio.Event()
        self._reconnect_requested = asyncio.Event()
        self._failures = 0
        self._last_error, self._last_error_at = "", 0
        self._ready_since, self._retry_at = 0, 0
        self._connections = 0
        self._calls: Counter[str] = Counter()
        self._listing = ToolListing()
        self._tools: Mapping[str, Tool] = {}

    @property
    def tools(self) -> Mapping[str, Tool]:
        """The offered tools, by the names that models use."""
        return self._tools if self._session is not None or self._failures < MCP_FAILURES_MAX else {}

    def info(self) -> McpServerInfo:
        return McpServerInfo(
            self.server.name, "http" if self.server.is_remote else "stdio", self._state,
            tuple(self.tools), self._listing.left_out, self._last_error, self._last_error_at,
            self._ready_since, self._retry_at, self._connections, dict(self._calls),
        )  # fmt: skip

    def reconnect(self) -> None:
        """Close the connection, if any, and connect again at once."""
        self._failures = 0
        self._reconnect_requested.set()

    def load_cached_tools(self) -> None:
        """Offer the tools that the server last listed, to this process or an earlier one."""
        self._set_tools(mask_value(self._tool_cache.read(self.server), self._mask))

    async def run(self) -> None:
        """Connect again and again until cancelled."""
        try:
            while True:
                self._reconnect_requested.clear()
                await self._connect()
                await self._wait_before_retry()
        finally:
            self._state = "stopped"

    async def wait_ready(self) -> McpSession:
        """Return the session once it is ready. Raises CallNotSent if that takes too long."""
        retry_in_s = max(0, self._retry_at - self._clock.now_ms()) / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(MCP_WAIT_S_MAX if retry_in_s < MCP_WAIT_S_MAX else 0):
                while True:
                    await self._is_ready.wait()
                    if self._session is not None and not self._session.close_reason:
                        return self._session
                    self._set_disconnected()  # The task that runs the connection is about to notice too.
        reason = f" ({self._last_error})" if self._last_error else ""
        raise CallNotSent(f"the MCP server {self.server.name} is not connected{reason}")

    async def _connect(self) -> None:
        """Open one session, watch it until it ends, and record a failure."""
        self._state, self._retry_at = "connecting", 0
        limit = asyncio.timeout(self.server.start_timeout_s)
        try:
            async with limit, self._open_session() as session:
                self._update_tools(await session.list_tools())
                limit.reschedule(None)
                self._set_ready(session)
                reason = await self._watch_session(session)
        except McpConnectionError as error:
            reason = str(error)
        except TimeoutError as error:
            message = f"it was not ready within {self.server.start_timeout_s} s"
            reason = message if limit.expired() else error_text(error)
        # The edge of the connection's task: it records any error, then retries.
        except Exception as error:
            reason = error_text(error)
        finally:
            self._set_disconnected()
        if reason:
            self._record_failure(reason)

    def _set_ready(self, session: McpSession) -> None:
        self._state, self._session, self._ready_since = "ready", session, self._clock.now_ms()
        self._connections += 1
        self._last_error = ""
        self._is_ready.set()

    def _set_disconnected(self) -> None:
        was_stable = self._ready_since and self._clock.now_ms() - self._ready_since >= MCP_STABLE_S * 1000
        self._failures = 0 if was_stable else self._failures
        self._session, self._ready_since = None, 0
        self._is_ready.clear()

    def _record_failure(self, reason: str) -> None:
        self._failures += 1
        self._last_error = self._mask(reason)[:MCP_ERROR_CHARS_MAX]
        self._last_error_at = self._clock.now_ms()

    async def _watch_session(self, session: McpSession) -> str:
        """List the tools again on each change until the session closes, and return the reason.

        The reason is empty if somebody asked to reconnect.
        """
        closed = asyncio.ensure_future(session.wait_closed())
        reconnect_requested = asyncio.ensure_future(self._reconnect_requested.wait())
        changed = asyncio.ensure_future(session.tools_changed.wait())
        try:
            while True:
                await asyncio.wait({closed, reconnect_requested, changed}, return_when=_FIRST)
                if closed.done():
                    return closed.result()
                if reconnect_requested.done():
                    return ""
                session.tools_changed.clear()
                changed = asyncio.ensure_future(session.tools_changed.wait())
                async with asyncio.timeout(MCP_LIST_S_MAX):
                    self._update_tools(await session.list_tools())
                await asyncio.wait(
                    {closed, reconnect_requested}, timeout=MCP_LIST_PAUSE_S, return_when=_FIRST
                )
        except TimeoutError:
            return f"it did not list its tools within {MCP_LIST_S_MAX} s"
        finally:
            for task in (closed, reconnect_requested, changed):
                task.cancel()

    async def _wait_before_retry(self) -> None:
        if self._reconnect_requested.is_set():
            return
        delay_ms = min(MCP_RETRY_MS * 2 ** min(self._failures - 1, 20), MCP_RETRY_MS_MAX)
        delay_ms = int(delay_ms * (0.5 + self._rng() / 2))
        self._state, self._retry_at = "waiting", Instant(self._clock.now_ms() + delay_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_ms / 1000):
                await self._reconnect_requested.wait()

    def _update_tools(self, listing: ToolListing) -> None:
        listing = mask_value(listing, self._mask)  # A server may repeat secrets that it was sent.
        if listing != self._listing:
            self._set_tools(listing)
            with suppress(OSError):  # Without the cache, tools only appear later after a restart.
                self._tool_cache.write(self.server, listing)

    def _set_tools(self, listing: ToolListing) -> None:
        self._listing = listing
        self._tools = {tool.spec.name: tool for tool in map(self._build_tool, listing.tools)}

    def _build_tool(self, offered: OfferedTool) -> Tool:
        server = self.server
        place = f"It is carried out by the MCP server {server.name}."
        spec = ToolSpec(
            tool_name_for(server.name, offered.name), offered.description, offered.parameters, place
        )
        tool = McpTool(
            spec, offered, self.wait_ready, server.call_timeout_s, self._count_call, self._is_finished
        )
        return self._wrap(tool)

    def _count_call(self, outcome: str) -> None:
        self._calls[outcome] += 1
