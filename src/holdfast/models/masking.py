"""Mask known secrets in what models say, before anybody hears it.

So nothing behind this, neither the journal nor a reader, ever has one. A call that a model writes with a
secret in it is masked too, and runs as it then reads: a model has no business with our keys.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from holdfast.domain.context.context import Profile, Request
from holdfast.domain.files import Takes
from holdfast.domain.secrets import Mask, StreamMask
from holdfast.models.ports import (
    AskedInstead,
    CallDelta,
    Model,
    ModelDelta,
    ModelFailure,
    ReasoningDelta,
    StepEnd,
    TextDelta,
    ToolSpec,
)

HELD_S = 0.3
"""What may begin a secret waits so long for what comes after it; then as much is shown as tells nothing."""


class MaskedModel:
    """A model whose words, thoughts, calls and failures hold no known secret."""

    def __init__(self, model: Model, mask: Mask, held_s: float = HELD_S) -> None:
        self._model = model
        self._mask = mask
        self._held_s = held_s

    def __repr__(self) -> str:
        return f"MaskedModel({self._model!r})"

    @property
    def name(self) -> str:
        return self._mask.whole(self._model.name)

    @property
    def profile(self) -> Profile:
        return self._model.profile

    async def takes(self) -> Takes:
        return await self._model.takes()

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        """As the model's own; what may be the beginning of a secret waits for what comes after it."""
        answer, failed = _Answer(self._mask), None
        async with aclosing(self._model.stream(request, tools)) as deltas:
            try:
                while True:
                    if answer.holds:
                        async with _Coming(deltas) as coming:
                            if not await coming.within(self._held_s):
                                for little in answer.show():
                                    yield little
                            delta = await coming.delta()
                    else:
                        delta = await anext(deltas)
                    for certain in answer.feed(delta):
                        yield certain
            except StopAsyncIteration:
                pass
            except ModelFailure as failure:
                failed = failure
        for certain in answer.finish():
            yield certain
        if failed is not None:
            raise _masked_failure(failed, self._mask)

    async def close(self) -> None:
        await self._model.close()


class _Coming:
    """The next that a stream says, which can be waited for without being given up."""

    def __init__(self, deltas: AsyncGenerator[ModelDelta, None]) -> None:
        self._task = asyncio.create_task(_next(deltas))

    async def __aenter__(self) -> "_Coming":
        return self

    async def __aexit__(self, *error: object) -> None:
        """Whoever listens may have left meanwhile: a stream can be closed only when nobody reads it."""
        self._task.cancel()
        left: asyncio.CancelledError | None = None
        while not self._task.done():
            try:
                await asyncio.wait((self._task,))
            except asyncio.CancelledError as again:
                left = again
        if not self._task.cancelled():
            self._task.exception()  # Told already, or of no use to who has left.
        if left is not None:
            raise left

    async def within(self, wait_s: float) -> bool:
        """Whether it comes, or the stream ends, in that time."""
        done, _ = await asyncio.wait((self._task,), timeout=wait_s)
        return bool(done)

    async def delta(self) -> ModelDelta:
        """Raises what the stream does, StopAsyncIteration at its end."""
        await asyncio.wait((self._task,))
        found = self._task.result()
        if found is None:
            raise StopAsyncIteration
        return found


async def _next(deltas: AsyncGenerator[ModelDelta, None]) -> ModelDelta | None:
    return await anext(deltas, None)


class _Answer:
    """One answer on its way. Text, thinking and every call are each a text of their own."""

    def __init__(self, mask: Mask) -> None:
        self._mask = mask
        self._saying = mask.stream()
        self._kind: type[TextDelta] | type[ReasoningDelta] = TextDelta
        self._calls: dict[int, StreamMask] = {}
        self._thought: list[str] = []
        self._shown: list[str] = []

    @property
    def holds(self) -> bool:
        """Whether any of what is being said waits for what comes after it."""
        return bool(self._saying.held)

    def show(self) -> Iterator[ModelDelta]:
        """As much of that as tells nothing, for when nothing comes."""
        if little := self._saying.show():
            self._shown.append(little)
            yield self._kind(little)

    def feed(self, delta: ModelDelta) -> Iterable[ModelDelta]:
        """What is certain once `delta` has come."""
        if type(delta) is TextDelta and self._kind is TextDelta:
            # Nearly all that comes is this, and holds nothing: it goes on as it is.
            text = self._saying.feed(delta.text)
            return (delta,) if text == delta.text else (TextDelta(text),) if text else ()
        return self._feed(delta)

    def _feed(self, delta: ModelDelta) -> Iterator[ModelDelta]:
        match delta:
            case TextDelta():
                yield from self._turn_to(TextDelta)
                yield from self.feed(delta)
            case ReasoningDelta():
                yield from self._turn_to(ReasoningDelta)
                yield from self._think(delta)
            case CallDelta():
                # The text before a call is over: what comes after it is another part of the message.
                yield from self._end_saying()
                yield from self._call(delta)
            case StepEnd():
                yield from self.finish()
                yield replace(delta, stop_reason=self._mask.whole(delta.stop_reason))
            case AskedInstead():
                name, failure = self._mask.whole(delta.model), _masked_failure(delta.failure, self._mask)
                yield replace(delta, model=name, failure=failure)

    def finish(self) -> Iterator[ModelDelta]:
        """What is still held back, in order."""
        yield from self._end_saying()
        for index, call in self._calls.items():
            if rest := call.finish():
                yield CallDelta(index, "", rest)

    def _turn_to(self, kind: type[TextDelta] | type[ReasoningDelta]) -> Iterator[ModelDelta]:
        if kind is not self._kind:
            yield from self._end_saying()
            self._kind = kind

    def _end_saying(self) -> Iterator[ModelDelta]:
        self._thought.clear()
        self._shown.clear()
        if rest := self._saying.finish():
            yield self._kind(rest)

    def _think(self, delta: ReasoningDelta) -> Iterator[ModelDelta]:
        text = self._saying.feed(delta.text)
        self._thought.append(delta.text)
        self._shown.append(text)
        if delta.signature:  # It closes the thinking that it comes with.
            rest = self._saying.finish()
            is_whole = "".join(self._thought) == "".join(self._shown) + rest
            self._thought.clear()
            self._shown.clear()
            # What was masked is no longer what was signed: sent back, it would be refused.
            yield ReasoningDelta(text + rest, self._mask.whole(delta.signature) if is_whole else "")
        elif text or not delta.text:
            yield delta if text == delta.text else ReasoningDelta(text)

    def _call(self, delta: CallDelta) -> Iterator[ModelDelta]:
        is_first = delta.index not in self._calls
        text = self._calls.setdefault(delta.index, self._mask.stream()).feed(delta.arguments)
        # The first piece begins the call, whatever it says: calls keep their order.
        if text or is_first or not delta.arguments:
            yield CallDelta(delta.index, self._mask.whole(delta.name), text)


def _masked_failure(failure: ModelFailure, mask: Mask) -> ModelFailure:
    """A provider repeats a key that it refuses; what only looks like one goes as well."""
    return ModelFailure(
        detail=mask.shapes(str(failure.fields["detail"])),
        retryable=failure.retryable,
        retry_after_ms=failure.retry_after_ms,
        too_long=failure.too_long,
        of_request=failure.of_request,
    )
