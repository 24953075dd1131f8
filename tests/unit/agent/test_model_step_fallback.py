"""A step that another model is asked for: who writes is durable before a word is, and it stays one step."""

from pathlib import Path

from holdfast.domain.context.request import Profile
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Reasoning
from holdfast.domain.ids import SessionId
from holdfast.domain.usage import Rate, Usage
from holdfast.models.ports import AskedInstead, ModelFailure, ReasoningDelta, StepEnd, TextDelta
from tests.support.in_process_app import House, house, says

FAILED = ModelFailure(detail="the key was refused", retryable=False)
PASSING = ModelFailure(detail="both are busy", retryable=True)
OTHER = AskedInstead("other:big", "p-other", FAILED)


async def steps(here: House, session_id: SessionId) -> list[tuple[str, str]]:
    """Each event of a step, with the model or the failure in it."""
    found = []
    for event in await here.store.read(session_id, 0, 1000):
        match event.fact:
            case f.ModelStepStarted() | f.MessageSettled() as fact if fact.model:
                found.append((event.kind, fact.model))
            case f.ModelStepRetried() as fact:
                found.append((event.kind, fact.failure.detail))
    return found


async def test_the_message_is_by_who_wrote_it_and_one_step_is_counted(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session_id = await here.begin()
        thought = ReasoningDelta("hm", signature="signed")
        end = StepEnd("stop", Usage(10, 2, cost_micros=7))
        here.model.steps = [[OTHER, thought, TextDelta("Here"), end]]
        run = await here.until_run((await here.say(session_id, "hello")).run_id, "completed")
        assert (run.steps, run.usage.cost_micros) == (1, 7)
        told = await steps(here, session_id)
        assert [kind for kind, _ in told] == [
            "model_step_started", "model_step_retried", "model_step_started", "message_settled",
        ]  # fmt: skip
        assert [name for kind, name in told if kind != "model_step_retried"] == [
            "puppet",
            "other:big",
            "other:big",
        ]
        assert "the key was refused" in told[1][1]
        answer = (await here.entries(session_id))[-1]
        assert answer.model == "other:big"
        (signed,) = [part for part in answer.parts if isinstance(part, Reasoning)]
        assert (signed.signature, signed.provider) == ("signed", "p-other")


async def test_an_answer_that_breaks_off_costs_what_the_one_who_wrote_it_takes(tmp_path: Path) -> None:
    dear = AskedInstead("other:big", "p-other", FAILED, Rate(1_000.0, 0.0))
    async with house(tmp_path) as here:
        here.model.profile = Profile("puppet", 100_000, rate=Rate(0.0, 0.0))
        here.model.steps = [[dear, TextDelta("Half"), PASSING], [TextDelta("of"), PASSING], says("it")]
        session_id = await here.begin()
        await here.until_run((await here.say(session_id, "hello")).run_id, "completed")
        events = await here.store.read(session_id, 0, 1000)
        used = [event.fact.usage for event in events if isinstance(event.fact, f.ModelStepSettled)]
        assert used[0].cost_micros == 1_000 * used[0].input_tokens > 0
        assert [each.cost_micros for each in used[1:]] == [0, None], "the first is asked first again"


async def test_when_all_have_failed_the_first_is_asked_first_again(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session_id = await here.begin()
        here.model.steps = [[OTHER, PASSING], says("Here")]
        run = await here.until_run((await here.say(session_id, "hello")).run_id, "completed")
        assert run.steps == 1
        named = [name for kind, name in await steps(here, session_id) if kind != "model_step_retried"]
        assert named == ["puppet", "other:big", "puppet", "puppet"]
        assert (await here.entries(session_id))[-1].model == "puppet"


async def test_a_beginning_by_another_model_is_kept_as_that_ones(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session_id = await here.begin()
        here.model.steps = [[OTHER, TextDelta("Half"), PASSING], says(" and half")]
        await here.until_run((await here.say(session_id, "hello")).run_id, "completed")
        answers = [entry for entry in await here.entries(session_id) if entry.role == "assistant"]
        assert [(each.model, each.status) for each in answers] == [
            ("other:big", "interrupted"), ("puppet", "settled"),
        ]  # fmt: skip
