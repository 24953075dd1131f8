"""The way to a configured MCP server. Imports the SDK, which takes a second: loaded when there is one."""

from contextlib import AbstractAsyncContextManager

from holdfast.domain.mcp import McpServer
from holdfast.mcp.http import Http
from holdfast.mcp.ports import Link
from holdfast.mcp.session import linked
from holdfast.mcp.spawn_context import Yard
from holdfast.mcp.stdio import Stdio
from holdfast.mcp.transport import Transport


def reach(server: McpServer, yard: Yard, version: str) -> AbstractAsyncContextManager[Link]:
    """Connect to a server whose variables are put in. Raises as `OpenLink` says."""
    transport: Transport = Http(server) if server.is_remote else Stdio(server, yard)
    return linked(server, transport, version)
