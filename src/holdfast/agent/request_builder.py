"""A run's requests, each measured against the model's window; smaller ones once one was too much."""

from collections.abc import Sequence

from msgspec.structs import replace

from holdfast.agent.attachments import Attachments
from holdfast.domain.context.context import Gauge, Request, request_of
from holdfast.domain.context.request import Effort
from holdfast.domain.context.tokens import factor_of
from holdfast.domain.transcript.transcript import Transcript
from holdfast.models.ports import Model, ModelFailure, ToolSpec
from holdfast.models.wire import tools_tokens


def gauge_of(transcript: Transcript, model: Model, specs: Sequence[ToolSpec], share: float = 1.0) -> Gauge:
    """How a request to `model` with those tools is measured, by what it counted last."""
    return Gauge(tools_tokens(specs), factor_of(transcript, model.name), share)


class Measuring:
    """Makes the requests of one run. What was too much once is not tried again in it."""

    def __init__(
        self, model: Model, told: str, attachments: Attachments, effort: Effort | None = None
    ) -> None:
        self._effort = effort
        self._model = model
        self._told = told
        self._attachments = attachments
        self._profile = model.profile
        self._gauge = Gauge()
        self._transcript = Transcript()

    async def request(self, transcript: Transcript, specs: Sequence[ToolSpec]) -> Request:
        """What is sent next: made for a larger window where tools and instructions leave no room in the
        first one's. Raises ModelFailure where they leave none in any.
        """
        self._transcript = await self._attachments.with_pdf_text(transcript, self._model)
        self._gauge = gauge_of(transcript, self._model, specs, self._gauge.share)
        first = self._model.profile
        larger = replace(first, window_tokens=max(first.largest_tokens, first.window_tokens))
        crowded = self._gauge.crowded(first, self._told)
        if crowded and self._gauge.crowded(larger, self._told):
            raise ModelFailure(detail=crowded, retryable=False)
        self._profile = larger if crowded else first
        return await self._made()

    def weigh(self, request: Request) -> int:
        return self._gauge.weigh(request)

    async def shorter(self, request: Request) -> Request:
        """The same with less of the conversation: `request` was too much."""
        self._gauge = self._gauge.harder(self._profile, self.weigh(request))
        return await self._made()

    async def _made(self) -> Request:
        request = request_of(self._transcript, self._told, self._profile, self._gauge)
        if self._profile.window_tokens > self._model.profile.window_tokens:
            request = replace(request, window_tokens=self._profile.window_tokens)
        return await self._attachments.add_to(replace(request, effort=self._effort), self._model)
