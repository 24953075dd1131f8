"""A model asked over HTTP, by any wire protocol: one request, its answer as it streams, failures by name."""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence

import aiohttp
import msgspec
from msgspec.structs import replace

from holdfast.domain.context.context import Profile, Request
from holdfast.domain.context.request import Effort
from holdfast.domain.files import Takes
from holdfast.domain.usage import Rate
from holdfast.models import failures
from holdfast.models.abilities import Abilities
from holdfast.models.catalog import NOTHING_SAID, Price, Said
from holdfast.models.endpoint import Endpoint
from holdfast.models.ports import AskedInstead, ModelDelta, ModelFailure, StepEnd, ToolSpec
from holdfast.models.sse import EventTooLong, SseParser
from holdfast.models.transport import Body, Patience, Transport
from holdfast.models.wire import EFFORT, OF_THE_CONVERSATION, ErrorInStream, Wire

ERROR_BYTES_MAX = 64_000
"""How much of an error's body is read."""
_JSON = "application/json"
_READABLE = frozenset({"text/event-stream", "application/octet-stream", _JSON})
"""What an answer may be called; the second is what aiohttp says when a server says nothing."""
_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding rubbish raises; the last for what is nested too deep."""


class HttpModel:
    """A model behind an endpoint that speaks `wire`."""

    def __init__(
        self,
        endpoint: Endpoint,
        wire: Wire,
        profile: Profile,
        patience: Patience | None = None,
        price: Price | None = None,
        said: Said = NOTHING_SAID,
    ) -> None:
        self._price = price
        self._said = said
        self._endpoint = endpoint
        self._wire = wire
        self._profile = profile
        self._patience = patience or Patience()
        self._transport = Transport(endpoint, self._patience)
        self._abilities = Abilities(endpoint)
        self._refused: frozenset[str] = frozenset()

    def __repr__(self) -> str:
        return f"HttpModel({self.name} at {self._endpoint.shown_url})"

    @property
    def name(self) -> str:
        return self._endpoint.name

    @property
    def profile(self) -> Profile:
        """What is known of it; what its server has said of its window and its price goes before that.

        A window that whoever runs this server has said is not asked about any more.
        """
        offer, price = self._abilities.offer, self._price_now
        known = replace(self._profile, rate=Rate(price.input, price.output)) if price else self._profile
        window = offer.window_tokens if offer is not None and not self._said.window_tokens else None
        if window is None or window == known.window_tokens:
            return known
        return replace(known, window_tokens=window, answer_tokens=min(known.answer_tokens, window // 4))

    @property
    def _price_now(self) -> Price | None:
        offer = self._abilities.offer
        return offer.price if offer is not None and offer.price is not None else self._price

    async def takes(self) -> Takes:
        # Asked in any case: what its server says of its price comes with that.
        found = await self._abilities.takes()
        return found if self._said.takes is None else Takes(self._said.takes)

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        """Ask once, and yield the answer as it arrives. Raises ModelFailure after all that had arrived."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience.first_byte_s
        was_refused = EFFORT in self._refused
        response = await self._opened(request, tools, deadline)
        try:
            if request.effort and EFFORT in self._refused and not was_refused:
                yield self._without_effort(request.effort)
            body, answer = Body(response, self._endpoint), Answer(self._endpoint, self._wire)
            if response.content_type == _JSON:
                # Some servers cannot stream.
                for delta in answer.whole(await body.read_all(deadline - loop.time())):
                    yield self._priced(delta)
                return
            wait_s, awaited = deadline - loop.time(), "first byte"
            while not answer.is_done and (chunk := await self._read(body, answer, wait_s, awaited)):
                for delta in answer.feed(chunk):
                    yield delta
                wait_s, awaited = self._patience.between_chunks_s, "next chunk"
            for delta in answer.end():
                yield self._priced(delta)
            await body.drain(self._patience.drain_s)
        finally:
            response.release()

    async def close(self) -> None:
        await self._transport.close()

    def _priced(self, delta: ModelDelta) -> ModelDelta:
        """The end of an answer with what it costs, where that is known."""
        price = self._price_now
        # A provider that says itself what an answer costs is believed before a list of prices.
        if price is None or not isinstance(delta, StepEnd) or delta.usage.cost_micros is not None:
            return delta
        return replace(delta, usage=price.of(delta.usage))

    def _without_effort(self, effort: Effort) -> AskedInstead:
        """That the same model is asked once more, by who wants to know why it thinks as it likes."""
        detail = f"{self.name} does not take the effort {effort!r}, and is asked without it from now on"
        failure = ModelFailure(detail=detail, retryable=False)
        return AskedInstead(self.name, self.profile.provider, failure, self.profile.rate)

    async def _opened(
        self, request: Request, tools: Sequence[ToolSpec], deadline: float
    ) -> aiohttp.ClientResponse:
        """A response that holds an answer. What a server says it does not take is left out from then on."""
        without = self._refused
        for _ in range(len(self._wire.optional) + 1):
            sent = self._wire.encode(self._endpoint.model, self.profile, request, tools, without)
            response = await self._transport.post(self._wire.path, sent, deadline)
            if response.status == 200 and response.content_type in _READABLE:
                # Only now: words of a refusal may be the conversation's own, repeated.
                self._refused |= {field for field in without if not field.startswith(OF_THE_CONVERSATION)}
                return response
            try:
                body = Body(response, self._endpoint)
                said = await body.read_some(ERROR_BYTES_MAX, self._patience.error_body_s)
            finally:
                response.release()
            refused = self._refused_in(response.status, said) - without
            if not refused:
                break
            without |= refused
        if response.status == 200:
            raise failures.of_kind(self._endpoint, response.content_type)
        raise failures.of_status(self._endpoint, response.status, response.headers, said)

    def _refused_in(self, status: int, said: bytes) -> frozenset[str]:
        # What a template of a model says no to is a fault of their own for some servers.
        if status not in (400, 404, 422, 500):
            return frozenset()
        text = said.decode("utf-8", "replace").lower()
        refused = frozenset(field for field, words in self._wire.optional if words in text)
        # What is wrong with one conversation must not cost all the others a field of the same name.
        return frozenset(field for field in refused if field.startswith(OF_THE_CONVERSATION)) or refused

    async def _read(self, body: Body, answer: "Answer", wait_s: float, awaited: str) -> bytes:
        """What comes next, nothing at the end. A failure is kept for the answer's end to decide on."""
        try:
            return await body.read(self._patience.trailer_s if answer.is_finished else wait_s)
        except ModelFailure as failure:
            answer.cut_off = failure
        except TimeoutError:
            waited_s = self._patience.first_byte_s if awaited == "first byte" else wait_s
            answer.cut_off = failures.of_silence(self._endpoint, awaited, waited_s)
        return b""


class Answer:
    """One answer: the bytes of its stream in, deltas out. `cut_off` is why there are no more."""

    def __init__(self, endpoint: Endpoint, wire: Wire) -> None:
        self._endpoint = endpoint
        self._events = SseParser()
        self._decoder = wire.decoder()
        self.cut_off: ModelFailure | None = None

    @property
    def is_done(self) -> bool:
        """Whether the stream said that nothing more comes."""
        return self._decoder.is_done

    @property
    def is_finished(self) -> bool:
        """Whether the answer is whole; its usage may still come."""
        return self._decoder.is_finished

    def feed(self, chunk: bytes) -> Iterator[ModelDelta]:
        """The deltas that `chunk` completes. Raises ModelFailure after those before it."""
        try:
            for event in self._events.feed(chunk):
                yield from self._decoder.feed(event)
                if self._decoder.is_done:
                    return  # What comes after the end, in the same chunk or in another, is not looked at.
        except EventTooLong as error:
            raise failures.of_garbage(self._endpoint, str(error)) from None
        except _UNREADABLE:
            raise failures.of_garbage(self._endpoint, "a chunk that cannot be read") from None
        except ErrorInStream as error:
            raise failures.of_error(self._endpoint, error.body) from None

    def end(self) -> Iterator[ModelDelta]:
        """What closes the answer. If it is not whole, raises what cut it off."""
        # The last event may lack its blank line. Of an object that was cut nothing decodes: all or none.
        yield from self._leftover()
        if self.is_finished:
            yield from self._decoder.end()
        elif self.cut_off is not None:
            raise self.cut_off
        else:
            raise failures.of_breaking_off(self._endpoint)

    def whole(self, body: bytes) -> list[ModelDelta]:
        """The deltas of an answer that did not stream."""
        try:
            deltas = self._decoder.feed(body)
        except _UNREADABLE:
            deltas = []
        except ErrorInStream as error:
            raise failures.of_error(self._endpoint, error.body) from None
        if not self.is_finished:
            raise failures.of_kind(self._endpoint, "JSON that holds no answer")
        return [*deltas, *self._decoder.end()]

    def _leftover(self) -> list[ModelDelta]:
        if self.is_done:
            return []
        try:
            return self._decoder.feed(self._events.end())
        except (EventTooLong, *_UNREADABLE):
            return []
        except ErrorInStream as error:
            raise failures.of_error(self._endpoint, error.body) from None
