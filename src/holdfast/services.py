"""Group the services of a running server for `http` and `cli`."""

import msgspec

from holdfast.agent.config.info import AgentService
from holdfast.channels.info import ChannelService
from holdfast.domain.clock import Instant
from holdfast.engine.backups import BackupService
from holdfast.mcp.service import McpService, NoMcpServers
from holdfast.memory.info import MemoryService, NullMemoryService
from holdfast.models.info import ModelService
from holdfast.models.local.info import LocalModelService
from holdfast.settings.info import SettingsService


class Services(msgspec.Struct, frozen=True):
    """The services of a server, with its start time and addresses."""

    settings: SettingsService
    models: ModelService
    backups: BackupService
    channels: ChannelService
    addresses: tuple[str, ...]
    started_at: Instant
    memory: MemoryService = NullMemoryService()
    mcp: McpService = NoMcpServers()
    agents: AgentService | None = None
    local: LocalModelService | None = None
