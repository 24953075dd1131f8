"""The agent's loop: ask the model, carry out what it asks for, until it has answered.

Nothing is kept here that the journal does not hold: a run that was cut off anywhere is carried on by calling
`carry_out` again. What has ended stays ended; what was only intended is done now.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from holdfast.agent.compaction import draft_summary
from holdfast.agent.instructions import GUIDE_HEADING, ReadGuide, no_guide
from holdfast.agent.model_step import ATTEMPTS_MAX, ModelStep
from holdfast.agent.ports import AgentMemory, NullMemory, Recorder
from holdfast.agent.request_builder import Attachments, RequestBuilder, make_gauge
from holdfast.agent.tool_execution import ToolExecutor
from holdfast.domain.clock import Clock
from holdfast.domain.context.context import shown_memories
from holdfast.domain.context.request import DEMO, Effort
from holdfast.domain.context.tokens import BYTES_PER_TOKEN_MAX
from holdfast.domain.decisions import runs, turns
from holdfast.domain.decisions.compaction import DraftSummary
from holdfast.domain.decisions.run_limits import RunLimiter, RunLimits
from holdfast.domain.events.facts import AnyFact
from holdfast.domain.events.parts import AnyPart, Reasoning, Text
from holdfast.domain.files import check_supported
from holdfast.domain.ids import CallId, MessageId, RunId
from holdfast.domain.state.rows import RunRow
from holdfast.domain.state.session_state import SessionStateView
from holdfast.domain.transcript.transcript import Entry, Transcript, Turn
from holdfast.models.ports import Model, ModelFailure, ToolSpec
from holdfast.tools.files.pdf_text import PdfTextExtractor
from holdfast.tools.ports import Tool

RunOutcome = Literal["completed", "waiting"]


class Agent:
    """Who answers: a model, the tools it may use, what it is told to be, and how much a run may use."""

    def __init__(
        self,
        instructions: str,
        model: Model,
        tools: Mapping[str, Tool],
        model_step: ModelStep,
        tool_executor: ToolExecutor,
        allowance: RunLimits,
        clock: Clock,
        memory: AgentMemory | None = None,
        read_guide: ReadGuide | None = None,
        effort: Effort | None = None,
        *,
        pdfs: PdfTextExtractor,
    ) -> None:
        self._pdfs = pdfs
        self._effort = effort
        self._read_guide = read_guide or no_guide
        self._memory = memory or NullMemory()
        self._instructions = instructions
        self._model = model
        self._tools = tools
        self._model_step = model_step
        self._tool_executor = tool_executor
        self._allowance = allowance
        self._clock = clock

    def set_allowance(self, allowance: RunLimits) -> None:
        """How much a run may use, from the next one on."""
        self._allowance = allowance

    @property
    def specs(self) -> list[ToolSpec]:
        """The tools as the model is told of them now: some come and go while the server runs."""
        return [tool.spec for tool in self._tools.values()]

    @property
    def context_chars(self) -> int:
        """How much of a conversation's end can matter."""
        return BYTES_PER_TOKEN_MAX * self._model.profile.window_tokens

    async def check_files(self, parts: Sequence[AnyPart]) -> None:
        """Be sure that the model takes the files among `parts`. Raises FileNotSupported."""
        profile = self._model.profile
        room = profile.window_tokens - profile.answer_tokens
        check_supported(self._model.name, await self._model.takes(), room, parts)

    async def is_finished(self, tool: str, call_id: CallId) -> bool:
        """Whether nothing of an earlier try at a call is still at work."""
        known = self._tools.get(tool)
        return known is None or await known.is_finished(call_id)

    async def run(self, recorder: Recorder) -> RunOutcome:
        """Bring the run to its end, or to where it needs a person.

        Raises ModelFailure, and whatever the recorder raises.
        """
        limiter = RunLimiter(self._allowance, self._clock)
        await self._check_same_model(recorder)
        owner = await self._memory.owner(recorder.session_id)
        instructions = await self.build_instructions(recorder.workspace)
        memories = await self._recall(recorder, instructions) if owner is not None else ()
        instructions = await self._record_prepared(recorder, instructions, memories)
        cuts, request_builder = (
            0,
            RequestBuilder(self._model, instructions, Attachments(recorder, self._pdfs), self._effort),
        )
        while True:
            if not await self._tool_executor.settle_all(
                recorder, lambda view, run: _next_step(view, run, limiter)
            ):
                return "waiting"
            recorder.check_stopping()
            transcript = await recorder.transcript(self.context_chars)
            specs = self.specs
            request = await request_builder.build(transcript, specs)
            step_result = await self._model_step.run(
                recorder, self._model, request, specs, find_unfinished(transcript), limiter, owner,
                request_builder.estimate_tokens, request_builder.shorten,
            )  # fmt: skip
            if step_result.outcome is not None:
                return step_result.outcome
            cuts = cuts + 1 if step_result.cut_off is not None else 0
            # Each beginning is kept and gone on from, but not for ever.
            if step_result.cut_off is not None and (
                cuts == ATTEMPTS_MAX or not step_result.cut_off.retryable
            ):
                raise step_result.cut_off

    async def _check_same_model(self, recorder: Recorder) -> None:
        """A script never goes on with what a model has begun. Raises ModelFailure."""
        if self._model.profile.provider == DEMO:
            transcript = await recorder.transcript(self.context_chars)
            entries = (entry for turn in transcript.turns for entry in turn.entries)
            begun_by = {entry.model for entry in entries if entry.run_id == recorder.run_id} - {"", DEMO}
            if begun_by:
                detail = f"{min(begun_by)} began this answer, and the demo does not go on with it"
                raise ModelFailure(detail=detail, retryable=False)

    async def build_instructions(self, workspace: Path) -> str:
        """What the model is told to be by a run that begins now, and works there."""
        guide = await self._read_guide(workspace)
        return f"{self._instructions}{GUIDE_HEADING}{guide}" if guide else self._instructions

    async def summarise(
        self, transcript: Callable[[int], Awaitable[Transcript]], threshold: float, keep_turns: int
    ) -> DraftSummary | None:
        """The older part of a conversation in a few words, if it fills more than `above` of the window.

        So many turns at its end stay out of it. Raises ModelFailure.
        """
        read = await transcript(self.context_chars)
        return await draft_summary(self._model, self._instructions, self.specs, read, threshold, keep_turns)

    async def _record_prepared(self, recorder: Recorder, instructions: str, memories: tuple[str, ...]) -> str:
        """Write down what the run is given; returns what it is told: the same as before where it goes on."""
        digest = await recorder.save_instructions(instructions)
        if await recorder.record(lambda view: _prepare(view, recorder.run_id, digest, memories)):
            return instructions
        transcript = await recorder.transcript(self.context_chars)
        given = [each for each in transcript.prepared if each.run_id == recorder.run_id]
        if not given or given[-1].instructions_digest == digest:
            return instructions
        before = await recorder.find_instructions(given[-1].instructions_digest)
        # What was never kept cannot be told again: a conversation that was brought here from elsewhere.
        return before if before is not None else instructions

    async def _recall(self, recorder: Recorder, instructions: str) -> tuple[str, ...]:
        """What is remembered that may matter to the turn, beside what the conversation has been given of it.

        Nothing for a run that has begun: what it was given is written down.
        """
        transcript = await recorder.transcript(self.context_chars)
        turn = transcript.turns[-1] if transcript.turns else None
        if turn is None or any(e.role == "assistant" and e.run_id == recorder.run_id for e in turn.entries):
            return ()
        gauge = make_gauge(transcript, self._model, self.specs)
        given = shown_memories(transcript, instructions, self._model.profile, gauge)
        return await self._memory.recall(recorder.session_id, _turn_text(turn), given)


def _prepare(view: SessionStateView, run_id: RunId, digest: str, memories: tuple[str, ...]) -> list[AnyFact]:
    run = get_run(view, run_id)
    # Said once per run: one that is resumed was given the same.
    return [] if run.steps else runs.prepare(run, digest, memories)


def _turn_text(turn: Turn) -> str:
    """What the turn's own message says; what was added while it was answered is not part of that."""
    first = [entry for entry in turn.entries if entry.role == "user"][:1]
    return "\n".join(p.text for entry in first for p in entry.parts if isinstance(p, Text))


def _next_step(view: SessionStateView, run: RunRow, limiter: RunLimiter) -> list[AnyFact]:
    """What comes before a step: the run waits at a limit, or it is told what people have added."""
    limit = limiter.reached_limit(run)
    return runs.wait(run, "limit", limit) if limit else turns.take_steering(view, run, view.message_events)


def get_run(view: SessionStateView, run_id: RunId) -> RunRow:
    run = view.run(run_id)
    assert run is not None, f"{run_id} is being carried out, so it exists"
    return run


def find_unfinished(transcript: Transcript) -> MessageId | None:
    """The message that the next one goes on from: the last answer, if it was cut off.

    An answer that was cut off before its first word is passed over: the one before it is still unfinished.
    """
    entries = [e for turn in transcript.turns if turn.live for e in turn.entries if not e.late]
    begun = [e for e in entries if e.role in ("user", "tool") or (e.role == "assistant" and _has_begun(e))]
    last = begun[-1] if begun else None
    if last is None or last.role != "assistant" or last.status not in ("interrupted", "recovered"):
        return None
    return MessageId(last.id)


def _has_begun(answer: Entry) -> bool:
    return any(not isinstance(part, Reasoning) for part in answer.parts)
