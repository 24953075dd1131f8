"""Models over HTTP: connect, test and choose one; install the local model. No answer holds a key."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from litestar import delete, get, post, put
from litestar.params import FromPath

from holdfast.domain.errors import HoldfastError
from holdfast.domain.files import Takes
from holdfast.domain.limits import AGENT_FALLBACKS_MAX
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import answers, body
from holdfast.http.schemas.requests import NAME_CHARS_MAX, Sent
from holdfast.http.schemas.responses import ModelList, UsedModel
from holdfast.models.info import Connection, ModelDesk, NoModel, NoSuchModelProvider, ProviderTold, Tried
from holdfast.models.local.info import (
    LocalDesk,
    LocalInstallRunning,
    LocalInUse,
    LocalNotInstalled,
    LocalTold,
)
from holdfast.settings.info import BadSetting, CannotEditSettings, SettingFixed
from holdfast.status import MAIN_ANSWERS, Look, Overview

_URL_CHARS_MAX = 2_000
_KEY_CHARS_MAX = 4_000
Url = Annotated[str, msgspec.Meta(max_length=_URL_CHARS_MAX)]
Key = Annotated[str, msgspec.Meta(max_length=_KEY_CHARS_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
_EXAMPLE = MappingProxyType({"base_url": "http://127.0.0.1:11434/v1", "model": "qwen3:8b"})


class WantedModel(Sent, frozen=True):
    """A model's server. What is left out is as it was: a key stays with the server that it was given for.

    An empty key is none. For a test, without a model only the server is asked. Without a `provider` it is the
    one before the colon in `model`, or else openai, which stands for every server that speaks like OpenAI's.
    """

    base_url: Url | None = None
    key: Key | None = None
    model: Name | None = None
    provider: Name | None = None

    def __repr__(self) -> str:
        return "WantedModel(…)"


class WantedProvider(Sent, frozen=True):
    """How a provider is reached. What is left out is as it was; an empty key is none."""

    base_url: Url | None = None
    key: Key | None = None

    def __repr__(self) -> str:
        return "WantedProvider(…)"


class WantedFallbacks(Sent, frozen=True):
    """Models that are asked, in this order, where the one that answers cannot."""

    models: Annotated[tuple[Name, ...], msgspec.Meta(max_length=AGENT_FALLBACKS_MAX)]


class ModelRoutes:
    """`/api/models/test`, `…/connect`, `…/disconnect`, `…/fallbacks` and `…/providers/{provider}`."""

    def __init__(self, desk: ModelDesk, look: Look) -> None:
        self._desk = desk
        self._look = look

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        refusals: tuple[type[HoldfastError], ...] = (
            BadSetting, NoModel, SettingFixed, CannotEditSettings, LocalNotInstalled,
        )  # fmt: skip
        tried = answers(
            200, Tried, Tried(True, "qwen3:8b at 127.0.0.1:11434 answers.", ("qwen3:8b",)), sends=True
        )
        used = answers(200, ModelList, examples.MODEL_LIST, *refusals, NoSuchModelProvider, sends=True)
        kept = answers(200, ModelList, examples.MODEL_LIST, *refusals, NoSuchModelProvider, sends=True)
        return [
            post("/api/models/test", status_code=200, responses=tried)(self.test),
            post("/api/models/connect", status_code=200, responses=used)(self.connect),
            post("/api/models/disconnect", status_code=200, responses=used)(self.disconnect),
            put("/api/models/providers/{provider:str}", status_code=200, responses=kept)(self.keep),
            delete("/api/models/providers/{provider:str}", status_code=200, responses=kept)(self.forget),
            put("/api/models/fallbacks", status_code=200, responses=used)(self.instead),
        ]

    async def test(self, data: Annotated[WantedModel, body(dict(_EXAMPLE), {"key": "sk-…"})]) -> Tried:
        """Try a model for real, and say exactly what is wrong. Changes nothing."""
        return await self._desk.test(_connection(data))

    async def connect(self, data: Annotated[WantedModel, body(dict(_EXAMPLE))]) -> ModelList:
        """Have a model answer from the next message on, also after a restart. It is not tried first."""
        await self._desk.connect(_connection(data))
        return await self._models()

    async def disconnect(self) -> ModelList:
        """Forget the connection of the model that answers, and go back to the model that is found."""
        await self._desk.disconnect()
        return await self._models()

    async def keep(
        self, provider: FromPath[str], data: Annotated[WantedProvider, body({"key": "sk-…"})]
    ) -> ModelList:
        """Save how a provider is reached, so that its models can be chosen. The key is never told again."""
        await self._desk.keep(provider, Connection(data.base_url, data.key))
        return await self._models()

    async def forget(self, provider: FromPath[str]) -> ModelList:
        """Forget that again. If one of its models answers, the one that is found does from then on."""
        await self._desk.forget(provider)
        return await self._models()

    async def instead(
        self, data: Annotated[WantedFallbacks, body({"models": ["groq:openai/gpt-oss-120b"]})]
    ) -> ModelList:
        """Have other models asked where the one that answers cannot, now and after a restart."""
        await self._desk.instead(data.models)
        return await self._models()

    async def _models(self) -> ModelList:
        return model_list(await self._look(), await self._desk.providers())


def model_list(overview: Overview, providers: Sequence[ProviderTold]) -> ModelList:
    """What is told of models: who answers, first of all. The server's own is last."""
    own = _used(overview.model, overview.why, overview.takes, in_use=not overview.main_model)
    if not overview.main_model:
        return ModelList((own,), tuple(providers))
    why = f"It {MAIN_ANSWERS}"
    return ModelList((_used(overview.main_model, why, overview.main_takes), own), tuple(providers))


def _used(name: str, why: str, takes: Takes, in_use: bool = True) -> UsedModel:
    return UsedModel(name, why, in_use, tuple(sorted(takes.kinds)), takes.guessed)


def _connection(data: WantedModel) -> Connection:
    return Connection(data.base_url, data.key, data.model, data.provider)


_COMING = LocalTold(
    "local:smollm2-135m", "It runs on this machine and needs no network.", "installing",
    percent=40, done_bytes=50_800_000, total_bytes=127_000_000,
)  # fmt: skip
_THERE = LocalTold(
    "local:smollm2-135m", "It runs on this machine and needs no network.", "installed",
    running=True, total_bytes=127_000_000,
)  # fmt: skip


class LocalRoutes:
    """`/api/models/local`."""

    def __init__(self, desk: LocalDesk) -> None:
        self._desk = desk

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        told = answers(200, LocalTold, _THERE)
        begun = answers(202, LocalTold, _COMING, LocalInstallRunning, sends=True)
        left = answers(200, LocalTold, _THERE, sends=True)
        removed = answers(
            200, LocalTold, _THERE, LocalInUse, LocalInstallRunning, CannotEditSettings, sends=True
        )
        return [
            get("/api/models/local", responses=told)(self.look),
            delete("/api/models/local", status_code=200, responses=removed)(self.remove),
            post("/api/models/local/install", status_code=202, responses=begun)(self.install),
            delete("/api/models/local/install", status_code=200, responses=left)(self.cancel),
        ]

    async def look(self) -> LocalTold:
        """Whether the local model is here, how far its installation is, and whether it runs."""
        return self._desk.told()

    async def install(self) -> LocalTold:
        """Begin to install it; look again for how far that is. To have it answer, connect `local`."""
        self._desk.begin()
        return self._desk.told()

    async def cancel(self) -> LocalTold:
        """Leave off installing it. Nothing of that stays."""
        await self._desk.cancel()
        return self._desk.told()

    async def remove(self) -> LocalTold:
        """Remove it from this machine."""
        await self._desk.remove()
        return self._desk.told()
