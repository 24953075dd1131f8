"""Mask known secrets in a model's output, before anything else receives it.

So neither the journal nor a reader ever holds one. A tool call that contains a secret is masked too, and runs
as masked: a model has no business with our keys.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing

from msgspec.structs import replace

from holdfast.domain.context.context import ModelProfile, Request
from holdfast.domain.files import SupportedFiles
from holdfast.domain.secrets import SecretMask, StreamMask
from holdfast.models.ports import (
    CallDelta,
    FallbackStarted,
    Model,
    ModelDelta,
    ModelFailure,
    ReasoningDelta,
    StepEnd,
    TextDelta,
    ToolSpec,
)

HOLD_S = 0.3
"""Limit of holding back text that may begin a secret. After it, the part that reveals nothing is released."""


class MaskedModel:
    """A model whose text, thinking, calls and failures hold no known secret."""

    def __init__(self, model: Model, mask: SecretMask, hold_s: float = HOLD_S) -> None:
        self._model = model
        self._mask = mask
        self._hold_s = hold_s

    def __repr__(self) -> str:
        return f"MaskedModel({self._model!r})"

    @property
    def name(self) -> str:
        return self._mask.mask(self._model.name)

    @property
    def profile(self) -> ModelProfile:
        return self._model.profile

    async def supported_files(self) -> SupportedFiles:
        return await self._model.supported_files()

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        """Stream the model's answer, holding back text that may begin a secret."""
        answer, failed = _AnswerMask(self._mask), None
        async with aclosing(self._model.stream(request, tools)) as deltas:
            try:
                while True:
                    if answer.holds_back:
                        async with _PendingDelta(deltas) as pending:
                            if not await pending.arrives_within(self._hold_s):
                                for masked in answer.release_safe_text():
                                    yield masked
                            delta = await pending.delta()
                    else:
                        delta = await anext(deltas)
                    for masked_delta in answer.feed(delta):
                        yield masked_delta
            except StopAsyncIteration:
                pass
            except ModelFailure as failure:
                failed = failure
        for masked_delta in answer.finish():
            yield masked_delta
        if failed is not None:
            raise _masked_failure(failed, self._mask)

    async def close(self) -> None:
        await self._model.close()


class _PendingDelta:
    """The next delta of a stream. A caller can stop waiting for it and wait again."""

    def __init__(self, deltas: AsyncGenerator[ModelDelta, None]) -> None:
        self._task = asyncio.create_task(_next(deltas))

    async def __aenter__(self) -> "_PendingDelta":
        return self

    async def __aexit__(self, *error: object) -> None:
        """Cancel the read and wait until it ends: a stream can be closed only when nobody reads it."""
        self._task.cancel()
        cancelled: asyncio.CancelledError | None = None
        while not self._task.done():
            try:
                await asyncio.wait((self._task,))
            except asyncio.CancelledError as cancellation:
                cancelled = cancellation
        if not self._task.cancelled():
            self._task.exception()  # Retrieved, or asyncio would log it as never retrieved.
        if cancelled is not None:
            raise cancelled

    async def arrives_within(self, wait_s: float) -> bool:
        """Return whether the delta, or the stream's end, comes in that time."""
        done, _ = await asyncio.wait((self._task,), timeout=wait_s)
        return bool(done)

    async def delta(self) -> ModelDelta:
        """Return the delta. Raises what the stream raises, and StopAsyncIteration at its end."""
        await asyncio.wait((self._task,))
        found = self._task.result()
        if found is None:
            raise StopAsyncIteration
        return found


async def _next(deltas: AsyncGenerator[ModelDelta, None]) -> ModelDelta | None:
    return await anext(deltas, None)


class _AnswerMask:
    """Mask one answer. Text, thinking and each call are separate texts."""

    def __init__(self, mask: SecretMask) -> None:
        self._mask = mask
        self._stream_mask = mask.stream()
        self._kind: type[TextDelta] | type[ReasoningDelta] = TextDelta
        self._calls: dict[int, StreamMask] = {}
        self._thinking: list[str] = []
        self._masked_thinking: list[str] = []

    @property
    def holds_back(self) -> bool:
        """Return whether some text waits for what comes after it."""
        return bool(self._stream_mask.pending)

    def release_safe_text(self) -> Iterator[ModelDelta]:
        """Yield as much of the held text as reveals nothing, for when the stream stalls."""
        if text := self._stream_mask.reveal_pending():
            self._masked_thinking.append(text)
            yield self._kind(text)

    def feed(self, delta: ModelDelta) -> Iterable[ModelDelta]:
        """Return the deltas that are certain once `delta` has come."""
        if type(delta) is TextDelta and self._kind is TextDelta:
            # Nearly every delta is text without a secret, and passes unchanged.
            text = self._stream_mask.feed(delta.text)
            return (delta,) if text == delta.text else (TextDelta(text),) if text else ()
        return self._feed(delta)

    def _feed(self, delta: ModelDelta) -> Iterator[ModelDelta]:
        match delta:
            case TextDelta():
                yield from self._switch_kind(TextDelta)
                yield from self.feed(delta)
            case ReasoningDelta():
                yield from self._switch_kind(ReasoningDelta)
                yield from self._feed_thinking(delta)
            case CallDelta():
                # Text after a call is another part of the message, so the text before it is complete.
                yield from self._flush_text()
                yield from self._feed_call(delta)
            case StepEnd():
                yield from self.finish()
                yield replace(delta, stop_reason=self._mask.mask(delta.stop_reason))
            case FallbackStarted():
                name, failure = self._mask.mask(delta.model), _masked_failure(delta.failure, self._mask)
                yield replace(delta, model=name, failure=failure)

    def finish(self) -> Iterator[ModelDelta]:
        """Yield what is still held back, in order."""
        yield from self._flush_text()
        for index, call in self._calls.items():
            if rest := call.finish():
                yield CallDelta(index, "", rest)

    def _switch_kind(self, kind: type[TextDelta] | type[ReasoningDelta]) -> Iterator[ModelDelta]:
        if kind is not self._kind:
            yield from self._flush_text()
            self._kind = kind

    def _flush_text(self) -> Iterator[ModelDelta]:
        self._thinking.clear()
        self._masked_thinking.clear()
        if rest := self._stream_mask.finish():
            yield self._kind(rest)

    def _feed_thinking(self, delta: ReasoningDelta) -> Iterator[ModelDelta]:
        text = self._stream_mask.feed(delta.text)
        self._thinking.append(delta.text)
        self._masked_thinking.append(text)
        if delta.signature:  # A signature closes its thinking.
            rest = self._stream_mask.finish()
            is_whole = "".join(self._thinking) == "".join(self._masked_thinking) + rest
            self._thinking.clear()
            self._masked_thinking.clear()
            # Masked thinking no longer matches its signature: the provider would refuse both.
            yield ReasoningDelta(text + rest, self._mask.mask(delta.signature) if is_whole else "")
        elif text or not delta.text:
            yield delta if text == delta.text else ReasoningDelta(text)

    def _feed_call(self, delta: CallDelta) -> Iterator[ModelDelta]:
        is_first = delta.index not in self._calls
        text = self._calls.setdefault(delta.index, self._mask.stream()).feed(delta.arguments)
        # An empty first piece is passed on too, because it begins the call and so keeps the order.
        if text or is_first or not delta.arguments:
            yield CallDelta(delta.index, self._mask.mask(delta.name), text)


def _masked_failure(failure: ModelFailure, mask: SecretMask) -> ModelFailure:
    """Return the failure with a masked detail: a provider repeats a key that it refuses.

    Text that only looks like a key is masked too.
    """
    return ModelFailure(
        detail=mask.mask_with_patterns(str(failure.fields["detail"])),
        retryable=failure.retryable,
        retry_after_ms=failure.retry_after_ms,
        too_long=failure.too_long,
        bad_request=failure.bad_request,
    )
