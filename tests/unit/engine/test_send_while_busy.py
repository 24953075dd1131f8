"""What becomes of a message that is sent while the conversation is worked on: it waits, it is told to the run
under way, it stops that, or it is not kept."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.context.context import AssistantMessage, Request, ToolMessage, UserMessage, find_problems
from holdfast.domain.errors import Busy, NoSuchTurn
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text, message_text
from holdfast.domain.ids import SessionId
from holdfast.domain.transcript.transcript import TranscriptFold
from holdfast.domain.transcript.transcript import fold as fold_transcript
from holdfast.models.ports import TextDelta
from tests.support.in_process_app import AppHarness, FakeTool, running_app, text_step, tool_call_step


def messages_shown(request: Request) -> list[tuple[str, str]]:
    """What a model was shown, as sides and words; a call by its tool's name."""
    sides = {UserMessage: "user", AssistantMessage: "assistant", ToolMessage: "tool"}
    return [(sides[type(message)], message_text(message.parts)) for message in request.messages]


async def role_texts(app: AppHarness, session_id: SessionId) -> list[tuple[str, str]]:
    return [(role, said) for role, _, said in await app.entry_texts(session_id)]


async def pages_match_events(app: AppHarness, session_id: SessionId) -> None:
    """The fold of all events reads as the pages of rows do."""
    page = await app.store.messages(session_id, None, 200)
    reading = TranscriptFold()
    reading.add_messages(page.messages)
    events = await app.store.read(session_id, 0, 1000)
    assert reading.transcript().turns == fold_transcript(events).turns


def start_busy_tool(app: AppHarness, tool: FakeTool, *then: str) -> asyncio.Event:
    """Have the model pull the lever and then answer; the lever stays down until the event is set."""
    tool.hold = asyncio.Event()
    app.model.steps = [tool_call_step("pull"), *(text_step(each) for each in then)]
    return tool.hold


async def test_a_steered_message_is_shown_to_the_model_after_the_results_of_its_calls(tmp_path: Path) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool) as app:
        hold = start_busy_tool(app, tool, "In French: un")
        session = await app.create_session()
        first = await app.send(session, "Count")
        await tool.started.wait()
        receipt = await app.send(session, "In French", if_busy="steer")
        assert (await app.run(receipt.run_id)).status == "queued" and receipt.run_to_start is None
        hold.set()
        await app.wait_for_run(first.run_id, "completed")
        assert messages_shown(app.model.requests[-1]) == [
            ("user", "Count"), ("assistant", ""), ("tool", "pulled down"), ("user", "In French"),
        ]  # fmt: skip
        assert not find_problems(app.model.requests[-1])
        assert await role_texts(app, session) == [
            ("user", "Count"), ("assistant", ""), ("tool", "pulled down"), ("user", "In French"),
            ("assistant", "In French: un"),
        ]  # fmt: skip
        assert {entry.turn for entry in await app.entries(session)} == {1}
        assert (await app.run(receipt.run_id)).status == "completed"
        assert len(app.model.requests) == 2, "nothing is answered twice"
        row = await app.store.session(session)
        assert (row.live_turns, row.last_turn, row.status) == (1, 2, "idle")
        await pages_match_events(app, session)


async def test_several_steered_messages_keep_their_order_before_one_that_waits(tmp_path: Path) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool) as app:
        hold = start_busy_tool(app, tool, "both", "the last")
        session = await app.create_session()
        await app.send(session, "Go")
        await tool.started.wait()
        await app.send(session, "Wait for me")
        await app.send(session, "First", if_busy="steer")
        last = await app.send(session, "Second", if_busy="steer")
        hold.set()
        await app.wait_for_run(last.run_id, "completed")
        await app.wait_until(lambda: _is_idle(app, session))
        assert await role_texts(app, session) == [
            ("user", "Go"), ("assistant", ""), ("tool", "pulled down"), ("user", "First"),
            ("user", "Second"), ("assistant", "both"), ("user", "Wait for me"), ("assistant", "the last"),
        ]  # fmt: skip
        await pages_match_events(app, session)


async def _is_idle(app: AppHarness, session_id: SessionId) -> bool:
    return (await app.store.session(session_id)).status == "idle"


async def test_without_another_step_a_steered_message_is_the_next_turn(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        hold = asyncio.Event()
        app.model.steps = [[TextDelta("Done"), hold, *text_step(".")], text_step("And that")]
        session = await app.create_session()
        first = await app.send(session, "One thing")
        await app.wait_until(lambda: _has(app, session, "Done"))
        receipt = await app.send(session, "Another", if_busy="steer")
        hold.set()
        await app.wait_for_run(receipt.run_id, "completed")
        assert (await app.run(first.run_id)).status == "completed"
        assert [(e.turn, e.role) for e in await app.entries(session)] == [
            (1, "user"), (1, "assistant"), (2, "user"), (2, "assistant"),
        ]  # fmt: skip
        assert "turn_steered" not in await app.event_kinds(session)


async def _has(app: AppHarness, session_id: SessionId, text: str) -> bool:
    return any(text in said for _, said in await role_texts(app, session_id))


async def test_steering_an_idle_conversation_sends_a_message(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        app.model.steps = [text_step("Hello")]
        session = await app.create_session()
        sent = await app.send(session, "Hi", if_busy="steer")
        await app.wait_for_run(sent.run_id, "completed")
        assert await role_texts(app, session) == [("user", "Hi"), ("assistant", "Hello")]


async def test_a_repeated_steered_message_gets_the_same_receipt(
    tmp_path: Path,
) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool) as app:
        hold = start_busy_tool(app, tool, "yes")
        session = await app.create_session()
        first = await app.send(session, "Go")
        await tool.started.wait()
        receipt = await app.send(session, "Quick", "k1", if_busy="steer")
        again = await app.send(session, "Quick", "k1", if_busy="steer")
        hold.set()
        await app.wait_for_run(first.run_id, "completed")
        later = await app.send(session, "Quick", "k1", if_busy="steer")
        for other in (again, later):
            assert (other.turn_id, other.run_id, other.seq) == (receipt.turn_id, receipt.run_id, receipt.seq)
            assert other.run_to_start is None
        assert [said for _, said in await role_texts(app, session)].count("Quick") == 1


async def test_a_steered_message_is_found_once_and_undone_with_its_turn(tmp_path: Path) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool) as app:
        hold = start_busy_tool(app, tool, "yes")
        session = await app.create_session()
        first = await app.send(session, "Go")
        await tool.started.wait()
        receipt = await app.send(session, "pumpernickel", if_busy="steer")
        hold.set()
        await app.wait_for_run(first.run_id, "completed")
        [hit] = await app.store.search("pumpernickel", 10)
        assert (hit.turn, hit.role) == (1, "user")
        with pytest.raises(NoSuchTurn):
            await app.engine.commands.undo(session, receipt.turn_id)
        fork = await app.engine.commands.fork(session)
        assert await role_texts(app, fork) == await role_texts(app, session)
        await app.engine.commands.undo(session, None)
        assert (await app.store.session(session)).live_turns == 0
        assert not [hit for hit in await app.store.search("pumpernickel", 10) if hit.session_id == session]
        await pages_match_events(app, session)


@pytest.mark.parametrize("ending", ["cancel", "interrupt"])
async def test_a_message_for_a_run_that_is_stopped_stays_a_turn_in_the_queue(
    tmp_path: Path, ending: str
) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool) as app:
        start_busy_tool(app, tool)
        session = await app.create_session()
        first = await app.send(session, "Go")
        await tool.started.wait()
        receipt = await app.send(session, "Quick", if_busy="steer")
        assert first.run_id is not None and receipt.run_id is not None
        app.model.steps = [text_step("quickly"), text_step("and more")]
        if ending == "cancel":
            await app.engine.cancel(first.run_id)
            assert (await app.run(receipt.run_id)).status == "queued"
            await app.engine.resume(receipt.run_id)
        else:
            await app.send(session, "Stop", if_busy="interrupt")
        await app.wait_for_run(receipt.run_id, "completed")
        await app.wait_until(lambda: _is_idle(app, session))
        assert (await app.run(first.run_id)).status == "cancelled"
        said = [(entry.turn, message_text(entry.parts)) for entry in await app.entries(session)]
        assert (2, "Quick") in said and (2, "quickly") in said


async def test_a_message_for_an_interrupted_run_is_sent_once_after_resuming(tmp_path: Path) -> None:
    tool = FakeTool("pull", "pure")
    async with running_app(tmp_path, tool) as app:
        start_busy_tool(app, tool)
        session = await app.create_session()
        first = await app.send(session, "Go")
        await tool.started.wait()
        receipt = await app.send(session, "Quick", "k", if_busy="steer")
    # Left in the middle of its call: the message is kept, and nobody has been told.
    async with running_app(tmp_path, FakeTool("pull", "pure"), started=False) as app:
        app.model.steps = [text_step("quickly")]
        assert (await app.run(receipt.run_id)).status == "queued"
        await app.engine.start()
        await app.wait_for_run(first.run_id, "completed")
        assert [said for side, said in messages_shown(app.model.requests[0]) if side == "user"][-1] == "Quick"
        assert len(app.model.requests) == 1
        assert (await app.send(session, "Quick", "k", if_busy="steer")).run_id == receipt.run_id
        assert (await app.event_kinds(session)).count("turn_steered") == 1
        await pages_match_events(app, session)


async def test_interrupting_stops_the_run_and_accepts_the_message_at_once(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        never = asyncio.Event()
        app.model.steps = [[TextDelta("Half an "), never], text_step("Instead")]
        session = await app.create_session()
        first = await app.send(session, "Long story")
        await app.wait_until(lambda: _has(app, session, "Half an"))
        events = await app.store.read(session, 0, 1000)
        second = await app.send(session, "Something else", if_busy="interrupt")
        new = await app.store.read(session, events[-1].seq, 1000)
        kinds = ["message_settled", "model_step_settled", "run_cancelled", "turn_accepted"]
        assert [event.kind for event in new[:4]] == kinds
        assert len({event.at for event in new[:4]}) == 1
        assert second.run_to_start == second.run_id
        await app.wait_for_run(second.run_id, "completed")
        assert (await app.run(first.run_id)).status == "cancelled"
        assert await app.entry_texts(session) == [
            ("user", "settled", "Long story"), ("assistant", "interrupted", "Half an "),
            ("user", "settled", "Something else"), ("assistant", "settled", "Instead"),
        ]  # fmt: skip


async def test_queued_messages_are_answered_before_an_interrupting_message(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        app.model.steps = [[TextDelta("Well"), asyncio.Event()], text_step("two"), text_step("three")]
        session = await app.create_session()
        first = await app.send(session, "1")
        await app.wait_until(lambda: _has(app, session, "Well"))
        second = await app.send(session, "2")
        third = await app.send(session, "3", "k", if_busy="interrupt")
        assert (third.queued, third.run_to_start) == (True, second.run_id)
        again = await app.send(session, "3", "k", if_busy="interrupt")
        assert again.run_id == third.run_id
        await app.wait_for_run(third.run_id, "completed")
        assert (await app.run(first.run_id)).status == "cancelled"
        assert await role_texts(app, session) == [
            ("user", "1"), ("assistant", "Well"), ("user", "2"), ("assistant", "two"), ("user", "3"),
            ("assistant", "three"),
        ]  # fmt: skip


async def test_a_rejected_message_is_not_stored(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        hold = asyncio.Event()
        app.model.steps = [
            text_step("before"),
            [TextDelta("Well"), hold, *text_step(".")],
            text_step("after"),
        ]
        session = await app.create_session()
        kept = await app.send(session, "Before", "k", if_busy="reject")
        await app.wait_for_run(kept.run_id, "completed")
        first = await app.send(session, "Go")
        head = await app.store.head(session)
        with pytest.raises(Busy) as refused:
            await app.send(session, "Me too", if_busy="reject")
        assert refused.value.fields["run_id"] == first.run_id
        again = await app.send(session, "Before", "k", if_busy="reject")
        assert (again.turn_id, again.seq) == (kept.turn_id, kept.seq)
        assert not await _has(app, session, "Me too") and await app.store.head(session) >= head
        hold.set()
        await app.wait_for_run(first.run_id, "completed")
        last = await app.send(session, "Me too", if_busy="reject")
        await app.wait_for_run(last.run_id, "completed")


@pytest.mark.parametrize("if_busy", ["queue", "steer", "interrupt", "reject"])
async def test_a_message_to_a_waiting_run_closes_its_questions(tmp_path: Path, if_busy: str) -> None:
    tool = FakeTool("pull", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app:
        app.model.steps = [tool_call_step("pull"), text_step("Fine")]
        session = await app.create_session()
        first = await app.send(session, "Go")
        await app.wait_for_run(first.run_id, "waiting")
        second = await app.engine.send(session, (Text("Never mind"),), None, if_busy)  # type: ignore[arg-type]
        await app.wait_for_run(second.run_id, "completed")
        assert (await app.run(first.run_id)).status == "cancelled"
        outcomes = [entry.outcome for entry in await app.entries(session) if entry.role == "tool"]
        assert outcomes == ["denied"] and not tool.run_arguments


async def test_a_stopped_run_writes_nothing_more(tmp_path: Path) -> None:
    tool = FakeTool("pull", "unsafe")
    async with running_app(tmp_path, tool) as app:
        hold = start_busy_tool(app, tool)
        session = await app.create_session()
        first = await app.send(session, "Go")
        await tool.started.wait()
        app.model.steps = [text_step("Fine")]
        second = await app.send(session, "Stop", if_busy="interrupt")
        hold.set()
        await app.wait_for_run(second.run_id, "completed")
        events = await app.store.read(session, 0, 1000)
        ended = next(event.seq for event in events if event.kind == "run_cancelled")
        late = [event.kind for event in events if event.seq > ended and _run_of(event.fact) == first.run_id]
        assert late == []


def _run_of(fact: object) -> object:
    return getattr(fact, "run_id", None) if not isinstance(fact, f.TurnAccepted) else None


@pytest.mark.parametrize(("resume", "status"), [("ask", "needs_you"), ("never", "interrupted")])
async def test_an_interrupted_run_asks_a_person_or_stays_interrupted(
    tmp_path: Path, resume: f.ResumeMode, status: str
) -> None:
    async with running_app(tmp_path, resume=resume) as app:
        app.model.steps = [[TextDelta("Well"), asyncio.Event()]]
        session = await app.create_session()
        sent = await app.send(session, "Go")
        await app.wait_until(lambda: _has(app, session, "Well"))
    async with running_app(tmp_path, resume=resume) as app:
        app.model.steps = [text_step("done")]
        await app.engine.recovery.sweep()
        run = await app.run(sent.run_id)
        assert (run.status, (await app.store.session(session)).status) == ("interrupted", status)
        await app.engine.resume(run.id)
        await app.wait_for_run(run.id, "completed")
        assert (await app.store.session(session)).status == "idle"


async def test_a_conversations_own_policy_decides_whether_a_person_is_asked(tmp_path: Path) -> None:
    async with running_app(tmp_path, resume="never") as app:
        app.model.steps = [[TextDelta("Well"), asyncio.Event()]]
        session = await app.create_session()
        await app.engine.commands.configure(session, f.SessionConfigured(resume="ask"))
        await app.send(session, "Go")
        await app.wait_until(lambda: _has(app, session, "Well"))
    async with running_app(tmp_path, resume="never", started=False) as app:
        assert (await app.store.session(session)).status == "needs_you"
