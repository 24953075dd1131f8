"""R9, R10: an interrupted run resumes by itself, as far as that is right. Real processes are killed."""

import asyncio
from pathlib import Path

import pytest

from holdfast.agent.ports import NullMemory
from holdfast.domain.context.context import AssistantMessage
from holdfast.domain.context.request import DEMO, ModelProfile
from holdfast.domain.errors import ToolRefused
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId, SessionId
from holdfast.domain.limits import RESUME_ATTEMPTS_MAX, RESUME_ATTEMPTS_STALLED_MAX
from holdfast.models.ports import TextDelta
from tests.contracts.run_worker import worker_process
from tests.support.in_process_app import AppHarness, FakeTool, running_app, text_step, tool_call_step


async def test_an_interrupted_run_goes_on_by_itself_within_its_budget_of_attempts(tmp_path: Path) -> None:
    """R9"""
    with worker_process(tmp_path, "words") as other:
        other.wait_for_event("text_appended", 5)
        other.kill()
    async with running_app(tmp_path) as app:
        app.model.steps = [text_step("Done.")]
        run = await app.wait_for_run(other.run_id, "completed")
        assert run.attempts == 1


async def test_an_unstarted_message_is_answered_after_a_restart(tmp_path: Path) -> None:
    """R9: the process ended between storing the message and starting its run."""
    async with running_app(tmp_path, started=False) as app:
        sent = await app.engine.commands.accept(await app.create_session(), (Text("Hello"),))
    async with running_app(tmp_path, started=False) as app:
        assert sent.run_id is not None and not app.engine.runner.is_active(sent.run_id)
        hold = asyncio.Event()
        app.model.steps = [[hold, *text_step("Hello.")]]
        await app.engine.recovery.sweep()
        assert app.engine.runner.is_active(sent.run_id)
        hold.set()
        await app.wait_for_run(sent.run_id, "completed")


async def test_the_demo_never_continues_an_answer_of_a_model(tmp_path: Path) -> None:
    """R10: a server may restart without the key of its model."""
    with worker_process(tmp_path, "words") as other:
        other.wait_for_event("text_appended", 5)
        other.kill()
    async with running_app(tmp_path, started=False) as app:
        app.model.name, app.model.profile = DEMO, ModelProfile(DEMO, 100_000)
        await app.engine.start()
        run = await app.wait_for_run(other.run_id, "failed")
        assert app.model.requests == []
        assert run.failure is not None and "puppet began this answer" in run.failure.detail
        # What is asked anew is another matter.
        app.model.steps = [text_step("No AI.")]
        sent = await app.send(other.session_id, "Again")
        await app.wait_for_run(sent.run_id, "completed")


async def test_a_run_without_progress_stops_being_resumed(tmp_path: Path) -> None:
    """R9: the budget is durable."""
    for story in ("nothing", *["again"] * RESUME_ATTEMPTS_STALLED_MAX):
        with worker_process(tmp_path, story) as other:
            other.wait_for_event("model_step_started")
            other.kill()
    async with running_app(tmp_path) as app:
        await app.wait_for_run(other.run_id, "interrupted")
        await app.engine.recovery.sweep()
        await app.wait_until_idle()
        run = await app.run(other.run_id)
        assert (run.status, run.stalled) == ("interrupted", RESUME_ATTEMPTS_STALLED_MAX)
        assert app.model.requests == []
        app.model.steps = [text_step("By hand.")]
        await app.engine.resume(other.run_id)
        await app.wait_for_run(other.run_id, "completed")


async def test_a_run_with_slow_progress_is_resumed_a_limited_number_of_times(
    tmp_path: Path,
) -> None:
    """R9: the budget counts all attempts, across restarts."""
    run_id = None
    for attempt in range(RESUME_ATTEMPTS_MAX + 1):
        tool, further = FakeTool("lever", "pure"), asyncio.Event()
        async with running_app(tmp_path, tool, started=False) as app:
            app.model.steps = [tool_call_step("lever"), [further]]
            await app.engine.start()
            if run_id is None:
                run_id = (await app.send(await app.create_session(), "Go on for ever")).run_id

            async def is_a_step_further(app: AppHarness = app) -> bool:
                return len(app.model.requests) == 2

            await app.wait_until(is_a_step_further)
            run = await app.run(run_id)
            assert (run.attempts, run.stalled, tool.run_arguments) == (attempt, 0, ["{}"])
    async with running_app(tmp_path) as app:
        await app.engine.recovery.sweep()
        await app.wait_until_idle()
        run = await app.run(run_id)
        assert (run.status, run.attempts) == ("interrupted", RESUME_ATTEMPTS_MAX)
        assert app.model.requests == []
        assert run_id is not None
        app.model.steps = [text_step("By hand.")]
        await app.engine.resume(run_id)
        await app.wait_for_run(run_id, "completed")


async def test_a_graceful_stop_does_not_count_as_a_stalled_attempt(
    tmp_path: Path,
) -> None:
    """R9: the budget is there for a run that kills its processes."""
    with worker_process(tmp_path, "nothing") as other:
        other.wait_for_event("model_step_started")
        other.kill()
    for _ in range(2 * RESUME_ATTEMPTS_STALLED_MAX):
        async with running_app(tmp_path, started=False) as app:
            app.model.steps = [[asyncio.Event()]]
            await app.engine.start()

            async def is_tried(app: AppHarness = app) -> bool:
                return bool(app.model.requests)

            await app.wait_until(is_tried)
    async with running_app(tmp_path, started=False) as app:
        app.model.steps = [text_step("At last.")]
        await app.engine.start()
        await app.wait_for_run(other.run_id, "completed")


async def test_a_run_stopped_gracefully_between_steps_is_interrupted(
    tmp_path: Path,
) -> None:
    """R1: the policy decides about it, though nothing of it was running."""
    tool = FakeTool("lever", "pure")
    tool.hold = asyncio.Event()
    async with running_app(tmp_path, tool, resume="never") as app:
        app.model.steps = [tool_call_step("lever")]
        session_id = await app.create_session()
        sent = await app.send(session_id, "Go")
        await tool.started.wait()
        stopping = asyncio.create_task(app.engine.stop(30.0))
        await asyncio.sleep(0)
        tool.hold.set()
        await stopping
        run = await app.run(sent.run_id)
        assert (run.status, len(app.model.requests)) == ("interrupted", 1)
    async with running_app(tmp_path, FakeTool("lever", "pure"), resume="never") as app:
        await app.engine.recovery.sweep()
        assert (await app.run(sent.run_id)).status == "interrupted"
        assert app.model.requests == []


class BlockingMemory(NullMemory):
    """A memory that is called before anything else, and may block."""

    def __init__(self) -> None:
        self.blocked_until: asyncio.Event | None = None
        self.asked = asyncio.Event()

    async def register_session(self, session_id: SessionId) -> str | None:
        if self.blocked_until is not None:
            self.asked.set()
            await self.blocked_until.wait()
        return await super().register_session(session_id)


async def test_a_run_that_a_person_answered_goes_on_though_a_stop_came_before_anything_of_it(
    tmp_path: Path,
) -> None:
    """R9: the person has decided, whatever the policy for interrupted runs is."""
    memory = BlockingMemory()
    async with running_app(
        tmp_path, FakeTool("lever", "unsafe"), approvals="ask", resume="never", memory=memory
    ) as app:
        app.model.steps = [tool_call_step("lever")]
        session_id = await app.create_session()
        sent = await app.send(session_id, "Go")
        run = await app.wait_for_run(sent.run_id, "waiting")
        (tool,) = await app.store.tools(session_id, run.id)
        memory.blocked_until = asyncio.Event()
        await app.engine.resolve(run.id, tool.id, "approve")
        await memory.asked.wait()
    fake_tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, fake_tool, approvals="ask", resume="never", started=False) as app:
        app.model.steps = [text_step("Done.")]
        await app.engine.start()
        run = await app.wait_for_run(sent.run_id, "completed")
        assert (fake_tool.run_arguments, run.attempts) == (["{}"], 0)


async def test_cancelling_a_claim_leaves_no_lease(tmp_path: Path) -> None:
    async with running_app(tmp_path, FakeTool("lever", "unsafe"), approvals="ask") as app:
        app.model.steps = [tool_call_step("lever")]
        sent = await app.send(await app.create_session(), "Go")
        run = await app.wait_for_run(sent.run_id, "waiting")
        for steps in range(6):
            claiming = asyncio.create_task(app.engine.runner.claim(run.id))
            for _ in range(steps):
                await asyncio.sleep(0)
            claiming.cancel()
            await asyncio.gather(claiming, return_exceptions=True)
            lease = await app.store.claim(run.id, 1000)
            assert lease.was_free
            await app.store.release(lease)


async def test_an_unsafe_call_that_may_have_run_asks_a_person(tmp_path: Path) -> None:
    """R9"""
    with worker_process(tmp_path, "tool") as other:
        other.wait_for_event("tool_output_appended")
        other.kill()
    fake_tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, fake_tool) as app:
        await app.wait_for_run(other.run_id, "waiting")
        assert (await app.store.session(other.session_id)).status == "needs_you"
        assert fake_tool.run_arguments == []
        (tool,) = await app.store.tools(other.session_id, other.run_id)
        assert tool.state == "in_doubt"
        app.model.steps = [text_step("So be it.")]
        await app.engine.resolve(other.run_id, tool.id, "rerun")
        await app.wait_for_run(other.run_id, "completed")
        assert fake_tool.run_arguments == ["{}"]


class SurvivingTool(FakeTool):
    """A tool whose first call outlives its server, until the test ends it."""

    is_over = False

    async def is_finished(self, call_id: CallId) -> bool:
        return self.is_over


async def test_a_call_in_doubt_is_not_run_again_while_its_first_try_still_runs(tmp_path: Path) -> None:
    """R9"""
    with worker_process(tmp_path, "tool") as other:
        other.wait_for_event("tool_output_appended")
        other.kill()
    fake_tool = SurvivingTool("lever", "unsafe")
    async with running_app(tmp_path, fake_tool) as app:
        await app.wait_for_run(other.run_id, "waiting")
        (tool,) = await app.store.tools(other.session_id, other.run_id)
        with pytest.raises(ToolRefused):
            await app.engine.resolve(other.run_id, tool.id, "rerun")
        assert (await app.run(other.run_id)).status == "waiting" and fake_tool.run_arguments == []
        fake_tool.is_over, app.model.steps = True, [text_step("So be it.")]
        await app.engine.resolve(other.run_id, tool.id, "rerun")
        await app.wait_for_run(other.run_id, "completed")
        assert fake_tool.run_arguments == ["{}"]


async def test_a_pure_call_that_was_under_way_is_repeated_and_a_settled_one_is_not(tmp_path: Path) -> None:
    """R9"""
    with worker_process(tmp_path, "pure") as other:
        other.wait_for_event("tool_output_appended")
        other.kill()
    tool = FakeTool("lever", "pure")
    async with running_app(tmp_path, tool) as app:
        app.model.steps = [[TextDelta("Half"), asyncio.Event()]]

        async def is_settled() -> bool:
            entries = await app.entries(other.session_id)
            return any(entry.role == "tool" and entry.status == "settled" for entry in entries)

        await app.wait_until(is_settled)
        assert tool.run_arguments == ["{}"]
        # What the first attempt printed stays in front, once.
        output = [text for role, _, text in await app.entry_texts(other.session_id) if role == "tool"]
        assert output == ["pulled pulled down"]
    async with running_app(tmp_path, tool) as app:
        app.model.steps = [text_step("whole.")]
        await app.wait_for_run(other.run_id, "completed")
        assert tool.run_arguments == ["{}"]


async def test_a_resumed_model_receives_the_partial_answer(tmp_path: Path) -> None:
    """R10"""
    with worker_process(tmp_path, "words") as other:
        other.wait_for_event("text_appended", 5)
        other.kill()
    async with running_app(tmp_path) as app:
        app.model.steps = [text_step("… the end.")]
        await app.wait_for_run(other.run_id, "completed")
        partial = (await app.entry_texts(other.session_id))[1][2]
        shown = app.model.requests[0].messages
        assert any(isinstance(m, AssistantMessage) and m.parts == (Text(partial),) for m in shown)
        entries = await app.entries(other.session_id)
        assert entries[-1].continues == entries[1].id
