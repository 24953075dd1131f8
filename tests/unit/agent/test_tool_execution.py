"""Tool calls as the loop carries them out, whatever a journal from elsewhere says of them."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from holdfast.domain.context.context import find_problems
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import ToolCall
from holdfast.domain.limits import CALLS_PER_STEP_MAX, STEP_BYTES_MAX
from holdfast.models.ports import CallDelta, ModelDelta, TextDelta
from holdfast.store.ports import Append
from holdfast.tools.ports import ToolResult, ToolRun
from tests.support.in_process_app import FakeTool, running_app, text_step, tool_call_step


async def test_the_effect_of_a_call_comes_from_the_tool_not_the_journal(tmp_path: Path) -> None:
    """A conversation from elsewhere may call an unsafe tool pure."""
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask", started=False) as app:
        session_id = await app.create_session()
        sent = await app.engine.commands.accept(session_id, ())
        assert sent.run_id is not None
        call_id, message_id = app.ids.call(), app.ids.message()
        intended = f.ToolIntended(sent.run_id, 1, 2, message_id, call_id, "lever", "{}", "pure")
        settled = f.MessageSettled(1, 1, message_id, "assistant", (), "", sent.run_id)
        await app.store.append(Append(session_id, (f.RunStarted(sent.run_id), settled, intended)))
        await app.engine.start()
        await app.wait_for_run(sent.run_id, "waiting")
        assert tool.run_arguments == []


class SelectiveTool(FakeTool):
    """A tool that takes only some arguments, and would be pulled by the others all the same."""

    def validate(self, arguments: str) -> str:
        return "" if arguments == '{"how": "well"}' else "arguments: `how` is missing"


async def test_an_invalid_call_fails_without_approval_and_does_not_run(tmp_path: Path) -> None:
    tool = SelectiveTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app:
        session_id = await app.create_session()
        app.model.steps = [tool_call_step("lever"), tool_call_step("lever", '{"how": "well"}')]
        sent = await app.send(session_id, "Go")
        assert sent.run_id is not None
        await app.wait_for_run(sent.run_id, "waiting")
        (good,) = await app.store.tools(session_id, sent.run_id)
        assert (good.state, good.approval) == ("intended", "requested")
        assert tool.run_arguments == []
        assert "`how` is missing" in str(app.model.requests[-1].messages[-1])


async def test_deeply_nested_arguments_cause_no_error(tmp_path: Path) -> None:
    async with running_app(tmp_path, FakeTool("lever", "pure")) as app:
        session_id = await app.create_session()
        app.model.steps = [
            tool_call_step("lever", '{"a":' + "[" * 5000 + "]" * 5000 + "}"),
            text_step("Well."),
        ]
        sent = await app.send(session_id, "Go")
        await app.wait_for_run(sent.run_id, "completed")
        app.model.steps = [text_step("Fine.")]
        again = await app.send(session_id, "And now?")
        await app.wait_for_run(again.run_id, "completed")


async def test_an_endless_answer_is_cut_off_and_the_conversation_continues(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        app.model.steps = [[TextDelta("x" * 50_000)] * (STEP_BYTES_MAX // 50_000 + 5)]
        sent = await app.send(session_id, "Write")
        await app.wait_for_run(sent.run_id, "completed")
        app.model.steps = [text_step("Fine.")]
        again = await app.send(session_id, "Enough")
        await app.wait_for_run(again.run_id, "completed")


async def test_an_answer_of_calls_without_end_is_cut_off_and_none_of_them_is_made(tmp_path: Path) -> None:
    tool, written = FakeTool("lever", "unsafe"), list[int]()

    async def endless(request: object, specs: object) -> AsyncGenerator[ModelDelta, None]:
        yield TextDelta("So many:")
        for n in range(100_000):
            written.append(n)
            yield CallDelta(n, "lever", "{}")

    async with running_app(tmp_path, tool) as app:
        session_id = await app.create_session()
        stream, app.model.stream = app.model.stream, endless  # type: ignore[method-assign, assignment]
        sent = await app.send(session_id, "Pull")
        run = await app.wait_for_run(sent.run_id, "failed", "completed")
        assert run.failure is not None and f"{CALLS_PER_STEP_MAX} calls" in run.failure.detail
        assert len(written) == CALLS_PER_STEP_MAX + 1 and tool.run_arguments == []
        app.model.stream = stream  # type: ignore[method-assign]
        app.model.steps = [text_step("Fine.")]
        again = await app.send(session_id, "Enough")
        await app.wait_for_run(again.run_id, "completed")
        answers = app.model.requests[-1].messages
        kept = [part for message in answers for part in message.parts if isinstance(part, ToolCall)]
        assert len(kept) == CALLS_PER_STEP_MAX and find_problems(app.model.requests[-1]) == []


async def test_a_run_that_streamed_more_than_an_event_holds_can_still_be_stopped(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        app.model.steps = [[TextDelta("x"), asyncio.Event()]]
        sent = await app.send(session_id, "Write")
        assert sent.run_id is not None

        async def is_writing() -> bool:
            return (await app.entry_texts(session_id))[-1][:2] == ("assistant", "streaming")

        await app.wait_until(is_writing)
        page = await app.store.messages(session_id, None, 5)
        name = f.MessageId(page.messages[-1].row.id)
        for _ in range(50):
            await app.store.append(Append(session_id, (f.TextAppended(sent.run_id, name, "y" * 60_000),)))
        await app.engine.cancel(sent.run_id)
        assert (await app.run(sent.run_id)).status == "cancelled"
        role, status, words = (await app.entry_texts(session_id))[-1]
        assert (role, status, len(words)) == ("assistant", "interrupted", 3_000_001)


class UnknownOutcomeTool(FakeTool):
    """A tool that can never say whether it was done."""

    async def run(self, call: ToolRun) -> ToolResult:
        self.run_arguments.append(call.arguments)
        call.emit("The line went dead.\n", "stderr")
        return ToolResult("unknown")


async def test_an_unknown_outcome_of_an_unsafe_call_asks_a_person(tmp_path: Path) -> None:
    fake_tool = UnknownOutcomeTool("lever", "unsafe")
    async with running_app(tmp_path, fake_tool) as app:
        session_id = await app.create_session()
        app.model.steps = [tool_call_step("lever"), text_step("Well.")]
        sent = await app.send(session_id, "Go")
        assert sent.run_id is not None
        await app.wait_for_run(sent.run_id, "waiting")
        (tool,) = await app.store.tools(session_id, sent.run_id)
        assert (tool.state, len(fake_tool.run_arguments)) == ("in_doubt", 1)
        assert (await app.entry_texts(session_id))[-1][2] == "The line went dead.\n"
        # Another tool of that name, which says of itself that it can be repeated, is not asked either.
        fake_tool.effect = "pure"
        await app.engine.resolve(sent.run_id, tool.id, "skip")
        await app.wait_for_run(sent.run_id, "completed")
        assert len(fake_tool.run_arguments) == 1


class EffectChangingTool(UnknownOutcomeTool):
    """The same, and while it runs its program begins to say that it can be repeated."""

    async def run(self, call: ToolRun) -> ToolResult:
        self.effect = "pure"
        return await super().run(call)


async def test_an_unsafe_call_is_not_repeated_after_its_tool_changed(
    tmp_path: Path,
) -> None:
    tool = EffectChangingTool("lever", "unsafe")
    async with running_app(tmp_path, tool) as app:
        session_id = await app.create_session()
        app.model.steps = [tool_call_step("lever"), text_step("Well.")]
        sent = await app.send(session_id, "Go")
        run = await app.wait_for_run(sent.run_id, "waiting", "completed", "failed")
        assert (run.status, len(tool.run_arguments)) == ("waiting", 1)


@pytest.mark.parametrize("effect", ["unsafe", "idempotent"])
async def test_a_call_that_changes_something_is_in_the_ledger_as_started_before_it_begins(
    tmp_path: Path, effect: f.Effect
) -> None:
    fake_tool = FakeTool("lever", effect)
    fake_tool.hold = asyncio.Event()
    async with running_app(tmp_path, fake_tool) as app:
        session_id = await app.create_session()
        app.model.steps = [tool_call_step("lever"), text_step("Well.")]
        sent = await app.send(session_id, "Go")
        await fake_tool.started.wait()
        assert sent.run_id is not None
        (tool,) = await app.store.tools(session_id, sent.run_id)
        assert tool.state == "started"


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
async def test_an_unknown_outcome_of_a_repeatable_call_is_a_failure(tmp_path: Path, effect: f.Effect) -> None:
    tool = UnknownOutcomeTool("lever", effect)
    async with running_app(tmp_path, tool) as app:
        session_id = await app.create_session()
        app.model.steps = [tool_call_step("lever"), text_step("Well.")]
        sent = await app.send(session_id, "Go")
        await app.wait_for_run(sent.run_id, "completed")
        assert len(tool.run_arguments) == 1


async def test_a_call_started_as_unsafe_stays_unsafe(
    tmp_path: Path,
) -> None:
    fake_tool = FakeTool("lever", "unsafe")
    fake_tool.hold = asyncio.Event()
    async with running_app(tmp_path, fake_tool) as app:
        session_id = await app.create_session()
        app.model.steps = [tool_call_step("lever"), text_step("Well.")]
        sent = await app.send(session_id, "Go")
        await fake_tool.started.wait()
    changed = FakeTool("lever", "pure")
    async with running_app(tmp_path, changed) as app:
        assert sent.run_id is not None
        await app.wait_for_run(sent.run_id, "waiting")
        (tool,) = await app.store.tools(session_id, sent.run_id)
        assert (tool.state, changed.run_arguments) == ("in_doubt", [])
