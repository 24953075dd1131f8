"""Models that are asked one after the other, until one answers.

Who is asked next has the same request, fitted to it: without thinking that another signed, files that it does
not take, and the oldest messages where its window is smaller.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing
from itertools import pairwise

from msgspec.structs import replace

from holdfast.domain.context.context import (
    AssistantMessage,
    FileContent,
    ModelProfile,
    Request,
    RequestMessage,
    UserMessage,
)
from holdfast.domain.context.fitting import fit_messages
from holdfast.domain.context.tokens import TokenBudget, messages_tokens
from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.parts import Reasoning
from holdfast.domain.files import NO_FILES, SupportedFiles, forced_blobs
from holdfast.models.ports import FallbackStarted, Model, ModelDelta, ModelFailure, ToolSpec
from holdfast.models.request_text import UNSUPPORTED_FILE, tools_tokens

ATTEMPTS_MAX = 2
"""Times that each is asked where asking again may help, while there is another."""
WAIT_S = 0.5
WAIT_S_MAX = 2.0
"""A server that asks for more is not waited for: there is another."""


class FallbackModel:
    """Stands where its first model does. The others answer where that one fails before it has said anything.

    What is wrong with the request itself is no other's to answer; what is too long goes to a larger window.
    """

    def __init__(
        self, models: Sequence[Model], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        assert models, "somebody must be asked"
        self._models = tuple(models)
        self._sleep = sleep

    def __repr__(self) -> str:
        return f"Fallback({', '.join(repr(model) for model in self._models)})"

    @property
    def name(self) -> str:
        return self._models[0].name

    @property
    def profile(self) -> ModelProfile:
        """The first one's, but a request may hold what any of them signed: each is given its own."""
        signers = tuple(model.profile.provider for model in self._models[1:])
        largest = max((model.profile.window_tokens for model in self._models[1:]), default=0)
        return replace(self._models[0].profile, also_signed=signers, largest_tokens=largest)

    async def takes(self) -> SupportedFiles:
        return await self._models[0].takes()

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        """As a model's own; an FallbackStarted comes before what anybody but the first says.

        When all have failed, the failure tells of each; asking again may help if it may with one of them.
        """
        failed: list[tuple[Model, ModelFailure]] = []
        for model in self._models:
            if failed and not _has_larger_window(model, failed):
                continue
            if failed:
                yield FallbackStarted(model.name, model.profile.provider, failed[-1][1], model.profile.rate)
            own_request = without_foreign_thinking(request, model.profile)
            for attempt in range(1, ATTEMPTS_MAX + 1):
                has_started = False
                try:
                    needs_fitting = bool(failed) or request.window_tokens > model.profile.window_tokens
                    fitted = await fit_request(own_request, model, tools) if needs_fitting else own_request
                    async with aclosing(model.stream(fitted, tools)) as deltas:
                        async for delta in deltas:
                            # Asking the same one otherwise is no word of an answer.
                            has_started = has_started or not isinstance(delta, FallbackStarted)
                            yield delta
                    return
                except ModelFailure as failure:
                    if has_started or failure.bad_request:
                        raise
                    last = failure
                if not await self._wait(last, attempt):
                    break
            failed.append((model, last))
        raise _combine_failures(failed)

    async def close(self) -> None:
        await asyncio.gather(*(model.close() for model in self._models))

    async def _wait(self, failure: ModelFailure, attempt: int) -> bool:
        """Wait before the same one is asked again; False where the next one is to be asked at once."""
        wait_s = WAIT_S if failure.retry_after_ms is None else failure.retry_after_ms / 1000
        if not failure.retryable or attempt == ATTEMPTS_MAX or wait_s > WAIT_S_MAX:
            return False
        await self._sleep(wait_s)
        return True


def _has_larger_window(model: Model, failed: Sequence[tuple[Model, ModelFailure]]) -> bool:
    """Whether its window is larger than that of each for which the request was too long."""
    short = [other.profile.window_tokens for other, why in failed if why.too_long]
    return model.profile.window_tokens > max(short, default=0)


def _combine_failures(failed: Sequence[tuple[Model, ModelFailure]]) -> ModelFailure:
    if len(failed) == 1:
        return failed[0][1]
    first = failed[0][1]
    detail = "; ".join(f"{model.name}: {why.fields['detail']}" for model, why in failed)
    waits = [why.retry_after_ms for _, why in failed if why.retryable and why.retry_after_ms is not None]
    return ModelFailure(
        detail=detail, retryable=any(why.retryable for _, why in failed),
        retry_after_ms=min(waits, default=None), too_long=first.too_long,
    )  # fmt: skip


def without_foreign_thinking(request: Request, profile: ModelProfile) -> Request:
    """`request` without the thinking that another model signed."""
    return replace(
        request, messages=tuple(_without_foreign_reasoning(message, profile) for message in request.messages)
    )


async def fit_request(request: Request, model: Model, tools: Sequence[ToolSpec]) -> Request:
    """A request that was made for another model, as this one can be sent it. Raises ModelFailure."""
    takes = await model.takes() if request.files else NO_FILES
    profile = model.profile
    gauge = TokenBudget(tools_tokens(tools))
    if problem := gauge.overflow_message(profile, request.system):
        raise ModelFailure(detail=problem, retryable=False, too_long=True)
    messages = _last_messages(list(request.messages), gauge.available_tokens(profile, request.system))
    forced = forced_blobs(part for message in request.messages for part in message.parts)
    files = {
        blob: _supported_content(content, takes, blob in forced) for blob, content in request.files.items()
    }
    return replace(request, messages=tuple(messages), files=files)


def _without_foreign_reasoning(message: RequestMessage, profile: ModelProfile) -> RequestMessage:
    if not isinstance(message, AssistantMessage):
        return message
    parts = [p for p in message.parts if not isinstance(p, Reasoning) or p.provider == profile.provider]
    return message if len(parts) == len(message.parts) else AssistantMessage(tuple(parts))


def _supported_content(content: FileContent, takes: SupportedFiles, is_forced: bool) -> FileContent:
    return content if content.kind == "note" or takes.accepts(content.kind, is_forced) else UNSUPPORTED_FILE


def _last_messages(messages: list[RequestMessage], room: int) -> list[RequestMessage]:
    """As many of the last messages as fit, from where a person speaks; the last of that is made to fit."""
    starts = [place for place, message in enumerate(messages) if isinstance(message, UserMessage)]
    last = starts[-1] if starts else 0
    kept = fit_messages(messages[last:], room)
    room -= messages_tokens(kept)
    for start, end in reversed(list(pairwise(starts))):
        block = messages[start:end]
        room -= messages_tokens(block)
        if room < 0:
            break
        kept = [*block, *kept]
    return kept


class UnavailableModel:
    """Fails at once, with why it could not be made. Requests are made for `other`, who is asked next."""

    def __init__(self, name: str, error: HoldfastError, fallback: Model) -> None:
        self.name = name
        self._error = error
        self._fallback = fallback

    def __repr__(self) -> str:
        return f"Missing({self.name})"

    @property
    def profile(self) -> ModelProfile:
        return self._fallback.profile

    async def takes(self) -> SupportedFiles:
        return await self._fallback.takes()

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        raise ModelFailure(detail=str(self._error).rstrip("."), retryable=False)
        yield  # What makes it a stream.

    async def close(self) -> None:
        return
