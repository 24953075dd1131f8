"""A model that answers every message and summarises on request."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from msgspec.structs import replace

from holdfast.domain.context import context
from holdfast.domain.context.context import ModelProfile, Request
from holdfast.domain.decisions import compaction
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import SessionId
from holdfast.domain.usage import Usage
from holdfast.models.ports import ModelDelta, StepEnd, TextDelta, ToolSpec
from tests.support.in_process_app import AppHarness, ScriptedModel

SUMMARY_REQUEST_START = compaction.INSTRUCTIONS[:40]


class SummarizingModel(ScriptedModel):
    """Answer every message, summarise on request, and keep the texts it was given to summarise."""

    profile = ModelProfile("puppet", 4_000, answer_tokens=500)

    def __init__(self) -> None:
        super().__init__()
        self.summarized_texts: list[str] = []
        self.summary: str | Exception = "They talked."
        self.hold: asyncio.Event | None = None
        self.summary_started = asyncio.Event()

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        if not request.system.startswith(SUMMARY_REQUEST_START):
            counted = sum(map(context.estimate_tokens, text_parts(request)))
            async for delta in super().stream(request, tools):
                yield replace(delta, usage=Usage(counted, 1)) if isinstance(delta, StepEnd) else delta
            return
        self.summarized_texts.append(text_parts(request)[0])
        self.summary_started.set()
        if self.hold is not None:
            await self.hold.wait()
        if isinstance(self.summary, Exception):
            raise self.summary
        yield TextDelta(self.summary)
        yield StepEnd("stop", Usage(10, 2))


def text_parts(request: Request) -> list[str]:
    return [part.text for message in request.messages for part in message.parts if isinstance(part, Text)]


def install_summarizing_model(app: AppHarness) -> SummarizingModel:
    """Install a summarising model in the app."""
    model = SummarizingModel()
    install_model(app, model)
    return model


def install_model(app: AppHarness, model: ScriptedModel) -> None:
    """Use `model` in the app."""
    app.engine._agent_for_session(None)._model = app.model = model  # type: ignore[arg-type, attr-defined]


async def run_turns(app: AppHarness, session_id: SessionId, *texts: str) -> None:
    for text in texts:
        sent = await app.send(session_id, text)
        await app.wait_for_run(sent.run_id, "completed")
