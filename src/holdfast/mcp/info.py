"""The MCP servers whose tools agents use: the port of who is connected to them."""

from collections.abc import Sequence
from typing import Protocol

from holdfast.domain.errors import NoSuchMcpServer
from holdfast.domain.mcp import McpTold


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
