"""Find the models that extract facts: the current one, or an owner's earlier one that is still connected."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from holdfast.domain.context.request import DEMO
from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import SecretMask, find_secrets
from holdfast.memory.ports import AskModel, ModelInputTooLong, Owner, OwnerGone
from holdfast.models.completion import COMPLETION_INPUT_CHARS_MAX, COMPLETION_TIMEOUT_S_MAX, complete
from holdfast.models.connection_file import read_connections_or_empty
from holdfast.models.endpoint import Endpoint, Secret
from holdfast.models.factory import build_model
from holdfast.models.masking import MaskedModel
from holdfast.models.ports import Model, ModelFailure
from holdfast.models.providers import (
    PROVIDERS,
    ModelProvider,
    SavedConnection,
    access_from_environment,
    build_endpoint,
    find_provider,
    with_version_path,
)

_REFERENCES_MAX = 100


class CurrentModelSource(Protocol):
    """The model that answers now. A built-in model has no address: it cannot extract facts."""

    @property
    def name(self) -> str: ...

    @property
    def address(self) -> str: ...

    def is_default_model(self, name: str, address: str) -> bool: ...

    async def complete(self, system: str, text: str) -> str: ...


class ModelReference(msgspec.Struct, frozen=True):
    """A model as an owner refers to it: `key` says where its key is, empty if it needs none."""

    model: str
    address: str
    key: str


class ExtractionModels:
    """References to the current model, and calls to the model of an owner."""

    def __init__(
        self,
        current_model: Callable[[], CurrentModelSource],
        folder: Path,
        environ: Mapping[str, str],
        mask: SecretMask,
    ) -> None:
        self._current_model = current_model
        self._folder = folder
        self._environ = environ
        self._mask = mask
        self._references: dict[tuple[str, str], ModelReference] = {}

    @property
    def display_name(self) -> str:
        """Return the current model's name for use in a sentence."""
        name = self._current_model().name
        return "the demo" if name == DEMO else name

    def current(self) -> ModelReference | None:
        """Return the server's current model; None if it is built in, such as the demo."""
        return self.reference_for(self._current_model().name, self._current_model().address)

    def reference_for(self, name: str, address: str) -> ModelReference | None:
        """Return a reference to a model; None if it has no address."""
        if not address:
            return None
        if (name, address) not in self._references:
            if len(self._references) >= _REFERENCES_MAX:
                self._references.clear()
            # Reads one small file, only after a model change.
            self._references[name, address] = ModelReference(
                name, address, self._key_location(address, self._known_connections())
            )
        return self._references[name, address]

    async def check(self, owner: Owner) -> None:
        """Raise OwnerGone if the owner's model is not connected."""
        if not self._current_model().is_default_model(owner.model, owner.base_url):
            await self._endpoint(owner)

    def ask_function(self, owner: Owner) -> AskModel:
        """Return a function that calls the owner's model.

        The function raises OwnerGone, ModelInputTooLong, ModelFailure.
        """

        async def ask(system: str, text: str) -> str:
            try:
                return await ask_model(system, text)
            except ModelFailure as failure:
                if failure.too_long:
                    raise ModelInputTooLong(detail=str(failure).rstrip(".")) from failure
                raise

        async def ask_model(system: str, text: str) -> str:
            if self._current_model().is_default_model(owner.model, owner.base_url):
                return await self._current_model().complete(system, text)
            model: Model = MaskedModel(build_model(await self._endpoint(owner)), self._mask)
            try:
                return await complete(
                    model, system, text, COMPLETION_TIMEOUT_S_MAX, COMPLETION_INPUT_CHARS_MAX
                )
            finally:
                await model.close()

        return ask

    async def key_for(self, url: str) -> str:
        """Return the key for the server at `url`; empty if there is none."""
        connections = await asyncio.to_thread(self._known_connections)
        return next(
            (saved.key for _, _, saved in connections if _display_url(saved.base_url) == _display_url(url)),
            "",
        )

    async def _endpoint(self, owner: Owner) -> Endpoint:
        """Return the endpoint of the owner's model. A key is sent only to the server that it belongs to."""
        provider_name, _, name = owner.model.partition(":")
        provider, unavailable = find_provider(provider_name), OwnerGone(detail=_unavailable_text(owner))
        if provider is None or not name:
            raise unavailable
        connections = await asyncio.to_thread(self._known_connections)
        matching = [
            saved for _, whose, saved in connections if whose is provider and _is_at(provider, saved, owner)
        ]
        if not matching and not owner.key and owner.base_url:
            matching = [SavedConnection(owner.base_url)]
        if not matching:
            raise unavailable
        self._mask.add(*find_secrets({"MODEL_KEY": matching[0].key, "MODEL_URL": matching[0].base_url}))
        try:
            return build_endpoint(provider, matching[0].base_url, name, matching[0].key)
        except HoldfastError:
            raise unavailable from None

    def _key_location(
        self, address: str, connections: Sequence[tuple[str, ModelProvider, SavedConnection]]
    ) -> str:
        where = (
            where
            for where, provider, saved in connections
            if saved.key and _display_url(with_version_path(provider, saved.base_url)) == address
        )
        return next(where, "")

    def _known_connections(self) -> list[tuple[str, ModelProvider, SavedConnection]]:
        """Return the servers with a key, or without need of one, and where each is configured."""
        found = [access_from_environment(provider, self._environ) for provider in PROVIDERS]
        known = [
            (
                f"env:{each.key_from or each.provider.keys[0]}",
                each.provider,
                SavedConnection(each.base_url, each.key),
            )
            for each in found
        ]
        saved = read_connections_or_empty(self._folder)
        return [*(("connection", each, saved[each.name]) for each in PROVIDERS if each.name in saved), *known]


def _is_at(provider: ModelProvider, saved: SavedConnection, owner: Owner) -> bool:
    return _display_url(with_version_path(provider, saved.base_url)) == owner.base_url


def _display_url(url: str) -> str:
    return Endpoint(url, "", Secret("")).display_url


def _unavailable_text(owner: Owner) -> str:
    host = Endpoint(owner.base_url, "", Secret("")).host
    return f"{owner.model} at {host} is not connected any more" if owner.model else "it names no model"
