"""The way to a configured MCP server. Imports the SDK, which takes a second: loaded when there is one."""

from contextlib import AbstractAsyncContextManager

from holdfast.domain.mcp import McpServer
from holdfast.mcp.http import McpHttpTransport
from holdfast.mcp.ports import McpSession
from holdfast.mcp.session import open_session
from holdfast.mcp.spawn_context import McpSpawnContext
from holdfast.mcp.stdio import McpStdioTransport
from holdfast.mcp.transport import McpTransport


def reach(server: McpServer, yard: McpSpawnContext, version: str) -> AbstractAsyncContextManager[McpSession]:
    """Connect to a server whose variables are put in. Raises as `OpenSession` says."""
    transport: McpTransport = (
        McpHttpTransport(server) if server.is_remote else McpStdioTransport(server, yard)
    )
    return open_session(server, transport, version)
