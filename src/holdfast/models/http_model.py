"""Ask a model over HTTP by any wire protocol: stream its answer, and name its failures."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence

import aiohttp
import msgspec
from msgspec.structs import replace

from holdfast.domain.context.context import ModelProfile, Request
from holdfast.domain.context.request import Effort
from holdfast.domain.files import SupportedFiles
from holdfast.domain.usage import Rate
from holdfast.models import failures
from holdfast.models.capabilities import ModelCapabilities
from holdfast.models.catalog import NO_OVERRIDES, ModelOverrides, Price
from holdfast.models.endpoint import Endpoint
from holdfast.models.ports import FallbackStarted, ModelDelta, ModelFailure, StepEnd, ToolSpec
from holdfast.models.sse import EventTooLong, SseParser
from holdfast.models.transport import ModelTimeouts, ModelTransport, ResponseBody
from holdfast.models.wire import EFFORT, PER_CONVERSATION, ErrorInStream, WireProtocol

ERROR_BYTES_MAX = 64_000
"""Limit of an error's body; the rest is not read."""
_JSON = "application/json"
_ACCEPTED_TYPES = frozenset({"text/event-stream", "application/octet-stream", _JSON})
"""Content types of an answer. aiohttp reports the second if the server names none."""
_DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors of decoding malformed data; the last one of data that is nested too deep."""


class HttpModel:
    """A model behind an endpoint that speaks `wire`."""

    def __init__(
        self,
        endpoint: Endpoint,
        wire: WireProtocol,
        profile: ModelProfile,
        timeouts: ModelTimeouts | None = None,
        price: Price | None = None,
        overrides: ModelOverrides = NO_OVERRIDES,
    ) -> None:
        self._price = price
        self._overrides = overrides
        self._endpoint = endpoint
        self._wire = wire
        self._profile = profile
        self._timeouts = timeouts or ModelTimeouts()
        self._transport = ModelTransport(endpoint, self._timeouts)
        self._capabilities = ModelCapabilities(endpoint)
        self._rejected_fields: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"HttpModel({self.name} at {self._endpoint.display_url})"

    @property
    def name(self) -> str:
        return self._endpoint.name

    @property
    def profile(self) -> ModelProfile:
        """Return the profile, updated with the window and the price that the server reports.

        A window override in the settings takes precedence over the reported window.
        """
        listed, price = self._capabilities.listed_model, self._current_price
        known = replace(self._profile, rate=Rate(price.input, price.output)) if price else self._profile
        window = listed.window_tokens if listed is not None and not self._overrides.window_tokens else None
        if window is None or window == known.window_tokens:
            return known
        return replace(known, window_tokens=window, answer_tokens=min(known.answer_tokens, window // 4))

    @property
    def _current_price(self) -> Price | None:
        listed = self._capabilities.listed_model
        return listed.price if listed is not None and listed.price is not None else self._price

    async def supported_files(self) -> SupportedFiles:
        # The server is queried in any case, because the reply holds the price too.
        found = await self._capabilities.supported_files()
        return found if self._overrides.takes is None else SupportedFiles(self._overrides.takes)

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        """Send one request and yield its answer as it arrives. Raises ModelFailure after the last delta."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeouts.first_byte_s
        was_rejected = EFFORT in self._rejected_fields
        response = await self._open(request, tools, deadline)
        try:
            if request.effort and EFFORT in self._rejected_fields and not was_rejected:
                yield self._effort_dropped(request.effort)
            body, answer = ResponseBody(response, self._endpoint), AnswerDecoder(self._endpoint, self._wire)
            if response.content_type == _JSON:
                # Some servers cannot stream.
                for delta in answer.decode_whole(await body.read_all(deadline - loop.time())):
                    yield self._with_cost(delta)
                return
            wait_s, awaited = deadline - loop.time(), "first byte"
            while not answer.has_stream_ended and (chunk := await self._read(body, answer, wait_s, awaited)):
                for delta in answer.feed(chunk):
                    yield delta
                wait_s, awaited = self._timeouts.between_chunks_s, "next chunk"
            for delta in answer.end():
                yield self._with_cost(delta)
            await body.drain(self._timeouts.drain_s)
        finally:
            response.release()

    async def close(self) -> None:
        await self._transport.close()

    def _with_cost(self, delta: ModelDelta) -> ModelDelta:
        """Return the end of an answer with its cost, if that is known; any other delta unchanged."""
        price = self._current_price
        # A cost that the provider reports is more exact than a list of prices.
        if price is None or not isinstance(delta, StepEnd) or delta.usage.cost_micros is not None:
            return delta
        return replace(delta, usage=price.apply_to(delta.usage))

    def _effort_dropped(self, effort: Effort) -> FallbackStarted:
        """Return the notice that the same model is asked again without the effort."""
        detail = f"{self.name} does not take the effort {effort!r}, and is asked without it from now on"
        failure = ModelFailure(detail=detail, retryable=False)
        return FallbackStarted(self.name, self.profile.provider, failure, self.profile.rate)

    async def _open(
        self, request: Request, tools: Sequence[ToolSpec], deadline: float
    ) -> aiohttp.ClientResponse:
        """Return a response that holds an answer, retrying without the fields that the server refuses."""
        without = self._rejected_fields
        for _ in range(len(self._wire.optional_fields) + 1):
            payload = self._wire.encode(self._endpoint.model, self.profile, request, tools, without)
            response = await self._transport.post(self._wire.path, payload, deadline)
            if response.status == 200 and response.content_type in _ACCEPTED_TYPES:
                # Only after a success: a refusal may repeat words of the conversation that match by accident.
                self._rejected_fields |= {
                    field for field in without if not field.startswith(PER_CONVERSATION)
                }
                return response
            try:
                body = ResponseBody(response, self._endpoint)
                error_body = await body.read_some(ERROR_BYTES_MAX, self._timeouts.error_body_s)
            finally:
                response.release()
            rejected = self._find_rejected_fields(response.status, error_body) - without
            if not rejected:
                break
            without |= rejected
        if response.status == 200:
            raise failures.unexpected_content(self._endpoint, response.content_type)
        raise failures.from_status(self._endpoint, response.status, response.headers, error_body)

    def _find_rejected_fields(self, status: int, error_body: bytes) -> frozenset[str]:
        # Some servers answer 500 if the model's chat template rejects the request.
        if status not in (400, 404, 422, 500):
            return frozenset()
        text = error_body.decode("utf-8", "replace").lower()
        rejected = frozenset(field for field, words in self._wire.optional_fields if words in text)
        # A refusal in one conversation must not cost all others a field of the same name.
        return frozenset(field for field in rejected if field.startswith(PER_CONVERSATION)) or rejected

    async def _read(self, body: ResponseBody, answer: "AnswerDecoder", wait_s: float, awaited: str) -> bytes:
        """Return the next bytes; none at the end. Keeps a failure for `end`, which decides on it."""
        try:
            return await body.read(self._timeouts.trailer_s if answer.is_answer_complete else wait_s)
        except ModelFailure as failure:
            answer.failure = failure
        except TimeoutError:
            waited_s = self._timeouts.first_byte_s if awaited == "first byte" else wait_s
            answer.failure = failures.timed_out(self._endpoint, awaited, waited_s)
        return b""


class AnswerDecoder:
    """Decode the bytes of one answer into deltas. `failure` is the reason that the stream broke off."""

    def __init__(self, endpoint: Endpoint, wire: WireProtocol) -> None:
        self._endpoint = endpoint
        self._events = SseParser()
        self._decoder = wire.decoder()
        self.failure: ModelFailure | None = None

    @property
    def has_stream_ended(self) -> bool:
        """Return whether the stream announced its end."""
        return self._decoder.has_stream_ended

    @property
    def is_answer_complete(self) -> bool:
        """Return whether the answer is complete; its usage may still follow."""
        return self._decoder.is_answer_complete

    def feed(self, chunk: bytes) -> Iterator[ModelDelta]:
        """Yield the deltas that `chunk` completes. Raises ModelFailure after the deltas before it."""
        try:
            for event in self._events.feed(chunk):
                yield from self._decoder.feed(event)
                if self._decoder.has_stream_ended:
                    return  # Data after the end is no part of the answer.
        except EventTooLong as error:
            raise failures.unreadable_response(self._endpoint, str(error)) from None
        except _DECODE_ERRORS:
            raise failures.unreadable_response(self._endpoint, "a chunk that cannot be read") from None
        except ErrorInStream as error:
            raise failures.from_error_body(self._endpoint, error.body) from None

    def end(self) -> Iterator[ModelDelta]:
        """Yield the last deltas. Raises the failure that cut the answer off, if it is incomplete."""
        # The last event may lack its blank line. A truncated object never decodes, so this is safe.
        yield from self._remaining_deltas()
        if self.is_answer_complete:
            yield from self._decoder.end()
        elif self.failure is not None:
            raise self.failure
        else:
            raise failures.incomplete_answer(self._endpoint)

    def decode_whole(self, body: bytes) -> list[ModelDelta]:
        """Return the deltas of an answer that did not stream."""
        try:
            deltas = self._decoder.feed(body)
        except _DECODE_ERRORS:
            deltas = []
        except ErrorInStream as error:
            raise failures.from_error_body(self._endpoint, error.body) from None
        if not self.is_answer_complete:
            raise failures.unexpected_content(self._endpoint, "JSON that holds no answer")
        return [*deltas, *self._decoder.end()]

    def _remaining_deltas(self) -> list[ModelDelta]:
        if self.has_stream_ended:
            return []
        try:
            return self._decoder.feed(self._events.end())
        except (EventTooLong, *_DECODE_ERRORS):
            return []
        except ErrorInStream as error:
            raise failures.from_error_body(self._endpoint, error.body) from None
