"""Connect to a configured MCP server.

Imports the SDK, which takes a second; `service` imports this module only when a server is configured.
"""

from contextlib import AbstractAsyncContextManager

from holdfast.domain.mcp import McpServer
from holdfast.mcp.http import McpHttpTransport
from holdfast.mcp.ports import McpSession
from holdfast.mcp.session import open_session
from holdfast.mcp.spawn_context import McpSpawnContext
from holdfast.mcp.stdio import McpStdioTransport
from holdfast.mcp.transport import McpTransport


def connect(
    server: McpServer, spawn_context: McpSpawnContext, version: str
) -> AbstractAsyncContextManager[McpSession]:
    """Connect to a server whose variables are resolved. Raises what `OpenSession` raises."""
    transport: McpTransport = (
        McpHttpTransport(server) if server.is_remote else McpStdioTransport(server, spawn_context)
    )
    return open_session(server, transport, version)
