"""All MCP servers of this process: started in the background, stopped in time, their tools in one mapping."""

import asyncio
import importlib
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple, Protocol

from holdfast.domain.clock import Clock
from holdfast.domain.errors import NoSuchMcpServer
from holdfast.domain.limits import MCP_STOP_S_MAX
from holdfast.domain.mcp import SEPARATOR, McpServer, McpTold
from holdfast.domain.secrets import Masking
from holdfast.mcp.connection import Connection
from holdfast.mcp.ports import Link, LinkBroken
from holdfast.mcp.spawn_context import Yard
from holdfast.mcp.tool_cache import KeptTools
from holdfast.tools.ports import Tool

_REACHING = "holdfast.mcp.connect"


class Wanted(NamedTuple):
    """A server as its table says, and as it is reached: with the variables put in that the table names."""

    written: McpServer
    reached: McpServer


class McpServers(Mapping[str, Tool]):
    """The tools that are offered at the moment, by the names that models use. Belongs to one event loop."""

    def __init__(
        self,
        wanted: Sequence[Wanted],
        yard: Yard,
        wrap: Callable[[Tool], Tool],
        clock: Clock,
        chance: Callable[[], float],
        mask: Masking,
        version: str,
    ) -> None:
        self._yard = yard
        self._version = version
        kept = KeptTools(yard.folder / "mcp")
        self._connections = {
            each.written.name: self._connection(each, kept, wrap, clock, chance, mask) for each in wanted
        }
        self._tasks: tuple[asyncio.Task[None], ...] = ()

    def _connection(
        self,
        wanted: Wanted,
        kept: KeptTools,
        wrap: Callable[[Tool], Tool],
        clock: Clock,
        chance: Callable[[], float],
        mask: Masking,
    ) -> Connection:
        server = wanted.written

        @asynccontextmanager
        async def opened() -> AsyncIterator[Link]:
            try:
                # Takes a second, and is of no use to those who have no server.
                part = await asyncio.to_thread(importlib.import_module, _REACHING)
            except ImportError as error:
                raise LinkBroken(f"holdfast[mcp] is not installed ({error})") from None
            async with part.reach(wanted.reached, self._yard, self._version) as link:
                yield link

        return Connection(server, opened, kept, wrap, lambda: self._yard.is_over(server), clock, chance, mask)

    def start(self) -> None:
        """Begin to reach all of them; nobody waits for that."""
        for each in self._connections.values():
            each.recall()
        self._tasks = tuple(
            asyncio.create_task(each.keep(), name=f"mcp {name}") for name, each in self._connections.items()
        )

    async def stop(self) -> None:
        """End all of them, within a bounded time. A second time does nothing."""
        tasks, self._tasks = self._tasks, ()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=2 * MCP_STOP_S_MAX)

    def told(self) -> Sequence[McpTold]:
        """How each of them fares."""
        return [each.told() for each in self._connections.values()]

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


class McpDesk(Protocol):
    """The MCP servers whose tools agents use."""

    def told(self) -> Sequence[McpTold]:
        """How each of them fares, in the order of the file."""

    def reconnect(self, name: str) -> None:
        """End its connection, if there is one, and reach it again at once. Raises NoSuchMcpServer."""


class NoMcp:
    """The desk of a process that has no MCP servers."""

    def told(self) -> Sequence[McpTold]:
        return ()

    def reconnect(self, name: str) -> None:
        raise NoSuchMcpServer(name=name)
