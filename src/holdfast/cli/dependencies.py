"""What commands are given: the parts they may use, chosen by `app`, and the settings in force."""

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
from holdfast.store.ports import BackupRestoreResult, Durability, Progress, Store


class OpenStore(Protocol):
    """Opens the store in a folder, making both when they are not there. Raises StoreFault."""

    def __call__(self, folder: Path, *, durability: Durability) -> Awaitable[Store]: ...


class DataDir(Protocol):
    """A data folder seen from outside: what is asked or done while no store is open in it."""

    @property
    def engine(self) -> str:
        """What keeps the data, with its version."""

    def holds_store(self, folder: Path) -> bool: ...

    def count_other_processes(self, folder: Path) -> int:
        """How many other processes have the store open. Raises StoreFault."""

    def restore(self, folder: Path, path: Path, progress: Progress) -> BackupRestoreResult:
        """Put a backup in place of what is here; return where that is kept. Raises StoreFault."""


class ListeningServer(Protocol):
    """Something that listens, at `address`, and answers from `run` on until the process is told to stop.

    `is_local`: only this machine can reach it.
    """

    address: str
    is_local: bool

    async def run(
        self,
        engine: Engine,
        read_status: GetServerStatus,
        keyring: CredentialStore,
        auth_config: AuthConfig,
        on_ready: Callable[[], None],
        on_stop: Callable[[], Awaitable[None]],
        services: Services,
    ) -> None: ...

    def close(self) -> None: ...


class OpenServer(Protocol):
    """Listens on a port, or with `or_next` on the first free one from there."""

    def __call__(self, host: str, port: int, or_next: bool) -> ListeningServer: ...


class SelectedModel(Protocol):
    """The model that answers now, and why it is that one; another may be put in its place."""

    @property
    def name(self) -> str: ...

    @property
    def why(self) -> str: ...

    async def takes(self) -> SupportedFiles:
        """Which files it takes."""

    async def main_agent_model(self) -> tuple[str, SupportedFiles]:
        """The model of the agent that every server has and what that takes; nothing where it is this one."""


class MemoryComponent(Protocol):
    """Who sees to it that memory is told; to be started and stopped after the engine."""

    @property
    def service(self) -> MemoryService: ...

    @property
    def description(self) -> str:
        """Who remembers, in words."""

    async def open(self) -> None:
        """Have ready who remembers. Raises a HoldfastError where that can never be."""

    async def start(self) -> None: ...

    async def stop(self, within_s: float) -> None:
        """Tell what is still owed, at most so long; the rest stays owed."""


class ChannelsComponent(ChannelService, Protocol):
    """The chat apps that are served while the engine works."""

    async def start(self) -> None: ...

    async def stop(self, within_s: float) -> None:
        """What is being sent has so long to arrive. A second time does nothing."""


class McpComponent(McpService, Protocol):
    """The MCP servers, which are reached while the server runs."""

    def start(self) -> None:
        """In the background: nobody waits for them."""

    async def stop(self) -> None:
        """Soon. A second time does nothing."""


class App(msgspec.Struct, frozen=True):
    """Who carries out turns: an engine not started yet, the model it asks, what can be changed of both."""

    engine: Engine
    model: SelectedModel
    settings: SettingsService
    models: ModelService
    backups: BackupService
    memory: MemoryComponent
    channels: ChannelsComponent
    agents: AgentService
    close: Callable[[], Awaitable[None]]
    """Lets go of what models and memory hold. Call it after both have stopped."""
    sandbox: str = ""
    """What commands are confined by."""
    unprotected: tuple[str, ...] = ()
    """What that does not protect on this machine, in sentences."""
    mcp: McpComponent | None = None
    local: LocalModelService | None = None


class BuildApp(Protocol):
    """Puts an engine together over a store. Raises a HoldfastError when no model can be chosen.

    `address` is where the server listens: what tools start is kept away from it.
    """

    def __call__(self, store: Store, settings: Settings, address: str) -> Awaitable[App]: ...


class Dependencies(msgspec.Struct, frozen=True):
    """The parts, as `app` put them together; `get_dependencies` finds them from inside a command."""

    open_store: OpenStore
    open_server: OpenServer
    data_dir: DataDir
    build_app: BuildApp
    channel_access: Callable[[Store, Settings], ChannelAccess]
    """Who may speak in chat apps, over a store."""
    agents: Callable[[Settings], AgentQueries]
    """What people have written of agents, in a data folder."""
    local: Callable[[Settings], LocalModelService]
    """The local model of a data folder."""
    environ: Mapping[str, str]
    mask: SecretMask = SecretMask()
    """Knows the secrets of that environment."""

    def settings(self, **command_line: object) -> Settings:
        """The settings in force, given what stood on the command line. Raises ConfigError.

        What they hold that is secret is known from then on: no command shows it.
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


# Options that stand for settings: their help and default are the setting's own.
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
