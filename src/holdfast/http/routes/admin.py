"""Collect the routes that administer the server."""

import time
from typing import Any, Protocol

from holdfast.auth.login_throttle import LoginThrottle
from holdfast.http.routes.about import AboutRoutes
from holdfast.http.routes.agents import AgentRoutes
from holdfast.http.routes.backups import BackupRoutes
from holdfast.http.routes.channels import ChannelRoutes
from holdfast.http.routes.mcp import McpRoutes
from holdfast.http.routes.memory import MemoryRoutes
from holdfast.http.routes.models import LocalModelRoutes, ModelRoutes
from holdfast.http.routes.settings import SettingRoutes
from holdfast.services import Services
from holdfast.status import GetServerStatus


class RouteGroup(Protocol):
    def routes(self) -> list[Any]: ...


def admin_routes(services: Services, read_status: GetServerStatus) -> tuple[RouteGroup, ...]:
    agents = (AgentRoutes(services.agents),) if services.agents is not None else ()
    local = (LocalModelRoutes(services.local),) if services.local is not None else ()
    return (
        *agents,
        *local,
        SettingRoutes(services.settings),
        ModelRoutes(services.models, read_status),
        BackupRoutes(services.backups),
        MemoryRoutes(services.memory),
        McpRoutes(services.mcp),
        ChannelRoutes(services.channels, LoginThrottle(time.monotonic)),
        AboutRoutes(read_status, services.addresses, services.started_at),
    )
