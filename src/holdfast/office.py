"""What can be seen and changed of a server while it runs: the ports between its doors and who does it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from holdfast.domain.agents_told import AgentPrompt, AgentsTold, AgentText, AgentTold, PromptsTold
from holdfast.domain.clock import Instant
from holdfast.domain.errors import HoldfastError, MemoryOff, NoSuchDebt, NoSuchMcpServer
from holdfast.domain.files import FileKind
from holdfast.domain.ids import SessionId
from holdfast.domain.local_model import LocalDesk
from holdfast.domain.mcp import McpTold
from holdfast.domain.memories import Known, Memory, MemoryPage, MemoryTold
from holdfast.domain.rows import Debt

Source = Literal["command line", "environment", "file", "default"]
"""Where a setting's value comes from."""
Value = str | float | tuple[str, ...]
Decided = Literal["retry", "done", "drop"]
"""What is to become of something that memory is owed."""


class SettingFixed(HoldfastError):
    """{name} is given {where}, which wins over what is set here."""

    code, status = "setting_fixed", 409
    remedy = "Leave it out there and start the server again; then it can be changed here."


class SettingNeedsRestart(HoldfastError):
    """{name} cannot be changed while the server runs."""

    code, status = "setting_needs_restart", 409
    remedy = "Write it into holdfast.toml in the data folder, and start the server again."


class BadSetting(HoldfastError):
    """{problem}."""

    code, status = "bad_setting", 400


class CannotEditSettings(HoldfastError):
    """{path} cannot be changed here: {why}."""

    code, status = "cannot_edit_settings", 409
    remedy = "Change it by hand, and start the server again."


class NoModel(HoldfastError):
    """This cannot be connected: {why}"""

    code, status = "no_model", 400


class SettingTold(msgspec.Struct, frozen=True):
    """A setting, what it is now and where that comes from. `changeable`: here and now.

    `default` is in words.
    """

    name: str
    value: Value
    default: str
    help: str
    allowed: str
    source: Source
    changeable: bool


class SettingsDesk(Protocol):
    """The settings in force."""

    def told(self) -> Sequence[SettingTold]:
        """Every setting, in the order that people read them in."""

    async def change(self, wanted: Mapping[str, object]) -> None:
        """Write settings down and have them in force at once; None: back to the default. All, or none.

        Raises BadSetting, SettingFixed, SettingNeedsRestart, CannotEditSettings.
        """


class NoSuchModelProvider(HoldfastError):
    """There is no provider of models named {name}."""

    code, status = "no_such_model_provider", 404
    remedy = "GET /api/models lists those that there are; any OpenAI-compatible server goes by openai."


class Connection(msgspec.Struct, frozen=True):
    """A model's server and what it is asked with. What is None is as it was; an empty key is none.

    Without a `provider` it is the one before the colon in `model`, or else openai.
    """

    base_url: str | None = None
    key: str | None = None
    model: str | None = None
    provider: str | None = None

    def __repr__(self) -> str:
        return "Connection(…)"


class Tried(msgspec.Struct, frozen=True):
    """Whether a model answers; if not, exactly why not. `models` are those that its server has."""

    ok: bool
    detail: str
    models: tuple[str, ...] = ()


class PriceTold(msgspec.Struct, frozen=True):
    """US dollars for a million tokens; what reading kept input costs is null where that is not known."""

    input: float
    output: float
    cached: float | None = None


class ModelTold(msgspec.Struct, frozen=True):
    """A model that can be chosen, by its `name`. What is null is not known."""

    name: str
    window_tokens: int | None = None
    answer_tokens: int | None = None
    takes: tuple[FileKind, ...] = ()
    price: PriceTold | None = None


class ProviderTold(msgspec.Struct, frozen=True):
    """Who offers models. `ready`: it is set up, or was found on this machine.

    `source` says where: in the settings (so it can be forgotten there), in the environment (`key_from` names
    the variable), on its usual port, or installed, as the local model is. `problem` says why there are no
    `models`; they are then not known.
    """

    name: str
    label: str
    ready: bool
    source: Literal["settings", "environment", "port", "installed", "none"]
    base_url: str
    has_key: bool = False
    key_from: str = ""
    local: bool = False
    default_model: str = ""
    models: tuple[ModelTold, ...] = ()
    problem: str = ""


class ModelDesk(Protocol):
    """Which model answers, and how to have another do so."""

    async def providers(self) -> Sequence[ProviderTold]:
        """Everyone that there is, and what those offer that are ready. Never takes long."""

    async def keep(self, provider: str, wanted: Connection) -> None:
        """Save how a provider is reached, whichever model answers.

        Raises NoSuchModelProvider, NoModel, CannotEditSettings.
        """

    async def forget(self, provider: str) -> None:
        """Forget that again. If its model answers, the one that is found does from then on.

        Raises NoSuchModelProvider, and as `disconnect` does.
        """

    async def test(self, wanted: Connection) -> Tried:
        """Ask it for real, briefly. Changes nothing."""

    async def connect(self, wanted: Connection) -> None:
        """Have it answer from the next run on, now and after a restart.

        Raises BadSetting, NoModel, SettingFixed, CannotEditSettings.
        """

    async def disconnect(self) -> None:
        """Forget the connection, and go back to the model that is found. Raises as `connect` does."""

    async def instead(self, names: Sequence[str]) -> None:
        """Have these asked, in this order, where the model that answers cannot. Raises as `connect` does."""

    def problems(self) -> tuple[str, ...]:
        """What is wrong with what was saved, in sentences."""


class AgentReading(Protocol):
    """The agents that people have written, and their prompts."""

    def told(self) -> AgentsTold: ...

    def one(self, name: str) -> AgentTold:
        """Raises NoSuchAgent."""

    def show(self, name: str) -> AgentText:
        """Raises NoSuchAgent."""

    def prompts(self) -> PromptsTold: ...

    def problems(self) -> tuple[str, ...]:
        """What is wrong with the files that are there now, in sentences."""


class AgentDesk(AgentReading, Protocol):
    """The same while a server runs: they can be changed."""

    async def write(self, name: str, text: str, expect: str | None) -> AgentText:
        """Put a file in place of what was there, if that is as `expect` says; empty: if there was none.

        Raises BadAgent, AgentChanged, CannotEditSettings, DiskFull.
        """

    async def remove(self, name: str, expect: str | None) -> None:
        """Raises NoSuchAgent, AgentChanged, CannotEditSettings."""

    async def check_model(self, name: str) -> None:
        """Be sure that a conversation can have such a model. Raises a HoldfastError that says why not."""

    async def window(self, agent: str, model: str) -> int | None:
        """How many tokens it reads at once, as far as it can be had; both as a conversation names them."""

    async def prompt(self, name: str, session_id: SessionId | None) -> AgentPrompt:
        """What an agent's model is sent. Raises NoSuchAgent, BadAgent, NoSuchSession, NoSuchModel…"""


class McpDesk(Protocol):
    """The MCP servers whose tools agents use."""

    def told(self) -> Sequence[McpTold]:
        """How each of them fares, in the order of the file."""

    def reconnect(self, name: str) -> None:
        """End its connection, if there is one, and reach it again at once. Raises NoSuchMcpServer."""


class NoMcp:
    """The desk of a process that has no MCP servers."""

    def told(self) -> Sequence[McpTold]:
        return ()

    def reconnect(self, name: str) -> None:
        raise NoSuchMcpServer(name=name)


class BackupTold(msgspec.Struct, frozen=True):
    """A copy of everything. `restore` is the command that goes back to it, with no server running."""

    name: str
    size_bytes: int
    made_at: Instant
    restore: str


class NoSuchBackup(HoldfastError):
    """There is no backup {name}."""

    code, status = "no_such_backup", 404


class BackupRunning(HoldfastError):
    """A backup is being made already."""

    code, status = "backup_running", 409
    remedy = "Wait until it is done."


class BackupDesk(Protocol):
    """Copies of everything, in the data folder."""

    async def make(self) -> BackupTold:
        """Raises BackupRunning, StoreFault."""

    async def list_(self) -> Sequence[BackupTold]:
        """The newest first."""

    async def path_of(self, name: str) -> Path:
        """Raises NoSuchBackup."""


class MemoryDesk(Protocol):
    """What is remembered, and what memory is owed. Whatever asks the provider raises ProviderFailure where it
    fails or takes too long, ProviderCannot where it has no way, and MemoryOff where there is none.
    """

    async def known(self, words: str, cursor: str | None, limit: int) -> Known:
        """A page of what is remembered, the newest first; with `words`, what has them all.

        Nothing where memory is off or cannot show what it knows. Raises ProviderFailure, BadCursor.
        """

    async def add(self, text: str) -> Memory:
        """Remember something, word for word. Raises TooLarge too."""

    async def edit(self, memory_id: str, text: str) -> Memory:
        """Raises NoSuchMemory, TooLarge too."""

    async def forget(self, memory_id: str) -> None:
        """Raises NoSuchMemory too."""

    async def titles(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, str]:
        """Those of conversations that are there."""

    async def waiting(self) -> Sequence[Debt]:
        """What memory is owed, or is to forget: the oldest first, as many as may be shown."""

    async def commit(self, session_id: SessionId | None) -> MemoryTold:
        """Tell memory now what one conversation owes it, or all of them; returns after a while at most.

        Raises NoSuchSession.
        """

    async def resolve(
        self, session_id: SessionId, segment: int, decision: Decided, deleted: bool = False
    ) -> None:
        """A person's word on something that memory is owed, by a deleted conversation or one that is there.

        Raises NoSuchSession, NoSuchDebt, DebtRefused.
        """

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """How often memory was told (`commits`) and asked (`recalls`) by this process, by what came of it."""


class NoMemory:
    """The desk of a server that remembers nothing and owes nothing."""

    async def known(self, words: str, cursor: str | None, limit: int) -> Known:
        return Known("off", True, "", MemoryPage(()), {}, 0, 0)

    async def add(self, text: str) -> Memory:
        raise MemoryOff()

    async def edit(self, memory_id: str, text: str) -> Memory:
        raise MemoryOff()

    async def forget(self, memory_id: str) -> None:
        raise MemoryOff()

    async def titles(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, str]:
        return {}

    async def waiting(self) -> Sequence[Debt]:
        return ()

    async def commit(self, session_id: SessionId | None) -> MemoryTold:
        return MemoryTold("nothing")

    async def resolve(
        self, session_id: SessionId, segment: int, decision: Decided, deleted: bool = False
    ) -> None:
        raise NoSuchDebt(n=segment)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        return {}


class ChannelRefused(HoldfastError):
    """This cannot be connected: {why}."""

    code, status = "channel_refused", 400


class NotListening(HoldfastError):
    """Nobody listens to {name} in this process at the moment."""

    code, status = "not_listening", 503
    remedy = "Try again in a moment."


class TooManyCalls(HoldfastError):
    """More calls come in for {name} than are read at once."""

    code, status = "too_many_calls", 503
    remedy = "Try again in a moment."


class ChannelTold(msgspec.Struct, frozen=True):
    """A way in from a chat app, and how it fares.

    `connected`: it is set up; `fixed`: in the environment or in `holdfast.toml`, so not from here. `serving`:
    this process listens and sends. What is counted is since this process started; `last_error` stays until
    something went well. Times are milliseconds since 1970, 0: never.
    """

    name: str
    connected: bool
    fixed: bool = False
    serving: bool = False
    last_seen_at: Instant = 0
    last_error: str = ""
    last_error_at: Instant = 0
    received: int = 0
    waiting: int = 0
    delivered: dict[str, int] = msgspec.field(default_factory=dict)
    """How many tries to say something ended how."""


class ChannelTried(msgspec.Struct, frozen=True):
    """Whether a chat app answers; if not, exactly why not."""

    ok: bool
    detail: str


class StrangerTold(msgspec.Struct, frozen=True):
    """Somebody who wrote and waits to be let in. Only they have the code."""

    channel: str
    sender: str
    name: str
    asked_at: Instant
    expires_at: Instant


class SenderTold(msgspec.Struct, frozen=True):
    """Somebody who may speak."""

    channel: str
    sender: str
    name: str
    allowed_at: Instant


class Reception(Protocol):
    """Who may speak in chat apps, and which of those are set up."""

    def given(self) -> Sequence[ChannelTold]:
        """Every channel that there can be, and whether it is set up."""

    async def waiting(self) -> Sequence[StrangerTold]:
        """Who waits to be let in, the first first."""

    async def confirm(self, code: str) -> SenderTold:
        """Let in whoever was told this code. Raises NoSuchCode, TooManyCodes."""

    async def senders(self) -> Sequence[SenderTold]:
        """Who may speak, the first first."""

    async def revoke(self, channel: str, sender: str) -> None:
        """They may not speak from now on. Raises NoSuchSender."""


class ChannelDesk(Reception, Protocol):
    """The chat apps of a server while it runs."""

    def told(self) -> Sequence[ChannelTold]:
        """Every channel and how it fares here."""

    async def test(self, name: str) -> ChannelTried:
        """Ask the app itself. Raises NoSuchChannel."""

    async def connect_telegram(self, token: str) -> None:
        """Have a bot answer from now on; it is tried first, and the token is never told again.

        Raises ChannelRefused, SettingFixed, CannotEditSettings.
        """

    async def disconnect_telegram(self) -> None:
        """Forget the bot. Raises SettingFixed, CannotEditSettings."""

    def check_call(self, name: str, headers: Mapping[str, str]) -> None:
        """Whether a chat app may be calling, by what is known before its call is read. Raises as `heard`."""

    async def heard(self, name: str, headers: Mapping[str, str], body: bytes) -> None:
        """A chat app has called; returns once what it told is kept. Header names are in lower case.

        Raises NoSuchChannel, NotListening, and with the status 401 whatever says that it is not that app.
        """


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
