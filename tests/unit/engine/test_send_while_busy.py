"""What becomes of a message that is sent while the conversation is worked on: it waits, it is told to the run
under way, it stops that, or it is not kept."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.context.context import AssistantMessage, Request, ToolMessage, UserMessage, problems
from holdfast.domain.errors import Busy, NoSuchTurn
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text, text_of
from holdfast.domain.ids import SessionId
from holdfast.domain.transcript.transcript import TranscriptFold
from holdfast.domain.transcript.transcript import fold as fold_transcript
from holdfast.models.ports import TextDelta
from tests.support.in_process_app import House, Lever, calls, house, says


def seen(request: Request) -> list[tuple[str, str]]:
    """What a model was shown, as sides and words; a call by its tool's name."""
    sides = {UserMessage: "user", AssistantMessage: "assistant", ToolMessage: "tool"}
    return [(sides[type(message)], text_of(message.parts)) for message in request.messages]


async def words(here: House, session_id: SessionId) -> list[tuple[str, str]]:
    return [(role, said) for role, _, said in await here.text(session_id)]


async def agrees(here: House, session_id: SessionId) -> None:
    """The fold of all events reads as the pages of rows do."""
    page = await here.store.messages(session_id, None, 200)
    reading = TranscriptFold()
    reading.add_page(page.messages)
    events = await here.store.read(session_id, 0, 1000)
    assert reading.transcript().turns == fold_transcript(events).turns


def busy(here: House, lever: Lever, *then: str) -> asyncio.Event:
    """Have the model pull the lever and then answer; the lever stays down until the event is set."""
    lever.hold = asyncio.Event()
    here.model.steps = [calls("pull"), *(says(each) for each in then)]
    return lever.hold


async def test_a_steered_message_is_shown_to_the_model_after_the_results_of_its_calls(tmp_path: Path) -> None:
    lever = Lever("pull", "pure")
    async with house(tmp_path, lever) as here:
        hold = busy(here, lever, "In French: un")
        session = await here.begin()
        first = await here.say(session, "Count")
        await lever.started.wait()
        told = await here.say(session, "In French", if_busy="steer")
        assert (await here.run(told.run_id)).status == "queued" and told.begins is None
        hold.set()
        await here.until_run(first.run_id, "completed")
        assert seen(here.model.requests[-1]) == [
            ("user", "Count"), ("assistant", ""), ("tool", "pulled down"), ("user", "In French"),
        ]  # fmt: skip
        assert not problems(here.model.requests[-1])
        assert await words(here, session) == [
            ("user", "Count"), ("assistant", ""), ("tool", "pulled down"), ("user", "In French"),
            ("assistant", "In French: un"),
        ]  # fmt: skip
        assert {entry.turn for entry in await here.entries(session)} == {1}
        assert (await here.run(told.run_id)).status == "completed"
        assert len(here.model.requests) == 2, "nothing is answered twice"
        row = await here.store.session(session)
        assert (row.live_turns, row.last_turn, row.status) == (1, 2, "idle")
        await agrees(here, session)


async def test_several_steered_messages_keep_their_order_before_one_that_waits(tmp_path: Path) -> None:
    lever = Lever("pull", "pure")
    async with house(tmp_path, lever) as here:
        hold = busy(here, lever, "both", "the last")
        session = await here.begin()
        await here.say(session, "Go")
        await lever.started.wait()
        await here.say(session, "Wait for me")
        await here.say(session, "First", if_busy="steer")
        last = await here.say(session, "Second", if_busy="steer")
        hold.set()
        await here.until_run(last.run_id, "completed")
        await here.until(lambda: _is_idle(here, session))
        assert await words(here, session) == [
            ("user", "Go"), ("assistant", ""), ("tool", "pulled down"), ("user", "First"),
            ("user", "Second"), ("assistant", "both"), ("user", "Wait for me"), ("assistant", "the last"),
        ]  # fmt: skip
        await agrees(here, session)


async def _is_idle(here: House, session_id: SessionId) -> bool:
    return (await here.store.session(session_id)).status == "idle"


async def test_without_another_step_a_steered_message_is_the_next_turn(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        hold = asyncio.Event()
        here.model.steps = [[TextDelta("Done"), hold, *says(".")], says("And that")]
        session = await here.begin()
        first = await here.say(session, "One thing")
        await here.until(lambda: _has(here, session, "Done"))
        told = await here.say(session, "Another", if_busy="steer")
        hold.set()
        await here.until_run(told.run_id, "completed")
        assert (await here.run(first.run_id)).status == "completed"
        assert [(e.turn, e.role) for e in await here.entries(session)] == [
            (1, "user"), (1, "assistant"), (2, "user"), (2, "assistant"),
        ]  # fmt: skip
        assert "turn_steered" not in await here.events(session)


async def _has(here: House, session_id: SessionId, text: str) -> bool:
    return any(text in said for _, said in await words(here, session_id))


async def test_to_steer_an_idle_conversation_is_to_send(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.model.steps = [says("Hello")]
        session = await here.begin()
        sent = await here.say(session, "Hi", if_busy="steer")
        await here.until_run(sent.run_id, "completed")
        assert await words(here, session) == [("user", "Hi"), ("assistant", "Hello")]


async def test_a_steered_message_that_is_sent_again_has_the_same_receipt_before_and_after(
    tmp_path: Path,
) -> None:
    lever = Lever("pull", "pure")
    async with house(tmp_path, lever) as here:
        hold = busy(here, lever, "yes")
        session = await here.begin()
        first = await here.say(session, "Go")
        await lever.started.wait()
        told = await here.say(session, "Quick", "k1", if_busy="steer")
        again = await here.say(session, "Quick", "k1", if_busy="steer")
        hold.set()
        await here.until_run(first.run_id, "completed")
        later = await here.say(session, "Quick", "k1", if_busy="steer")
        for other in (again, later):
            assert (other.turn_id, other.run_id, other.seq) == (told.turn_id, told.run_id, told.seq)
            assert other.begins is None
        assert [said for _, said in await words(here, session)].count("Quick") == 1


async def test_a_steered_message_is_found_once_and_taken_back_with_its_turn(tmp_path: Path) -> None:
    lever = Lever("pull", "pure")
    async with house(tmp_path, lever) as here:
        hold = busy(here, lever, "yes")
        session = await here.begin()
        first = await here.say(session, "Go")
        await lever.started.wait()
        told = await here.say(session, "pumpernickel", if_busy="steer")
        hold.set()
        await here.until_run(first.run_id, "completed")
        [hit] = await here.store.search("pumpernickel", 10)
        assert (hit.turn, hit.role) == (1, "user")
        with pytest.raises(NoSuchTurn):
            await here.engine.verbs.undo(session, told.turn_id)
        fork = await here.engine.verbs.fork(session)
        assert await words(here, fork) == await words(here, session)
        await here.engine.verbs.undo(session, None)
        assert (await here.store.session(session)).live_turns == 0
        assert not [hit for hit in await here.store.search("pumpernickel", 10) if hit.session_id == session]
        await agrees(here, session)


@pytest.mark.parametrize("ending", ["cancel", "interrupt"])
async def test_a_message_for_a_run_that_is_stopped_stays_a_turn_in_the_queue(
    tmp_path: Path, ending: str
) -> None:
    lever = Lever("pull", "pure")
    async with house(tmp_path, lever) as here:
        busy(here, lever)
        session = await here.begin()
        first = await here.say(session, "Go")
        await lever.started.wait()
        told = await here.say(session, "Quick", if_busy="steer")
        assert first.run_id is not None and told.run_id is not None
        here.model.steps = [says("quickly"), says("and more")]
        if ending == "cancel":
            await here.engine.cancel(first.run_id)
            assert (await here.run(told.run_id)).status == "queued"
            await here.engine.resume(told.run_id)
        else:
            await here.say(session, "Stop", if_busy="interrupt")
        await here.until_run(told.run_id, "completed")
        await here.until(lambda: _is_idle(here, session))
        assert (await here.run(first.run_id)).status == "cancelled"
        said = [(entry.turn, text_of(entry.parts)) for entry in await here.entries(session)]
        assert (2, "Quick") in said and (2, "quickly") in said


async def test_a_message_for_a_run_whose_process_died_is_told_once_when_it_goes_on(tmp_path: Path) -> None:
    lever = Lever("pull", "pure")
    async with house(tmp_path, lever) as here:
        busy(here, lever)
        session = await here.begin()
        first = await here.say(session, "Go")
        await lever.started.wait()
        told = await here.say(session, "Quick", "k", if_busy="steer")
    # Left in the middle of its call: the message is kept, and nobody has been told.
    async with house(tmp_path, Lever("pull", "pure"), started=False) as here:
        here.model.steps = [says("quickly")]
        assert (await here.run(told.run_id)).status == "queued"
        await here.engine.start()
        await here.until_run(first.run_id, "completed")
        assert [said for side, said in seen(here.model.requests[0]) if side == "user"][-1] == "Quick"
        assert len(here.model.requests) == 1
        assert (await here.say(session, "Quick", "k", if_busy="steer")).run_id == told.run_id
        assert (await here.events(session)).count("turn_steered") == 1
        await agrees(here, session)


async def test_to_interrupt_stops_the_run_and_accepts_the_message_at_once(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        never = asyncio.Event()
        here.model.steps = [[TextDelta("Half an "), never], says("Instead")]
        session = await here.begin()
        first = await here.say(session, "Long story")
        await here.until(lambda: _has(here, session, "Half an"))
        events = await here.store.read(session, 0, 1000)
        second = await here.say(session, "Something else", if_busy="interrupt")
        new = await here.store.read(session, events[-1].seq, 1000)
        kinds = ["message_settled", "model_step_settled", "run_cancelled", "turn_accepted"]
        assert [event.kind for event in new[:4]] == kinds
        assert len({event.at for event in new[:4]}) == 1
        assert second.begins == second.run_id
        await here.until_run(second.run_id, "completed")
        assert (await here.run(first.run_id)).status == "cancelled"
        assert await here.text(session) == [
            ("user", "settled", "Long story"), ("assistant", "interrupted", "Half an "),
            ("user", "settled", "Something else"), ("assistant", "settled", "Instead"),
        ]  # fmt: skip


async def test_what_was_queued_before_is_answered_before_the_message_that_interrupts(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        here.model.steps = [[TextDelta("Well"), asyncio.Event()], says("two"), says("three")]
        session = await here.begin()
        first = await here.say(session, "1")
        await here.until(lambda: _has(here, session, "Well"))
        second = await here.say(session, "2")
        third = await here.say(session, "3", "k", if_busy="interrupt")
        assert (third.queued, third.begins) == (True, second.run_id)
        again = await here.say(session, "3", "k", if_busy="interrupt")
        assert again.run_id == third.run_id
        await here.until_run(third.run_id, "completed")
        assert (await here.run(first.run_id)).status == "cancelled"
        assert await words(here, session) == [
            ("user", "1"), ("assistant", "Well"), ("user", "2"), ("assistant", "two"), ("user", "3"),
            ("assistant", "three"),
        ]  # fmt: skip


async def test_a_message_that_is_not_to_wait_is_refused_and_not_kept(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        hold = asyncio.Event()
        here.model.steps = [says("before"), [TextDelta("Well"), hold, *says(".")], says("after")]
        session = await here.begin()
        kept = await here.say(session, "Before", "k", if_busy="reject")
        await here.until_run(kept.run_id, "completed")
        first = await here.say(session, "Go")
        head = await here.store.head(session)
        with pytest.raises(Busy) as refused:
            await here.say(session, "Me too", if_busy="reject")
        assert refused.value.fields["run_id"] == first.run_id
        again = await here.say(session, "Before", "k", if_busy="reject")
        assert (again.turn_id, again.seq) == (kept.turn_id, kept.seq)
        assert not await _has(here, session, "Me too") and await here.store.head(session) >= head
        hold.set()
        await here.until_run(first.run_id, "completed")
        last = await here.say(session, "Me too", if_busy="reject")
        await here.until_run(last.run_id, "completed")


@pytest.mark.parametrize("if_busy", ["queue", "steer", "interrupt", "reject"])
async def test_a_message_to_a_run_that_asks_closes_its_questions(tmp_path: Path, if_busy: str) -> None:
    lever = Lever("pull", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as here:
        here.model.steps = [calls("pull"), says("Fine")]
        session = await here.begin()
        first = await here.say(session, "Go")
        await here.until_run(first.run_id, "waiting")
        second = await here.engine.send(session, (Text("Never mind"),), None, if_busy)  # type: ignore[arg-type]
        await here.until_run(second.run_id, "completed")
        assert (await here.run(first.run_id)).status == "cancelled"
        outcomes = [entry.outcome for entry in await here.entries(session) if entry.role == "tool"]
        assert outcomes == ["denied"] and not lever.pulled


async def test_a_run_that_is_stopped_writes_nothing_after_it(tmp_path: Path) -> None:
    lever = Lever("pull", "unsafe")
    async with house(tmp_path, lever) as here:
        hold = busy(here, lever)
        session = await here.begin()
        first = await here.say(session, "Go")
        await lever.started.wait()
        here.model.steps = [says("Fine")]
        second = await here.say(session, "Stop", if_busy="interrupt")
        hold.set()
        await here.until_run(second.run_id, "completed")
        events = await here.store.read(session, 0, 1000)
        ended = next(event.seq for event in events if event.kind == "run_cancelled")
        late = [event.kind for event in events if event.seq > ended and _run_of(event.fact) == first.run_id]
        assert late == []


def _run_of(fact: object) -> object:
    return getattr(fact, "run_id", None) if not isinstance(fact, f.TurnAccepted) else None


@pytest.mark.parametrize(("resume", "status"), [("ask", "needs_you"), ("never", "interrupted")])
async def test_a_run_that_was_cut_off_is_put_to_a_person_or_left(
    tmp_path: Path, resume: f.Resume, status: str
) -> None:
    async with house(tmp_path, resume=resume) as here:
        here.model.steps = [[TextDelta("Well"), asyncio.Event()]]
        session = await here.begin()
        sent = await here.say(session, "Go")
        await here.until(lambda: _has(here, session, "Well"))
    async with house(tmp_path, resume=resume) as here:
        here.model.steps = [says("done")]
        await here.engine.recovery.sweep()
        run = await here.run(sent.run_id)
        assert (run.status, (await here.store.session(session)).status) == ("interrupted", status)
        await here.engine.resume(run.id)
        await here.until_run(run.id, "completed")
        assert (await here.store.session(session)).status == "idle"


async def test_a_conversations_own_policy_decides_whether_a_person_is_asked(tmp_path: Path) -> None:
    async with house(tmp_path, resume="never") as here:
        here.model.steps = [[TextDelta("Well"), asyncio.Event()]]
        session = await here.begin()
        await here.engine.verbs.configure(session, f.SessionConfigured(resume="ask"))
        await here.say(session, "Go")
        await here.until(lambda: _has(here, session, "Well"))
    async with house(tmp_path, resume="never", started=False) as here:
        assert (await here.store.session(session)).status == "needs_you"
