"""All MCP servers of this process: started in the background, stopped in time, their tools in one mapping."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

from holdfast.domain.clock import Clock
from holdfast.domain.errors import NoSuchMcpServer
from holdfast.domain.limits import MCP_STOP_S_MAX
from holdfast.domain.mcp import SEPARATOR, McpServer, McpServerInfo
from holdfast.domain.secrets import MaskFunction
from holdfast.mcp.connection import McpConnection
from holdfast.mcp.ports import McpConnectionError, McpSession
from holdfast.mcp.spawn_context import McpSpawnContext
from holdfast.mcp.tool_cache import ToolCache
from holdfast.tools.ports import Tool

_CONNECT_MODULE = "holdfast.mcp.connect"


class McpServerConfig(NamedTuple):
    """A server as its table says, and as it is reached: with the variables put in that the table names."""

    configured: McpServer
    resolved: McpServer


class McpServers(Mapping[str, Tool]):
    """The tools that are offered at the moment, by the names that models use. Belongs to one event loop."""

    def __init__(
        self,
        servers: Sequence[McpServerConfig],
        spawn_context: McpSpawnContext,
        wrap: Callable[[Tool], Tool],
        clock: Clock,
        rng: Callable[[], float],
        mask: MaskFunction,
        version: str,
    ) -> None:
        self._spawn_context = spawn_context
        self._version = version
        tool_cache = ToolCache(spawn_context.folder / "mcp")
        self._connections = {
            each.configured.name: self._build_connection(each, tool_cache, wrap, clock, rng, mask)
            for each in servers
        }
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def _build_connection(
        self,
        config: McpServerConfig,
        tool_cache: ToolCache,
        wrap: Callable[[Tool], Tool],
        clock: Clock,
        rng: Callable[[], float],
        mask: MaskFunction,
    ) -> McpConnection:
        server = config.configured

        @asynccontextmanager
        async def open_session() -> AsyncIterator[McpSession]:
            try:
                # Takes a second, and is of no use to those who have no server.
                part = await asyncio.to_thread(importlib.import_module, _CONNECT_MODULE)
            except ImportError as error:
                raise McpConnectionError(f"holdfast[mcp] is not installed ({error})") from None
            async with part.reach(config.resolved, self._spawn_context, self._version) as link:
                yield link

        return McpConnection(
            server,
            open_session,
            tool_cache,
            wrap,
            lambda: self._spawn_context.is_finished(server),
            clock,
            rng,
            mask,
        )

    def start(self) -> None:
        """Begin to reach all of them; nobody waits for that."""
        for each in self._connections.values():
            each.load_cached_tools()
        self._tasks = tuple(
            asyncio.create_task(each.run(), name=f"mcp {name}") for name, each in self._connections.items()
        )

    async def stop(self) -> None:
        """End all of them, within a bounded time. A second time does nothing."""
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2 * MCP_STOP_S_MAX)

    def info(self) -> Sequence[McpServerInfo]:
        """How each of them fares."""
        return [each.info() for each in self._connections.values()]

    def reconnect(self, name: str) -> None:
        """Raises NoSuchMcpServer."""
        if name not in self._connections:
            raise NoSuchMcpServer(name=name)
        self._connections[name].reconnect()

    def __getitem__(self, name: str) -> Tool:
        connection = self._connections.get(name.partition(SEPARATOR)[0])
        if connection is None:
            raise KeyError(name)
        return connection.tools[name]

    def __iter__(self) -> Iterator[str]:
        return (name for each in self._connections.values() for name in each.tools)

    def __len__(self) -> int:
        return sum(len(each.tools) for each in self._connections.values())


class McpService(Protocol):
    """The MCP servers whose tools agents use."""

    def info(self) -> Sequence[McpServerInfo]:
        """How each of them fares, in the order of the file."""

    def reconnect(self, name: str) -> None:
        """End its connection, if there is one, and reach it again at once. Raises NoSuchMcpServer."""


class NoMcpServers:
    """The desk of a process that has no MCP servers."""

    def info(self) -> Sequence[McpServerInfo]:
        return ()

    def reconnect(self, name: str) -> None:
        raise NoSuchMcpServer(name=name)
