"""The routes by which a server itself is looked after."""

import time
from typing import Any, Protocol

from holdfast.auth.login_throttle import Tries
from holdfast.office.office import Office
from holdfast.overview import Look
from holdfast.server.about import AboutRoutes
from holdfast.server.agents import AgentRoutes
from holdfast.server.backups import BackupRoutes
from holdfast.server.channels import ChannelRoutes
from holdfast.server.local_model import LocalRoutes
from holdfast.server.mcp import McpRoutes
from holdfast.server.memory import MemoryRoutes
from holdfast.server.models import ModelRoutes
from holdfast.server.settings import SettingRoutes


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
