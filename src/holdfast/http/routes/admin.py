"""The routes by which a server itself is looked after."""

import time
from typing import Any, Protocol

from holdfast.auth.login_throttle import Tries
from holdfast.http.routes.about import AboutRoutes
from holdfast.http.routes.agents import AgentRoutes
from holdfast.http.routes.backups import BackupRoutes
from holdfast.http.routes.channels import ChannelRoutes
from holdfast.http.routes.mcp import McpRoutes
from holdfast.http.routes.memory import MemoryRoutes
from holdfast.http.routes.models import LocalRoutes, ModelRoutes
from holdfast.http.routes.settings import SettingRoutes
from holdfast.services import Office
from holdfast.status import Look


class Table(Protocol):
    def table(self) -> list[Any]: ...


def office_routes(office: Office, look: Look) -> tuple[Table, ...]:
    agents = (AgentRoutes(office.agents),) if office.agents is not None else ()
    local = (LocalRoutes(office.local),) if office.local is not None else ()
    return (
        *agents,
        *local,
        SettingRoutes(office.settings),
        ModelRoutes(office.models, look),
        BackupRoutes(office.backups),
        MemoryRoutes(office.memory),
        McpRoutes(office.mcp),
        ChannelRoutes(office.channels, Tries(time.monotonic)),
        AboutRoutes(look, office.addresses, office.started_at),
    )
