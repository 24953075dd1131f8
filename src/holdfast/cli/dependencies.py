"""The components that commands may use, as ports that `app` implements, and the options for settings."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
import typer

from holdfast.agent.config.info import AgentQueries, AgentService
from holdfast.auth.credentials import CredentialStore
from holdfast.channels.info import ChannelAccess, ChannelService
from holdfast.domain.credentials import AuthConfig
from holdfast.domain.files import SupportedFiles
from holdfast.domain.mcp import server_secrets
from holdfast.domain.secrets import SecretMask, find_secrets
from holdfast.engine.backups import BackupService
from holdfast.engine.engine import Engine
from holdfast.mcp.service import McpService
from holdfast.memory.info import MemoryService
from holdfast.models.info import ModelService
from holdfast.models.local.info import LocalModelService
from holdfast.services import Services
from holdfast.settings.info import SettingsService
from holdfast.settings.settings import Settings, resolve, settings_help
from holdfast.status import GetServerStatus
from holdfast.store.maintenance import BackupRestoreResult, Progress
from holdfast.store.ports import Durability, Store


class OpenStore(Protocol):
    """Open the store in a folder, and create both if missing. Raises StoreFault."""

    def __call__(self, folder: Path, *, durability: Durability) -> Awaitable[Store]: ...


class DataDir(Protocol):
    """Operations on a data folder while no store is open in it."""

    @property
    def engine(self) -> str:
        """Return the name and version of the storage engine."""

    def holds_store(self, folder: Path) -> bool: ...

    def count_other_processes(self, folder: Path) -> int:
        """Return how many other processes have the store open. Raises StoreFault."""

    def restore(self, folder: Path, path: Path, progress: Progress) -> BackupRestoreResult:
        """Replace the data with a backup; return where the old data is kept. Raises StoreFault."""


class ListeningServer(Protocol):
    """A server that listens at `address`, and serves from `run` on until a signal stops it.

    `is_local`: only this machine can reach it.
    """

    address: str
    is_local: bool

    async def run(
        self,
        engine: Engine,
        read_status: GetServerStatus,
        credential_store: CredentialStore,
        auth_config: AuthConfig,
        on_ready: Callable[[], None],
        on_stop: Callable[[], Awaitable[None]],
        services: Services,
    ) -> None: ...

    def close(self) -> None: ...


class OpenServer(Protocol):
    """Listen on a port, or with `or_next` on the first free port from there."""

    def __call__(self, host: str, port: int, or_next: bool) -> ListeningServer: ...


class SelectedModel(Protocol):
    """The model in use, and the reason for the choice; both may change while the server runs."""

    @property
    def name(self) -> str: ...

    @property
    def why(self) -> str: ...

    async def supported_files(self) -> SupportedFiles:
        """Return the kinds of files that the model takes."""

    async def main_agent_model(self) -> tuple[str, SupportedFiles]:
        """Return the main agent's model and the files it takes; empty if it is this model."""


class MemoryComponent(Protocol):
    """The memory component; start and stop it after the engine."""

    @property
    def service(self) -> MemoryService: ...

    @property
    def description(self) -> str:
        """Return a description of the memory provider."""

    async def open(self) -> None:
        """Prepare the memory provider. Raises a HoldfastError if that can never succeed."""

    async def start(self) -> None: ...

    async def stop(self, within_s: float) -> None:
        """Commit what is pending, for at most `within_s`; the rest stays pending."""


class ChannelsComponent(ChannelService, Protocol):
    """The channels, which run while the engine runs."""

    async def start(self) -> None: ...

    async def stop(self, within_s: float) -> None:
        """Stop, and give messages being sent `within_s` to arrive. A second call does nothing."""


class McpComponent(McpService, Protocol):
    """The MCP servers, which are connected while the server runs."""

    def start(self) -> None:
        """Connect to the servers in the background."""

    async def stop(self) -> None:
        """Disconnect soon. A second call does nothing."""


class App(msgspec.Struct, frozen=True):
    """The components of a server: an engine that is not started yet, its model, and the services."""

    engine: Engine
    model: SelectedModel
    settings: SettingsService
    models: ModelService
    backups: BackupService
    memory: MemoryComponent
    channels: ChannelsComponent
    agents: AgentService
    close: Callable[[], Awaitable[None]]
    """Releases the resources of models and memory. Call it after both have stopped."""
    sandbox: str = ""
    """A description of what confines commands."""
    unprotected: tuple[str, ...] = ()
    """Sentences about what the sandbox does not protect on this machine."""
    mcp: McpComponent | None = None
    local: LocalModelService | None = None


class BuildApp(Protocol):
    """Build the app over a store. Raises a HoldfastError if no model can be chosen.

    `address` is where the server listens: processes that tools start cannot reach it.
    """

    def __call__(self, store: Store, settings: Settings, address: str) -> Awaitable[App]: ...


class Dependencies(msgspec.Struct, frozen=True):
    """The components that `app` provides; `get_dependencies` finds them inside a command."""

    open_store: OpenStore
    open_server: OpenServer
    data_dir: DataDir
    build_app: BuildApp
    channel_access: Callable[[Store, Settings], ChannelAccess]
    """Returns the channel access of a store."""
    agents: Callable[[Settings], AgentQueries]
    """Returns the agents that are configured in a data folder."""
    local: Callable[[Settings], LocalModelService]
    """Returns the local model of a data folder."""
    environ: Mapping[str, str]
    mask: SecretMask = SecretMask()
    """Masks the secrets of that environment."""

    def settings(self, **command_line: object) -> Settings:
        """Return the settings in force, with those of the command line. Raises ConfigError.

        From then on `mask` also knows the secrets in them, so that no command prints one.
        """
        settings = resolve(command_line, self.environ)
        for server in settings.mcp:
            self.mask.add(*server_secrets(server, self.environ))
        self.mask.add(*find_secrets({"SEARXNG_URL": settings.searxng_url}))
        return settings


def get_dependencies(context: typer.Context) -> Dependencies:
    dependencies = context.find_object(Dependencies)
    assert dependencies is not None, "app puts the wiring there before any command runs"
    return dependencies


# Options for settings: their help and default come from the setting.
_SETTING_INFO = settings_help()
_DATA, _HOST, _PORT, _DURABILITY, _MODEL = (
    _SETTING_INFO[name] for name in ("data", "host", "port", "durability", "model")
)
DataOption = Annotated[
    Path | None, typer.Option("--data", metavar="FOLDER", help=_DATA.help, show_default=_DATA.default)
]
HostOption = Annotated[
    str | None, typer.Option("--host", metavar="ADDRESS", help=_HOST.help, show_default=_HOST.default)
]
PortOption = Annotated[
    str | None, typer.Option("--port", metavar="PORT", help=_PORT.help, show_default=_PORT.default)
]
DurabilityOption = Annotated[
    str | None,
    typer.Option(
        "--durability", metavar="full|normal", help=_DURABILITY.help, show_default=_DURABILITY.default
    ),
]
ModelOption = Annotated[
    str | None, typer.Option("--model", metavar="MODEL", help=_MODEL.help, show_default=_MODEL.default)
]
