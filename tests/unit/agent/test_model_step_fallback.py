"""A step that another model is asked for: who writes is durable before a word is, and it stays one step."""

from pathlib import Path

from holdfast.domain.context.request import ModelProfile
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Reasoning
from holdfast.domain.ids import SessionId
from holdfast.domain.usage import Rate, Usage
from holdfast.models.ports import FallbackStarted, ModelFailure, ReasoningDelta, StepEnd, TextDelta
from tests.support.in_process_app import AppHarness, running_app, text_step

FAILED = ModelFailure(detail="the key was refused", retryable=False)
PASSING = ModelFailure(detail="both are busy", retryable=True)
OTHER = FallbackStarted("other:big", "p-other", FAILED)


async def step_outcomes(app: AppHarness, session_id: SessionId) -> list[tuple[str, str]]:
    """Each event of a step, with the model or the failure in it."""
    found = []
    for event in await app.store.read(session_id, 0, 1000):
        match event.fact:
            case f.ModelStepStarted() | f.MessageSettled() as fact if fact.model:
                found.append((event.kind, fact.model))
            case f.ModelStepRetried() as fact:
                found.append((event.kind, fact.failure.detail))
    return found


async def test_the_message_names_its_writer_and_one_step_is_counted(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        thought = ReasoningDelta("hm", signature="signed")
        end = StepEnd("stop", Usage(10, 2, cost_micros=7))
        app.model.steps = [[OTHER, thought, TextDelta("Here"), end]]
        run = await app.wait_for_run((await app.send(session_id, "hello")).run_id, "completed")
        assert (run.steps, run.usage.cost_micros) == (1, 7)
        outcomes = await step_outcomes(app, session_id)
        assert [kind for kind, _ in outcomes] == [
            "model_step_started", "model_step_retried", "model_step_started", "message_settled",
        ]  # fmt: skip
        assert [name for kind, name in outcomes if kind != "model_step_retried"] == [
            "puppet",
            "other:big",
            "other:big",
        ]
        assert "the key was refused" in outcomes[1][1]
        answer = (await app.entries(session_id))[-1]
        assert answer.model == "other:big"
        (signed,) = [part for part in answer.parts if isinstance(part, Reasoning)]
        assert (signed.signature, signed.provider) == ("signed", "p-other")


async def test_an_interrupted_answer_is_billed_at_the_rate_of_its_writer(tmp_path: Path) -> None:
    dear = FallbackStarted("other:big", "p-other", FAILED, Rate(1_000.0, 0.0))
    async with running_app(tmp_path) as app:
        app.model.profile = ModelProfile("puppet", 100_000, rate=Rate(0.0, 0.0))
        app.model.steps = [[dear, TextDelta("Half"), PASSING], [TextDelta("of"), PASSING], text_step("it")]
        session_id = await app.create_session()
        await app.wait_for_run((await app.send(session_id, "hello")).run_id, "completed")
        events = await app.store.read(session_id, 0, 1000)
        used = [event.fact.usage for event in events if isinstance(event.fact, f.ModelStepSettled)]
        assert used[0].cost_micros == 1_000 * used[0].input_tokens > 0
        assert [each.cost_micros for each in used[1:]] == [0, None], "the first is asked first again"


async def test_when_all_have_failed_the_first_is_asked_first_again(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        app.model.steps = [[OTHER, PASSING], text_step("Here")]
        run = await app.wait_for_run((await app.send(session_id, "hello")).run_id, "completed")
        assert run.steps == 1
        named = [name for kind, name in await step_outcomes(app, session_id) if kind != "model_step_retried"]
        assert named == ["puppet", "other:big", "puppet", "puppet"]
        assert (await app.entries(session_id))[-1].model == "puppet"


async def test_a_partial_answer_by_a_fallback_is_attributed_to_it(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        app.model.steps = [[OTHER, TextDelta("Half"), PASSING], text_step(" and half")]
        await app.wait_for_run((await app.send(session_id, "hello")).run_id, "completed")
        answers = [entry for entry in await app.entries(session_id) if entry.role == "assistant"]
        assert [(each.model, each.status) for each in answers] == [
            ("other:big", "interrupted"), ("puppet", "settled"),
        ]  # fmt: skip
