"""The way to a configured MCP server. Imports the SDK, which takes a second: loaded when there is one."""

from contextlib import AbstractAsyncContextManager

from holdfast.agent.mcp.http import Http
from holdfast.agent.mcp.link import linked
from holdfast.agent.mcp.ports import Link
from holdfast.agent.mcp.stdio import Stdio
from holdfast.agent.mcp.transport import Transport
from holdfast.agent.mcp.yard import Yard
from holdfast.domain.mcp import McpServer


def reach(server: McpServer, yard: Yard, version: str) -> AbstractAsyncContextManager[Link]:
    """Connect to a server whose variables are put in. Raises as `OpenLink` says."""
    transport: Transport = Http(server) if server.is_remote else Stdio(server, yard)
    return linked(server, transport, version)
