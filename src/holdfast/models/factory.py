"""Build model clients from names such as `anthropic:claude-sonnet-5-5`."""

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
"""For a model on this machine of unknown window: the default of its server, not the model's own limit."""
ANSWER_TOKENS = 4_096
ANSWER_TOKENS_MAX = 32_000
"""Upper limit of the tokens reserved for an answer."""
_WIRES: Mapping[ProtocolName, Callable[[], WireProtocol]] = MappingProxyType(
    {"chat": ChatWire, "responses": ResponsesWire, "messages": MessagesWire}
)


def build_model(
    endpoint: Endpoint, catalog: ModelCatalog | None = None, window_tokens: int | None = None
) -> Model:
    """Return the model behind an endpoint; the caller closes it.

    `window_tokens` is the window that its server reports. An override in the settings takes precedence.
    """
    catalog = catalog or ModelCatalog()
    entry, overrides = catalog.entry_for(endpoint), catalog.overrides_for(endpoint.name)
    profile = profile_for(endpoint, entry, overrides.window_tokens or window_tokens)
    return HttpModel(endpoint, _WIRES[endpoint.protocol](), profile, price=entry.price, overrides=overrides)


def build_local_client(endpoint: Endpoint, profile: ModelProfile) -> Model:
    """Return a client for a model on this machine with a known profile; the caller closes it."""
    return HttpModel(endpoint, _WIRES[endpoint.protocol](), profile, price=FREE)


def profile_for(endpoint: Endpoint, entry: CatalogEntry, window_tokens: int | None = None) -> ModelProfile:
    """Return the profile of a model. `window_tokens` takes precedence over the catalog."""
    default = WINDOW_TOKENS_LOCAL if is_on_this_machine(endpoint) else WINDOW_TOKENS
    window = window_tokens or entry.window_tokens or default
    answer = min(entry.answer_tokens or ANSWER_TOKENS, ANSWER_TOKENS_MAX, window // 4)
    # A provider refuses thinking that another of its own models signed.
    signer = f"{endpoint.host}/{endpoint.model}"
    return ModelProfile(signer, window, answer, address=endpoint.display_url)


class ModelFactory:
    """Build models by name. Every key that it finds is added to `mask`.

    `read_connections` reads the saved connections. `open_local` opens the local model, if this process can
    run it.
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
        """Return the masked model of that name. Raises what its port lists, and ConfigError.

        ConfigError: the saved connections are unreadable.
        """
        return MaskedModel(await self.build_unmasked(name, fallbacks), self._mask)

    async def build_unmasked(
        self, name: str, fallbacks: Sequence[str] = (), environ_first: bool = False
    ) -> Model:
        """Return the same model without the mask.

        `environ_first`: the environment names the model, so its address and key take precedence.
        """
        first, error = await self._try_build(name, environ_first)
        built = [await self._try_build(other) for other in dict.fromkeys(fallbacks) if other != name]
        # A fallback that cannot be built is skipped, since the others still can be asked.
        others = [model for model, _ in built if model is not None]
        if first is None:
            assert error is not None, "what was not made has a reason"
            if not others:
                raise error
            first = UnavailableModel(name, error, others[0])
        return FallbackModel([first, *others]) if others else first

    def build_local(self) -> Model:
        """Return the local model, whose server runs until the model is closed. Raises LocalNotInstalled."""
        if self._open_local is None:
            raise LocalNotInstalled()
        return self._open_local()

    async def _try_build(
        self, name: str, environ_first: bool = False
    ) -> tuple[Model, None] | tuple[None, HoldfastError]:
        """Return the model of that name, or the error that prevents it. Raises NoSuchModel for a bad name."""
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
        """Return the endpoint of a model; None for the demo. Raises as `build` does."""
        if name.strip() == DEMO:
            return None
        provider, model = parse_model_name(name)
        return await self.provider_endpoint(provider, model, environ_first)

    async def provider_endpoint(
        self, provider: ModelProvider, model: str, environ_first: bool = False
    ) -> Endpoint:
        """Return the endpoint of a provider's model. Raises as `build` does."""
        saved = await asyncio.to_thread(self._read_connections)
        access = resolve_access(provider, self._environ, saved, environ_first)
        self._mask.add(*find_secrets({"MODEL_KEY": access.key, "MODEL_URL": access.base_url}))
        return access.endpoint(model)
