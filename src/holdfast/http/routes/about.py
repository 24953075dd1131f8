"""Routes that describe this server: its version, health, metrics and models."""

from typing import Any

import msgspec
from litestar import MediaType, Response, get

from holdfast.domain.clock import Instant, SystemClock
from holdfast.http.metrics import CONTENT_TYPE, Metrics
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import response_specs
from holdfast.http.routes.models import available_models
from holdfast.http.schemas.responses import AvailableModels, ServerHealth
from holdfast.models.info import ModelService
from holdfast.status import GetServerStatus


class About(msgspec.Struct, frozen=True):
    """`confinement` is what keeps commands apart from the rest; `unprotected` what of it is missing here."""

    version: str
    data: str
    durability: str
    sessions: int
    events: int
    store_bytes: int
    model: str
    why: str
    confinement: str
    unprotected: tuple[str, ...]
    addresses: tuple[str, ...]
    started_at: Instant
    uptime_s: int


_ABOUT = About(
    "0.1.0", "~/.local/share/holdfast", "full", 12, 4_021, 1_204_224, "demo",
    "The scripted demo answers, as HOLDFAST_MODEL asks.", "mounts, landlock 7", (),
    ("http://127.0.0.1:8787/",), 1_760_000_000_000, 3_600,
)  # fmt: skip


class AboutRoutes:
    """Serve `/api/about`."""

    def __init__(self, read_status: GetServerStatus, addresses: tuple[str, ...], started_at: Instant) -> None:
        self._read_status = read_status
        self._addresses = addresses
        self._started_at = started_at
        self._clock = SystemClock()

    def routes(self) -> list[Any]:
        """Return the route with its documented responses."""
        return [get("/api/about", responses=response_specs(200, About, _ABOUT))(self.about)]

    async def about(self) -> About:
        """The version, where everything is kept, what protects it, and since when this server runs."""
        status = await self._read_status()
        return About(
            status.version, str(status.data), status.durability, status.sessions, status.events,
            status.store_bytes, status.model, status.why, status.confinement, status.unprotected,
            self._addresses, self._started_at, max(0, (self._clock.now_ms() - self._started_at) // 1000),
        )  # fmt: skip


class HealthRoutes:
    """Serve the health checks, `/metrics` and `/api/models`. `read_status` may raise a StoreFault."""

    def __init__(
        self, read_status: GetServerStatus, metrics: Metrics, service: ModelService | None = None
    ) -> None:
        self._service = service
        self._read_status = read_status
        self._metrics = metrics

    def routes(self) -> list[Any]:
        """Return the routes with their documented responses."""
        return [
            get("/health/live", responses=response_specs(200, ServerHealth, examples.LIVE))(self.live),
            get("/health/ready", responses=response_specs(200, ServerHealth, examples.READY))(self.ready),
            get("/metrics", media_type=MediaType.TEXT, include_in_schema=False)(self.metrics),
            get("/api/models", responses=response_specs(200, AvailableModels, examples.MODEL_LIST))(
                self.models
            ),
        ]

    async def live(self) -> ServerHealth:
        """The process answers; says nothing of its store."""
        return ServerHealth("live")

    async def ready(self) -> ServerHealth:
        """The store answers too; a fault is a problem document, and nobody should be sent here.

        Says what confines the commands of tools, and in sentences what they are not kept from, and what is
        wrong with files: agents and prompts that people wrote, connections that were saved.
        """
        status = await self._read_status()
        return ServerHealth("ready", status.confinement, status.unprotected, status.problems)

    async def metrics(self) -> Response[str]:
        """Everything that is counted, for Prometheus."""
        return Response(await self._metrics.text(), media_type=CONTENT_TYPE)

    async def models(self) -> AvailableModels:
        """The model that answers and why it is that one, and what can be chosen from whom.

        A list that does not come within a second is told the next time.
        """
        return available_models(
            await self._read_status(), await self._service.providers() if self._service is not None else ()
        )
