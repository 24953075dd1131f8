"""Run one model step: stream the answer into the journal, settle it, and return what comes next.

A failure before anything arrived is retried with the same message. A failure in the middle settles the
message as cut off, and the next one continues it.
"""

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Literal

import msgspec
from msgspec.structs import replace

from holdfast.agent.ports import Recorder
from holdfast.domain.clock import Clock
from holdfast.domain.context.context import AssistantMessage, Request, UserMessage
from holdfast.domain.context.tokens import with_estimates
from holdfast.domain.decisions import runs, tools
from holdfast.domain.decisions.endings import interrupt_step
from holdfast.domain.decisions.run_limits import RunLimiter
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.events.stream_fold import MessageDelta, StreamFold, settle_message
from holdfast.domain.ids import CallId, IdGenerator, MessageId
from holdfast.domain.limits import CALLS_PER_STEP_MAX, STEP_BYTES_MAX
from holdfast.domain.state.rows import RunRow
from holdfast.domain.state.session_state import SessionStateView
from holdfast.domain.usage import Rate, Usage
from holdfast.models.ports import (
    CallDelta,
    FallbackStarted,
    Model,
    ModelDelta,
    ModelFailure,
    ReasoningDelta,
    StepEnd,
    TextDelta,
    ToolSpec,
)
from holdfast.tools.ports import Tool

ATTEMPTS_MAX = 5
"""Attempts in a row without output before the model's failure becomes the run's."""
BACKOFF_MS = 500
BACKOFF_MS_MAX = 60_000
_TOO_MANY_CALLS = f"it asked for more than {CALLS_PER_STEP_MAX} calls in one answer"


class StepResult(msgspec.Struct, frozen=True):
    """The result of a step: the run's outcome, if it has one, or the failure that cut an answer off."""

    outcome: Literal["completed", "waiting"] | None = None
    cut_off: ModelFailure | None = None


class StepModel(msgspec.Struct, frozen=True):
    """The model that writes a message, before any fallback."""

    model: str
    provider: str
    rate: Rate | None


class _OutOfTime(Exception):
    """The run has used up its time while the model is still writing."""


class _StepState:
    """The state of one message while the model writes it."""

    def __init__(self, started: f.ModelStepStarted, at: int, provider: str) -> None:
        self.started = self.recorded = started
        """The step as requested now, and as last recorded."""
        self.first = StepModel(started.model, provider, started.rate)
        self.provider = provider
        self.fold = StreamFold(at)
        self.calls: dict[int, tuple[CallId, str]] = {}
        self.end: StepEnd | None = None
        self.is_empty = True
        self.is_reasoning_only = True
        self.size_bytes = 0
        self.signature = ""

    def add(self, fact: MessageDelta, at: int) -> None:
        """Add a delta."""
        self.fold.add(fact, at)
        if self.signature:
            self.sign()
        self.is_empty = False
        self.is_reasoning_only = self.is_reasoning_only and not _has_visible_output(fact)
        self.size_bytes += len(fact.text.encode("utf-8", "replace"))

    @property
    def usage(self) -> Usage:
        """Return the usage that the provider has counted so far."""
        return self.end.usage if self.end is not None else Usage()

    def sign(self) -> None:
        """Close the reasoning under way: its signature has come."""
        self.fold.sign(self.signature, self.provider)
        self.signature = ""


class ModelStep:
    """Ask models, with retries. Tests pass in `rng` and `sleep`, and need not wait."""

    def __init__(
        self,
        clock: Clock,
        ids: IdGenerator,
        catalogue: Mapping[str, Tool],
        rng: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._clock = clock
        self._ids = ids
        self._catalogue = catalogue
        self._rng = rng
        self._sleep = sleep

    def for_tools(self, catalogue: Mapping[str, Tool]) -> "ModelStep":
        """Return the same for an agent that has those tools."""
        return ModelStep(self._clock, self._ids, catalogue, self._rng, self._sleep)

    async def run(
        self,
        recorder: Recorder,
        model: Model,
        request: Request,
        specs: Sequence[ToolSpec],
        continues: MessageId | None,
        limiter: RunLimiter,
        owner: str | None = None,
        estimate_tokens: Callable[[Request], int] = lambda request: 0,
        shorten: Callable[[Request], Awaitable[Request]] | None = None,
    ) -> StepResult:
        """Ask for one message, with retries. Raises ModelFailure.

        A request that is too long for the model is retried once as `shorten` returns it. `estimate_tokens`
        estimates a request; the estimate is recorded with the provider's count. If the message ends the run,
        its turn joins the memory queue of `owner`, unless that is None.

        When the run's time is over, the step keeps what the model has written, and the run waits.
        """
        step = await self._begin(recorder, model, continues, estimate_tokens(request))
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                failure = await self._stream_answer(recorder, model, request, specs, step, limiter)
            except _OutOfTime:
                await recorder.record(lambda view: _pause(_get_run(view, recorder), step, limiter))
                return StepResult("waiting")
            if failure is None:
                return StepResult("completed" if await self._settle(recorder, step, owner) else None)
            if not step.is_empty:
                await recorder.record(lambda view: interrupt_step(step.started, step.fold, step.usage))
                return StepResult(cut_off=failure)
            if failure.too_long and shorten is not None and attempt < ATTEMPTS_MAX:
                request, shorten = await shorten(request), None
                step.started = replace(step.started, asked_tokens=estimate_tokens(request))
                await self._record_retry(recorder, step, failure, 0)
                continue
            if not failure.retryable or attempt == ATTEMPTS_MAX:
                raise failure
            await self._wait(recorder, step, failure, attempt)
        raise AssertionError("the last try returns or raises")

    async def _begin(
        self, recorder: Recorder, model: Model, continues: MessageId | None, estimated_tokens: int
    ) -> _StepState:
        message_id = self._ids.message()

        def decide(view: SessionStateView) -> list[f.AnyFact]:
            run = _get_run(view, recorder)
            rate = model.profile.rate
            return [runs.begin_step(run, message_id, model.name, continues, estimated_tokens, rate)]

        facts = await recorder.record(decide)
        started = facts[0]
        assert isinstance(started, f.ModelStepStarted)
        return _StepState(started, self._clock.now_ms(), model.profile.provider)

    async def _stream_answer(
        self,
        recorder: Recorder,
        model: Model,
        request: Request,
        specs: Sequence[ToolSpec],
        step: _StepState,
        limiter: RunLimiter,
    ) -> ModelFailure | None:
        """Stream one answer into the journal; return the failure, if there was one.

        Raises _OutOfTime: a stream that never ends must not keep the run for ever.
        """
        limit = asyncio.timeout(limiter.remaining_s)
        try:
            async with limit, aclosing(model.stream(request, specs)) as deltas:
                async for delta in deltas:
                    if _exceeds_call_limit(step, delta):
                        return ModelFailure(detail=_TOO_MANY_CALLS, retryable=False)
                    fact = self._fact(step, delta)
                    if fact is not None:
                        step.add(fact, self._clock.now_ms())
                        if step.size_bytes > STEP_BYTES_MAX:
                            step.end = StepEnd("length")
                            break
                        if not recorder.stream(fact):
                            await recorder.wait_for_capacity()
                    elif isinstance(delta, FallbackStarted):
                        await self._record_retry(recorder, step, delta.failure, 0, delta)
        except ModelFailure as failure:
            return failure
        except TimeoutError:
            if limit.expired():
                raise _OutOfTime from None
            raise
        # A model that continues an answer which was complete may rightly have nothing to add.
        if step.end is None or (step.is_empty and step.started.continues is None):
            return ModelFailure(detail="it returned nothing", retryable=True)
        is_silent = step.is_reasoning_only and step.end.stop_reason == "stop"
        # A model that answered beside a call need not repeat its answer after the call's result.
        if is_silent and step.started.continues is None and not _has_answered(request):
            return ModelFailure(detail="it thought, and said nothing", retryable=True)
        return None

    def _fact(self, step: _StepState, delta: ModelDelta) -> MessageDelta | None:
        run_id, message_id = step.started.run_id, step.started.message_id
        match delta:
            case TextDelta() if delta.text:
                return f.TextAppended(run_id, message_id, delta.text)
            case ReasoningDelta() if delta.signature:
                step.signature = delta.signature
                return f.ReasoningAppended(run_id, message_id, delta.text)
            case ReasoningDelta() if delta.text:
                return f.ReasoningAppended(run_id, message_id, delta.text)
            case CallDelta():
                # Our own ids: a provider's may repeat within a conversation, the ledger's must not.
                call = step.calls.setdefault(delta.index, (self._ids.call(), delta.name))
                return f.ToolArgumentsAppended(run_id, message_id, *call, delta.arguments)
            case StepEnd():
                step.end = delta
        return None

    async def _settle(self, recorder: Recorder, step: _StepState, owner: str | None) -> bool:
        """Commit the answer, its usage, its calls, and the run's end if it makes none, all at once.

        With its end the turn joins the memory queue, unless the session is not to be remembered.
        """
        settled, end, estimated_tokens = (
            settle_message(step.started, step.fold),
            step.end,
            step.started.asked_tokens,
        )
        assert end is not None
        if estimated_tokens and end.usage.input_tokens:
            settled = replace(settled, weight=(estimated_tokens, end.usage.input_tokens))
        usage = with_estimates(end.usage, estimated_tokens, settled.parts)

        def decide(view: SessionStateView) -> list[f.AnyFact]:
            run = _get_run(view, recorder)
            used = f.ModelStepSettled(run.id, settled.message_id, end.stop_reason, usage)
            intended = tools.intend(run, settled, self._effect_of)
            session = view.session()
            is_remembered = owner is not None and session is not None and session.remember
            return [
                settled,
                used,
                *(intended or runs.complete(run, is_remembered, (owner or "") if is_remembered else "")),
            ]

        facts = await recorder.record(decide)
        return isinstance(facts[-1], f.RunCompleted)

    def _effect_of(self, name: str) -> f.Effect:
        tool = self._catalogue.get(name)
        # A call of an unknown tool has no effect: it only fails.
        return tool.effect if tool is not None else "pure"

    async def _wait(self, recorder: Recorder, step: _StepState, failure: ModelFailure, attempt: int) -> None:
        backoff_ms = BACKOFF_MS * 2 ** (attempt - 1) * (0.5 + self._rng())
        delay_ms = min(int(failure.retry_after_ms or backoff_ms), BACKOFF_MS_MAX)
        await self._record_retry(recorder, step, failure, delay_ms)
        await self._sleep(delay_ms / 1000)

    async def _record_retry(
        self,
        recorder: Recorder,
        step: _StepState,
        failure: ModelFailure,
        delay_ms: int,
        writer: StepModel | FallbackStarted | None = None,
    ) -> None:
        """Record a retry of the step by `writer`, or by the first model.

        The model that writes a message is durable before any of its words is.
        """
        writer, started = writer or step.first, step.started
        facts: list[f.AnyFact] = [
            f.ModelStepRetried(
                started.run_id, started.message_id, f.Failure(failure.code, str(failure)), delay_ms
            )
        ]
        step.started = replace(started, model=writer.model, rate=writer.rate)
        if step.started != step.recorded:
            facts.append(step.started)
            step.recorded = step.started
        step.provider = writer.provider
        await recorder.record(lambda view: facts)


def _has_visible_output(fact: MessageDelta) -> bool:
    return not isinstance(fact, f.ReasoningAppended) and (
        isinstance(fact, f.ToolArgumentsAppended) or bool(fact.text.strip())
    )


def _has_answered(request: Request) -> bool:
    """Return whether the model has answered anything since the user's message."""
    newest = itertools.takewhile(lambda m: not isinstance(m, UserMessage), reversed(request.messages))
    answers = (message for message in newest if isinstance(message, AssistantMessage))
    return any(isinstance(part, Text) for answer in answers for part in answer.parts)


def _exceeds_call_limit(step: _StepState, delta: ModelDelta) -> bool:
    is_new = isinstance(delta, CallDelta) and delta.index not in step.calls
    return is_new and len(step.calls) >= CALLS_PER_STEP_MAX


def _pause(run: RunRow, step: _StepState, limiter: RunLimiter) -> list[f.AnyFact]:
    return [
        *interrupt_step(step.started, step.fold, step.usage),
        *runs.wait(run, "limit", limiter.time_limit_text),
    ]


def _get_run(view: SessionStateView, recorder: Recorder) -> RunRow:
    run = view.run(recorder.run_id)
    assert run is not None, "it is being carried out, so it exists"
    return run
