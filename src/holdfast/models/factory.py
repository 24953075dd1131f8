"""Where models come from: a client made from a name such as `anthropic:claude-sonnet-5-5`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from holdfast.domain.context.context import ModelProfile
from holdfast.domain.context.request import DEMO
from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import SecretMask, find_secrets
from holdfast.models.catalog import FREE, CatalogEntry, ModelCatalog
from holdfast.models.chat.wire import ChatWire
from holdfast.models.demo import DemoModel
from holdfast.models.endpoint import Endpoint, ProtocolName
from holdfast.models.fallback import FallbackModel, UnavailableModel
from holdfast.models.http_model import HttpModel
from holdfast.models.local.info import LocalNotInstalled
from holdfast.models.masking import MaskedModel
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import Model, NoSuchModel
from holdfast.models.providers import (
    ModelProvider,
    SavedConnection,
    is_local_model,
    is_on_this_machine,
    parse_model_name,
    resolve_access,
)
from holdfast.models.responses.wire import ResponsesWire
from holdfast.models.wire import WireProtocol

WINDOW_TOKENS = 128_000
WINDOW_TOKENS_LOCAL = 8_192
"""For a model on this machine that does not say: its server's default, not what the model could do."""
ANSWER_TOKENS = 4_096
ANSWER_TOKENS_MAX = 32_000
"""Of what a model can write at once, so much is kept free for it."""
_WIRES: Mapping[ProtocolName, Callable[[], WireProtocol]] = MappingProxyType(
    {"chat": ChatWire, "responses": ResponsesWire, "messages": MessagesWire}
)


def build_model(
    endpoint: Endpoint, catalog: ModelCatalog | None = None, window_tokens: int | None = None
) -> Model:
    """The model behind an endpoint. Close it. `window_tokens` is what its server says of its window.

    What whoever runs this server said of the model goes before that.
    """
    catalog = catalog or ModelCatalog()
    entry, overrides = catalog.entry_for(endpoint), catalog.overrides_for(endpoint.name)
    profile = profile_for(endpoint, entry, overrides.window_tokens or window_tokens)
    return HttpModel(endpoint, _WIRES[endpoint.protocol](), profile, price=entry.price, overrides=overrides)


def build_local_client(endpoint: Endpoint, profile: ModelProfile) -> Model:
    """A model on this machine of which everything is known already. Close it."""
    return HttpModel(endpoint, _WIRES[endpoint.protocol](), profile, price=FREE)


def profile_for(endpoint: Endpoint, entry: CatalogEntry, window_tokens: int | None = None) -> ModelProfile:
    """What is known of a model. What was said of its window goes before everything else."""
    default = WINDOW_TOKENS_LOCAL if is_on_this_machine(endpoint) else WINDOW_TOKENS
    window = window_tokens or entry.window_tokens or default
    answer = min(entry.answer_tokens or ANSWER_TOKENS, ANSWER_TOKENS_MAX, window // 4)
    # Thinking is signed for the model that thought it: providers refuse it from another of their own.
    signer = f"{endpoint.host}/{endpoint.model}"
    return ModelProfile(signer, window, answer, address=endpoint.display_url)


class ModelFactory:
    """Makes models by name. `saved` reads the connections that were put into the settings.

    Whatever key it comes upon, `mask` knows from then on. `local` makes the local model, if one can be.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        read_connections: Callable[[], Mapping[str, SavedConnection]],
        mask: SecretMask,
        catalog: ModelCatalog,
        open_local: Callable[[], Model] | None = None,
    ) -> None:
        self._environ = environ
        self._read_connections = read_connections
        self._mask = mask
        self.catalog = catalog
        self._open_local = open_local

    async def build(self, name: str, fallbacks: Sequence[str] = ()) -> Model:
        """As its port says; ConfigError too, if what is saved cannot be read."""
        return MaskedModel(await self.build_unmasked(name, fallbacks), self._mask)

    async def build_unmasked(
        self, name: str, fallbacks: Sequence[str] = (), environ_first: bool = False
    ) -> Model:
        """The same without the mask. `environ_first`: the environment names the model, so it says where."""
        first, error = await self._try_build(name, environ_first)
        built = [await self._try_build(each) for each in dict.fromkeys(fallbacks) if each != name]
        # One that cannot be asked is told of where agents are, and passed over here: the others can be.
        others = [model for model, _ in built if model is not None]
        if first is None:
            assert error is not None, "what was not made has a reason"
            if not others:
                raise error
            first = UnavailableModel(name, error, others[0])
        return FallbackModel([first, *others]) if others else first

    def build_local(self) -> Model:
        """The local model, whose server runs from now on until it is closed. Raises LocalNotInstalled."""
        if self._open_local is None:
            raise LocalNotInstalled()
        return self._open_local()

    async def _try_build(
        self, name: str, environ_first: bool = False
    ) -> tuple[Model, None] | tuple[None, HoldfastError]:
        """The model of that name, or why it cannot be asked. Raises NoSuchModel: that is no name of one."""
        try:
            if is_local_model(name):
                return self.build_local(), None
            endpoint = await self.endpoint(name, environ_first)
        except NoSuchModel:
            raise
        except HoldfastError as error:
            return None, error
        return (DemoModel() if endpoint is None else build_model(endpoint, self.catalog)), None

    async def endpoint(self, name: str, environ_first: bool = False) -> Endpoint | None:
        """Where a model is asked; None for the demo. Raises as `model` does."""
        if name.strip() == DEMO:
            return None
        provider, model = parse_model_name(name)
        return await self.provider_endpoint(provider, model, environ_first)

    async def provider_endpoint(
        self, provider: ModelProvider, model: str, environ_first: bool = False
    ) -> Endpoint:
        """The same, of a provider."""
        saved = await asyncio.to_thread(self._read_connections)
        access = resolve_access(provider, self._environ, saved, environ_first)
        self._mask.add(*find_secrets({"MODEL_KEY": access.key, "MODEL_URL": access.base_url}))
        return access.endpoint(model)
