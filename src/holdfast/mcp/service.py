"""Start and stop all MCP servers of this process, and offer their tools in one mapping."""

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
    """A server's table, as configured and with its variables resolved."""

    configured: McpServer
    resolved: McpServer


class McpServers(Mapping[str, Tool]):
    """A live mapping of the offered tools by the names that models use. Belongs to one event loop."""

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
            config.configured.name: self._build_connection(config, tool_cache, wrap, clock, rng, mask)
            for config in servers
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
                # The import takes a second, which a process without servers need not pay.
                module = await asyncio.to_thread(importlib.import_module, _CONNECT_MODULE)
            except ImportError as error:
                raise McpConnectionError(f"holdfast[mcp] is not installed ({error})") from None
            async with module.connect(config.resolved, self._spawn_context, self._version) as session:
                yield session

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
        """Begin to connect to all servers, and return at once."""
        for connection in self._connections.values():
            connection.load_cached_tools()
        self._tasks = tuple(
            asyncio.create_task(connection.run(), name=f"mcp {name}")
            for name, connection in self._connections.items()
        )

    async def stop(self) -> None:
        """Close all connections within a bounded time. A second call does nothing."""
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2 * MCP_STOP_S_MAX)

    def info(self) -> Sequence[McpServerInfo]:
        return [connection.info() for connection in self._connections.values()]

    def reconnect(self, name: str) -> None:
        if name not in self._connections:
            raise NoSuchMcpServer(name=name)
        self._connections[name].reconnect()

    def __getitem__(self, name: str) -> Tool:
        connection = self._connections.get(name.partition(SEPARATOR)[0])
        if connection is None:
            raise KeyError(name)
        return connection.tools[name]

    def __iter__(self) -> Iterator[str]:
        return (name for connection in self._connections.values() for name in connection.tools)

    def __len__(self) -> int:
        return sum(len(connection.tools) for connection in self._connections.values())


class McpService(Protocol):
    """The MCP servers whose tools agents use."""

    def info(self) -> Sequence[McpServerInfo]:
        """Return the status of each server, in the order of the configuration file."""

    def reconnect(self, name: str) -> None:
        """Close the server's connection, if any, and connect again at once. Raises NoSuchMcpServer."""


class NoMcpServers:
    """The McpService of a process without MCP servers."""

    def info(self) -> Sequence[McpServerInfo]:
        return ()

    def reconnect(self, name: str) -> None:
        raise NoSuchMcpServer(name=name)
