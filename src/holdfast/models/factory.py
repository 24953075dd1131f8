"""Where models come from: a client made from a name such as `anthropic:claude-sonnet-5-5`."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from holdfast.domain.context.context import Profile
from holdfast.domain.context.request import DEMO
from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import Mask, secrets_in
from holdfast.models.catalog import FREE, Facts, Known
from holdfast.models.chat.wire import ChatWire
from holdfast.models.demo import Demo
from holdfast.models.endpoint import Endpoint, Protocol
from holdfast.models.fallback import Fallback, Missing
from holdfast.models.http_model import HttpModel
from holdfast.models.local.info import LocalNotInstalled
from holdfast.models.masking import MaskedModel
from holdfast.models.messages.wire import MessagesWire
from holdfast.models.ports import Model, NoSuchModel
from holdfast.models.providers import (
    Provider,
    Saved,
    access_to,
    is_local_model,
    is_on_this_machine,
    split_name,
)
from holdfast.models.responses.wire import ResponsesWire
from holdfast.models.wire import Wire

WINDOW_TOKENS = 128_000
WINDOW_TOKENS_LOCAL = 8_192
"""For a model on this machine that does not say: its server's default, not what the model could do."""
ANSWER_TOKENS = 4_096
ANSWER_TOKENS_MAX = 32_000
"""Of what a model can write at once, so much is kept free for it."""
_WIRES: Mapping[Protocol, Callable[[], Wire]] = MappingProxyType(
    {"chat": ChatWire, "responses": ResponsesWire, "messages": MessagesWire}
)


def made_for(endpoint: Endpoint, known: Known | None = None, window_tokens: int | None = None) -> Model:
    """The model behind an endpoint. Close it. `window_tokens` is what its server says of its window.

    What whoever runs this server said of the model goes before that.
    """
    known = known or Known()
    facts, said = known.facts(endpoint), known.said_of(endpoint.name)
    profile = profile_of(endpoint, facts, said.window_tokens or window_tokens)
    return HttpModel(endpoint, _WIRES[endpoint.protocol](), profile, price=facts.price, said=said)


def made_as(endpoint: Endpoint, profile: Profile) -> Model:
    """A model on this machine of which everything is known already. Close it."""
    return HttpModel(endpoint, _WIRES[endpoint.protocol](), profile, price=FREE)


def profile_of(endpoint: Endpoint, facts: Facts, window_tokens: int | None = None) -> Profile:
    """What is known of a model. What was said of its window goes before everything else."""
    usual = WINDOW_TOKENS_LOCAL if is_on_this_machine(endpoint) else WINDOW_TOKENS
    window = window_tokens or facts.window_tokens or usual
    answer = min(facts.answer_tokens or ANSWER_TOKENS, ANSWER_TOKENS_MAX, window // 4)
    # Thinking is signed for the model that thought it: providers refuse it from another of their own.
    signer = f"{endpoint.host}/{endpoint.model}"
    return Profile(signer, window, answer, address=endpoint.shown_url)


class Shop:
    """Makes models by name. `saved` reads the connections that were put into the settings.

    Whatever key it comes upon, `mask` knows from then on. `local` makes the local model, if one can be.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        saved: Callable[[], Mapping[str, Saved]],
        mask: Mask,
        known: Known,
        local: Callable[[], Model] | None = None,
    ) -> None:
        self._environ = environ
        self._saved = saved
        self._mask = mask
        self.known = known
        self._local = local

    async def model(self, name: str, fallbacks: Sequence[str] = ()) -> Model:
        """As its port says; ConfigError too, if what is saved cannot be read."""
        return MaskedModel(await self.bare(name, fallbacks), self._mask)

    async def bare(self, name: str, fallbacks: Sequence[str] = (), environ_first: bool = False) -> Model:
        """The same without the mask. `environ_first`: the environment names the model, so it says where."""
        first, why = await self._made(name, environ_first)
        made = [await self._made(each) for each in dict.fromkeys(fallbacks) if each != name]
        # One that cannot be asked is told of where agents are, and passed over here: the others can be.
        others = [model for model, _ in made if model is not None]
        if first is None:
            assert why is not None, "what was not made has a reason"
            if not others:
                raise why
            first = Missing(name, why, others[0])
        return Fallback([first, *others]) if others else first

    def local(self) -> Model:
        """The local model, whose server runs from now on until it is closed. Raises LocalNotInstalled."""
        if self._local is None:
            raise LocalNotInstalled()
        return self._local()

    async def _made(
        self, name: str, environ_first: bool = False
    ) -> tuple[Model, None] | tuple[None, HoldfastError]:
        """The model of that name, or why it cannot be asked. Raises NoSuchModel: that is no name of one."""
        try:
            if is_local_model(name):
                return self.local(), None
            endpoint = await self.endpoint(name, environ_first)
        except NoSuchModel:
            raise
        except HoldfastError as error:
            return None, error
        return (Demo() if endpoint is None else made_for(endpoint, self.known)), None

    async def endpoint(self, name: str, environ_first: bool = False) -> Endpoint | None:
        """Where a model is asked; None for the demo. Raises as `model` does."""
        if name.strip() == DEMO:
            return None
        provider, model = split_name(name)
        return await self.endpoint_of(provider, model, environ_first)

    async def endpoint_of(self, provider: Provider, model: str, environ_first: bool = False) -> Endpoint:
        """The same, of a provider."""
        saved = await asyncio.to_thread(self._saved)
        access = access_to(provider, self._environ, saved, environ_first)
        self._mask.learn(*secrets_in({"MODEL_KEY": access.key, "MODEL_URL": access.base_url}))
        return access.endpoint(model)
