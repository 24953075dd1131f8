"""Run an agent's loop: ask the model, execute its calls, until it has answered.

All state is in the journal: to continue an interrupted run, call `run` again. The loop keeps what is settled
and executes what was only intended.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from holdfast.agent.compaction import draft_summary
from holdfast.agent.instructions import GUIDE_HEADING, ReadGuide, no_guide
from holdfast.agent.model_step import ATTEMPTS_MAX, ModelStep
from holdfast.agent.ports import AgentMemory, NullMemory, Recorder
from holdfast.agent.request_builder import Attachments, RequestBuilder, token_budget
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
    """A model with its tools, its instructions, and the limits of a run."""

    def __init__(
        self,
        instructions: str,
        model: Model,
        tools: Mapping[str, Tool],
        model_step: ModelStep,
        tool_executor: ToolExecutor,
        run_limits: RunLimits,
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
        self._run_limits = run_limits
        self._clock = clock

    def set_run_limits(self, run_limits: RunLimits) -> None:
        """Set the limits of a run, from the next one on."""
        self._run_limits = run_limits

    @property
    def specs(self) -> list[ToolSpec]:
        """Return the tools as the model sees them now: some come and go while the server runs."""
        return [tool.spec for tool in self._tools.values()]

    @property
    def context_chars(self) -> int:
        """Return how many characters of a conversation's end can fit in the window."""
        return BYTES_PER_TOKEN_MAX * self._model.profile.window_tokens

    async def check_files(self, parts: Sequence[AnyPart]) -> None:
        """Raise FileNotSupported if the model cannot read one of the files among `parts`."""
        profile = self._model.profile
        room = profile.window_tokens - profile.answer_tokens
        check_supported(self._model.name, await self._model.supported_files(), room, parts)

    async def is_finished(self, tool: str, call_id: CallId) -> bool:
        """Return whether nothing of an earlier attempt at a call is still running."""
        found = self._tools.get(tool)
        return found is None or await found.is_finished(call_id)

    async def run(self, recorder: Recorder) -> RunOutcome:
        """Execute the run until it ends or needs a person.

        Raises ModelFailure, and every error of the recorder.
        """
        limiter = RunLimiter(self._run_limits, self._clock)
        await self._check_same_model(recorder)
        owner = await self._memory.register_session(recorder.session_id)
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
            # The next step continues an answer that was cut off, but not for ever.
            if step_result.cut_off is not None and (
                cuts == ATTEMPTS_MAX or not step_result.cut_off.retryable
            ):
                raise step_result.cut_off

    async def _check_same_model(self, recorder: Recorder) -> None:
        """Raise ModelFailure if the demo would continue an answer that a model has begun."""
        if self._model.profile.provider == DEMO:
            transcript = await recorder.transcript(self.context_chars)
            entries = (entry for turn in transcript.turns for entry in turn.entries)
            begun_by = {entry.model for entry in entries if entry.run_id == recorder.run_id} - {"", DEMO}
            if begun_by:
                detail = f"{min(begun_by)} began this answer, and the demo does not go on with it"
                raise ModelFailure(detail=detail, retryable=False)

    async def build_instructions(self, workspace: Path) -> str:
        """Return the instructions of a run that begins now in `workspace`."""
        guide = await self._read_guide(workspace)
        return f"{self._instructions}{GUIDE_HEADING}{guide}" if guide else self._instructions

    async def summarise(
        self, transcript: Callable[[int], Awaitable[Transcript]], threshold: float, keep_turns: int
    ) -> DraftSummary | None:
        """Summarise the older turns if they fill more than `threshold` of the window.

        Leaves out the newest `keep_turns` turns. Raises ModelFailure.
        """
        read = await transcript(self.context_chars)
        return await draft_summary(self._model, self._instructions, self.specs, read, threshold, keep_turns)

    async def _record_prepared(self, recorder: Recorder, instructions: str, memories: tuple[str, ...]) -> str:
        """Record what the run is given; return its instructions, which a resumed run keeps."""
        digest = await recorder.save_instructions(instructions)
        if await recorder.record(lambda view: _prepare(view, recorder.run_id, digest, memories)):
            return instructions
        transcript = await recorder.transcript(self.context_chars)
        prepared = [context for context in transcript.prepared if context.run_id == recorder.run_id]
        if not prepared or prepared[-1].instructions_digest == digest:
            return instructions
        before = await recorder.find_instructions(prepared[-1].instructions_digest)
        # An imported conversation refers to instructions that this store never had.
        return before if before is not None else instructions

    async def _recall(self, recorder: Recorder, instructions: str) -> tuple[str, ...]:
        """Return memories for the turn that the conversation does not have yet.

        Empty for a run that has begun: the journal has its memories.
        """
        transcript = await recorder.transcript(self.context_chars)
        turn = transcript.turns[-1] if transcript.turns else None
        if turn is None or any(e.role == "assistant" and e.run_id == recorder.run_id for e in turn.entries):
            return ()
        budget = token_budget(transcript, self._model, self.specs)
        given = shown_memories(transcript, instructions, self._model.profile, budget)
        return await self._memory.recall(recorder.session_id, _turn_text(turn), given)


def _prepare(view: SessionStateView, run_id: RunId, digest: str, memories: tuple[str, ...]) -> list[AnyFact]:
    run = get_run(view, run_id)
    # Once per run: a resumed run keeps what it was given.
    return [] if run.steps else runs.prepare(run, digest, memories)


def _turn_text(turn: Turn) -> str:
    """Return the text of the turn's own message, without messages that were added later."""
    first = [entry for entry in turn.entries if entry.role == "user"][:1]
    return "\n".join(p.text for entry in first for p in entry.parts if isinstance(p, Text))


def _next_step(view: SessionStateView, run: RunRow, limiter: RunLimiter) -> list[AnyFact]:
    """Return the facts before a step: a wait at a limit, or messages that people have added."""
    limit = limiter.reached_limit(run)
    return runs.wait(run, "limit", limit) if limit else turns.take_steering(view, run, view.message_events)


def get_run(view: SessionStateView, run_id: RunId) -> RunRow:
    run = view.run(run_id)
    assert run is not None, f"{run_id} is being carried out, so it exists"
    return run


def find_unfinished(transcript: Transcript) -> MessageId | None:
    """Return the message that the next one continues: the last answer, if it was interrupted.

    Skips an answer that was interrupted before its first word: the one before it is still unfinished.
    """
    entries = [e for turn in transcript.turns if turn.live for e in turn.entries if not e.late]
    begun = [e for e in entries if e.role in ("user", "tool") or (e.role == "assistant" and _has_begun(e))]
    last = begun[-1] if begun else None
    if last is None or last.role != "assistant" or last.status not in ("interrupted", "recovered"):
        return None
    return MessageId(last.id)


def _has_begun(answer: Entry) -> bool:
    return any(not isinstance(part, Reasoning) for part in answer.parts)
