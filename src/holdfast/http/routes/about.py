"""What this server is and whether it is well: version, health, which model answers."""

from typing import Any

import msgspec
from litestar import MediaType, Response, get

from holdfast.domain.clock import Instant, SystemClock
from holdfast.http.metrics import CONTENT_TYPE, Metrics
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import answers
from holdfast.http.routes.models import model_list
from holdfast.http.schemas.responses import Health, ModelList
from holdfast.models.info import ModelDesk
from holdfast.status import Look


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
    """`/api/about`."""

    def __init__(self, look: Look, addresses: tuple[str, ...], started_at: Instant) -> None:
        self._look = look
        self._addresses = addresses
        self._started_at = started_at
        self._clock = SystemClock()

    def table(self) -> list[Any]:
        """The route with what it is said to answer."""
        return [get("/api/about", responses=answers(200, About, _ABOUT))(self.about)]

    async def about(self) -> About:
        """The version, where everything is kept, what protects it, and since when this server runs."""
        seen = await self._look()
        return About(
            seen.version, str(seen.data), seen.durability, seen.sessions, seen.events, seen.store_bytes,
            seen.model, seen.why, seen.confinement, seen.unprotected, self._addresses, self._started_at,
            max(0, (self._clock.now_ms() - self._started_at) // 1000),
        )  # fmt: skip


class HealthRoutes:
    """`look` takes one look at everything; it may raise a StoreFault. Without a desk no model is chosen."""

    def __init__(self, look: Look, metrics: Metrics, desk: ModelDesk | None = None) -> None:
        self._desk = desk
        self._look = look
        self._metrics = metrics

    def table(self) -> list[Any]:
        """The routes with what each is said to answer."""
        return [
            get("/health/live", responses=answers(200, Health, examples.LIVE))(self.live),
            get("/health/ready", responses=answers(200, Health, examples.READY))(self.ready),
            get("/metrics", media_type=MediaType.TEXT, include_in_schema=False)(self.metrics),
            get("/api/models", responses=answers(200, ModelList, examples.MODEL_LIST))(self.models),
        ]

    async def live(self) -> Health:
        """The process answers; says nothing of its store."""
        return Health("live")

    async def ready(self) -> Health:
        """The store answers too; a fault is a problem document, and nobody should be sent here.

        Says what confines the commands of tools, and in sentences what they are not kept from, and what is
        wrong with files: agents and prompts that people wrote, connections that were saved.
        """
        overview = await self._look()
        return Health("ready", overview.confinement, overview.unprotected, overview.problems)

    async def metrics(self) -> Response[str]:
        """Everything that is counted, for Prometheus."""
        return Response(await self._metrics.text(), media_type=CONTENT_TYPE)

    async def models(self) -> ModelList:
        """The model that answers and why it is that one, and what can be chosen from whom.

        A list that does not come within a second is told the next time.
        """
        return model_list(await self._look(), await self._desk.providers() if self._desk is not None else ())
