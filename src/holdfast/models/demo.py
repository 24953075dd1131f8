"""The scripted demo model: offline, deterministic, and at reading speed. It says that it is no AI."""

import asyncio
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence

import msgspec

from holdfast.domain.context.request import DEMO, ModelProfile, Request
from holdfast.domain.files import SupportedFiles
from holdfast.models.demo_script import Step, next_step
from holdfast.models.ports import CallDelta, ModelDelta, ReasoningDelta, StepEnd, TextDelta, ToolSpec

DELAY_S = 0.03
"""Pause between two words: a fast reader's pace."""
WINDOW_TOKENS = 32_000
_ARGUMENTS_CHARS = 12
# A piece is never blank space alone, because a partial answer must come back exactly as it was sent.
_WORD = re.compile(r"\s*\S+\s*")


class DemoModel:
    """Answer by script. `delay_s` is the pause between words; 0 means none."""

    def __init__(
        self, delay_s: float = DELAY_S, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self._delay_s = delay_s
        self._sleep = sleep

    @property
    def name(self) -> str:
        return DEMO

    @property
    def profile(self) -> ModelProfile:
        return ModelProfile(DEMO, WINDOW_TOKENS)

    async def supported_files(self) -> SupportedFiles:
        return SupportedFiles(frozenset({"text"}))

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        """Yield the script's next message, or the rest of one that was cut off. Never fails."""
        step = next_step(request, {tool.name for tool in tools})
        for delta in _deltas(step):
            await self._sleep(self._delay_s)
            yield delta
        yield StepEnd("tool_calls" if step.call is not None else "stop")

    async def close(self) -> None:
        """Do nothing: the demo holds no resources."""


def _deltas(step: Step) -> Iterator[ModelDelta]:
    yield from (ReasoningDelta(word) for word in _WORD.findall(step.thinking))
    yield from (TextDelta(word) for word in _WORD.findall(step.text))
    if step.call is not None:
        arguments = msgspec.json.encode(step.call.arguments).decode()
        for start in range(0, len(arguments), _ARGUMENTS_CHARS):
            yield CallDelta(0, step.call.name, arguments[start : start + _ARGUMENTS_CHARS])
