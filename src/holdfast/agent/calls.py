"""Carrying out tool calls by the ledger.

What is settled is never run again, what may have run and is unsafe is
put to a person, and nothing that has an effect begins before the journal says that it does.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.agent.ports import Recorder, Tool, ToolResult, ToolRun
from holdfast.domain import facts as f
from holdfast.domain import runs, tools
from holdfast.domain.book import View
from holdfast.domain.clock import Clock
from holdfast.domain.ids import CallId
from holdfast.domain.parts import Text, ToolCall
from holdfast.domain.rows import RunRow, ToolRow
from holdfast.domain.streams import OutputFold
from holdfast.domain.transcript import Transcript

Approvals = Literal["ask", "allow"]


class _Next(msgspec.Struct):
    """What `_decide` found: a call to carry out now, or that a person is waited for."""

    tool: ToolRow | None = None
    waits: bool = False


class Calls:
    """The calls of a run, one after the other."""

    def __init__(self, catalogue: Mapping[str, Tool], approvals: Approvals, clock: Clock) -> None:
        self._catalogue = catalogue
        self._approvals = approvals
        self._clock = clock

    async def settle_all(self, recorder: Recorder) -> bool:
        """Bring every open call to its end; False if a person has to say something first."""
        while True:
            # Before a call is started: one that was and did not run would have to be asked about.
            recorder.pause()
            found = await self._next(recorder)
            if found.waits:
                return False
            if found.tool is None:
                return True
            await self._carry_out(recorder, found.tool)

    async def _next(self, recorder: Recorder) -> _Next:
        found = _Next()

        def decide(view: View) -> list[f.AnyFact]:
            run = view.run(recorder.run_id)
            assert run is not None, "it is being carried out, so it exists"
            return self._decide(run, view.open_tools(run.id), found)

        await recorder.record(decide)
        return found

    def _decide(self, run: RunRow, open_tools: Sequence[ToolRow], found: _Next) -> list[f.AnyFact]:
        if not open_tools:
            return []
        open_tools = [replace(tool, effect=self._effect_of(tool)) for tool in open_tools]
        first = open_tools[0]
        if first.state == "started" and not tools.repeatable(first):
            found.waits = True
            return [*tools.doubt(run, first), *runs.wait(run, "in_doubt")]
        questions = [fact for tool in open_tools for fact in self._question(run, tool)]
        if self._question(run, first) or first.state == "in_doubt" or first.approval == "requested":
            found.waits = True
            reason: f.Waiting = "in_doubt" if first.state == "in_doubt" else "approval"
            return [*questions, *runs.wait(run, reason)]
        found.tool = first
        # Only a call that may be repeated is still `started` here: an unsafe one was put in doubt.
        again = tools.repeat(run, first) if first.state == "started" else []
        if first.effect == "pure":
            return again
        return [*again, f.ToolStarted(run.id, first.id)] if again else tools.start(run, first)

    def _effect_of(self, tool: ToolRow) -> f.Effect:
        """What the tool itself says, here and now: a file that was imported may say anything."""
        known = self._catalogue.get(tool.name)
        return known.effect if known is not None else tool.effect

    def _question(self, run: RunRow, tool: ToolRow) -> list[f.AnyFact]:
        # Repeating a write does no harm; making it may, to what was there before.
        asks = self._approvals == "ask" and tool.effect != "pure"
        if asks and tool.state == "intended" and not tool.approval:
            return tools.request_approval(run, tool)
        return []

    async def _carry_out(self, recorder: Recorder, tool: ToolRow) -> None:
        # A call that is repeated has streamed before, and somebody may have seen it: that stays, in front.
        written, lines = await recorder.output_of(tool), OutputFold(self._clock.now_ms())
        before = written.parts()

        def emit(text: str, stream: Literal["stdout", "stderr"]) -> None:
            delta = f.ToolOutputAppended(recorder.run_id, tool.id, text, stream)
            written.add(delta, self._clock.now_ms())
            lines.add(delta, self._clock.now_ms())
            recorder.stream(delta)

        call = ToolRun(tool.id, _arguments(await recorder.transcript(), tool.id), recorder.workspace, emit)
        result = await self._run(tool, call)
        parts = (*before, *(result.parts if result.parts is not None else lines.parts()))

        def settle(view: View) -> list[f.AnyFact]:
            row = view.tool(tool.id)
            assert row is not None, "a call that was started is in the ledger"
            return [tools.settle(view, row, result.outcome, written, parts)]

        await recorder.record(settle)

    async def _run(self, tool: ToolRow, call: ToolRun) -> ToolResult:
        known = self._catalogue.get(tool.name)
        if known is None:
            names = ", ".join(self._catalogue) or "none"
            return ToolResult("failed", (Text(f"There is no tool {tool.name}. There are: {names}."),))
        return await known.run(call)


def _arguments(transcript: Transcript, call_id: CallId) -> str:
    for turn in reversed(transcript.turns):
        for entry in turn.entries:
            for part in entry.parts:
                if isinstance(part, ToolCall) and part.call_id == call_id:
                    return part.arguments
    return "{}"
