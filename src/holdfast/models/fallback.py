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
    Profile,
    Request,
    RequestMessage,
    UserMessage,
)
from holdfast.domain.context.fitting import fit
from holdfast.domain.context.tokens import Gauge, tokens_of
from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.parts import Reasoning
from holdfast.domain.files import NO_FILES, Takes, sent_anyway
from holdfast.models.ports import AskedInstead, Model, ModelDelta, ModelFailure, ToolSpec
from holdfast.models.request_text import NOT_TAKEN, tools_tokens

TRIES_MAX = 2
"""Times that each is asked where asking again may help, while there is another."""
WAIT_S = 0.5
WAIT_S_MAX = 2.0
"""A server that asks for more is not waited for: there is another."""


class Fallback:
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
    def profile(self) -> Profile:
        """The first one's, but a request may hold what any of them signed: each is given its own."""
        signers = tuple(model.profile.provider for model in self._models[1:])
        largest = max((model.profile.window_tokens for model in self._models[1:]), default=0)
        return replace(self._models[0].profile, also_signed=signers, largest_tokens=largest)

    async def takes(self) -> Takes:
        return await self._models[0].takes()

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        """As a model's own; an AskedInstead comes before what anybody but the first says.

        When all have failed, the failure tells of each; asking again may help if it may with one of them.
        """
        failed: list[tuple[Model, ModelFailure]] = []
        for model in self._models:
            if failed and not _may_answer(model, failed):
                continue
            if failed:
                yield AskedInstead(model.name, model.profile.provider, failed[-1][1], model.profile.rate)
            own = with_own_thinking(request, model.profile)
            for tried in range(1, TRIES_MAX + 1):
                begun = False
                try:
                    is_others = bool(failed) or request.window_tokens > model.profile.window_tokens
                    asked = await fitted(own, model, tools) if is_others else own
                    async with aclosing(model.stream(asked, tools)) as deltas:
                        async for delta in deltas:
                            # Asking the same one otherwise is no word of an answer.
                            begun = begun or not isinstance(delta, AskedInstead)
                            yield delta
                    return
                except ModelFailure as failure:
                    if begun or failure.of_request:
                        raise
                    last = failure
                if not await self._wait(last, tried):
                    break
            failed.append((model, last))
        raise _of_all(failed)

    async def close(self) -> None:
        await asyncio.gather(*(model.close() for model in self._models))

    async def _wait(self, failure: ModelFailure, tried: int) -> bool:
        """Wait before the same one is asked again; False where the next one is to be asked at once."""
        wait_s = WAIT_S if failure.retry_after_ms is None else failure.retry_after_ms / 1000
        if not failure.retryable or tried == TRIES_MAX or wait_s > WAIT_S_MAX:
            return False
        await self._sleep(wait_s)
        return True


def _may_answer(model: Model, failed: Sequence[tuple[Model, ModelFailure]]) -> bool:
    """Whether its window is larger than that of each for which the request was too long."""
    short = [other.profile.window_tokens for other, why in failed if why.too_long]
    return model.profile.window_tokens > max(short, default=0)


def _of_all(failed: Sequence[tuple[Model, ModelFailure]]) -> ModelFailure:
    if len(failed) == 1:
        return failed[0][1]
    first = failed[0][1]
    detail = "; ".join(f"{model.name}: {why.fields['detail']}" for model, why in failed)
    waits = [why.retry_after_ms for _, why in failed if why.retryable and why.retry_after_ms is not None]
    return ModelFailure(
        detail=detail, retryable=any(why.retryable for _, why in failed),
        retry_after_ms=min(waits, default=None), too_long=first.too_long,
    )  # fmt: skip


def with_own_thinking(request: Request, profile: Profile) -> Request:
    """`request` without the thinking that another model signed."""
    return replace(request, messages=tuple(_own(message, profile) for message in request.messages))


async def fitted(request: Request, model: Model, tools: Sequence[ToolSpec]) -> Request:
    """A request that was made for another model, as this one can be sent it. Raises ModelFailure."""
    takes = await model.takes() if request.files else NO_FILES
    profile = model.profile
    gauge = Gauge(tools_tokens(tools))
    if crowded := gauge.crowded(profile, request.system):
        raise ModelFailure(detail=crowded, retryable=False, too_long=True)
    messages = _cut(list(request.messages), gauge.room(profile, request.system))
    anyway = sent_anyway(part for message in request.messages for part in message.parts)
    shown = {blob: _shown(content, takes, blob in anyway) for blob, content in request.files.items()}
    return replace(request, messages=tuple(messages), files=shown)


def _own(message: RequestMessage, profile: Profile) -> RequestMessage:
    if not isinstance(message, AssistantMessage):
        return message
    parts = [p for p in message.parts if not isinstance(p, Reasoning) or p.provider == profile.provider]
    return message if len(parts) == len(message.parts) else AssistantMessage(tuple(parts))


def _shown(content: FileContent, takes: Takes, anyway: bool) -> FileContent:
    return content if content.kind == "note" or takes.shows(content.kind, anyway) else NOT_TAKEN


def _cut(messages: list[RequestMessage], room: int) -> list[RequestMessage]:
    """As many of the last messages as fit, from where a person speaks; the last of that is made to fit."""
    begins = [place for place, message in enumerate(messages) if isinstance(message, UserMessage)]
    last = begins[-1] if begins else 0
    kept = fit(messages[last:], room)
    room -= tokens_of(kept)
    for start, end in reversed(list(pairwise(begins))):
        block = messages[start:end]
        room -= tokens_of(block)
        if room < 0:
            break
        kept = [*block, *kept]
    return kept


class Missing:
    """Fails at once, with why it could not be made. Requests are made for `other`, who is asked next."""

    def __init__(self, name: str, why: HoldfastError, other: Model) -> None:
        self.name = name
        self._why = why
        self._other = other

    def __repr__(self) -> str:
        return f"Missing({self.name})"

    @property
    def profile(self) -> Profile:
        return self._other.profile

    async def takes(self) -> Takes:
        return await self._other.takes()

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        raise ModelFailure(detail=str(self._why).rstrip("."), retryable=False)
        yield  # What makes it a stream.

    async def close(self) -> None:
        return
