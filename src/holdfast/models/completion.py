"""Ask a model one question, without tools."""

import asyncio
from contextlib import aclosing

from holdfast.domain.context.context import Request, UserMessage
from holdfast.domain.events.parts import Text
from holdfast.models.ports import Model, ModelFailure, TextDelta

COMPLETION_TIMEOUT_S_MAX = 110.0
"""Limit for a side request, whose text may be long. A memory commit may take a little longer."""
COMPLETION_INPUT_CHARS_MAX = 100_000


async def complete(model: Model, system: str, text: str, timeout_s: float, chars_max: int) -> str:
    """Return the model's answer to `text` under the prompt `system`. Raises ModelFailure.

    Reading stops once the answer is longer than `chars_max`.
    """
    request = Request(system, (UserMessage((Text(text),)),))
    answer = ""
    try:
        async with asyncio.timeout(timeout_s), aclosing(model.stream(request, ())) as deltas:
            async for delta in deltas:
                if isinstance(delta, TextDelta):
                    answer += delta.text
                if len(answer) > chars_max:
                    break
    except TimeoutError:
        raise ModelFailure(detail=f"it did not answer within {timeout_s:g} s", retryable=True) from None
    return answer
