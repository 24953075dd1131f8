"""Connect, test and choose models over HTTP, and install the local model. No response contains a key."""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Annotated, Any

import msgspec
from litestar import delete, get, post, put
from litestar.params import FromPath

from holdfast.domain.errors import HoldfastError
from holdfast.domain.files import SupportedFiles
from holdfast.domain.limits import AGENT_FALLBACKS_MAX
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import request_body, response_specs
from holdfast.http.schemas.requests import NAME_CHARS_MAX, RequestBody
from holdfast.http.schemas.responses import ActiveModel, AvailableModels
from holdfast.models.info import (
    ConnectionTestResult,
    ModelConnection,
    ModelProviderInfo,
    ModelService,
    NoModel,
    NoSuchModelProvider,
)
from holdfast.models.local.info import (
    LocalInstallRunning,
    LocalInUse,
    LocalModelInfo,
    LocalModelService,
    LocalNotInstalled,
)
from holdfast.settings.info import BadSetting, CannotEditSettings, SettingFixed
from holdfast.status import MAIN_MODEL_NOTE, GetServerStatus, ServerStatus

_URL_CHARS_MAX = 2_000
_KEY_CHARS_MAX = 4_000
Url = Annotated[str, msgspec.Meta(max_length=_URL_CHARS_MAX)]
Key = Annotated[str, msgspec.Meta(max_length=_KEY_CHARS_MAX)]
Name = Annotated[str, msgspec.Meta(max_length=NAME_CHARS_MAX)]
_EXAMPLE = MappingProxyType({"base_url": "http://127.0.0.1:11434/v1", "model": "qwen3:8b"})


class ModelConnectionRequest(RequestBody, frozen=True):
    """A model's server. What is left out is as it was: a key stays with the server that it was given for.

    An empty key is none. For a test, without a model only the server is asked. Without a `provider` it is the
    one before the colon in `model`, or else openai, which stands for every server that speaks like OpenAI's.
    """

    base_url: Url | None = None
    key: Key | None = None
    model: Name | None = None
    provider: Name | None = None

    def __repr__(self) -> str:
        return "ModelConnectionRequest(…)"


class ProviderConnectionRequest(RequestBody, frozen=True):
    """How a provider is reached. What is left out is as it was; an empty key is none."""

    base_url: Url | None = None
    key: Key | None = None

    def __repr__(self) -> str:
        return "ProviderConnectionRequest(…)"


class FallbacksRequest(RequestBody, frozen=True):
    """Models that are asked, in this order, where the one that answers cannot."""

    models: Annotated[tuple[Name, ...], msgspec.Meta(max_length=AGENT_FALLBACKS_MAX)]


class ModelRoutes:
    """Serve `/api/models/test`, `…/connect`, `…/disconnect`, `…/fallbacks`, `…/providers/{provider}`."""

    def __init__(self, service: ModelService, read_status: GetServerStatus) -> None:
        self._service = service
        self._read_status = read_status

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        refusals: tuple[type[HoldfastError], ...] = (
            BadSetting, NoModel, SettingFixed, CannotEditSettings, LocalNotInstalled,
        )  # fmt: skip
        tried = response_specs(
            200,
            ConnectionTestResult,
            ConnectionTestResult(True, "qwen3:8b at 127.0.0.1:11434 answers.", ("qwen3:8b",)),
            has_body=True,
        )
        used = response_specs(
            200, AvailableModels, examples.MODEL_LIST, *refusals, NoSuchModelProvider, has_body=True
        )
        kept = response_specs(
            200, AvailableModels, examples.MODEL_LIST, *refusals, NoSuchModelProvider, has_body=True
        )
        return [
            post("/api/models/test", status_code=200, responses=tried)(self.test),
            post("/api/models/connect", status_code=200, responses=used)(self.connect),
            post("/api/models/disconnect", status_code=200, responses=used)(self.disconnect),
            put("/api/models/providers/{provider:str}", status_code=200, responses=kept)(self.save),
            delete("/api/models/providers/{provider:str}", status_code=200, responses=kept)(self.forget),
            put("/api/models/fallbacks", status_code=200, responses=used)(self.set_fallbacks),
        ]

    async def test(
        self, data: Annotated[ModelConnectionRequest, request_body(dict(_EXAMPLE), {"key": "sk-…"})]
    ) -> ConnectionTestResult:
        """Try a model for real, and say exactly what is wrong. Changes nothing."""
        return await self._service.test(_connection(data))

    async def connect(
        self, data: Annotated[ModelConnectionRequest, request_body(dict(_EXAMPLE))]
    ) -> AvailableModels:
        """Have a model answer from the next message on, also after a restart. It is not tried first."""
        await self._service.connect(_connection(data))
        return await self._models()

    async def disconnect(self) -> AvailableModels:
        """Forget the connection of the model that answers, and go back to the model that is found."""
        await self._service.disconnect()
        return await self._models()

    async def save(
        self,
        provider: FromPath[str],
        data: Annotated[ProviderConnectionRequest, request_body({"key": "sk-…"})],
    ) -> AvailableModels:
        """Save how a provider is reached, so that its models can be chosen. The key is never told again."""
        await self._service.save(provider, ModelConnection(data.base_url, data.key))
        return await self._models()

    async def forget(self, provider: FromPath[str]) -> AvailableModels:
        """Forget that again. If one of its models answers, the one that is found does from then on."""
        await self._service.forget(provider)
        return await self._models()

    async def set_fallbacks(
        self, data: Annotated[FallbacksRequest, request_body({"models": ["groq:openai/gpt-oss-120b"]})]
    ) -> AvailableModels:
        """Have other models asked where the one that answers cannot, now and after a restart."""
        await self._service.set_fallbacks(data.models)
        return await self._models()

    async def _models(self) -> AvailableModels:
        return available_models(await self._read_status(), await self._service.providers())


def available_models(status: ServerStatus, providers: Sequence[ModelProviderInfo]) -> AvailableModels:
    """Return the active models and the providers: the model in use is first, the server's own last."""
    own = _active_model(status.model, status.why, status.takes, in_use=not status.main_model)
    if not status.main_model:
        return AvailableModels((own,), tuple(providers))
    why = f"It {MAIN_MODEL_NOTE}"
    return AvailableModels((_active_model(status.main_model, why, status.main_takes), own), tuple(providers))


def _active_model(name: str, why: str, takes: SupportedFiles, in_use: bool = True) -> ActiveModel:
    return ActiveModel(name, why, in_use, tuple(sorted(takes.kinds)), takes.guessed)


def _connection(data: ModelConnectionRequest) -> ModelConnection:
    return ModelConnection(data.base_url, data.key, data.model, data.provider)


_INSTALLING = LocalModelInfo(
    "local:smollm2-135m", "It runs on this machine and needs no network.", "installing",
    percent=40, done_bytes=50_800_000, total_bytes=127_000_000,
)  # fmt: skip
_INSTALLED = LocalModelInfo(
    "local:smollm2-135m", "It runs on this machine and needs no network.", "installed",
    running=True, total_bytes=127_000_000,
)  # fmt: skip


class LocalModelRoutes:
    """Serve `/api/models/local`."""

    def __init__(self, service: LocalModelService) -> None:
        self._service = service

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        state = response_specs(200, LocalModelInfo, _INSTALLED)
        begun = response_specs(202, LocalModelInfo, _INSTALLING, LocalInstallRunning, has_body=True)
        left = response_specs(200, LocalModelInfo, _INSTALLED, has_body=True)
        removed = response_specs(
            200,
            LocalModelInfo,
            _INSTALLED,
            LocalInUse,
            LocalInstallRunning,
            CannotEditSettings,
            has_body=True,
        )
        return [
            get("/api/models/local", responses=state)(self.show),
            delete("/api/models/local", status_code=200, responses=removed)(self.remove),
            post("/api/models/local/install", status_code=202, responses=begun)(self.install),
            delete("/api/models/local/install", status_code=200, responses=left)(self.cancel),
        ]

    async def show(self) -> LocalModelInfo:
        """Whether the local model is here, how far its installation is, and whether it runs."""
        return self._service.info()

    async def install(self) -> LocalModelInfo:
        """Begin to install it; look again for how far that is. To have it answer, connect `local`."""
        self._service.start_install()
        return self._service.info()

    async def cancel(self) -> LocalModelInfo:
        """Leave off installing it. Nothing of that stays."""
        await self._service.cancel_install()
        return self._service.info()

    async def remove(self) -> LocalModelInfo:
        """Remove it from this machine."""
        await self._service.remove()
        return self._service.info()
