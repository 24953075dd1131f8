"""C: no reader ever sees half of a change, in one process with a real store."""

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
from holdfast.domain.secrets import MASK, SecretMask
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.usage import Usage
from holdfast.models.ports import ModelFailure, ReasoningDelta, StepEnd, TextDelta
from tests.contracts.readers import ExpectedState, conversation_readers
from tests.support.in_process_app import (
    AppHarness,
    FakeTool,
    StepAction,
    reasoning_step,
    running_app,
    text_step,
    tool_call_step,
)
from tests.support.in_process_server import http_server

ROUNDS = 4
WORDS: list[StepAction] = [TextDelta(f"word{n} ") for n in range(60)]


async def wait_until_streaming(app: AppHarness, session_id: SessionId) -> None:
    """Wait until the newest message has text and may get more."""

    async def is_streaming() -> bool:
        role, status, words = (await app.entry_texts(session_id))[-1]
        return (role, status) == ("assistant", "streaming") and bool(words)

    await app.wait_until(is_streaming, "a stream")


async def wait_until_checkpointed(app: AppHarness, session_id: SessionId, words: str) -> None:
    """Wait until these words of the newest message are stored."""

    async def has_text() -> bool:
        return (await app.entry_texts(session_id))[-1][2].endswith(words)

    await app.wait_until(has_text, f"{words!r}")


def tables(folder: Path) -> dict[str, list[object]]:
    """Return all rows in the store's file but leases, which change with time alone."""
    with closing(apsw.Connection(str(folder / "holdfast.db"), flags=apsw.SQLITE_OPEN_READONLY)) as db:
        named = "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'"
        names = [name for (name,) in db.execute(named)]
        names.remove("leases")
        return {name: list(db.execute(f'SELECT * FROM "{name}"')) for name in names}  # noqa: S608


async def session_ids(app: AppHarness) -> list[SessionId]:
    return [row.id for row in (await app.store.sessions(None, 10)).sessions]


async def test_progress_is_kept_while_a_run_streams_without_touching_the_session_list(tmp_path: Path) -> None:
    """C2"""
    clock = FakeClock()
    async with running_app(tmp_path, clock=clock) as app:
        go_on, end = asyncio.Event(), asyncio.Event()
        app.model.steps = [[TextDelta("first "), go_on, *WORDS, end, *text_step("the end")]]
        session_id = await app.create_session()
        sent = await app.send(session_id, "Count")
        await wait_until_checkpointed(app, session_id, "first ")
        clock.advance(1_000)
        other = await app.create_session()
        await app.store.search("whatever", 1)  # The index has caught up then.
        before, row = tables(tmp_path), await app.store.session(session_id)
        assert row.status == "working" and await session_ids(app) == [other, session_id]
        clock.advance(1_000)
        go_on.set()
        await wait_until_checkpointed(app, session_id, "word59 ")
        await app.store.search("whatever", 1)
        during = tables(tmp_path)
        assert [name for name in before if during[name] != before[name]] == ["deltas"]
        assert await app.store.session(session_id) == row and await session_ids(app) == [other, session_id]
        # While nothing happens nothing is written, though everything in the background has had its turn.
        clock.advance(1_000)
        for chore in (app.engine.recovery.sweep, app.engine.runner.spool, app.contexts.evict_idle):
            await chore()
        await app.store.sweep()
        assert tables(tmp_path) == during
        # The next change of state brings the list up to date.
        end.set()
        await app.wait_for_run(sent.run_id, "completed")
        after = await app.store.session(session_id)
        assert (after.status, after.updated_at) == ("idle", clock.now_ms())
        assert await session_ids(app) == [session_id, other]


async def test_activity_moves_a_session_up_the_list_and_text_or_housekeeping_does_not(tmp_path: Path) -> None:
    """C3"""
    clock, tool = FakeClock(), FakeTool("lever", "pure")
    tool.hold = asyncio.Event()
    async with running_app(tmp_path, tool, clock=clock) as app:
        session_id = await app.create_session()
        more, call, end = asyncio.Event(), asyncio.Event(), asyncio.Event()
        app.model.steps = [
            [TextDelta("a"), more, TextDelta("b"), call, *tool_call_step("lever")],
            [TextDelta("c"), end, *text_step()],
        ]
        other = session_id

        async def is_moved() -> bool:
            """Return whether the session has moved to now; otherwise it must be where it was."""
            row = await app.store.session(session_id)
            first = (await session_ids(app))[0]
            moved = row.updated_at == clock.now_ms()
            assert first == (session_id if moved else other)
            return moved

        async def pass_time() -> SessionId:
            """Let time pass, so that another session is the newest."""
            clock.advance(1_000)
            newest = await app.create_session()
            clock.advance(1_000)
            return newest

        other = await pass_time()
        sent = await app.send(session_id, "Go")
        assert await is_moved(), "a message was accepted"
        await wait_until_checkpointed(app, session_id, "a")
        other = await pass_time()
        more.set()
        await wait_until_checkpointed(app, session_id, "ab")
        assert not await is_moved(), "text"
        call.set()
        await tool.started.wait()
        assert not await is_moved(), "a step ended and a call began"
        await app.engine.commands.rename(session_id, "A name")
        await app.engine.commands.archive(session_id, True)
        await app.engine.commands.archive(session_id, False)
        await app.engine.commands.configure(session_id, f.SessionConfigured(resume="ask"))
        await app.engine.drafts.save(session_id, "What I am about to say")
        assert not await is_moved(), "housekeeping"
        tool.hold.set()
        await wait_until_checkpointed(app, session_id, "c")
        assert await is_moved(), "a call settled"
        other = await pass_time()
        assert not await is_moved()
        end.set()
        await app.wait_for_run(sent.run_id, "completed")
        assert await is_moved(), "the run ended"
        other = await pass_time()
        await app.engine.commands.rename(session_id, "A title", by="model")
        await app.store.sweep()
        assert not await is_moved(), "housekeeping"


async def test_two_writers_of_one_session_neither_fail_nor_overwrite_each_other(tmp_path: Path) -> None:
    """C4"""
    async with running_app(tmp_path) as app, running_app(tmp_path, started=False) as there:
        session_id = await app.create_session()
        sends = [
            (app if i % 2 else there).engine.commands.accept(session_id, (), key=f"key {i}")
            for i in range(40)
        ]
        accepted = await asyncio.gather(*sends)
        assert len({one.turn_id for one in accepted}) == 40
        events = await app.store.read(session_id, 0, 1000)
        turns = [e.fact.turn for e in events if isinstance(e.fact, f.TurnAccepted)]
        assert turns == list(range(1, 41))
        for one in accepted:
            await app.engine.commands.cancel(one.run_id or f.RunId(""))


async def test_the_final_state_of_a_run_comes_after_its_last_checkpoint_and_nothing_follows_it(
    tmp_path: Path,
) -> None:
    """C5"""
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        app.model.steps = [text_step(*(f"word{i} " for i in range(300)))]
        sent = await app.send(session_id, "Write")
        await app.wait_for_run(sent.run_id, "completed")
        await app.wait_until_idle()
        kinds = await app.event_kinds(session_id)
        after = kinds[kinds.index("run_completed") + 1 :]
        assert set(after) <= {"session_renamed"}, "a title may come, of the run nothing"


async def test_a_model_that_returns_nothing_ends_the_run_with_a_clear_error(tmp_path: Path) -> None:
    """C6"""
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        app.model.steps = [text_step() for _ in range(10)]
        sent = await app.send(session_id, "Anyone there?")
        run = await app.wait_for_run(sent.run_id, "failed")
        assert run.failure is not None and "returned nothing" in run.failure.detail
        assert (await app.store.session(session_id)).status == "failed"
        app.model.steps = [text_step("Yes.")]
        again = await app.send(session_id, "And now?")
        await app.wait_for_run(again.run_id, "completed")


async def test_a_reasoning_only_answer_is_retried_and_never_the_whole_answer(tmp_path: Path) -> None:
    """C6"""
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        app.model.steps = [reasoning_step("Hm."), reasoning_step("Hm, hm.", "Yes.")]
        sent = await app.send(session_id, "Anyone there?")
        await app.wait_for_run(sent.run_id, "completed")
        assert (await app.entry_texts(session_id))[-1] == ("assistant", "settled", "Yes.")
        app.model.steps = [reasoning_step("Hm.") for _ in range(10)]
        again = await app.send(session_id, "And now?")
        run = await app.wait_for_run(again.run_id, "failed")
        assert run.failure is not None and "it thought, and said nothing" in run.failure.detail
        assert len(app.model.steps) == 5, "it is not asked for ever"
        app.model.steps = [reasoning_step("Hm.", "\n\n"), text_step("Yes.")]
        sent = await app.send(session_id, "And now?")
        await app.wait_for_run(sent.run_id, "completed")
        assert (await app.entry_texts(session_id))[-1] == ("assistant", "settled", "Yes."), (
            "blanks say nothing"
        )


async def test_reasoning_only_usage_is_counted(tmp_path: Path) -> None:
    """C6: another request has its cost."""
    used = Usage(50_000, 20_000, cost_micros=900_000)
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        app.model.steps = [[ReasoningDelta("", "signed"), StepEnd("stop", used)], text_step("Yes.")]
        sent = await app.send(session_id, "Anyone there?")
        run = await app.wait_for_run(sent.run_id, "completed")
        assert run.usage.input_tokens >= 50_000 and run.usage.output_tokens >= 20_000
        assert run.usage.cost_micros == 900_000


async def test_an_answer_given_beside_a_call_need_not_be_repeated(tmp_path: Path) -> None:
    """C6"""
    async with running_app(tmp_path, FakeTool("lever", "pure")) as app:
        session_id = await app.create_session()
        app.model.steps = [[TextDelta("Noted."), *tool_call_step("lever")], reasoning_step("That went well.")]
        sent = await app.send(session_id, "Note this")
        await app.wait_for_run(sent.run_id, "completed")
        assert len(app.model.requests) == 2


async def test_an_error_anywhere_in_a_run_ends_it_settled_and_is_the_error_that_is_shown(
    tmp_path: Path,
) -> None:
    """C7"""
    tool = FakeTool("lever", "pure")
    tool.error = RuntimeError("the lever broke off")
    async with running_app(tmp_path, tool) as app:
        session_id = await app.create_session()
        broken = {
            "the model is not to be had": [[ModelFailure(detail="no such model", retryable=False)]],
            "it fails in the middle": [[TextDelta("Well, "), ValueError("a surprise")]],
            "a tool fails in a way nobody thought of": [tool_call_step("lever")],
        }
        said = {"no such model", "a surprise", "the lever broke off"}
        for steps in broken.values():
            app.model.steps = list(steps)
            sent = await app.send(session_id, "Go on")
            run = await app.wait_for_run(sent.run_id, "failed")
            assert run.failure is not None
            assert [words for words in said if words in run.failure.detail]
        statuses = {status for _, status, _ in await app.entry_texts(session_id)}
        assert "streaming" not in statuses
        assert await app.store.open_runs() == []


async def test_the_error_that_ends_a_run_is_kept_without_its_secrets(tmp_path: Path) -> None:
    """C7"""
    async with running_app(tmp_path) as app:
        app.engine.runner._mask = SecretMask(["hunter2hunter2"]).mask
        app.model.steps = [[ValueError("hunter2hunter2 is no key")]]
        sent = await app.send(await app.create_session(), "Go")
        run = await app.wait_for_run(sent.run_id, "failed")
        assert run.failure is not None and run.failure.detail == f"{MASK} is no key"


@pytest.mark.parametrize("lookup", ["session", "agent", "workspace"])
async def test_an_error_before_the_first_step_of_a_run_ends_it_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lookup: str
) -> None:
    """C7: the error occurs while the run's session, its agent or its folder is looked up."""
    error = RuntimeError(f"the {lookup} cannot be looked up")

    async def break_down(session_id: SessionId) -> NoReturn:
        raise error

    def refuse(session: SessionRow) -> NoReturn:
        raise error

    async with running_app(tmp_path) as app:
        # The folder of a session that another one came before is looked up there.
        before = await app.create_session()
        session_id = await app.engine.create(f.SessionCreated(previous_session_id=before))
        match lookup:
            case "session":
                monkeypatch.setattr(app.store, "session", break_down)
            case "agent":
                app.workers = refuse
            case "workspace":
                monkeypatch.setattr(app.store, "successor", break_down)
        sent = await app.send(session_id, "Go")
        await app.wait_until_idle()
        run = await app.run(sent.run_id)
        assert run.status == "failed" and run.failure is not None and run.failure.detail == str(error)
        assert await app.store.open_runs() == []


async def test_a_title_made_in_the_background_never_replaces_one_that_a_person_chose(tmp_path: Path) -> None:
    """C8"""
    hold = asyncio.Event()

    async def ask(session: object, said: str) -> str:
        await hold.wait()
        return "A title by the model"

    async with running_app(tmp_path, generate_title=ask) as app:
        first, second = await app.create_session(), await app.create_session()
        for session_id in (first, second):
            sent = await app.send(session_id, "Hello")
            await app.wait_for_run(sent.run_id, "completed")
        await app.engine.commands.rename(first, "Mine")
        hold.set()

        async def second_is_named() -> bool:
            return (await app.store.session(second)).title == "A title by the model"

        await app.wait_until(second_is_named)
        await asyncio.sleep(0.05)
        assert (await app.store.session(first)).title == "Mine"
        await app.engine.commands.rename(second, "Mine too")
        await app.engine.commands.rename(second, "Again by the model", by="model")
        assert (await app.store.session(second)).title == "Mine too"


async def parts_with_file(app: AppHarness, text: str) -> tuple[AnyPart, ...]:
    """Return a message with an attachment."""
    return Text(text), File(await app.store.put_blob(b"a note"), "note.txt", "text/plain", 6)


def running(state: ExpectedState) -> list[str]:
    """Return the active run; every source that names one must name the same."""
    found = [run_id for run_id, run in state.runs.items() if run["status"] == "running"]
    timed = [run_id for run_id, run in state.runs.items() if run["started_at"] and not run["ended_at"]]
    assert timed == found
    assert [state.row.run_id] == (found or [None]) and (state.row.status == "working") == bool(found)
    for each in state.messages:
        assert each["status"] != "streaming" or each["run_id"] in found
        assert each["status"] != "interrupted" or each["run_id"] not in found
    return found


async def test_cancelling_clears_everything_that_says_running_in_one_moment(tmp_path: Path) -> None:
    """C9: while text streams or a call runs, for a message with an attachment, while others read."""
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool) as app, http_server(app) as api:
        session_id, said, runs = await app.create_session(), await parts_with_file(app, "Pull"), list[str]()
        async with conversation_readers(app, api, session_id) as readers:
            for number in range(ROUNDS):
                tool.hold, tool.started = asyncio.Event(), asyncio.Event()
                app.model.steps = [
                    [*WORDS, *tool_call_step("lever")] if number % 2 else [*WORDS, asyncio.Event()]
                ]
                sent = await app.engine.send(session_id, said)
                assert sent.run_id is not None
                runs.append(sent.run_id)
                await (tool.started.wait() if number % 2 else wait_until_streaming(app, session_id))
                await app.engine.cancel(sent.run_id)
            await app.engine.delete(session_id)
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
    async with running_app(tmp_path) as app, http_server(app) as api:
        session_id, said = await app.create_session(), await parts_with_file(app, "Write")
        async with conversation_readers(app, api, session_id) as readers:
            for _ in range(ROUNDS):
                app.model.steps = [[*WORDS, asyncio.Event()]]  # Goes on until it is stopped.
                await app.engine.send(session_id, said)
                await wait_until_streaming(app, session_id)
                await app.engine.commands.undo(session_id, None)
            await app.wait_until_idle()
            await app.engine.delete(session_id)
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
    """C10: the restored turn replaces the one that streams, while others read."""
    async with running_app(tmp_path) as app, http_server(app) as api:
        session_id = await app.create_session()
        async with conversation_readers(app, api, session_id) as readers:
            for _ in range(ROUNDS):
                app.model.steps = [text_step("the end"), [*WORDS, asyncio.Event()]]
                sent = await app.engine.send(session_id, (Text("Write"),))
                await app.wait_for_run(sent.run_id, "completed")
                await app.engine.commands.undo(session_id, sent.turn_id)
                await app.engine.send(session_id, (Text("Write more"),))
                await wait_until_streaming(app, session_id)
                await app.engine.commands.restore(session_id, sent.turn_id)
                await app.engine.commands.undo(session_id, sent.turn_id)
            await app.wait_until_idle()
            await app.engine.delete(session_id)
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
    async with running_app(tmp_path) as app, http_server(app) as api:
        session_id, said, edited = (
            await app.create_session(),
            await parts_with_file(app, "Hello"),
            (Text("Hello again"),),
        )
        async with conversation_readers(app, api, session_id) as readers:
            sent = None
            for parts in (said, None, edited, None):
                app.model.steps = [[*WORDS, *([asyncio.Event()] if streams else text_step("the end"))]]
                if sent is None:
                    sent = await app.engine.send(session_id, said)
                else:
                    sent = await app.engine.replace(session_id, sent.turn_id, parts)
                if streams:
                    await wait_until_streaming(app, session_id)
                else:
                    await app.wait_for_run(sent.run_id, "completed")
            await app.engine.delete(session_id)
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
