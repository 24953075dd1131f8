"""What can be chosen: every provider, and the models of those that are set up or found on this machine."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import Mask
from holdfast.models.abilities import guessed, known_of
from holdfast.models.catalog import Known, Price
from holdfast.models.info import ModelTold, PriceTold, ProviderTold
from holdfast.models.listing import Listed, Lists, Offer
from holdfast.models.local.info import LOCAL, LocalTold
from holdfast.models.local.place import NAME, WINDOW_TOKENS
from holdfast.models.providers import PROVIDERS, Access, Saved, access_to
from holdfast.models.selection import is_model_server

ANSWER_S = 1.0
"""How long whoever asks waits for lists. One that comes later is there the next time."""
_LATER = Listed(problem="Its list of models has not come yet.")


class Offers:
    """`saved` reads the connections that were put into the settings."""

    def __init__(
        self,
        environ: Mapping[str, str],
        saved: Callable[[], Mapping[str, Saved]],
        known: Known,
        mask: Mask,
        local: Callable[[], LocalTold] | None = None,
    ) -> None:
        self._environ = environ
        self._saved = saved
        self._known = known
        self._mask = mask
        self._local = local
        self._lists = Lists()
        self._asking: dict[str, tuple[Access, asyncio.Task[Listed]]] = {}

    async def told(self) -> Sequence[ProviderTold]:
        """Everyone, in the order in which they are looked for."""
        saved = await asyncio.to_thread(self._saved)
        ways = [access_to(provider, self._environ, saved) for provider in PROVIDERS]
        asked = {way.provider.name: self._list(way) for way in ways if _may_be_there(way)}
        if asked:
            await asyncio.wait(asked.values(), timeout=ANSWER_S)
        own = [_local_model(self._local())] if self._local is not None else []
        return [*(self._provider(way, asked.get(way.provider.name)) for way in ways), *own]

    def _list(self, way: Access) -> asyncio.Task[Listed]:
        """Its list, which is asked for once however many want it."""
        asked, running = self._asking.get(way.provider.name, (None, None))
        if running is None or running.done() or asked != way:
            running = asyncio.create_task(self._listed(way))
            self._asking[way.provider.name] = way, running
        return running

    async def _listed(self, way: Access) -> Listed:
        try:
            return await self._lists.of(way.endpoint(""))
        except HoldfastError as error:
            return Listed(problem=str(error))

    def _provider(self, way: Access, asked: asyncio.Task[Listed] | None) -> ProviderTold:
        listed = Listed() if asked is None else asked.result() if asked.done() else _LATER
        is_found = way.origin == "none" and is_model_server(listed)
        is_ready = way.origin != "none" or is_found
        offers = listed.offers if is_ready else ()
        return ProviderTold(
            way.provider.name, way.provider.label, is_ready, "port" if is_found else way.origin,
            self._mask.shapes(_shown_url(way)), bool(way.key),
            way.key_from if way.origin == "environment" else "",
            way.provider.is_local, way.provider.base_url, way.provider.model,
            tuple(self._model(way, each) for each in offers),
            self._mask.shapes(listed.problem) if is_ready else "",
        )  # fmt: skip

    def _model(self, way: Access, offer: Offer) -> ModelTold:
        endpoint = way.endpoint(offer.name)
        facts, said = self._known.facts(endpoint), self._known.said_of(endpoint.name)
        takes = said.takes or offer.takes or known_of(endpoint)
        window = said.window_tokens or offer.window_tokens or facts.window_tokens
        return ModelTold(
            self._mask.whole(f"{way.provider.name}:{offer.name}"),
            window, offer.answer_tokens or facts.answer_tokens,
            tuple(sorted(takes or guessed(offer.name))), _price(offer.price or facts.price), takes is None,
        )  # fmt: skip


def _local_model(told: LocalTold) -> ProviderTold:
    """The model that this server runs itself, as one more provider."""
    is_there = told.state == "installed"
    offered = ModelTold(told.name, WINDOW_TOKENS, takes=("text",), price=PriceTold(0, 0, 0))
    return ProviderTold(
        LOCAL, "Local model", is_there, "installed" if is_there else "none", "", local=True,
        default_model=NAME, models=(offered,) if is_there else (),
        problem=told.problem or ("" if is_there else "It is not installed."),
    )  # fmt: skip


def _may_be_there(way: Access) -> bool:
    """Whether it is asked for its list: nobody is whom nothing says to be there, but on this machine."""
    return way.origin != "none" or way.provider.is_local


def _shown_url(way: Access) -> str:
    try:
        return way.endpoint("").shown_url
    except HoldfastError:
        return way.provider.base_url


def _price(price: Price | None) -> PriceTold | None:
    if price is None:
        return None
    return PriceTold(price.input, price.output, price.cached, price.written)
