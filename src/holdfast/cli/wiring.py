"""What commands are given: the parts they may use, chosen by `app`, and the settings in force."""

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Annotated, Protocol

import msgspec
import typer

from holdfast.agent.config.info import AgentDesk, AgentReading
from holdfast.auth.credentials import Keyring
from holdfast.channels.info import ChannelDesk, Reception
from holdfast.domain.credentials import Entrance
from holdfast.domain.files import Takes
from holdfast.domain.mcp import secrets_of
from holdfast.domain.secrets import Mask, secrets_in
from holdfast.engine.backups import BackupDesk
from holdfast.engine.engine import Engine
from holdfast.mcp.service import McpDesk
from holdfast.memory.info import MemoryDesk
from holdfast.models.info import ModelDesk
from holdfast.models.local.info import LocalDesk
from holdfast.services import Office
from holdfast.settings.info import SettingsDesk
from holdfast.settings.settings import Settings, resolve, settings_told
from holdfast.status import Look
from holdfast.store.ports import Durability, Progress, Replaced, Store


class OpenStore(Protocol):
    """Opens the store in a folder, making both when they are not there. Raises StoreFault."""

    def __call__(self, folder: Path, *, durability: Durability) -> Awaitable[Store]: ...


class Premises(Protocol):
    """A data folder seen from outside: what is asked or done while no store is open in it."""

    @property
    def engine(self) -> str:
        """What keeps the data, with its version."""

    def holds_store(self, folder: Path) -> bool: ...

    def others(self, folder: Path) -> int:
        """How many other processes have the store open. Raises StoreFault."""

    def restore(self, folder: Path, path: Path, progress: Progress) -> Replaced:
        """Put a backup in place of what is here; return where that is kept. Raises StoreFault."""


class Door(Protocol):
    """Something that listens, at `address`, and answers from `run` on until the process is told to stop.

    `is_local`: only this machine can reach it.
    """

    address: str
    is_local: bool

    async def run(
        self,
        engine: Engine,
        look: Look,
        keyring: Keyring,
        entrance: Entrance,
        on_ready: Callable[[], None],
        on_stop: Callable[[], Awaitable[None]],
        office: Office,
    ) -> None: ...

    def close(self) -> None: ...


class OpenDoor(Protocol):
    """Listens on a port, or with `or_next` on the first free one from there."""

    def __call__(self, host: str, port: int, or_next: bool) -> Door: ...


class Answering(Protocol):
    """The model that answers now, and why it is that one; another may be put in its place."""

    @property
    def name(self) -> str: ...

    @property
    def why(self) -> str: ...

    async def takes(self) -> Takes:
        """Which files it takes."""

    async def mains_own(self) -> tuple[str, Takes]:
        """The model of the agent that every server has and what that takes; nothing where it is this one."""


class MemoryStaff(Protocol):
    """Who sees to it that memory is told; to be started and stopped after the engine."""

    @property
    def desk(self) -> MemoryDesk: ...

    @property
    def described(self) -> str:
        """Who remembers, in words."""

    async def open(self) -> None:
        """Have ready who remembers. Raises a HoldfastError where that can never be."""

    async def start(self) -> None: ...

    async def stop(self, within_s: float) -> None:
        """Tell what is still owed, at most so long; the rest stays owed."""


class Channels(ChannelDesk, Protocol):
    """The chat apps that are served while the engine works."""

    async def start(self) -> None: ...

    async def stop(self, within_s: float) -> None:
        """What is being sent has so long to arrive. A second time does nothing."""


class McpStaff(McpDesk, Protocol):
    """The MCP servers, which are reached while the server runs."""

    def start(self) -> None:
        """In the background: nobody waits for them."""

    async def stop(self) -> None:
        """Soon. A second time does nothing."""


class Staff(msgspec.Struct, frozen=True):
    """Who carries out turns: an engine not started yet, the model it asks, what can be changed of both."""

    engine: Engine
    model: Answering
    settings: SettingsDesk
    models: ModelDesk
    backups: BackupDesk
    memory: MemoryStaff
    channels: Channels
    agents: AgentDesk
    dismiss: Callable[[], Awaitable[None]]
    """Lets go of what models and memory hold. Call it after both have stopped."""
    confinement: str = ""
    """What commands are confined by."""
    unprotected: tuple[str, ...] = ()
    """What that does not protect on this machine, in sentences."""
    mcp: McpStaff | None = None
    local: LocalDesk | None = None


class Hire(Protocol):
    """Puts an engine together over a store. Raises a HoldfastError when no model can be chosen.

    `address` is where the server listens: what tools start is kept away from it.
    """

    def __call__(self, store: Store, settings: Settings, address: str) -> Awaitable[Staff]: ...


class Wiring(msgspec.Struct, frozen=True):
    """The parts, as `app` put them together; `wiring_of` finds them from inside a command."""

    open_store: OpenStore
    open_door: OpenDoor
    premises: Premises
    hire: Hire
    reception: Callable[[Store, Settings], Reception]
    """Who may speak in chat apps, over a store."""
    agents: Callable[[Settings], AgentReading]
    """What people have written of agents, in a data folder."""
    local: Callable[[Settings], LocalDesk]
    """The local model of a data folder."""
    environ: Mapping[str, str]
    mask: Mask = Mask()
    """Knows the secrets of that environment."""

    def settings(self, **command_line: object) -> Settings:
        """The settings in force, given what stood on the command line. Raises ConfigError.

        What they hold that is secret is known from then on: no command shows it.
        """
        settings = resolve(command_line, self.environ)
        for server in settings.mcp:
            self.mask.learn(*secrets_of(server, self.environ))
        self.mask.learn(*secrets_in({"SEARXNG_URL": settings.searxng_url}))
        return settings


def wiring_of(context: typer.Context) -> Wiring:
    wiring = context.find_object(Wiring)
    assert wiring is not None, "app puts the wiring there before any command runs"
    return wiring


# Options that stand for settings: their help and default are the setting's own.
_TOLD = settings_told()
_DATA, _HOST, _PORT, _DURABILITY, _MODEL = (
    _TOLD[name] for name in ("data", "host", "port", "durability", "model")
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
