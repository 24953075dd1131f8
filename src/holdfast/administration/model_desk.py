"""Having another model answer: trying a connection, saving it, going back. The key is never told again."""

import asyncio
from collections.abc import Mapping
from typing import Protocol

from holdfast.administration.connection_file import Saved, read_connection, write_connection
from holdfast.administration.settings_desk import Desk
from holdfast.agent.masking import MaskedModel
from holdfast.agent.models.choose import (
    KEY_VARIABLE,
    URL_VARIABLE,
    choose,
    endpoint_at,
    made_for,
)
from holdfast.agent.models.demo import Demo
from holdfast.agent.models.endpoint import OPENAI_URL, Endpoint
from holdfast.agent.models.trial import tried
from holdfast.agent.ports import Model
from holdfast.config import Settings
from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import Mask, secrets_in
from holdfast.office import BadSetting, CannotEditSettings, Connection, NoModel, Tried

_PROVIDER = "openai:"


class Switching(Protocol):
    """Who answers, as far as that can be changed; `names`: the model can be asked for titles."""

    def switch(self, model: Model, why: str, names: bool) -> None: ...


async def chosen(settings: Settings, environ: Mapping[str, str], mask: Mask) -> tuple[Model, str]:
    """The model that answers from the start on, and why: the one that was connected, if `settings` name it.

    Raises what `choose` does, and ConfigError.
    """
    name = settings.model.strip().removeprefix(_PROVIDER)
    is_ours = settings.origins.get("model") == "file" and settings.model.strip().startswith(_PROVIDER)
    saved = await asyncio.to_thread(read_connection, settings.data) if is_ours else None
    if saved is None:
        return await choose(settings.model, environ)
    mask.learn(*_secrets(saved))
    return _connected(endpoint_at(saved.base_url, name, saved.key))


class Models:
    """The connection in force. Whatever key it is given, `mask` knows from then on."""

    def __init__(self, desk: Desk, board: Switching, environ: Mapping[str, str], mask: Mask) -> None:
        self._desk = desk
        self._board = board
        self._environ = environ
        self._mask = mask
        self._turn = asyncio.Lock()

    async def test(self, wanted: Connection) -> Tried:
        """Ask it for real. What is wrong with the words themselves is told the same way."""
        try:
            saved = await self._completed(wanted)
            told = await tried(self._endpoint(saved, wanted.model or ""))
        except HoldfastError as error:
            return Tried(False, self._mask.shapes(f"{error} {error.advice}".strip()))
        models = tuple(self._mask.whole(name) for name in told.models)
        return Tried(told.ok, self._mask.shapes(told.detail), models)

    async def connect(self, wanted: Connection) -> None:
        """Save it, then have it answer."""
        name = (wanted.model or "").strip().removeprefix(_PROVIDER)
        if not name:
            raise BadSetting(problem="model must be the name of a model")
        async with self._turn:
            self._desk.check_free("model")
            saved = await self._completed(wanted)
            endpoint = self._checked(saved, name)
            await self._save(None if saved == self._found else saved, f"{_PROVIDER}{name}")
            self._switch(*_connected(endpoint))

    async def disconnect(self) -> None:
        """Forget it, then have the model answer that is found."""
        async with self._turn:
            self._desk.check_free("model")
            try:
                model, why = await choose("", self._environ)
            except HoldfastError as error:
                raise NoModel(why=str(error)) from None
            try:
                await self._save(None, None)
            except BaseException:
                await model.close()
                raise
            self._switch(model, why)

    @property
    def _found(self) -> Saved:
        """What the environment offers."""
        url, key = self._environ.get(URL_VARIABLE, ""), self._environ.get(KEY_VARIABLE, "")
        return Saved(url.strip() or OPENAI_URL, key.strip())

    async def _completed(self, wanted: Connection) -> Saved:
        """What was left out is as it was; a key goes to no other server than the one it was given for."""
        saved = await asyncio.to_thread(read_connection, self._desk.settings.data)
        known = [each for each in (saved, self._found) if each is not None]
        url = (wanted.base_url or "").strip() or known[0].base_url
        own = next((each.key for each in known if each.base_url.rstrip("/") == url.rstrip("/")), "")
        return Saved(url, own if wanted.key is None else wanted.key.strip())

    def _endpoint(self, saved: Saved, name: str) -> Endpoint:
        self._mask.learn(*_secrets(saved))
        return endpoint_at(saved.base_url, name.strip().removeprefix(_PROVIDER), saved.key)

    def _checked(self, saved: Saved, name: str) -> Endpoint:
        try:
            return self._endpoint(saved, name)
        except HoldfastError as error:
            raise NoModel(why=f"{error} {error.advice}") from None

    async def _save(self, saved: Saved | None, model: str | None) -> None:
        """Both files or neither: the settings name the model, the other holds where it is."""
        folder = self._desk.settings.data
        before = await asyncio.to_thread(read_connection, folder)
        try:
            await asyncio.to_thread(write_connection, folder, saved)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CannotEditSettings(path=folder, why=why) from None
        try:
            await self._desk.write({"model": model})
        except HoldfastError:
            await asyncio.to_thread(write_connection, folder, before)
            raise

    def _switch(self, model: Model, why: str) -> None:
        masked = MaskedModel(model, self._mask)
        self._board.switch(masked, self._mask.shapes(why), not isinstance(model, Demo))


def _connected(endpoint: Endpoint) -> tuple[Model, str]:
    why = f"Using {endpoint.model} at {endpoint.host}, as connected in the settings."
    return made_for(endpoint), why


def _secrets(saved: Saved) -> list[str]:
    return list(secrets_in({"MODEL_KEY": saved.key, "MODEL_URL": saved.base_url}))
