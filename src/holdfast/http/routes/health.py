"""What a machine asks of this server: whether it lives, what it counts, which model answers."""

from typing import Any

from litestar import MediaType, Response, get

from holdfast.http.metrics import CONTENT_TYPE, Metrics
from holdfast.http.openapi import examples
from holdfast.http.openapi.responses import answers
from holdfast.http.routes.models import model_list
from holdfast.http.schemas.responses import Health, ModelList
from holdfast.models.info import ModelDesk
from holdfast.status import Look


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
