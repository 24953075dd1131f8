"""Having another model answer: trying a connection, saving it, going back. A key is never told again."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import Mask, secrets_in
from holdfast.models.connection_check import heard, tried
from holdfast.models.connection_file import (
    FILE_NAME,
    FIRST,
    connection_problem,
    read_connections,
    usable_connections,
    write_connections,
)
from holdfast.models.demo import Demo
from holdfast.models.endpoint import Endpoint
from holdfast.models.factory import Shop, made_for
from holdfast.models.fallback import Fallback, Missing
from holdfast.models.info import Connection, NoModel, NoSuchModelProvider, ProviderTold, Tried
from holdfast.models.local.info import LOCAL, LocalTold
from holdfast.models.local.model import ABOUT
from holdfast.models.local.place import NAME
from holdfast.models.masking import MaskedModel
from holdfast.models.offers import Offers
from holdfast.models.ports import Model, NoModelKey, NoSuchModel
from holdfast.models.providers import (
    LOCAL_MODEL,
    Provider,
    Saved,
    endpoint_at,
    flaw_of,
    in_environment,
    is_local_model,
    provider_named,
    split_name,
)
from holdfast.models.selection import choose
from holdfast.settings.info import BadSetting, CannotEditSettings
from holdfast.settings.service import Desk
from holdfast.settings.settings import ConfigError, Settings, altered


class Switching(Protocol):
    """Who answers, as far as that can be changed; `names`: the model can be asked for titles."""

    def switch(self, model: Model, why: str, names: bool) -> None: ...

    def renew(self) -> None:
        """Models that agents or conversations have chosen are made anew: how they are reached has changed."""


async def chosen(
    settings: Settings, environ: Mapping[str, str], mask: Mask, shop: Shop | None = None
) -> tuple[Model, str]:
    """The model that answers from the start on, and why: the one that was connected, if `settings` name it.

    One that was connected and cannot be made any more does not stop the start, so that it can be mended: who
    is to answer instead does, else whoever is found. The same where connections cannot be read. Raises what
    `choose` does.
    """
    saved = await asyncio.to_thread(usable_connections, settings.data)
    for each in saved.values():
        mask.learn(*_secrets(each))
    try:
        made, why = await _asked_for(settings, environ, saved, shop)
    except HoldfastError as error:
        others, unasked = await _others(settings.fallback_models, "", shop)
        name = settings.model.strip()
        said = f"{name} cannot be asked: {error}"
        if others and not isinstance(error, NoSuchModel):
            return Fallback([Missing(name, error, others[0]), *others]), f"{said} {_in_turn(others)}{unasked}"
        is_typed = settings.origins.get("model") != "file"
        if is_typed and not await asyncio.to_thread(connection_problem, settings.data):
            raise
        made, why = await _found(environ, saved, shop)
        why += f" {said}"
    return await _with_fallbacks(made, why, settings.fallback_models, shop)


async def _found(
    environ: Mapping[str, str], saved: Mapping[str, Saved], shop: Shop | None
) -> tuple[Model, str]:
    """Whoever is found where nobody is named; the demo where that is nobody either."""
    try:
        return await choose("", environ, saved=saved, known=shop.known if shop is not None else None)
    except HoldfastError as error:
        return Demo(), f"The scripted demo answers. {error}"


async def _asked_for(
    settings: Settings, environ: Mapping[str, str], saved: Mapping[str, Saved], shop: Shop | None
) -> tuple[Model, str]:
    """The model that `settings` ask for, or the one that is found. Raises what `choose` does."""
    name = settings.model.strip()
    if is_local_model(name) and shop is not None:
        return _local(shop, "as HOLDFAST_MODEL or the settings ask")
    if settings.origins.get("model") == "file" and name.partition(":")[0] in saved:
        provider, model = split_name(name)
        kept = saved[provider.name]
        return _connected(endpoint_at(provider, kept.base_url, model, kept.key), shop)
    known = shop.known if shop is not None else None
    return await choose(settings.model, environ, saved=saved, known=known)


async def _with_fallbacks(
    made: Model, why: str, names: Sequence[str], shop: Shop | None
) -> tuple[Model, str]:
    """The same with those who answer where it cannot; one that cannot be asked is told of, and left out.

    What was said of the model itself is told too.
    """
    if isinstance(made, Demo):
        return made, why
    said = shop.known.said_of(made.name).in_words if shop is not None else ""
    why = f"{why} {said}".rstrip()
    others, unasked = await _others(names, made.name, shop)
    if not others:
        return made, why + unasked
    return Fallback([made, *others]), f"{why}{unasked} Where it fails, {_in_turn(others)}"


async def _others(names: Sequence[str], first: str, shop: Shop | None) -> tuple[list[Model], str]:
    """Those of `names` that can be asked, but the first, and what is to be said of the others."""
    found, unasked = list[Model](), ""
    for name in dict.fromkeys(names) if shop is not None else ():
        try:
            assert shop is not None
            found += [await shop.bare(name)] if name != first else []
        except HoldfastError as error:
            unasked += f" {name} cannot be asked instead: {error}"
    return found, unasked


def _in_turn(others: Sequence[Model]) -> str:
    return f"{', then '.join(other.name for other in others)} is asked."


class Models:
    """The connections in force. Whatever key it is given, `mask` knows from then on."""

    def __init__(
        self,
        desk: Desk,
        board: Switching,
        environ: Mapping[str, str],
        mask: Mask,
        shop: Shop,
        local: Callable[[], LocalTold] | None = None,
    ) -> None:
        self._desk = desk
        self._board = board
        self._environ = environ
        self._mask = mask
        self._shop = shop
        self._local = local
        self._offers = Offers(environ, self._read, shop.known, mask, local)
        self._turn = asyncio.Lock()

    async def providers(self) -> Sequence[ProviderTold]:
        return await self._offers.told()

    async def test(self, wanted: Connection) -> Tried:
        """Ask it for real. What is wrong with the words themselves is told the same way."""
        try:
            if _is_local(wanted):
                return Tried(True, await heard(self._shop.local()), (NAME,))
            provider, name = _wanted(wanted)
            saved = await self._completed(provider, wanted)
            told = await tried(self._endpoint(provider, saved, name))
        except HoldfastError as error:
            return Tried(False, self._mask.shapes(_advised(error)))
        models = tuple(self._mask.whole(each) for each in told.models)
        return Tried(told.ok, self._mask.shapes(told.detail), models)

    async def connect(self, wanted: Connection) -> None:
        """Save it, then have it answer."""
        if _is_local(wanted):
            await self._connect_local()
            return
        provider, name = _wanted(wanted)
        if not name:
            raise BadSetting(problem="model must be the name of a model")
        async with self._turn:
            self._desk.check_free("model")
            saved = await self._completed(provider, wanted)
            endpoint = self._checked(provider, saved, name)
            found = in_environment(provider, self._environ)
            is_found = saved == Saved(found.base_url, found.key)
            before = await self._all()
            after = _without(before, provider) if is_found else {**before, provider.name: saved}
            await self._save(before, after, f"{provider.name}:{name}")
            await self._switch(*_connected(endpoint, self._shop))

    async def _connect_local(self) -> None:
        async with self._turn:
            self._desk.check_free("model")
            model, why = _local(self._shop, "as chosen in the settings")
            try:
                await self._desk.write({"model": LOCAL_MODEL})
            except BaseException:
                await model.close()
                raise
            await self._switch(model, why)

    async def disconnect(self) -> None:
        """Forget it, then have the model answer that is found."""
        async with self._turn:
            self._desk.check_free("model")
            await self._go_back(self._connected_provider or FIRST)

    async def keep(self, provider: str, wanted: Connection) -> None:
        if provider == LOCAL:
            raise NoModel(why="the local model has no address and needs no key.")
        known = _provider(provider)
        async with self._turn:
            saved = await self._completed(known, wanted)
            name = self._desk.settings.model.strip().partition(":")[2]
            is_used = self._connected_provider == known.name
            endpoint = self._checked(known, saved, name if is_used else "")
            before = await self._all()
            await self._write({**before, known.name: saved})
            if is_used:
                await self._switch(*_connected(endpoint, self._shop))
            self._board.renew()

    async def forget(self, provider: str) -> None:
        known = None if provider == LOCAL else _provider(provider)
        async with self._turn:
            if self._connected_provider == provider.strip():
                await self._go_back(provider.strip())
                return
            if known is None:
                return
            await self._write(_without(await self._all(), known))
            self._board.renew()

    async def instead(self, names: Sequence[str]) -> None:
        """Write down who is asked where the model that answers cannot, then have it be so."""
        async with self._turn:
            self._desk.check_free("fallback_models")
            wanted: dict[str, object] = {"fallback_models": list(dict.fromkeys(names)) or None}
            try:
                settings = altered(self._desk.settings, wanted)
                for name in settings.fallback_models:
                    await (await self._shop.bare(name)).close()
                made, why = await chosen(settings, self._environ, self._mask, self._shop)
            except ConfigError as error:
                raise BadSetting(problem=error.fields["problem"]) from None
            except HoldfastError as error:
                raise NoModel(why=f"{error} {error.advice}".strip()) from None
            try:
                await self._desk.write(wanted)
            except BaseException:
                await made.close()
                raise
            is_real = bool(made.profile.address)
            self._board.switch(MaskedModel(made, self._mask), self._mask.shapes(why), is_real)

    async def _go_back(self, provider: str) -> None:
        """Forget one connection and the choice of a model."""
        before = await self._all()
        after = {name: each for name, each in before.items() if name != provider}
        try:
            model, why = await choose("", self._environ, saved=after, known=self._shop.known)
        except HoldfastError as error:
            raise NoModel(why=str(error)) from None
        try:
            await self._save(before, after, None)
        except BaseException:
            await model.close()
            raise
        await self._switch(model, why)

    @property
    def _connected_provider(self) -> str:
        """Whose model the settings file names; empty where it names none."""
        settings = self._desk.settings
        return settings.model.strip().partition(":")[0] if settings.origins.get("model") == "file" else ""

    def problems(self) -> tuple[str, ...]:
        """What is wrong with what was saved, and why models that are named cannot be asked, in sentences."""
        settings, problem = self._desk.settings, connection_problem(self._folder)
        is_typed = settings.origins.get("model") != "file"
        named = ((settings.model.strip(), is_typed), *((name, False) for name in settings.fallback_models))
        flaws = [(name, self.flaw(name, environ_first)) for name, environ_first in named if name]
        return (*([problem] if problem else ()), *(f"{name} cannot be asked: {f}" for name, f in flaws if f))

    def flaw(self, name: str, environ_first: bool = False) -> str:
        """Why a model cannot be asked, as far as that is known without asking it; empty if it may be."""
        told = self._local() if self._local is not None else None
        has_local = told is not None and (told.state == "installed" or told.running)
        return self._mask.shapes(flaw_of(name, self._environ, self._read(), has_local, environ_first))

    def _read(self) -> Mapping[str, Saved]:
        return usable_connections(self._folder)

    @property
    def _folder(self) -> Path:
        return self._desk.settings.data

    async def _all(self) -> Mapping[str, Saved]:
        """What is saved, to change it; what cannot be read is left alone. Raises CannotEditSettings."""
        try:
            return await asyncio.to_thread(read_connections, self._folder)
        except ConfigError as error:
            path = self._folder / FILE_NAME
            raise CannotEditSettings(path=path, why=str(error.fields["problem"])) from None

    async def _completed(self, provider: Provider, wanted: Connection) -> Saved:
        """What was left out is as it was; a key goes to no other server than the one it was given for."""
        saved, found = await asyncio.to_thread(self._read), in_environment(provider, self._environ)
        kept = saved.get(provider.name)
        known = [each for each in (kept, Saved(found.base_url, found.key)) if each is not None]
        url = (wanted.base_url or "").strip() or known[0].base_url
        own = next((each.key for each in known if each.base_url.rstrip("/") == url.rstrip("/")), "")
        return Saved(url, own if wanted.key is None else wanted.key.strip())

    def _endpoint(self, provider: Provider, saved: Saved, name: str) -> Endpoint:
        self._mask.learn(*_secrets(saved))
        return endpoint_at(provider, saved.base_url, name, saved.key)

    def _checked(self, provider: Provider, saved: Saved, name: str) -> Endpoint:
        try:
            return self._endpoint(provider, saved, name)
        except HoldfastError as error:
            raise NoModel(why=_advised(error)) from None

    async def _save(self, before: Mapping[str, Saved], after: Mapping[str, Saved], model: str | None) -> None:
        """Both files or neither: the settings name the model, the other holds where it is."""
        await self._write(after)
        try:
            await self._desk.write({"model": model})
        except HoldfastError:
            await asyncio.to_thread(write_connections, self._folder, before)
            raise

    async def _write(self, saved: Mapping[str, Saved]) -> None:
        try:
            await asyncio.to_thread(write_connections, self._folder, saved)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CannotEditSettings(path=self._folder, why=why) from None

    async def _switch(self, model: Model, why: str) -> None:
        is_real = bool(model.profile.address)
        made, why = await _with_fallbacks(model, why, self._desk.settings.fallback_models, self._shop)
        self._board.switch(MaskedModel(made, self._mask), self._mask.shapes(why), is_real)


def _wanted(wanted: Connection) -> tuple[Provider, str]:
    """Whose model is meant, and its name. Raises NoSuchModelProvider."""
    model = (wanted.model or "").strip()
    word, colon, rest = model.partition(":")
    if wanted.provider is not None:
        provider = _provider(wanted.provider)
        return provider, model.removeprefix(f"{provider.name}:")
    named = provider_named(word) if colon else None
    return (named, rest) if named is not None else (_provider(FIRST), model)


def _is_local(wanted: Connection) -> bool:
    model = (wanted.model or "").strip()
    if wanted.provider is None:
        return is_local_model(model)
    return wanted.provider.strip() == LOCAL and (model in ("", NAME) or is_local_model(model))


def _local(shop: Shop, why: str) -> tuple[Model, str]:
    """Raises LocalNotInstalled."""
    return shop.local(), f"Using {NAME}, the local model, {why}. {ABOUT}"


def _advised(error: HoldfastError) -> str:
    """Return what is wrong and what to do; a missing key belongs into the form that was just sent."""
    advice = "Enter it in the Key field above." if isinstance(error, NoModelKey) else error.advice
    return f"{error} {advice}".strip()


def _provider(name: str) -> Provider:
    found = provider_named(name.strip())
    if found is None:
        raise NoSuchModelProvider(name=name)
    return found


def _without(saved: Mapping[str, Saved], provider: Provider) -> dict[str, Saved]:
    return {name: each for name, each in saved.items() if name != provider.name}


def _connected(endpoint: Endpoint, shop: Shop | None) -> tuple[Model, str]:
    why = f"Using {endpoint.model} at {endpoint.host}, as connected in the settings."
    return made_for(endpoint, shop.known if shop is not None else None), why


def _secrets(saved: Saved) -> list[str]:
    return list(secrets_in({"MODEL_KEY": saved.key, "MODEL_URL": saved.base_url}))
