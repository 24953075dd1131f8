"""Test, save, select and remove model connections. Nothing here returns a saved key."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from holdfast.domain.errors import HoldfastError
from holdfast.domain.secrets import SecretMask, find_secrets
from holdfast.models.connection_check import check_connection, check_model
from holdfast.models.connection_file import (
    DEFAULT_PROVIDER,
    FILE_NAME,
    connection_problem,
    read_connections,
    read_connections_or_empty,
    write_connections,
)
from holdfast.models.demo import DemoModel
from holdfast.models.endpoint import Endpoint
from holdfast.models.factory import ModelFactory, build_model
from holdfast.models.fallback import FallbackModel, UnavailableModel
from holdfast.models.info import (
    ConnectionTestResult,
    ModelConnection,
    ModelProviderInfo,
    NoModel,
    NoSuchModelProvider,
)
from holdfast.models.local.info import LOCAL, LocalModelInfo
from holdfast.models.local.install_dir import MODEL_NAME
from holdfast.models.local.model import ABOUT
from holdfast.models.masking import MaskedModel
from holdfast.models.ports import Model, NoModelKey, NoSuchModel
from holdfast.models.provider_directory import ProviderDirectory
from holdfast.models.providers import (
    LOCAL_MODEL,
    ModelProvider,
    SavedConnection,
    access_from_environment,
    build_endpoint,
    find_provider,
    is_local_model,
    parse_model_name,
    unavailable_reason,
)
from holdfast.models.selection import select_model
from holdfast.settings.info import BadSetting, CannotEditSettings
from holdfast.settings.service import FileSettingsService
from holdfast.settings.settings import ConfigError, Settings, with_changes


class ModelSwitcher(Protocol):
    """Switch the model that answers. `can_complete`: the model may write titles too."""

    def set_default_model(self, model: Model, why: str, can_complete: bool) -> None: ...

    def reset_models(self) -> None:
        """Rebuild the models that agents or conversations chose, because a connection has changed."""


async def resolve_model(
    settings: Settings, environ: Mapping[str, str], mask: SecretMask, factory: ModelFactory | None = None
) -> tuple[Model, str]:
    """Return the model that answers after the start, and the reason as a sentence.

    A saved choice that cannot be built does not stop the start, so that people can repair it. Its fallbacks
    answer instead, or else the default model. The same holds if the connections file is unreadable. Raises as
    `select_model` does.
    """
    saved = await asyncio.to_thread(read_connections_or_empty, settings.data)
    for connection in saved.values():
        mask.add(*_secrets(connection))
    try:
        model, why = await _resolve_configured(settings, environ, saved, factory)
    except HoldfastError as error:
        others, skipped = await _build_fallbacks(settings.fallback_models, "", factory)
        name = settings.model.strip()
        problem = f"{name} cannot be asked: {error}"
        if others and not isinstance(error, NoSuchModel):
            return FallbackModel(
                [UnavailableModel(name, error, others[0]), *others]
            ), f"{problem} {_fallbacks_text(others)}{skipped}"
        is_fixed = settings.origins.get("model") != "file"
        if is_fixed and not await asyncio.to_thread(connection_problem, settings.data):
            raise
        model, why = await _resolve_default(environ, saved, factory)
        why += f" {problem}"
    return await _with_fallbacks(model, why, settings.fallback_models, factory)


async def _resolve_default(
    environ: Mapping[str, str], saved: Mapping[str, SavedConnection], factory: ModelFactory | None
) -> tuple[Model, str]:
    """Return the model that is found without a setting, or the demo if there is none."""
    try:
        return await select_model(
            "", environ, saved=saved, catalog=factory.catalog if factory is not None else None
        )
    except HoldfastError as error:
        return DemoModel(), f"The scripted demo answers. {error}"


async def _resolve_configured(
    settings: Settings,
    environ: Mapping[str, str],
    saved: Mapping[str, SavedConnection],
    factory: ModelFactory | None,
) -> tuple[Model, str]:
    """Return the model that `settings` name, or the default model. Raises as `select_model` does."""
    name = settings.model.strip()
    if is_local_model(name) and factory is not None:
        return _build_local(factory, "as HOLDFAST_MODEL or the settings ask")
    if settings.origins.get("model") == "file" and name.partition(":")[0] in saved:
        provider, model = parse_model_name(name)
        connection = saved[provider.name]
        return _build_connected(build_endpoint(provider, connection.base_url, model, connection.key), factory)
    catalog = factory.catalog if factory is not None else None
    return await select_model(settings.model, environ, saved=saved, catalog=catalog)


async def _with_fallbacks(
    model: Model, why: str, names: Sequence[str], factory: ModelFactory | None
) -> tuple[Model, str]:
    """Return the model with its fallbacks, and `why` with the overrides and the skipped fallbacks."""
    if isinstance(model, DemoModel):
        return model, why
    overrides = factory.catalog.overrides_for(model.name).description if factory is not None else ""
    why = f"{why} {overrides}".rstrip()
    others, skipped = await _build_fallbacks(names, model.name, factory)
    if not others:
        return model, why + skipped
    return FallbackModel([model, *others]), f"{why}{skipped} Where it fails, {_fallbacks_text(others)}"


async def _build_fallbacks(
    names: Sequence[str], first: str, factory: ModelFactory | None
) -> tuple[list[Model], str]:
    """Return the models in `names` except `first`, and a text about those that cannot be built."""
    fallbacks, skipped = list[Model](), ""
    for name in dict.fromkeys(names) if factory is not None else ():
        try:
            assert factory is not None
            fallbacks += [await factory.build_unmasked(name)] if name != first else []
        except HoldfastError as error:
            skipped += f" {name} cannot be asked instead: {error}"
    return fallbacks, skipped


def _fallbacks_text(others: Sequence[Model]) -> str:
    return f"{', then '.join(other.name for other in others)} is asked."


class ModelConnectionService:
    """Manage the model connections. Every key that passes through is added to `mask`."""

    def __init__(
        self,
        settings_service: FileSettingsService,
        switcher: ModelSwitcher,
        environ: Mapping[str, str],
        mask: SecretMask,
        factory: ModelFactory,
        local_info: Callable[[], LocalModelInfo] | None = None,
    ) -> None:
        self._settings_service = settings_service
        self._switcher = switcher
        self._environ = environ
        self._mask = mask
        self._factory = factory
        self._local_info = local_info
        self._directory = ProviderDirectory(environ, self._read_or_empty, factory.catalog, mask, local_info)
        self._lock = asyncio.Lock()

    async def providers(self) -> Sequence[ModelProviderInfo]:
        return await self._directory.list_providers()

    async def test(self, connection: ModelConnection) -> ConnectionTestResult:
        """Test a connection with a real request. Invalid input gives a failed result too."""
        try:
            if _is_local(connection):
                return ConnectionTestResult(
                    True, await check_model(self._factory.build_local()), (MODEL_NAME,)
                )
            provider, name = _parse_target(connection)
            saved = await self._fill_missing_fields(provider, connection)
            check = await check_connection(self._endpoint(provider, saved, name))
        except HoldfastError as error:
            return ConnectionTestResult(False, self._mask.mask_with_patterns(_with_advice(error)))
        models = tuple(self._mask.mask(model) for model in check.models)
        return ConnectionTestResult(check.ok, self._mask.mask_with_patterns(check.detail), models)

    async def connect(self, connection: ModelConnection) -> None:
        """Save the connection, then switch to its model."""
        if _is_local(connection):
            await self._connect_local()
            return
        provider, name = _parse_target(connection)
        if not name:
            raise BadSetting(problem="model must be the name of a model")
        async with self._lock:
            self._settings_service.check_not_fixed("model")
            saved = await self._fill_missing_fields(provider, connection)
            endpoint = self._validated_endpoint(provider, saved, name)
            found = access_from_environment(provider, self._environ)
            is_found = saved == SavedConnection(found.base_url, found.key)
            before = await self._read_saved()
            after = _without(before, provider) if is_found else {**before, provider.name: saved}
            await self._save(before, after, f"{provider.name}:{name}")
            await self._switch(*_build_connected(endpoint, self._factory))

    async def _connect_local(self) -> None:
        async with self._lock:
            self._settings_service.check_not_fixed("model")
            model, why = _build_local(self._factory, "as chosen in the settings")
            try:
                await self._settings_service.write({"model": LOCAL_MODEL})
            except BaseException:
                await model.close()
                raise
            await self._switch(model, why)

    async def disconnect(self) -> None:
        """Remove the connection, then switch to the default model."""
        async with self._lock:
            self._settings_service.check_not_fixed("model")
            await self._revert_to_default(self._connected_provider or DEFAULT_PROVIDER)

    async def save(self, provider: str, connection: ModelConnection) -> None:
        if provider == LOCAL:
            raise NoModel(why="the local model has no address and needs no key.")
        model_provider = _require_provider(provider)
        async with self._lock:
            saved = await self._fill_missing_fields(model_provider, connection)
            name = self._settings_service.settings.model.strip().partition(":")[2]
            is_used = self._connected_provider == model_provider.name
            endpoint = self._validated_endpoint(model_provider, saved, name if is_used else "")
            before = await self._read_saved()
            await self._write({**before, model_provider.name: saved})
            if is_used:
                await self._switch(*_build_connected(endpoint, self._factory))
            self._switcher.reset_models()

    async def forget(self, provider: str) -> None:
        model_provider = None if provider == LOCAL else _require_provider(provider)
        async with self._lock:
            if self._connected_provider == provider.strip():
                await self._revert_to_default(provider.strip())
                return
            if model_provider is None:
                return
            await self._write(_without(await self._read_saved(), model_provider))
            self._switcher.reset_models()

    async def set_fallbacks(self, names: Sequence[str]) -> None:
        """Save the fallback models, then switch to a model that uses them."""
        async with self._lock:
            self._settings_service.check_not_fixed("fallback_models")
            changes: dict[str, object] = {"fallback_models": list(dict.fromkeys(names)) or None}
            try:
                settings = with_changes(self._settings_service.settings, changes)
                for name in settings.fallback_models:
                    await (await self._factory.build_unmasked(name)).close()
                model, why = await resolve_model(settings, self._environ, self._mask, self._factory)
            except ConfigError as error:
                raise BadSetting(problem=error.fields["problem"]) from None
            except HoldfastError as error:
                raise NoModel(why=f"{error} {error.advice}".strip()) from None
            try:
                await self._settings_service.write(changes)
            except BaseException:
                await model.close()
                raise
            is_real = bool(model.profile.address)
            self._switcher.set_default_model(
                MaskedModel(model, self._mask), self._mask.mask_with_patterns(why), is_real
            )

    async def _revert_to_default(self, provider: str) -> None:
        """Remove one connection and the chosen model, then switch to the default model."""
        before = await self._read_saved()
        after = {name: connection for name, connection in before.items() if name != provider}
        try:
            model, why = await select_model("", self._environ, saved=after, catalog=self._factory.catalog)
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
        """Return the provider whose model the settings file names; empty if it names none."""
        settings = self._settings_service.settings
        return settings.model.strip().partition(":")[0] if settings.origins.get("model") == "file" else ""

    def problems(self) -> tuple[str, ...]:
        """Return problems of saved connections and of named models that cannot be asked, as sentences."""
        settings, problem = self._settings_service.settings, connection_problem(self._folder)
        is_fixed = settings.origins.get("model") != "file"
        named = ((settings.model.strip(), is_fixed), *((name, False) for name in settings.fallback_models))
        reasons = [
            (name, self.unavailable_reason(name, environ_first)) for name, environ_first in named if name
        ]
        return (
            *([problem] if problem else ()),
            *(f"{name} cannot be asked: {reason}" for name, reason in reasons if reason),
        )

    def unavailable_reason(self, name: str, environ_first: bool = False) -> str:
        """Return why a model cannot be asked, judged without a request; empty if no reason is known."""
        local = self._local_info() if self._local_info is not None else None
        has_local = local is not None and (local.state == "installed" or local.running)
        return self._mask.mask_with_patterns(
            unavailable_reason(name, self._environ, self._read_or_empty(), has_local, environ_first)
        )

    def _read_or_empty(self) -> Mapping[str, SavedConnection]:
        return read_connections_or_empty(self._folder)

    @property
    def _folder(self) -> Path:
        return self._settings_service.settings.data

    async def _read_saved(self) -> Mapping[str, SavedConnection]:
        """Return the saved connections for a change. Raises CannotEditSettings if they are unreadable."""
        try:
            return await asyncio.to_thread(read_connections, self._folder)
        except ConfigError as error:
            path = self._folder / FILE_NAME
            raise CannotEditSettings(path=path, why=str(error.fields["problem"])) from None

    async def _fill_missing_fields(
        self, provider: ModelProvider, connection: ModelConnection
    ) -> SavedConnection:
        """Fill missing fields from the saved connection or from the environment.

        A key goes to no other server than the one it was given for.
        """
        saved, found = (
            await asyncio.to_thread(self._read_or_empty),
            access_from_environment(provider, self._environ),
        )
        previous = saved.get(provider.name)
        known = [old for old in (previous, SavedConnection(found.base_url, found.key)) if old is not None]
        url = (connection.base_url or "").strip() or known[0].base_url
        previous_key = next((old.key for old in known if old.base_url.rstrip("/") == url.rstrip("/")), "")
        return SavedConnection(url, previous_key if connection.key is None else connection.key.strip())

    def _endpoint(self, provider: ModelProvider, saved: SavedConnection, name: str) -> Endpoint:
        self._mask.add(*_secrets(saved))
        return build_endpoint(provider, saved.base_url, name, saved.key)

    def _validated_endpoint(self, provider: ModelProvider, saved: SavedConnection, name: str) -> Endpoint:
        try:
            return self._endpoint(provider, saved, name)
        except HoldfastError as error:
            raise NoModel(why=_with_advice(error)) from None

    async def _save(
        self, before: Mapping[str, SavedConnection], after: Mapping[str, SavedConnection], model: str | None
    ) -> None:
        """Write the connections and the chosen model, or neither."""
        await self._write(after)
        try:
            await self._settings_service.write({"model": model})
        except HoldfastError:
            await asyncio.to_thread(write_connections, self._folder, before)
            raise

    async def _write(self, saved: Mapping[str, SavedConnection]) -> None:
        try:
            await asyncio.to_thread(write_connections, self._folder, saved)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise CannotEditSettings(path=self._folder, why=why) from None

    async def _switch(self, model: Model, why: str) -> None:
        is_real = bool(model.profile.address)
        chain, why = await _with_fallbacks(
            model, why, self._settings_service.settings.fallback_models, self._factory
        )
        self._switcher.set_default_model(
            MaskedModel(chain, self._mask), self._mask.mask_with_patterns(why), is_real
        )


def _parse_target(connection: ModelConnection) -> tuple[ModelProvider, str]:
    """Return the provider and the model name that are meant. Raises NoSuchModelProvider."""
    model = (connection.model or "").strip()
    prefix, colon, rest = model.partition(":")
    if connection.provider is not None:
        provider = _require_provider(connection.provider)
        return provider, model.removeprefix(f"{provider.name}:")
    named = find_provider(prefix) if colon else None
    return (named, rest) if named is not None else (_require_provider(DEFAULT_PROVIDER), model)


def _is_local(connection: ModelConnection) -> bool:
    model = (connection.model or "").strip()
    if connection.provider is None:
        return is_local_model(model)
    return connection.provider.strip() == LOCAL and (model in ("", MODEL_NAME) or is_local_model(model))


def _build_local(factory: ModelFactory, why: str) -> tuple[Model, str]:
    """Return the local model and the reason. Raises LocalNotInstalled."""
    return factory.build_local(), f"Using {MODEL_NAME}, the local model, {why}. {ABOUT}"


def _with_advice(error: HoldfastError) -> str:
    """Return the error with its advice; a missing key belongs in the form that was just sent."""
    advice = "Enter it in the Key field above." if isinstance(error, NoModelKey) else error.advice
    return f"{error} {advice}".strip()


def _require_provider(name: str) -> ModelProvider:
    found = find_provider(name.strip())
    if found is None:
        raise NoSuchModelProvider(name=name)
    return found


def _without(saved: Mapping[str, SavedConnection], provider: ModelProvider) -> dict[str, SavedConnection]:
    return {name: connection for name, connection in saved.items() if name != provider.name}


def _build_connected(endpoint: Endpoint, factory: ModelFactory | None) -> tuple[Model, str]:
    why = f"Using {endpoint.model} at {endpoint.host}, as connected in the settings."
    return build_model(endpoint, factory.catalog if factory is not None else None), why


def _secrets(saved: SavedConnection) -> list[str]:
    return list(find_secrets({"MODEL_KEY": saved.key, "MODEL_URL": saved.base_url}))
