"""The models that tell memory: the one that answers now, or an earlier one that is still connected."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.domain.context.request import DEMO
from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import Mask, secrets_in
from holdfast.memory.ports import AskedTooMuch, Asking, Owner, OwnerGone
from holdfast.models.completion import ASKED_CHARS_MAX, ASKED_S_MAX, answer_of
from holdfast.models.connection_file import usable_connections
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.factory import made_for
from holdfast.models.masking import MaskedModel
from holdfast.models.ports import Model, ModelFailure
from holdfast.models.providers import (
    PROVIDERS,
    Provider,
    Saved,
    endpoint_at,
    in_environment,
    provider_named,
    rooted,
)

_NAMED_MAX = 100


class Board(Protocol):
    """Who answers now. A model that is part of this program has no address: it cannot find facts in text."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    def is_at(self, name: str, address: str) -> bool: ...

    async def ask(self, system: str, text: str) -> str: ...


class Named(msgspec.Struct, frozen=True):
    """A model as an owner names it: `key` says where its key is, and is empty where it needs none."""

    model: str
    address: str
    key: str


class RememberedModels:
    """Names the model that answers now, and asks whichever an owner names."""

    def __init__(
        self, board: Callable[[], Board], folder: Path, environ: Mapping[str, str], mask: Mask
    ) -> None:
        self._board = board
        self._folder = folder
        self._environ = environ
        self._mask = mask
        self._named: dict[tuple[str, str], Named] = {}

    @property
    def who(self) -> str:
        """Who answers, as a sentence has it."""
        name = self._board().name
        return "the demo" if name == DEMO else name

    def present(self) -> Named | None:
        """The server's own model; None if that is one that cannot find facts: the demo, the local one."""
        return self.named(self._board().name, self._board().address)

    def named(self, name: str, address: str) -> Named | None:
        """A model that answers now; None if it is the scripted demo."""
        if not address:
            return None
        if (name, address) not in self._named:
            if len(self._named) >= _NAMED_MAX:
                self._named.clear()
            # One small file, and only when another model has come to answer.
            self._named[name, address] = Named(name, address, self._key_of(address, self._known()))
        return self._named[name, address]

    async def check(self, owner: Owner) -> None:
        """Raises OwnerGone unless the owner's model can be asked."""
        if not self._board().is_at(owner.model, owner.base_url):
            await self._endpoint(owner)

    def asking(self, owner: Owner) -> Asking:
        """A way to ask the owner's model. Raises OwnerGone, AskedTooMuch, ModelFailure."""

        async def ask(system: str, text: str) -> str:
            try:
                return await answered(system, text)
            except ModelFailure as failure:
                if failure.too_long:
                    raise AskedTooMuch(detail=str(failure).rstrip(".")) from failure
                raise

        async def answered(system: str, text: str) -> str:
            if self._board().is_at(owner.model, owner.base_url):
                return await self._board().ask(system, text)
            model: Model = MaskedModel(made_for(await self._endpoint(owner)), self._mask)
            try:
                return await answer_of(model, system, text, ASKED_S_MAX, ASKED_CHARS_MAX)
            finally:
                await model.close()

        return ask

    async def key_for(self, url: str) -> str:
        """The key that was given for a server; none, if it is another's."""
        known = await asyncio.to_thread(self._known)
        return next((saved.key for _, _, saved in known if _shown(saved.base_url) == _shown(url)), "")

    async def _endpoint(self, owner: Owner) -> Endpoint:
        """Where the owner's model is. A key goes to no other server than the one it was given for."""
        word, _, name = owner.model.partition(":")
        provider, gone = provider_named(word), OwnerGone(detail=_gone(owner))
        if provider is None or not name:
            raise gone
        written = await asyncio.to_thread(self._known)
        known = [saved for _, whose, saved in written if whose is provider and _is_at(provider, saved, owner)]
        if not known and not owner.key and owner.base_url:
            known = [Saved(owner.base_url)]
        if not known:
            raise gone
        self._mask.learn(*secrets_in({"MODEL_KEY": known[0].key, "MODEL_URL": known[0].base_url}))
        try:
            return endpoint_at(provider, known[0].base_url, name, known[0].key)
        except HoldfastError:
            raise gone from None

    def _key_of(self, address: str, known: Sequence[tuple[str, Provider, Saved]]) -> str:
        where = (
            where
            for where, provider, saved in known
            if saved.key and _shown(rooted(provider, saved.base_url)) == address
        )
        return next(where, "")

    def _known(self) -> list[tuple[str, Provider, Saved]]:
        """The servers that there is a key for, or none needed, and where that is written."""
        found = [in_environment(provider, self._environ) for provider in PROVIDERS]
        known = [
            (f"env:{each.key_from or each.provider.keys[0]}", each.provider, Saved(each.base_url, each.key))
            for each in found
        ]
        saved = usable_connections(self._folder)
        return [*(("connection", each, saved[each.name]) for each in PROVIDERS if each.name in saved), *known]


def _is_at(provider: Provider, saved: Saved, owner: Owner) -> bool:
    return _shown(rooted(provider, saved.base_url)) == owner.base_url


def _shown(url: str) -> str:
    return Endpoint(url, "", Secret("")).shown_url


def _gone(owner: Owner) -> str:
    host = Endpoint(owner.base_url, "", Secret("")).host
    return f"{owner.model} at {host} is not connected any more" if owner.model else "it names no model"
