"""Show MCP servers over HTTP, and reconnect one."""

from typing import Any

import msgspec
from litestar import get, post
from litestar.params import FromPath

from holdfast.domain.errors import NoSuchMcpServer
from holdfast.domain.mcp import McpServerInfo
from holdfast.http.openapi.responses import response_specs
from holdfast.mcp.service import McpService

_AT = 1_760_000_000_000


class McpList(msgspec.Struct, frozen=True):
    """Every MCP server of `holdfast.toml`. Another, or a changed one, is there after a restart."""

    servers: tuple[McpServerInfo, ...]


_LIST = McpList((
    McpServerInfo(
        "time", "stdio", "ready", ("time__get_current_time", "time__convert_time"), (), "", 0, _AT, 0, 1,
        {"done": 3},
    ),
    McpServerInfo("wiki", "http", "waiting", (), (), "it cannot be reached", _AT, 0, _AT + 4_000),
))  # fmt: skip


class McpRoutes:
    """Serve `/api/mcp`."""

    def __init__(self, service: McpService) -> None:
        self._service = service

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        listed = response_specs(200, McpList, _LIST)
        again = response_specs(202, McpList, _LIST, NoSuchMcpServer, has_body=True)
        return [
            get("/api/mcp", responses=listed)(self.servers),
            post("/api/mcp/{name:str}/reconnect", status_code=202, responses=again)(self.reconnect),
        ]

    async def servers(self) -> McpList:
        """Every MCP server: whether it is connected, its tools, what went wrong last."""
        return McpList(tuple(self._service.info()))

    async def reconnect(self, name: FromPath[str]) -> McpList:
        """Reach one again at once; look again for what came of it."""
        self._service.reconnect(name)
        return await self.servers()
