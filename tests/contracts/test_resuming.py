"""R9, R10: a run that was cut off goes on by itself, as far as that is right. Real processes, killed."""

import asyncio
from pathlib import Path

import pytest

from holdfast.agent.ports import Forgetful
from holdfast.domain.context.context import AssistantMessage
from holdfast.domain.context.request import DEMO, Profile
from holdfast.domain.errors import ToolRefused
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId, SessionId
from holdfast.domain.limits import RESUME_ATTEMPTS_MAX, RESUME_ATTEMPTS_STALLED_MAX
from holdfast.models.ports import TextDelta
from tests.contracts.run_worker import resident
from tests.support.in_process_app import House, Lever, calls, house, says


async def test_an_interrupted_run_goes_on_by_itself_within_its_budget_of_attempts(tmp_path: Path) -> None:
    """R9"""
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.kill()
    async with house(tmp_path) as here:
        here.model.steps = [says("Done.")]
        run = await here.until_run(other.run_id, "completed")
        assert run.attempts == 1


async def test_a_message_that_nobody_had_begun_to_answer_is_answered_after_a_restart(tmp_path: Path) -> None:
    """R9: the process ended between keeping the message and beginning its run."""
    async with house(tmp_path, started=False) as here:
        sent = await here.engine.verbs.accept(await here.begin(), (Text("Hello"),))
    async with house(tmp_path, started=False) as here:
        assert sent.run_id is not None and not here.engine.runner.is_at_work(sent.run_id)
        hold = asyncio.Event()
        here.model.steps = [[hold, *says("Hello.")]]
        await here.engine.recovery.sweep()
        assert here.engine.runner.is_at_work(sent.run_id)
        hold.set()
        await here.until_run(sent.run_id, "completed")


async def test_a_script_never_goes_on_with_what_a_model_has_begun(tmp_path: Path) -> None:
    """R10: a server may be started again without the key of the model that it had."""
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.kill()
    async with house(tmp_path, started=False) as here:
        here.model.name, here.model.profile = DEMO, Profile(DEMO, 100_000)
        await here.engine.start()
        run = await here.until_run(other.run_id, "failed")
        assert here.model.requests == []
        assert run.failure is not None and "puppet began this answer" in run.failure.detail
        # What is asked anew is another matter.
        here.model.steps = [says("No AI.")]
        sent = await here.say(other.session_id, "Again")
        await here.until_run(sent.run_id, "completed")


async def test_a_run_that_never_gets_anywhere_stops_being_resumed(tmp_path: Path) -> None:
    """R9: the budget is durable."""
    for story in ("nothing", *["again"] * RESUME_ATTEMPTS_STALLED_MAX):
        with resident(tmp_path, story) as other:
            other.until("model_step_started")
            other.kill()
    async with house(tmp_path) as here:
        await here.until_run(other.run_id, "interrupted")
        await here.engine.recovery.sweep()
        await here.until_at_rest()
        run = await here.run(other.run_id)
        assert (run.status, run.stalled) == ("interrupted", RESUME_ATTEMPTS_STALLED_MAX)
        assert here.model.requests == []
        here.model.steps = [says("By hand.")]
        await here.engine.resume(other.run_id)
        await here.until_run(other.run_id, "completed")


async def test_a_run_that_gets_a_step_further_each_time_is_not_resumed_for_ever_either(
    tmp_path: Path,
) -> None:
    """R9: the budget counts all attempts, across restarts."""
    run_id = None
    for attempt in range(RESUME_ATTEMPTS_MAX + 1):
        lever, further = Lever("lever", "pure"), asyncio.Event()
        async with house(tmp_path, lever, started=False) as here:
            here.model.steps = [calls("lever"), [further]]
            await here.engine.start()
            if run_id is None:
                run_id = (await here.say(await here.begin(), "Go on for ever")).run_id

            async def is_a_step_further(here: House = here) -> bool:
                return len(here.model.requests) == 2

            await here.until(is_a_step_further)
            run = await here.run(run_id)
            assert (run.attempts, run.stalled, lever.pulled) == (attempt, 0, ["{}"])
    async with house(tmp_path) as here:
        await here.engine.recovery.sweep()
        await here.until_at_rest()
        run = await here.run(run_id)
        assert (run.status, run.attempts) == ("interrupted", RESUME_ATTEMPTS_MAX)
        assert here.model.requests == []
        assert run_id is not None
        here.model.steps = [says("By hand.")]
        await here.engine.resume(run_id)
        await here.until_run(run_id, "completed")


async def test_a_server_that_is_asked_to_end_holds_nothing_against_the_run_that_it_leaves(
    tmp_path: Path,
) -> None:
    """R9: the budget is there for a run that takes its processes down."""
    with resident(tmp_path, "nothing") as other:
        other.until("model_step_started")
        other.kill()
    for _ in range(2 * RESUME_ATTEMPTS_STALLED_MAX):
        async with house(tmp_path, started=False) as here:
            here.model.steps = [[asyncio.Event()]]
            await here.engine.start()

            async def is_tried(here: House = here) -> bool:
                return bool(here.model.requests)

            await here.until(is_tried)
    async with house(tmp_path, started=False) as here:
        here.model.steps = [says("At last.")]
        await here.engine.start()
        await here.until_run(other.run_id, "completed")


async def test_a_run_that_an_orderly_stop_ends_between_two_steps_was_cut_off_like_any_other(
    tmp_path: Path,
) -> None:
    """R1: what becomes of it is for the policy to say, though nothing of it was under way."""
    lever = Lever("lever", "pure")
    lever.hold = asyncio.Event()
    async with house(tmp_path, lever, resume="never") as here:
        here.model.steps = [calls("lever")]
        session_id = await here.begin()
        sent = await here.say(session_id, "Go")
        await lever.started.wait()
        stopping = asyncio.create_task(here.engine.stop(30.0))
        await asyncio.sleep(0)
        lever.hold.set()
        await stopping
        run = await here.run(sent.run_id)
        assert (run.status, len(here.model.requests)) == ("interrupted", 1)
    async with house(tmp_path, Lever("lever", "pure"), resume="never") as here:
        await here.engine.recovery.sweep()
        assert (await here.run(sent.run_id)).status == "interrupted"
        assert here.model.requests == []


class Pensive(Forgetful):
    """A memory that is asked before anything else, and may be held up."""

    def __init__(self) -> None:
        self.hold: asyncio.Event | None = None
        self.asked = asyncio.Event()

    async def owner(self, session_id: SessionId) -> str | None:
        if self.hold is not None:
            self.asked.set()
            await self.hold.wait()
        return await super().owner(session_id)


async def test_a_run_that_a_person_answered_goes_on_though_a_stop_came_before_anything_of_it(
    tmp_path: Path,
) -> None:
    """R9: whoever was asked has decided, whatever becomes of what is cut off."""
    memory = Pensive()
    async with house(
        tmp_path, Lever("lever", "unsafe"), approvals="ask", resume="never", memory=memory
    ) as here:
        here.model.steps = [calls("lever")]
        session_id = await here.begin()
        sent = await here.say(session_id, "Go")
        run = await here.until_run(sent.run_id, "waiting")
        (tool,) = await here.store.tools(session_id, run.id)
        memory.hold = asyncio.Event()
        await here.engine.resolve(run.id, tool.id, "approve")
        await memory.asked.wait()
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask", resume="never", started=False) as here:
        here.model.steps = [says("Done.")]
        await here.engine.start()
        run = await here.until_run(sent.run_id, "completed")
        assert (lever.pulled, run.attempts) == (["{}"], 0)


async def test_whoever_is_stopped_while_claiming_a_run_leaves_nobody_holding_it(tmp_path: Path) -> None:
    async with house(tmp_path, Lever("lever", "unsafe"), approvals="ask") as here:
        here.model.steps = [calls("lever")]
        sent = await here.say(await here.begin(), "Go")
        run = await here.until_run(sent.run_id, "waiting")
        for steps in range(6):
            claiming = asyncio.create_task(here.engine.runner.claim(run.id))
            for _ in range(steps):
                await asyncio.sleep(0)
            claiming.cancel()
            await asyncio.gather(claiming, return_exceptions=True)
            lease = await here.store.claim(run.id, 1000)
            assert lease.was_free
            await here.store.release(lease)


async def test_an_unsafe_call_that_may_have_run_is_put_to_a_person(tmp_path: Path) -> None:
    """R9"""
    with resident(tmp_path, "tool") as other:
        other.until("tool_output_appended")
        other.kill()
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever) as here:
        await here.until_run(other.run_id, "waiting")
        assert (await here.store.session(other.session_id)).status == "needs_you"
        assert lever.pulled == []
        (tool,) = await here.store.tools(other.session_id, other.run_id)
        assert tool.state == "in_doubt"
        here.model.steps = [says("So be it.")]
        await here.engine.resolve(other.run_id, tool.id, "rerun")
        await here.until_run(other.run_id, "completed")
        assert lever.pulled == ["{}"]


class Surviving(Lever):
    """A lever whose first try outlives the server that began it, until the test says so."""

    is_over = False

    async def is_gone(self, call_id: CallId) -> bool:
        return self.is_over


async def test_a_call_in_doubt_is_not_run_again_while_its_first_try_still_runs(tmp_path: Path) -> None:
    """R9"""
    with resident(tmp_path, "tool") as other:
        other.until("tool_output_appended")
        other.kill()
    lever = Surviving("lever", "unsafe")
    async with house(tmp_path, lever) as here:
        await here.until_run(other.run_id, "waiting")
        (tool,) = await here.store.tools(other.session_id, other.run_id)
        with pytest.raises(ToolRefused):
            await here.engine.resolve(other.run_id, tool.id, "rerun")
        assert (await here.run(other.run_id)).status == "waiting" and lever.pulled == []
        lever.is_over, here.model.steps = True, [says("So be it.")]
        await here.engine.resolve(other.run_id, tool.id, "rerun")
        await here.until_run(other.run_id, "completed")
        assert lever.pulled == ["{}"]


async def test_a_pure_call_that_was_under_way_is_repeated_and_a_settled_one_is_not(tmp_path: Path) -> None:
    """R9"""
    with resident(tmp_path, "pure") as other:
        other.until("tool_output_appended")
        other.kill()
    lever = Lever("lever", "pure")
    async with house(tmp_path, lever) as here:
        here.model.steps = [[TextDelta("Half"), asyncio.Event()]]

        async def is_settled() -> bool:
            entries = await here.entries(other.session_id)
            return any(entry.role == "tool" and entry.status == "settled" for entry in entries)

        await here.until(is_settled)
        assert lever.pulled == ["{}"]
        # What the first attempt printed stays in front, once.
        output = [text for role, _, text in await here.text(other.session_id) if role == "tool"]
        assert output == ["pulled pulled down"]
    async with house(tmp_path, lever) as here:
        here.model.steps = [says("whole.")]
        await here.until_run(other.run_id, "completed")
        assert lever.pulled == ["{}"]


async def test_the_model_that_goes_on_is_shown_the_partial_answer(tmp_path: Path) -> None:
    """R10"""
    with resident(tmp_path, "words") as other:
        other.until("text_appended", 5)
        other.kill()
    async with house(tmp_path) as here:
        here.model.steps = [says("… the end.")]
        await here.until_run(other.run_id, "completed")
        partial = (await here.text(other.session_id))[1][2]
        shown = here.model.requests[0].messages
        assert any(isinstance(m, AssistantMessage) and m.parts == (Text(partial),) for m in shown)
        entries = await here.entries(other.session_id)
        assert entries[-1].continues == entries[1].id
