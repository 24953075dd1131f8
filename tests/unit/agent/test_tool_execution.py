"""Tool calls as the loop carries them out, whatever a journal from elsewhere says of them."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from holdfast.domain.context.context import problems
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import ToolCall
from holdfast.domain.limits import CALLS_PER_STEP_MAX, STEP_BYTES_MAX
from holdfast.models.ports import CallDelta, ModelDelta, TextDelta
from holdfast.store.ports import Append
from holdfast.tools.ports import ToolResult, ToolRun
from tests.support.in_process_app import Lever, calls, house, says


async def test_what_a_tool_does_is_said_by_the_tool_and_not_by_the_journal(tmp_path: Path) -> None:
    """A conversation from elsewhere may call an unsafe tool pure."""
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask", started=False) as here:
        session_id = await here.begin()
        sent = await here.engine.verbs.accept(session_id, ())
        assert sent.run_id is not None
        call_id, message_id = here.ids.call(), here.ids.message()
        intended = f.ToolIntended(sent.run_id, 1, 2, message_id, call_id, "lever", "{}", "pure")
        settled = f.MessageSettled(1, 1, message_id, "assistant", (), "", sent.run_id)
        await here.store.append(Append(session_id, (f.RunStarted(sent.run_id), settled, intended)))
        await here.engine.start()
        await here.until_run(sent.run_id, "waiting")
        assert lever.pulled == []


class Choosy(Lever):
    """A tool that takes only some arguments, and would be pulled by the others all the same."""

    def flaw(self, arguments: str) -> str:
        return "" if arguments == '{"how": "well"}' else "arguments: `how` is missing"


async def test_what_can_only_fail_is_put_to_nobody_and_not_made(tmp_path: Path) -> None:
    lever = Choosy("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as here:
        session_id = await here.begin()
        here.model.steps = [calls("lever"), calls("lever", '{"how": "well"}')]
        sent = await here.say(session_id, "Go")
        assert sent.run_id is not None
        await here.until_run(sent.run_id, "waiting")
        (good,) = await here.store.tools(session_id, sent.run_id)
        assert (good.state, good.approval) == ("intended", "requested")
        assert lever.pulled == []
        assert "`how` is missing" in str(here.model.requests[-1].messages[-1])


async def test_arguments_nested_without_end_spoil_nothing(tmp_path: Path) -> None:
    async with house(tmp_path, Lever("lever", "pure")) as here:
        session_id = await here.begin()
        here.model.steps = [calls("lever", '{"a":' + "[" * 5000 + "]" * 5000 + "}"), says("Well.")]
        sent = await here.say(session_id, "Go")
        await here.until_run(sent.run_id, "completed")
        here.model.steps = [says("Fine.")]
        again = await here.say(session_id, "And now?")
        await here.until_run(again.run_id, "completed")


async def test_an_answer_without_end_is_ended_and_the_conversation_goes_on(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session_id = await here.begin()
        here.model.steps = [[TextDelta("x" * 50_000)] * (STEP_BYTES_MAX // 50_000 + 5)]
        sent = await here.say(session_id, "Write")
        await here.until_run(sent.run_id, "completed")
        here.model.steps = [says("Fine.")]
        again = await here.say(session_id, "Enough")
        await here.until_run(again.run_id, "completed")


async def test_an_answer_of_calls_without_end_is_cut_off_and_none_of_them_is_made(tmp_path: Path) -> None:
    lever, written = Lever("lever", "unsafe"), list[int]()

    async def endless(request: object, specs: object) -> AsyncGenerator[ModelDelta, None]:
        yield TextDelta("So many:")
        for n in range(100_000):
            written.append(n)
            yield CallDelta(n, "lever", "{}")

    async with house(tmp_path, lever) as here:
        session_id = await here.begin()
        stream, here.model.stream = here.model.stream, endless  # type: ignore[method-assign, assignment]
        sent = await here.say(session_id, "Pull")
        run = await here.until_run(sent.run_id, "failed", "completed")
        assert run.failure is not None and f"{CALLS_PER_STEP_MAX} calls" in run.failure.detail
        assert len(written) == CALLS_PER_STEP_MAX + 1 and lever.pulled == []
        here.model.stream = stream  # type: ignore[method-assign]
        here.model.steps = [says("Fine.")]
        again = await here.say(session_id, "Enough")
        await here.until_run(again.run_id, "completed")
        answers = here.model.requests[-1].messages
        kept = [part for message in answers for part in message.parts if isinstance(part, ToolCall)]
        assert len(kept) == CALLS_PER_STEP_MAX and problems(here.model.requests[-1]) == []


async def test_a_run_that_streamed_more_than_an_event_holds_can_still_be_stopped(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        session_id = await here.begin()
        here.model.steps = [[TextDelta("x"), asyncio.Event()]]
        sent = await here.say(session_id, "Write")
        assert sent.run_id is not None

        async def is_writing() -> bool:
            return (await here.text(session_id))[-1][:2] == ("assistant", "streaming")

        await here.until(is_writing)
        page = await here.store.messages(session_id, None, 5)
        name = f.MessageId(page.messages[-1].row.id)
        for _ in range(50):
            await here.store.append(Append(session_id, (f.TextAppended(sent.run_id, name, "y" * 60_000),)))
        await here.engine.cancel(sent.run_id)
        assert (await here.run(sent.run_id)).status == "cancelled"
        role, status, words = (await here.text(session_id))[-1]
        assert (role, status, len(words)) == ("assistant", "interrupted", 3_000_001)


class Unsure(Lever):
    """A tool that can never say whether it was done."""

    async def run(self, call: ToolRun) -> ToolResult:
        self.pulled.append(call.arguments)
        call.emit("The line went dead.\n", "stderr")
        return ToolResult("unknown")


async def test_what_a_tool_cannot_say_of_an_unsafe_call_is_put_to_a_person(tmp_path: Path) -> None:
    lever = Unsure("lever", "unsafe")
    async with house(tmp_path, lever) as here:
        session_id = await here.begin()
        here.model.steps = [calls("lever"), says("Well.")]
        sent = await here.say(session_id, "Go")
        assert sent.run_id is not None
        await here.until_run(sent.run_id, "waiting")
        (tool,) = await here.store.tools(session_id, sent.run_id)
        assert (tool.state, len(lever.pulled)) == ("in_doubt", 1)
        assert (await here.text(session_id))[-1][2] == "The line went dead.\n"
        # Another tool of that name, which says of itself that it can be repeated, is not asked either.
        lever.effect = "pure"
        await here.engine.resolve(sent.run_id, tool.id, "skip")
        await here.until_run(sent.run_id, "completed")
        assert len(lever.pulled) == 1


class Changing(Unsure):
    """The same, and while it runs its program begins to say that it can be repeated."""

    async def run(self, call: ToolRun) -> ToolResult:
        self.effect = "pure"
        return await super().run(call)


async def test_what_ran_as_unsafe_is_not_repeated_because_its_tool_has_changed_meanwhile(
    tmp_path: Path,
) -> None:
    lever = Changing("lever", "unsafe")
    async with house(tmp_path, lever) as here:
        session_id = await here.begin()
        here.model.steps = [calls("lever"), says("Well.")]
        sent = await here.say(session_id, "Go")
        run = await here.until_run(sent.run_id, "waiting", "completed", "failed")
        assert (run.status, len(lever.pulled)) == ("waiting", 1)


@pytest.mark.parametrize("effect", ["unsafe", "idempotent"])
async def test_a_call_that_changes_something_is_in_the_ledger_as_started_before_it_begins(
    tmp_path: Path, effect: f.Effect
) -> None:
    lever = Lever("lever", effect)
    lever.hold = asyncio.Event()
    async with house(tmp_path, lever) as here:
        session_id = await here.begin()
        here.model.steps = [calls("lever"), says("Well.")]
        sent = await here.say(session_id, "Go")
        await lever.started.wait()
        assert sent.run_id is not None
        (tool,) = await here.store.tools(session_id, sent.run_id)
        assert tool.state == "started"


@pytest.mark.parametrize("effect", ["pure", "idempotent"])
async def test_what_a_tool_cannot_say_of_a_harmless_call_has_failed(tmp_path: Path, effect: f.Effect) -> None:
    lever = Unsure("lever", effect)
    async with house(tmp_path, lever) as here:
        session_id = await here.begin()
        here.model.steps = [calls("lever"), says("Well.")]
        sent = await here.say(session_id, "Go")
        await here.until_run(sent.run_id, "completed")
        assert len(lever.pulled) == 1


async def test_what_was_begun_as_unsafe_is_not_repeated_because_its_tool_says_otherwise_now(
    tmp_path: Path,
) -> None:
    lever = Lever("lever", "unsafe")
    lever.hold = asyncio.Event()
    async with house(tmp_path, lever) as here:
        session_id = await here.begin()
        here.model.steps = [calls("lever"), says("Well.")]
        sent = await here.say(session_id, "Go")
        await lever.started.wait()
    changed = Lever("lever", "pure")
    async with house(tmp_path, changed) as here:
        assert sent.run_id is not None
        await here.until_run(sent.run_id, "waiting")
        (tool,) = await here.store.tools(session_id, sent.run_id)
        assert (tool.state, changed.pulled) == ("in_doubt", [])
