"""A run's requests, each measured against the model's window; smaller ones once one was too much."""

from collections.abc import Sequence

import msgspec

from holdfast.agent.attachments import Attachments
from holdfast.agent.ports import Model, ModelFailure, ToolSpec
from holdfast.domain.context import Gauge, Request, estimate_tokens, request_of
from holdfast.domain.transcript import Transcript
from holdfast.domain.weights import factor_of


def gauge_of(transcript: Transcript, model: Model, specs: Sequence[ToolSpec], share: float = 1.0) -> Gauge:
    """How a request to `model` with those tools is measured, by what it counted last."""
    tools = estimate_tokens(msgspec.json.encode(specs).decode()) if specs else 0
    return Gauge(tools, factor_of(transcript, model.name), share)


class Measuring:
    """Makes the requests of one run. What was too much once is not tried again in it."""

    def __init__(self, model: Model, told: str, attachments: Attachments) -> None:
        self._model = model
        self._told = told
        self._attachments = attachments
        self._gauge = Gauge()
        self._transcript = Transcript()

    async def request(self, transcript: Transcript, specs: Sequence[ToolSpec]) -> Request:
        """What is sent next. Raises ModelFailure where tools and instructions leave no room for it."""
        self._transcript = transcript
        self._gauge = gauge_of(transcript, self._model, specs, self._gauge.share)
        if crowded := self._gauge.crowded(self._model.profile, self._told):
            raise ModelFailure(detail=crowded, retryable=False)
        return await self._made()

    def weigh(self, request: Request) -> int:
        return self._gauge.weigh(request)

    async def shorter(self, request: Request) -> Request:
        """The same with less of the conversation: `request` was too much."""
        self._gauge = self._gauge.harder(self._model.profile, self.weigh(request))
        return await self._made()

    async def _made(self) -> Request:
        request = request_of(self._transcript, self._told, self._model.profile, self._gauge)
        return await self._attachments.add_to(request, self._model)
