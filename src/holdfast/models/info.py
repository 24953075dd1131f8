"""The port of model connections: list providers, and test, save and select models."""

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
    """A connection to a model's server. A field that is None keeps its value; an empty key means no key.

    Without `provider` it is the prefix of `model`, or else openai.
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
    """List, test, save and select model connections."""

    async def providers(self) -> Sequence[ModelProviderInfo]:
        """Return every provider, with the models of those that are ready. Never takes long."""

    async def save(self, provider: str, connection: ModelConnection) -> None:
        """Save how to reach a provider, whether or not its model answers.

        Raises NoSuchModelProvider, NoModel, CannotEditSettings.
        """

    async def forget(self, provider: str) -> None:
        """Remove a provider's connection. If its model answers, switch to the default model.

        Raises NoSuchModelProvider, and as `disconnect` does.
        """

    async def test(self, connection: ModelConnection) -> ConnectionTestResult:
        """Test a connection with a short real request. Changes nothing."""

    async def connect(self, connection: ModelConnection) -> None:
        """Switch to a model from the next run on, also after a restart.

        Raises BadSetting, NoModel, SettingFixed, CannotEditSettings.
        """

    async def disconnect(self) -> None:
        """Remove the connection, and switch to the default model. Raises as `connect` does."""

    async def set_fallbacks(self, names: Sequence[str]) -> None:
        """Set the models to ask, in this order, if the current one fails. Raises as `connect` does."""

    def problems(self) -> tuple[str, ...]:
        """Return what is wrong with the saved connections, as sentences."""
