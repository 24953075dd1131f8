"""C: no reader ever sees half. The situations that used to break, in one process with a real store."""

import asyncio
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import apsw
import msgspec
import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart, File, Text
from holdfast.domain.ids import SessionId
from holdfast.domain.secrets import MASK, Mask
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.usage import Usage
from holdfast.models.ports import ModelFailure, ReasoningDelta, StepEnd, TextDelta
from tests.contracts.readers import State, reading
from tests.support.in_process_app import House, Lever, Line, calls, house, says, thinks
from tests.support.in_process_server import door

ROUNDS = 4
WORDS: list[Line] = [TextDelta(f"word{n} ") for n in range(60)]


async def until_streaming(here: House, session_id: SessionId) -> None:
    """Wait until the newest message has words, and more of them may come."""

    async def is_so() -> bool:
        role, status, words = (await here.text(session_id))[-1]
        return (role, status) == ("assistant", "streaming") and bool(words)

    await here.until(is_so, "a stream")


async def until_said(here: House, session_id: SessionId, words: str) -> None:
    """Wait until the newest message is kept as far as these words."""

    async def is_so() -> bool:
        return (await here.text(session_id))[-1][2].endswith(words)

    await here.until(is_so, f"{words!r}")


def tables(folder: Path) -> dict[str, list[object]]:
    """Return all that is in the store's file but leases, which time alone renews."""
    with closing(apsw.Connection(str(folder / "holdfast.db"), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        named = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        names = [name for (name,) in db.execute(named)]
        names.remove("leases")
        return {name: list(db.execute(f'SELECT * FROM "{name}"')) for name in names}  # noqa: S608


async def listed(here: House) -> list[SessionId]:
    return [row.id for row in (await here.store.sessions(None, 10)).sessions]


async def test_progress_is_kept_while_a_run_streams_without_touching_the_session_list(tmp_path: Path) -> None:
    """C2"""
    clock = FakeClock()
    async with house(tmp_path, clock=clock) as here:
        go_on, end = asyncio.Event(), asyncio.Event()
        here.model.steps = [[TextDelta("first "), go_on, *WORDS, end, *says("the end")]]
        session_id = await here.begin()
        sent = await here.say(session_id, "Count")
        await until_said(here, session_id, "first ")
        clock.advance(1_000)
        other = await here.begin()
        await here.store.search("whatever", 1)  # The index has caught up then.
        before, row = tables(tmp_path), await here.store.session(session_id)
        assert row.status == "working" and await listed(here) == [other, session_id]
        clock.advance(1_000)
        go_on.set()
        await until_said(here, session_id, "word59 ")
        await here.store.search("whatever", 1)
        during = tables(tmp_path)
        assert [name for name in before if during[name] != before[name]] == ["deltas"]
        assert await here.store.session(session_id) == row and await listed(here) == [other, session_id]
        # While nothing happens nothing is written, though everything in the background has had its turn.
        clock.advance(1_000)
        for chore in (here.engine.recovery.sweep, here.engine.runner.spool, here.contexts.sweep):
            await chore()
        await here.store.sweep()
        assert tables(tmp_path) == during
        # The next change of state brings the list up to date.
        end.set()
        await here.until_run(sent.run_id, "completed")
        after = await here.store.session(session_id)
        assert (after.status, after.updated_at) == ("idle", clock.now_ms())
        assert await listed(here) == [session_id, other]


async def test_activity_moves_a_session_up_the_list_and_text_or_housekeeping_does_not(tmp_path: Path) -> None:
    """C3"""
    clock, lever = FakeClock(), Lever("lever", "pure")
    lever.hold = asyncio.Event()
    async with house(tmp_path, lever, clock=clock) as here:
        session_id, more, call, end = await here.begin(), asyncio.Event(), asyncio.Event(), asyncio.Event()
        here.model.steps = [
            [TextDelta("a"), more, TextDelta("b"), call, *calls("lever")],
            [TextDelta("c"), end, *says()],
        ]
        other = session_id

        async def is_moved() -> bool:
            """Whether it has moved to now; if not, it is still where it was."""
            row = await here.store.session(session_id)
            first = (await listed(here))[0]
            moved = row.updated_at == clock.now_ms()
            assert first == (session_id if moved else other)
            return moved

        async def pass_time() -> SessionId:
            """Another session is the newest then."""
            clock.advance(1_000)
            newest = await here.begin()
            clock.advance(1_000)
            return newest

        other = await pass_time()
        sent = await here.say(session_id, "Go")
        assert await is_moved(), "a message was accepted"
        await until_said(here, session_id, "a")
        other = await pass_time()
        more.set()
        await until_said(here, session_id, "ab")
        assert not await is_moved(), "text"
        call.set()
        await lever.started.wait()
        assert not await is_moved(), "a step ended and a call began"
        await here.engine.verbs.rename(session_id, "A name")
        await here.engine.verbs.archive(session_id, True)
        await here.engine.verbs.archive(session_id, False)
        await here.engine.verbs.configure(session_id, f.SessionConfigured(resume="ask"))
        await here.engine.drafts.keep(session_id, "What I am about to say")
        assert not await is_moved(), "housekeeping"
        lever.hold.set()
        await until_said(here, session_id, "c")
        assert await is_moved(), "a call settled"
        other = await pass_time()
        assert not await is_moved()
        end.set()
        await here.until_run(sent.run_id, "completed")
        assert await is_moved(), "the run ended"
        other = await pass_time()
        await here.engine.verbs.rename(session_id, "A title", by="model")
        await here.store.sweep()
        assert not await is_moved(), "housekeeping"


async def test_two_writers_of_one_session_neither_fail_nor_overwrite_each_other(tmp_path: Path) -> None:
    """C4"""
    async with house(tmp_path) as here, house(tmp_path, started=False) as there:
        session_id = await here.begin()
        sends = [
            (here if i % 2 else there).engine.verbs.accept(session_id, (), key=f"key {i}") for i in range(40)
        ]
        accepted = await asyncio.gather(*sends)
        assert len({one.turn_id for one in accepted}) == 40
        events = await here.store.read(session_id, 0, 1000)
        turns = [e.fact.turn for e in events if isinstance(e.fact, f.TurnAccepted)]
        assert turns == list(range(1, 41))
        for one in accepted:
            await here.engine.verbs.cancel(one.run_id or f.RunId(""))


async def test_the_final_state_of_a_run_comes_after_its_last_checkpoint_and_nothing_follows_it(
    tmp_path: Path,
) -> None:
    """C5"""
    async with house(tmp_path) as here:
        session_id = await here.begin()
        here.model.steps = [says(*(f"word{i} " for i in range(300)))]
        sent = await here.say(session_id, "Write")
        await here.until_run(sent.run_id, "completed")
        await here.until_at_rest()
        kinds = await here.events(session_id)
        after = kinds[kinds.index("run_completed") + 1 :]
        assert set(after) <= {"session_renamed"}, "a title may come, of the run nothing"


async def test_a_model_that_returns_nothing_ends_the_run_with_a_clear_error(tmp_path: Path) -> None:
    """C6"""
    async with house(tmp_path) as here:
        session_id = await here.begin()
        here.model.steps = [says() for _ in range(10)]
        sent = await here.say(session_id, "Anyone there?")
        run = await here.until_run(sent.run_id, "failed")
        assert run.failure is not None and "returned nothing" in run.failure.detail
        assert (await here.store.session(session_id)).status == "failed"
        here.model.steps = [says("Yes.")]
        again = await here.say(session_id, "And now?")
        await here.until_run(again.run_id, "completed")


async def test_a_model_that_only_thinks_is_asked_again_and_its_thinking_is_never_the_whole_answer(
    tmp_path: Path,
) -> None:
    """C6"""
    async with house(tmp_path) as here:
        session_id = await here.begin()
        here.model.steps = [thinks("Hm."), thinks("Hm, hm.", "Yes.")]
        sent = await here.say(session_id, "Anyone there?")
        await here.until_run(sent.run_id, "completed")
        assert (await here.text(session_id))[-1] == ("assistant", "settled", "Yes.")
        here.model.steps = [thinks("Hm.") for _ in range(10)]
        again = await here.say(session_id, "And now?")
        run = await here.until_run(again.run_id, "failed")
        assert run.failure is not None and "it thought, and said nothing" in run.failure.detail
        assert len(here.model.steps) == 5, "it is not asked for ever"
        here.model.steps = [thinks("Hm.", "\n\n"), says("Yes.")]
        sent = await here.say(session_id, "And now?")
        await here.until_run(sent.run_id, "completed")
        assert (await here.text(session_id))[-1] == ("assistant", "settled", "Yes."), "blanks say nothing"


async def test_what_a_provider_counted_of_an_answer_that_only_thought_is_counted(tmp_path: Path) -> None:
    """C6: asking again is not for nothing."""
    used = Usage(50_000, 20_000, cost_micros=900_000)
    async with house(tmp_path) as here:
        session_id = await here.begin()
        here.model.steps = [[ReasoningDelta("", "signed"), StepEnd("stop", used)], says("Yes.")]
        sent = await here.say(session_id, "Anyone there?")
        run = await here.until_run(sent.run_id, "completed")
        assert run.usage.input_tokens >= 50_000 and run.usage.output_tokens >= 20_000
        assert run.usage.cost_micros == 900_000


async def test_who_has_said_the_answer_beside_a_call_need_not_say_it_again(tmp_path: Path) -> None:
    """C6"""
    async with house(tmp_path, Lever("lever", "pure")) as here:
        session_id = await here.begin()
        here.model.steps = [[TextDelta("Noted."), *calls("lever")], thinks("That went well.")]
        sent = await here.say(session_id, "Note this")
        await here.until_run(sent.run_id, "completed")
        assert len(here.model.requests) == 2


async def test_an_error_anywhere_in_a_run_ends_it_settled_and_is_the_error_that_is_shown(
    tmp_path: Path,
) -> None:
    """C7"""
    lever = Lever("lever", "pure")
    lever.error = RuntimeError("the lever broke off")
    async with house(tmp_path, lever) as here:
        session_id = await here.begin()
        broken = {
            "the model is not to be had": [[ModelFailure(detail="no such model", retryable=False)]],
            "it fails in the middle": [[TextDelta("Well, "), ValueError("a surprise")]],
            "a tool fails in a way nobody thought of": [calls("lever")],
        }
        said = {"no such model", "a surprise", "the lever broke off"}
        for steps in broken.values():
            here.model.steps = list(steps)
            sent = await here.say(session_id, "Go on")
            run = await here.until_run(sent.run_id, "failed")
            assert run.failure is not None
            assert [words for words in said if words in run.failure.detail]
        statuses = {status for _, status, _ in await here.text(session_id)}
        assert "streaming" not in statuses
        assert await here.store.open_runs() == []


async def test_the_error_that_ends_a_run_is_kept_without_its_secrets(tmp_path: Path) -> None:
    """C7"""
    async with house(tmp_path) as here:
        here.engine.runner._mask = Mask(["hunter2hunter2"]).whole
        here.model.steps = [[ValueError("hunter2hunter2 is no key")]]
        sent = await here.say(await here.begin(), "Go")
        run = await here.until_run(sent.run_id, "failed")
        assert run.failure is not None and run.failure.detail == f"{MASK} is no key"


@pytest.mark.parametrize("lookup", ["session", "agent", "workspace"])
async def test_an_error_before_the_first_step_of_a_run_ends_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lookup: str
) -> None:
    """C7: the error comes while the run's session, its agent or its folder is looked up."""
    error = RuntimeError(f"the {lookup} cannot be looked up")

    async def break_down(session_id: SessionId) -> NoReturn:
        raise error

    def refuse(session: SessionRow) -> NoReturn:
        raise error

    async with house(tmp_path) as here:
        # The folder of a session that another one came before is looked up there.
        before = await here.begin()
        session_id = await here.engine.create(f.SessionCreated(previous_session_id=before))
        match lookup:
            case "session":
                monkeypatch.setattr(here.store, "session", break_down)
            case "agent":
                here.workers = refuse
            case "workspace":
                monkeypatch.setattr(here.store, "successor", break_down)
        sent = await here.say(session_id, "Go")
        await here.until_at_rest()
        run = await here.run(sent.run_id)
        assert run.status == "failed" and run.failure is not None and run.failure.detail == str(error)
        assert await here.store.open_runs() == []


async def test_a_title_made_in_the_background_never_replaces_one_that_a_person_chose(tmp_path: Path) -> None:
    """C8"""
    hold = asyncio.Event()

    async def ask(session: object, said: str) -> str:
        await hold.wait()
        return "A title by the model"

    async with house(tmp_path, title=ask) as here:
        first, second = await here.begin(), await here.begin()
        for session_id in (first, second):
            sent = await here.say(session_id, "Hello")
            await here.until_run(sent.run_id, "completed")
        await here.engine.verbs.rename(first, "Mine")
        hold.set()

        async def second_is_named() -> bool:
            return (await here.store.session(second)).title == "A title by the model"

        await here.until(second_is_named)
        await asyncio.sleep(0.05)
        assert (await here.store.session(first)).title == "Mine"
        await here.engine.verbs.rename(second, "Mine too")
        await here.engine.verbs.rename(second, "Again by the model", by="model")
        assert (await here.store.session(second)).title == "Mine too"


async def attached(here: House, text: str) -> tuple[AnyPart, ...]:
    """A message with an attachment."""
    return Text(text), File(await here.store.put_blob(b"a note"), "note.txt", "text/plain", 6)


def running(state: State) -> list[str]:
    """Return the run that is at work; whatever can say that one is must name the same."""
    found = [run_id for run_id, run in state.runs.items() if run["status"] == "running"]
    timed = [run_id for run_id, run in state.runs.items() if run["started_at"] and not run["ended_at"]]
    assert timed == found
    assert [state.row.run_id] == (found or [None]) and (state.row.status == "working") == bool(found)
    for each in state.messages:
        assert each["status"] != "streaming" or each["run_id"] in found
        assert each["status"] != "interrupted" or each["run_id"] not in found
    return found


async def test_cancelling_clears_everything_that_says_running_in_one_moment(tmp_path: Path) -> None:
    """C9: words that stream or a call under way, for a message with an attachment, while others read."""
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever) as here, door(here) as api:
        session_id, said, runs = await here.begin(), await attached(here, "Pull"), list[str]()
        async with reading(here, api, session_id) as readers:
            for number in range(ROUNDS):
                lever.hold, lever.started = asyncio.Event(), asyncio.Event()
                here.model.steps = [[*WORDS, *calls("lever")] if number % 2 else [*WORDS, asyncio.Event()]]
                sent = await here.engine.send(session_id, said)
                assert sent.run_id is not None
                runs.append(sent.run_id)
                await (lever.started.wait() if number % 2 else until_streaming(here, session_id))
                await here.engine.cancel(sent.run_id)
            await here.engine.delete(session_id)
    readers.check()
    for state in readers.states():
        begun = [run_id for run_id in runs if run_id in state.runs]
        asked = [(each["run_id"], each["parts"]) for each in state.messages if each["role"] == "user"]
        assert asked == [(run_id, msgspec.to_builtins(list(said))) for run_id in begun]
        # The whole run, or the whole cancellation.
        over = [run_id for run_id in begun if state.runs[run_id]["status"] == "cancelled"]
        assert begun[:-1] == over[: len(begun) - 1] and running(state) in ([], begun[-1:])
    assert over == runs


async def test_undo_racing_a_stream_leaves_only_states_that_really_were(tmp_path: Path) -> None:
    """C10: of a message with an attachment, while others read."""
    async with house(tmp_path) as here, door(here) as api:
        session_id, said = await here.begin(), await attached(here, "Write")
        async with reading(here, api, session_id) as readers:
            for _ in range(ROUNDS):
                here.model.steps = [[*WORDS, asyncio.Event()]]  # Goes on until it is stopped.
                await here.engine.send(session_id, said)
                await until_streaming(here, session_id)
                await here.engine.verbs.undo(session_id, None)
            await here.until_at_rest()
            await here.engine.delete(session_id)
    readers.check()
    for state in readers.states():
        live = [each for each in state.messages if each["live"]]
        assert len({each["run_id"] for each in live}) == state.row.live_turns <= 1
        assert [each["parts"] for each in live[:1]] == [msgspec.to_builtins(list(said))] * bool(live)
        # Undone and stopped, or neither.
        gone = {each["run_id"] for each in state.messages if not each["live"]}
        stopped = {run_id for run_id, run in state.runs.items() if run["status"] == "cancelled"}
        assert gone == stopped and not gone.intersection(running(state))
    assert len(stopped) == ROUNDS
    assert [event.seq for event in readers.journal] == list(range(1, len(readers.journal) + 1))
    undone = max(event.seq for event in readers.journal if event.kind == "turns_undone")
    assert "text_appended" not in {event.kind for event in readers.journal if event.seq > undone}


async def test_restore_racing_a_stream_leaves_only_states_that_really_were(tmp_path: Path) -> None:
    """C10: the turn that streams makes way for the one that comes back, while others read."""
    async with house(tmp_path) as here, door(here) as api:
        session_id = await here.begin()
        async with reading(here, api, session_id) as readers:
            for _ in range(ROUNDS):
                here.model.steps = [says("the end"), [*WORDS, asyncio.Event()]]
                sent = await here.engine.send(session_id, (Text("Write"),))
                await here.until_run(sent.run_id, "completed")
                await here.engine.verbs.undo(session_id, sent.turn_id)
                await here.engine.send(session_id, (Text("Write more"),))
                await until_streaming(here, session_id)
                await here.engine.verbs.restore(session_id, sent.turn_id)
                await here.engine.verbs.undo(session_id, sent.turn_id)
            await here.until_at_rest()
            await here.engine.delete(session_id)
    readers.check()
    for state in readers.states():
        live = {each["turn_id"] for each in state.messages if each["live"] and each["role"] == "user"}
        assert len(live) == state.row.live_turns <= 1, "neither both turns nor half of one"
        gone = {each["run_id"] for each in state.messages if not each["live"]}
        assert not gone.intersection(running(state))
    assert [event.kind for event in readers.journal].count("turns_restored") == ROUNDS


@pytest.mark.parametrize("streams", [True, False])
async def test_a_retried_or_edited_turn_is_one_change(tmp_path: Path, streams: bool) -> None:
    """C10: of a message with an attachment, also while its answer streams, while others read."""
    async with house(tmp_path) as here, door(here) as api:
        session_id, said, edited = await here.begin(), await attached(here, "Hello"), (Text("Hello again"),)
        async with reading(here, api, session_id) as readers:
            sent = None
            for parts in (said, None, edited, None):
                here.model.steps = [[*WORDS, *([asyncio.Event()] if streams else says("the end"))]]
                if sent is None:
                    sent = await here.engine.send(session_id, said)
                else:
                    sent = await here.engine.replace(session_id, sent.turn_id, parts)
                if streams:
                    await until_streaming(here, session_id)
                else:
                    await here.until_run(sent.run_id, "completed")
            await here.engine.delete(session_id)
    readers.check()
    asked: list[tuple[str, object]] = []
    for state in readers.states()[1:]:
        # The turn or the one that replaces it: at no moment neither, or both.
        (question,) = [each for each in state.messages if each["live"] and each["role"] == "user"]
        assert state.row.live_turns == 1 and running(state) in ([], [question["run_id"]])
        if (question["turn_id"], question["parts"]) not in asked:
            asked.append((question["turn_id"], question["parts"]))
    assert [parts for _, parts in asked] == [
        msgspec.to_builtins(list(each)) for each in (said, said, edited, edited)
    ]
