"""Ask several models in turn, until one answers.

The next model gets the same request, fitted to it: without thinking that another model signed, without files
that it does not accept, and without the oldest messages if its window is smaller.
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
"""Attempts at each model, if its failure is retryable."""
WAIT_S = 0.5
WAIT_S_MAX = 2.0
"""A server that asks for more is not waited for: another model is asked."""


class FallbackModel:
    """Answer with the first model, or with the next one if it fails before its first delta.

    A bad request goes to no other model. A request that is too long goes to a larger window.
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
        """Return the first model's profile, with the signers and the largest window of the others.

        A request may hold thinking that any of them signed: `stream` gives each model only its own.
        """
        signers = tuple(model.profile.provider for model in self._models[1:])
        largest = max((model.profile.window_tokens for model in self._models[1:]), default=0)
        return replace(self._models[0].profile, also_signed=signers, largest_tokens=largest)

    async def supported_files(self) -> SupportedFiles:
        return await self._models[0].supported_files()

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        """Stream as one model does. A FallbackStarted comes before the deltas of each later model.

        If all fail, the failure describes each of them. It is retryable if one of theirs is.
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
                            # A model may report another attempt of its own, which is no part of an answer.
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
        """Wait before the next attempt; return False if the next model should be asked at once."""
        wait_s = WAIT_S if failure.retry_after_ms is None else failure.retry_after_ms / 1000
        if not failure.retryable or attempt == ATTEMPTS_MAX or wait_s > WAIT_S_MAX:
            return False
        await self._sleep(wait_s)
        return True


def _has_larger_window(model: Model, failed: Sequence[tuple[Model, ModelFailure]]) -> bool:
    """Return whether its window exceeds that of each model for which the request was too long."""
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
    """Return `request` without the thinking that another model signed."""
    return replace(
        request, messages=tuple(_without_foreign_reasoning(message, profile) for message in request.messages)
    )


async def fit_request(request: Request, model: Model, tools: Sequence[ToolSpec]) -> Request:
    """Return a request that was built for another model, fitted to this one. Raises ModelFailure."""
    takes = await model.supported_files() if request.files else NO_FILES
    profile = model.profile
    budget = TokenBudget(tools_tokens(tools))
    if problem := budget.overflow_message(profile, request.system):
        raise ModelFailure(detail=problem, retryable=False, too_long=True)
    messages = _last_messages(list(request.messages), budget.available_tokens(profile, request.system))
    forced = forced_blobs(part for message in request.messages for part in message.parts)
    files = {
        blob: _supported_content(content, takes, blob in forced) for blob, content in request.files.items()
    }
    return replace(request, messages=tuple(messages), files=files)


def _without_foreign_reasoning(message: RequestMessage, profile: ModelProfile) -> RequestMessage:
    if not isinstance(message, AssistantMessage):
        return message
    parts = [
        part for part in message.parts if not isinstance(part, Reasoning) or part.provider == profile.provider
    ]
    return message if len(parts) == len(message.parts) else AssistantMessage(tuple(parts))


def _supported_content(content: FileContent, takes: SupportedFiles, is_forced: bool) -> FileContent:
    return content if content.kind == "note" or takes.accepts(content.kind, is_forced) else UNSUPPORTED_FILE


def _last_messages(messages: list[RequestMessage], available_tokens: int) -> list[RequestMessage]:
    """Return as many of the last turns as fit. The last turn itself is shortened to fit."""
    starts = [index for index, message in enumerate(messages) if isinstance(message, UserMessage)]
    last = starts[-1] if starts else 0
    kept = fit_messages(messages[last:], available_tokens)
    available_tokens -= messages_tokens(kept)
    for start, end in reversed(list(pairwise(starts))):
        block = messages[start:end]
        available_tokens -= messages_tokens(block)
        if available_tokens < 0:
            break
        kept = [*block, *kept]
    return kept


class UnavailableModel:
    """Fail at once with the reason that a model could not be built. Its profile is that of `fallback`."""

    def __init__(self, name: str, error: HoldfastError, fallback: Model) -> None:
        self.name = name
        self._error = error
        self._fallback = fallback

    def __repr__(self) -> str:
        return f"Missing({self.name})"

    @property
    def profile(self) -> ModelProfile:
        return self._fallback.profile

    async def supported_files(self) -> SupportedFiles:
        return await self._fallback.supported_files()

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        raise ModelFailure(detail=str(self._error).rstrip("."), retryable=False)
        yield  # Makes this an async generator.

    async def close(self) -> None:
        return
