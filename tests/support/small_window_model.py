"""A model with a small context window that counts tokens, and a conversation with it."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

import msgspec

from holdfast.domain.context.context import ModelProfile, Request
from holdfast.domain.decisions import compaction
from holdfast.domain.ids import SessionId
from holdfast.domain.usage import Usage
from holdfast.models.ports import ModelDelta, ModelFailure, StepEnd, TextDelta, ToolSpec
from tests.support.in_process_app import AppHarness, ScriptedModel
from tests.support.summarising_model import text_parts

WINDOW, ANSWER = 32_000, 4_000
USER_TEXT = (
    "Please look at item {n} of the list, and tell me what is to be done about it. " + "Some detail. " * 60
)
ANSWER_TEXT = "Item {n} is in order: nothing is to be done about it for now. " + "One more remark. " * 50


class SmallWindowModel(ScriptedModel):
    """Count four bytes of a request as a token, and refuse a request that does not fit."""

    profile = ModelProfile("puppet", WINDOW, ANSWER)

    def __init__(self) -> None:
        super().__init__()
        self.counted: list[int] = []
        self.summaries = 0
        self.rejections = 0

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        sent = msgspec.json.encode((request.system, request.messages, tools))
        tokens = len(sent) // 4
        if tokens + ANSWER > WINDOW:
            self.rejections += 1
            raise ModelFailure(detail="the context length is exceeded", retryable=False, too_long=True)
        if request.system.startswith(compaction.INSTRUCTIONS[:40]):
            self.summaries += 1
            yield TextDelta(
                f"All items so far are in order; {len(text_parts(request)[0])} characters were read."
            )
        else:
            self.counted.append(tokens)
            yield TextDelta(ANSWER_TEXT.format(n=len(self.counted)))
        yield StepEnd("stop", Usage(tokens, 200))


async def run_turn(app: AppHarness, session_id: SessionId, text: str) -> None:
    """Run one turn to its end without polling."""
    sent = await app.send(session_id, text)
    task = app.engine.runner._tasks.get(sent.run_id or "")  # type: ignore[call-overload]
    if task is not None:
        await asyncio.wait([task])
    assert (await app.run(sent.run_id)).status == "completed"
