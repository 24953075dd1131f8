"""One MCP server, kept connected: reached, asked for its tools, tried again after a while when it fails.

A connection lives in one task of its own, from its opening to its end; calls come from others. Its tools stay
offered while it is tried again, and a call waits a little for it: but not after several failures in a row.
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
    MCP_STEADY_S,
    MCP_WAIT_S_MAX,
)
from holdfast.domain.mcp import McpServer, McpState, McpTold
from holdfast.domain.secrets import Masking, masked
from holdfast.mcp.ports import Link, LinkBroken, Listing, NotSent, Offered, OpenLink, said_of
from holdfast.mcp.tool import McpTool, named
from holdfast.mcp.tool_cache import KeptTools
from holdfast.models.ports import ToolSpec
from holdfast.tools.ports import Tool

_FIRST = asyncio.FIRST_COMPLETED


class Connection:
    """Belongs to one event loop. `wrap` is what becomes of each tool before anyone has it."""

    def __init__(
        self,
        server: McpServer,
        open_link: OpenLink,
        kept: KeptTools,
        wrap: Callable[[Tool], Tool],
        is_over: Callable[[], bool],
        clock: Clock,
        chance: Callable[[], float],
        mask: Masking,
    ) -> None:
        self.server = server
        self._open = open_link
        self._kept = kept
        self._wrap = wrap
        self._is_over = is_over
        self._clock = clock
        self._chance = chance
        self._mask = mask
        self._state: McpState = "connecting"
        self._link: Link | None = None
        self._is_ready = asyncio.Event()
        self._wanted = asyncio.Event()
        self._failures = 0
        self._last_error, self._last_error_at = "", 0
        self._ready_since, self._retry_at = 0, 0
        self._connections = 0
        self._calls: Counter[str] = Counter()
        self._listing = Listing()
        self._tools: Mapping[str, Tool] = {}

    @property
    def tools(self) -> Mapping[str, Tool]:
        """What is offered now, by the names that models use."""
        return self._tools if self._link is not None or self._failures < MCP_FAILURES_MAX else {}

    def told(self) -> McpTold:
        return McpTold(
            self.server.name, "http" if self.server.is_remote else "stdio", self._state,
            tuple(self.tools), self._listing.left_out, self._last_error, self._last_error_at,
            self._ready_since, self._retry_at, self._connections, dict(self._calls),
        )  # fmt: skip

    def reconnect(self) -> None:
        """End the connection, if there is one, and reach the server again at once."""
        self._failures = 0
        self._wanted.set()

    def recall(self) -> None:
        """Offer what it offered last, in whichever process that was."""
        self._offer(masked(self._kept.read(self.server), self._mask))

    async def keep(self) -> None:
        """Until cancelled."""
        try:
            while True:
                self._wanted.clear()
                await self._connect()
                await self._rest()
        finally:
            self._state = "stopped"

    async def reached(self) -> Link:
        """The connection, once it is ready. Raises NotSent when that takes too long."""
        rests_s = max(0, self._retry_at - self._clock.now_ms()) / 1000
        with suppress(TimeoutError):
            async with asyncio.timeout(MCP_WAIT_S_MAX if rests_s < MCP_WAIT_S_MAX else 0):
                while True:
                    await self._is_ready.wait()
                    if self._link is not None and not self._link.why:
                        return self._link
                    self._end()  # Whoever tends it is about to find out too.
        why = f" ({self._last_error})" if self._last_error else ""
        raise NotSent(f"the MCP server {self.server.name} is not connected{why}")

    async def _connect(self) -> None:
        """One connection, from its opening to its end, however it ends."""
        self._state, self._retry_at = "connecting", 0
        limit = asyncio.timeout(self.server.start_timeout_s)
        try:
            async with limit, self._open() as link:
                self._take(await link.tools())
                limit.reschedule(None)
                self._begin(link)
                why = await self._tend(link)
        except LinkBroken as error:
            why = str(error)
        except TimeoutError as error:
            late = f"it was not ready within {self.server.start_timeout_s} s"
            why = late if limit.expired() else said_of(error)
        # The edge of a connection: whatever went wrong is told, and it is tried again.
        except Exception as error:
            why = said_of(error)
        finally:
            self._end()
        if why:
            self._fail(why)

    def _begin(self, link: Link) -> None:
        self._state, self._link, self._ready_since = "ready", link, self._clock.now_ms()
        self._connections += 1
        self._last_error = ""
        self._is_ready.set()

    def _end(self) -> None:
        was_steady = self._ready_since and self._clock.now_ms() - self._ready_since >= MCP_STEADY_S * 1000
        self._failures = 0 if was_steady else self._failures
        self._link, self._ready_since = None, 0
        self._is_ready.clear()

    def _fail(self, why: str) -> None:
        self._failures += 1
        self._last_error = self._mask(why)[:MCP_ERROR_CHARS_MAX]
        self._last_error_at = self._clock.now_ms()

    async def _tend(self, link: Link) -> str:
        """List its tools anew whenever that is asked for, until it breaks; returns why, or nothing if
        another connection is wanted."""
        broken = asyncio.ensure_future(link.broken())
        wanted = asyncio.ensure_future(self._wanted.wait())
        changed = asyncio.ensure_future(link.changed.wait())
        try:
            while True:
                await asyncio.wait({broken, wanted, changed}, return_when=_FIRST)
                if broken.done():
                    return broken.result()
                if wanted.done():
                    return ""
                link.changed.clear()
                changed = asyncio.ensure_future(link.changed.wait())
                async with asyncio.timeout(MCP_LIST_S_MAX):
                    self._take(await link.tools())
                await asyncio.wait({broken, wanted}, timeout=MCP_LIST_PAUSE_S, return_when=_FIRST)
        except TimeoutError:
            return f"it did not list its tools within {MCP_LIST_S_MAX} s"
        finally:
            for task in (broken, wanted, changed):
                task.cancel()

    async def _rest(self) -> None:
        if self._wanted.is_set():
            return
        delay_ms = min(MCP_RETRY_MS * 2 ** min(self._failures - 1, 20), MCP_RETRY_MS_MAX)
        delay_ms = int(delay_ms * (0.5 + self._chance() / 2))
        self._state, self._retry_at = "waiting", Instant(self._clock.now_ms() + delay_ms)
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_ms / 1000):
                await self._wanted.wait()

    def _take(self, listing: Listing) -> None:
        listing = masked(listing, self._mask)  # It may repeat what it was sent, to models and people.
        if listing != self._listing:
            self._offer(listing)
            with suppress(OSError):  # It is only known later after a restart.
                self._kept.write(self.server, listing)

    def _offer(self, listing: Listing) -> None:
        self._listing = listing
        self._tools = {tool.spec.name: tool for tool in map(self._tool, listing.tools)}

    def _tool(self, offered: Offered) -> Tool:
        server = self.server
        place = f"It is carried out by the MCP server {server.name}."
        spec = ToolSpec(named(server.name, offered.name), offered.description, offered.parameters, place)
        tool = McpTool(spec, offered, self.reached, server.call_timeout_s, self._count, self._is_over)
        return self._wrap(tool)

    def _count(self, outcome: str) -> None:
        self._calls[outcome] += 1
