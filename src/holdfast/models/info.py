"""Which model answers and which others could: the port of who connects them."""

from collections.abc import Sequence
from typing import Literal, Protocol

import msgspec

from holdfast.domain.errors import HoldfastError
from holdfast.domain.files import FileKind


class NoModel(HoldfastError):
    """This cannot be connected: {why}"""

    code, status = "no_model", 400


class NoSuchModelProvider(HoldfastError):
    """There is no provider of models named {name}."""

    code, status = "no_such_model_provider", 404
    remedy = "GET /api/models lists those that there are; any OpenAI-compatible server goes by openai."


class ModelConnection(msgspec.Struct, frozen=True):
    """A model's server and what it is asked with. What is None is as it was; an empty key is none.

    Without a `provider` it is the one before the colon in `model`, or else openai.
    """

    base_url: str | None = None
    key: str | None = None
    model: str | None = None
    provider: str | None = None

    def __repr__(self) -> str:
        return "Connection(…)"


class ConnectionTestResult(msgspec.Struct, frozen=True):
    """Whether a model answers; if not, exactly why not. `models` are those that its server has."""

    ok: bool
    detail: str
    models: tuple[str, ...] = ()


class PriceInfo(msgspec.Struct, frozen=True):
    """US dollars for a million tokens. `cached` is for input that the provider had kept, `written` for input
    that it keeps from then on; null: that is not known, and taken to cost what other input does.
    """

    input: float
    output: float
    cached: float | None = None
    written: float | None = None


class ModelInfo(msgspec.Struct, frozen=True):
    """A model that can be chosen, by its `name`. What is null is not known.

    `takes_guessed`: nothing but the model's name suggests what it takes.
    """

    name: str
    window_tokens: int | None = None
    answer_tokens: int | None = None
    takes: tuple[FileKind, ...] = ()
    price: PriceInfo | None = None
    takes_guessed: bool = False


class ModelProviderInfo(msgspec.Struct, frozen=True):
    """Who offers models. `ready`: it is set up, or was found on this machine.

    `source` says where: in the settings (so it can be forgotten there), in the environment (`key_from` names
    the variable), on its usual port, or installed, as the local model is. `default_url` is asked where nobody
    gave another address. `problem` says why there are no `models`; they are then not known.
    """

    name: str
    label: str
    ready: bool
    source: Literal["settings", "environment", "port", "installed", "none"]
    base_url: str
    has_key: bool = False
    key_from: str = ""
    local: bool = False
    default_url: str = ""
    default_model: str = ""
    models: tuple[ModelInfo, ...] = ()
    problem: str = ""


class ModelService(Protocol):
    """Which model answers, and how to have another do so."""

    async def providers(self) -> Sequence[ModelProviderInfo]:
        """Everyone that there is, and what those offer that are ready. Never takes long."""

    async def save(self, provider: str, connection: ModelConnection) -> None:
        """Save how a provider is reached, whichever model answers.

        Raises NoSuchModelProvider, NoModel, CannotEditSettings.
        """

    async def forget(self, provider: str) -> None:
        """Forget that again. If its model answers, the one that is found does from then on.

        Raises NoSuchModelProvider, and as `disconnect` does.
        """

    async def test(self, connection: ModelConnection) -> ConnectionTestResult:
        """Ask it for real, briefly. Changes nothing."""

    async def connect(self, connection: ModelConnection) -> None:
        """Have it answer from the next run on, now and after a restart.

        Raises BadSetting, NoModel, SettingFixed, CannotEditSettings.
        """

    async def disconnect(self) -> None:
        """Forget the connection, and go back to the model that is found. Raises as `connect` does."""

    async def set_fallbacks(self, names: Sequence[str]) -> None:
        """Have these asked, in this order, where the model that answers cannot. Raises as `connect` does."""

    def problems(self) -> tuple[str, ...]:
        """What is wrong with what was saved, in sentences."""
