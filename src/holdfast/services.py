"""The services of a running server, in one place for `http` and `cli`."""

import msgspec

from holdfast.agent.config.info import AgentDesk
from holdfast.channels.info import ChannelDesk
from holdfast.domain.clock import Instant
from holdfast.engine.backups import BackupDesk
from holdfast.mcp.service import McpDesk, NoMcp
from holdfast.memory.info import MemoryDesk, NoMemory
from holdfast.models.info import ModelDesk
from holdfast.models.local.info import LocalDesk
from holdfast.settings.info import SettingsDesk


class Office(msgspec.Struct, frozen=True):
    """Those who do it, and since when and where this server answers."""

    settings: SettingsDesk
    models: ModelDesk
    backups: BackupDesk
    channels: ChannelDesk
    addresses: tuple[str, ...]
    started_at: Instant
    memory: MemoryDesk = NoMemory()
    mcp: McpDesk = NoMcp()
    agents: AgentDesk | None = None
    local: LocalDesk | None = None
