"""A model that answers everything and sums up what it is asked to."""

import asyncio
from collections.abc import AsyncGenerator, Sequence

from msgspec.structs import replace

from holdfast.domain.context import context
from holdfast.domain.context.context import Profile, Request
from holdfast.domain.decisions import compaction
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import SessionId
from holdfast.domain.usage import Usage
from holdfast.models.ports import ModelDelta, StepEnd, TextDelta, ToolSpec
from tests.support.in_process_app import House, Puppet

ASKS = compaction.INSTRUCTIONS[:40]


class Scribe(Puppet):
    """Answers everything, and sums up what it is asked to; keeps what it was asked."""

    profile = Profile("puppet", 4_000, answer_tokens=500)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []
        self.said: str | Exception = "They talked."
        self.hold: asyncio.Event | None = None
        self.asking = asyncio.Event()

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        if not request.system.startswith(ASKS):
            counted = sum(map(context.estimate_tokens, words(request)))
            async for delta in super().stream(request, tools):
                yield replace(delta, usage=Usage(counted, 1)) if isinstance(delta, StepEnd) else delta
            return
        self.asked.append(words(request)[0])
        self.asking.set()
        if self.hold is not None:
            await self.hold.wait()
        if isinstance(self.said, Exception):
            raise self.said
        yield TextDelta(self.said)
        yield StepEnd("stop", Usage(10, 2))


def words(request: Request) -> list[str]:
    return [part.text for message in request.messages for part in message.parts if isinstance(part, Text)]


def scribe(here: House) -> Scribe:
    """Puts one in the place of the house's model."""
    model = Scribe()
    put_in_place(here, model)
    return model


def put_in_place(here: House, model: Puppet) -> None:
    """Have `model` answer in that house."""
    here.engine._workers(None)._model = here.model = model  # type: ignore[arg-type, attr-defined]


async def talk(here: House, session_id: SessionId, *said: str) -> None:
    for text in said:
        sent = await here.say(session_id, text)
        await here.until_run(sent.run_id, "completed")
