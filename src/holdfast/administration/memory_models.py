"""The models that tell memory: the one that answers now, or an earlier one that is still connected."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.administration.connection_file import Saved, read_connection
from holdfast.agent.instructions import ASKED_CHARS_MAX, ASKED_S_MAX, answer_of
from holdfast.agent.masking import MaskedModel
from holdfast.agent.models.choose import KEY_VARIABLE, URL_VARIABLE, endpoint_at, made_for
from holdfast.agent.models.endpoint import OPENAI_URL, Endpoint, Secret
from holdfast.agent.ports import Model
from holdfast.config import ConfigError
from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import Mask, secrets_in
from holdfast.memory.ports import Asking, Owner, OwnerGone

_PROVIDER = "openai:"


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
        self._last = Named("", "", "")

    def present(self) -> Named | None:
        """The model that answers now; None if that is the scripted demo."""
        name, address = self._board().name, self._board().address
        if not address:
            return None
        if (self._last.model, self._last.address) != (name, address):
            # One small file, and only when another model has come to answer.
            self._last = Named(name, address, self._key_of(address, self._known()))
        return self._last

    async def check(self, owner: Owner) -> None:
        """Raises OwnerGone unless the owner's model can be asked."""
        if not self._board().is_at(owner.model, owner.base_url):
            await self._endpoint(owner)

    def asking(self, owner: Owner) -> Asking:
        """A way to ask the owner's model. Raises OwnerGone, ModelFailure."""

        async def ask(system: str, text: str) -> str:
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
        return next((saved.key for _, saved in known if _shown(saved.base_url) == _shown(url)), "")

    async def _endpoint(self, owner: Owner) -> Endpoint:
        """Where the owner's model is. A key goes to no other server than the one it was given for."""
        name, gone = owner.model.removeprefix(_PROVIDER), OwnerGone(detail=_gone(owner))
        written = await asyncio.to_thread(self._known)
        known = [saved for _, saved in written if _shown(saved.base_url) == owner.base_url]
        if not known and not owner.key and owner.base_url:
            known = [Saved(owner.base_url)]
        if not known or not owner.model.startswith(_PROVIDER):
            raise gone
        self._mask.learn(*secrets_in({"MODEL_KEY": known[0].key, "MODEL_URL": known[0].base_url}))
        try:
            return endpoint_at(known[0].base_url, name, known[0].key)
        except HoldfastError:
            raise gone from None

    def _key_of(self, address: str, known: Sequence[tuple[str, Saved]]) -> str:
        return next((where for where, it in known if it.key and _shown(it.base_url) == address), "")

    def _known(self) -> list[tuple[str, Saved]]:
        """The servers that there is a key for, or none needed, and where that is written."""
        url, key = self._environ.get(URL_VARIABLE, ""), self._environ.get(KEY_VARIABLE, "")
        known = [("env:" + KEY_VARIABLE, Saved(url.strip() or OPENAI_URL, key.strip()))]
        try:
            saved = read_connection(self._folder)
        except ConfigError:
            return known
        return known if saved is None else [("connection", saved), *known]


def _shown(url: str) -> str:
    return Endpoint(url, "", Secret("")).shown_url


def _gone(owner: Owner) -> str:
    host = Endpoint(owner.base_url, "", Secret("")).host
    return f"{owner.model} at {host} is not connected any more" if owner.model else "it names no model"
