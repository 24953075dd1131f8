"""C11, C12: a conversation that continues in a successor loses nothing, and duplicates nothing.

A real engine over a real store makes the move, while other processes, chats and readers use the old id.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from holdfast.domain.decisions.continuation import OPENING, SUMMARY_INTRO
from holdfast.domain.errors import Busy, NoSuchSession, SessionMoved, SummaryRefused
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.engine.session_commands import AcceptedMessage
from holdfast.store.ports import Store
from tests.support.crashing_proxy import CrashingProxy, CrashPoint
from tests.support.fake_channel import FakeChatApp, channel_harness
from tests.support.in_process_app import AppHarness, running_app, text_step
from tests.support.summarising_model import SummarizingModel, install_summarizing_model, run_turns

ROOT = Path(__file__).resolve().parents[2]
MOVE_STEPS = frozenset({"session", "pinned", "append", "pin"})


async def user_texts(app: AppHarness, session_id: SessionId) -> list[str]:
    """Return the user messages, in order."""
    return [text for role, _, text in await app.entry_texts(session_id) if role == "user"]


async def queue_messages(
    app: AppHarness, model: SummarizingModel, session_id: SessionId
) -> list[f.TurnAccepted]:
    """Queue three messages behind a failed answer: they wait for a person."""
    hold = asyncio.Event()
    model.steps = [[hold, RuntimeError("broken")]]
    failed = await app.send(session_id, "break")
    for n in range(3):
        await app.send(session_id, f"queued {n}", key=f"k{n}")
    hold.set()
    await app.wait_for_run(failed.run_id, "failed")
    found = [event.fact for event in await app.store.read(session_id, 0, 1000)]
    return [fact for fact in found if isinstance(fact, f.TurnAccepted) and (fact.key or "")[:1] == "k"]


async def test_queued_and_later_messages_to_the_old_id_reach_the_successor(
    tmp_path: Path,
) -> None:
    """C11"""
    boundaries: list[SessionId] = []
    async with running_app(tmp_path, on_session_end=boundaries.append) as app:
        model = install_summarizing_model(app)
        old = await app.create_session()
        kept = await app.send(old, "one", key="first")
        await app.wait_for_run(kept.run_id, "completed")
        waiting = await queue_messages(app, model, old)
        reader = app.store.tail(old, await app.store.head(old))
        new = await app.engine.continuation.continue_session(old)
        # The reader of the old one is told where it goes on, as the next thing that happens.
        next_fact = (await asyncio.wait_for(anext(reader), 30)).fact
        assert isinstance(next_fact, f.SessionContinued) and next_fact.successor_session_id == new
        assert boundaries == [old] and (await app.store.session(new)).previous_session_id == old
        late = await app.send(old, "late", key="late")
        assert late.session_id == new
        # The same key is the same turn, whether it stayed, moved or came later.
        for key, text, turn in (
            ("first", "one", kept.turn_id),
            ("k1", "queued 1", waiting[1].turn_id),
            ("late", "late", late.turn_id),
        ):
            assert (await app.send(old, text, key=key)).turn_id == turn
        await app.wait_for_run(late.run_id, "completed")
        assert await user_texts(app, old) == ["one", "break"]
        assert (await user_texts(app, new))[1:] == ["queued 0", "queued 1", "queued 2", "late"]
        for fact in waiting:
            session_id, run = await app.store.run(fact.run_id or "")  # type: ignore[arg-type]
            assert (session_id, run.status) == (new, "completed")
        assert await app.engine.continuation.continue_session(old) == new
        with pytest.raises(SessionMoved):
            await app.engine.commands.undo(old, None)


async def test_a_conversation_with_an_active_run_is_not_moved(tmp_path: Path) -> None:
    """C11"""
    async with running_app(tmp_path) as app:
        model = install_summarizing_model(app)
        old = await app.create_session()
        await run_turns(app, old, "one")
        go_on = asyncio.Event()
        model.steps = [[go_on, *text_step("done")]]
        sent = await app.send(old, "work")
        await app.wait_for_run(sent.run_id, "running")
        with pytest.raises(Busy):
            await app.engine.continuation.continue_session(old)
        go_on.set()
        await app.wait_for_run(sent.run_id, "completed")
        new = await app.engine.continuation.continue_session(old)
        assert (await app.store.session(new)).live_turns == 1


async def test_a_message_during_summarising_is_summarised_or_queued(tmp_path: Path) -> None:
    """C11"""
    async with running_app(tmp_path) as app:
        model = install_summarizing_model(app)
        old = await app.create_session()
        await run_turns(app, old, "one")
        model.hold = asyncio.Event()
        moving = asyncio.create_task(app.engine.continuation.continue_session(old))
        await asyncio.wait_for(model.summary_started.wait(), 30)
        await run_turns(app, old, "two")
        model.hold.set()
        await moving
        assert ["two" in asked for asked in model.summarized_texts] == [False, True]


@pytest.mark.parametrize("change", ["answered", "under way", "taken back"])
async def test_nothing_lands_between_the_summary_and_the_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """C11: a turn that follows the summary is summarised too, or the move is refused."""
    async with running_app(tmp_path) as app:
        model = install_summarizing_model(app)
        old, go_on = await app.create_session(), asyncio.Event()
        await run_turns(app, old, "one", "two")
        pinned, sent = app.store.pinned, list[AcceptedMessage]()

        async def pinned_after_change(session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
            """Change the session after the summary and before the move."""
            monkeypatch.setattr(app.store, "pinned", pinned)
            assert (
                len(model.summarized_texts) == 1
                and (await app.store.session(old)).successor_session_id is None
            )
            if change == "taken back":
                await app.engine.commands.undo(old, None)
            else:
                model.steps = [[go_on, *text_step("done")]]
                sent.append(await app.send(old, "between"))
                if change == "answered":
                    go_on.set()
                    await app.wait_for_run(sent[0].run_id, "completed")
            return await pinned(session_ids)

        monkeypatch.setattr(app.store, "pinned", pinned_after_change)
        if change == "under way":
            with pytest.raises(Busy):
                await app.engine.continuation.continue_session(old)
            assert await app.store.successor(old) is None
            go_on.set()
            await app.wait_for_run(sent[0].run_id, "completed")
        new = await app.engine.continuation.continue_session(old)
        said = ["one"] if change == "taken back" else ["one", "two", "between"]
        assert len(model.summarized_texts) == 2
        assert [each for each in ("one", "two", "between") if each in model.summarized_texts[-1]] == said
        assert await user_texts(app, new) == [OPENING]
        assert (await app.store.session(old)).live_turns == len(said)


@pytest.mark.parametrize("is_after", [False, True])
async def test_a_move_is_atomic_under_a_crash(tmp_path: Path, is_after: bool) -> None:
    """C11: at whichever step the process dies, nothing is lost, and nothing is duplicated."""
    async with running_app(tmp_path) as app:
        model, queue = install_summarizing_model(app), [f"queued {n}" for n in range(3)]
        for step in range(1, 10):
            old = await app.create_session()
            await run_turns(app, old, "one")
            await app.store.pin(old, True)
            waiting = await queue_messages(app, model, old)
            doomed, fate = app.engine.continuation._store, CrashPoint(step, is_after)
            app.engine.continuation._store = cast(Store, CrashingProxy(doomed, fate, MOVE_STEPS))
            moving = asyncio.create_task(app.engine.continuation.continue_session(old))
            over = asyncio.create_task(fate.has_crashed.wait())
            await asyncio.wait({moving, over}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            is_dead = not moving.done()
            app.engine.continuation._store = doomed
            fate.release()
            over.cancel()
            await asyncio.gather(moving, over, return_exceptions=True)
            at = await app.engine.continuation.current_session(old)
            if at == old:
                assert is_dead and await user_texts(app, old) == ["one", "break", *queue]
                continue
            sent = await app.send(old, "after")
            assert sent.session_id == at
            for run_id in (*(fact.run_id for fact in waiting), sent.run_id):
                await app.wait_for_run(run_id, "completed")
            assert await user_texts(app, old) == ["one", "break"]
            assert await user_texts(app, at) == [OPENING, *queue, "after"]
            if not is_dead:
                return
        raise AssertionError("a move has fewer steps than that")


async def test_processes_that_use_the_old_id_are_serialised_with_the_move(tmp_path: Path) -> None:
    """C11"""
    async with running_app(tmp_path) as app:
        install_summarizing_model(app)
        old = await app.create_session()
        await run_turns(app, old, "begin")
        senders = [await _sender(tmp_path, old, name) for name in ("ada", "bob")]
        try:
            first = [await asyncio.wait_for(_line(each), 60) for each in senders]
            async with asyncio.timeout(60):
                new = await _moved(app, old)
                rest = [line for each in senders for line in await _lines(each)]
        finally:
            for each in senders:
                each.kill()
                await each.wait()
        receipts = [line.split() for line in (*first, *rest)]
        said = [*await user_texts(app, old), *(await user_texts(app, new))[1:]]
        # Each once, and each sender's in the order in which they were sent.
        assert sorted(said) == sorted(["begin", *(key for key, _, _ in receipts)])
        for name in ("ada", "bob"):
            sent = [key for key, _, _ in receipts if key.startswith(name)]
            assert [key for key in said if key.startswith(name)] == sent
        for key, session_id, turn_id in receipts:
            # Where its receipt says, unless it waited there still when the conversation moved.
            again = await app.send(old, key, key=key)
            assert again.turn_id == turn_id
            assert again.session_id in (session_id, new)
            assert key in await user_texts(app, again.session_id)


async def test_a_queue_and_its_chat_move_while_processes_send_to_the_old_id(tmp_path: Path) -> None:
    """C11"""
    chat_app = FakeChatApp()
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        model = install_summarizing_model(engine_app)
        chat_app.post_message("hello")
        await harness.wait_until_idle()
        (route,) = await engine_app.store.routes()
        old = route.session_id
        waiting = await queue_messages(engine_app, model, old)
        senders = [await _sender(tmp_path, old, name) for name in ("ada", "bob")]
        try:
            # They come while the queue moves, or while it is worked on where it moved to.
            async with asyncio.timeout(60):
                new = await _moved(engine_app, old)
                lines = [line for each in senders for line in await _lines(each)]
        finally:
            for each in senders:
                each.kill()
                await each.wait()
        keys = [line.split()[0] for line in lines]
        chat_app.post_message("still there?")
        await harness.wait_until_idle()
        said = [*await user_texts(engine_app, old), *(await user_texts(engine_app, new))[1:]]
        asked = ["hello", "break", "queued 0", "queued 1", "queued 2"]
        assert said[:5] == asked and said[-1] == "still there?" and sorted(said[5:-1]) == sorted(keys)
        for name in ("ada", "bob"):
            assert [key for key in said if key.startswith(name)] == [k for k in keys if k.startswith(name)]
        assert [(await engine_app.run(fact.run_id)).status for fact in waiting] == ["completed"] * 3
        assert (await engine_app.store.routes())[0].session_id == new


async def _sender(folder: Path, session_id: SessionId, name: str) -> asyncio.subprocess.Process:
    command = [sys.executable, "-m", "tests.contracts.sender_process", str(folder), session_id, name]
    return await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, cwd=ROOT)


async def _line(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    return (await process.stdout.readline()).decode()


async def _lines(process: asyncio.subprocess.Process) -> list[str]:
    lines = [await _line(process)]
    while lines[-1] != ".\n":
        assert lines[-1], "it is still there"
        lines.append(await _line(process))
    return lines[:-1]


async def _moved(app: AppHarness, old: SessionId) -> SessionId:
    """Move the conversation as soon as it is idle."""
    while True:
        try:
            return await app.engine.continuation.continue_session(old)
        except (Busy, SummaryRefused):
            await asyncio.sleep(0.01)


async def test_a_chat_follows_its_conversation(tmp_path: Path) -> None:
    """C11"""
    chat_app = FakeChatApp()
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        model = install_summarizing_model(engine_app)
        model.steps = [text_step("first answer")]
        chat_app.post_message("hello")
        await harness.wait_until_idle()
        (route,) = await engine_app.store.routes()
        new = await engine_app.engine.continuation.continue_session(route.session_id)
        await harness.wait_until_idle()
        assert (await engine_app.store.routes())[0].session_id == new
        model.steps = [text_step("second answer")]
        chat_app.post_message("and now?")
        await harness.wait_until_idle()
        assert (await user_texts(engine_app, new))[1:] == ["and now?"]
        assert chat_app.texts()[0] == "first answer" and chat_app.texts()[-1] == "second answer"
        assert not any(SUMMARY_INTRO in text for text in chat_app.texts())


async def test_the_move_succeeds_though_the_old_session_is_deleted_meanwhile(tmp_path: Path) -> None:
    """C12"""
    async with running_app(tmp_path) as app:
        model = install_summarizing_model(app)
        old = await app.create_session()
        await run_turns(app, old, "one")
        model.hold = asyncio.Event()
        moving = asyncio.create_task(app.engine.continuation.continue_session(old))
        await asyncio.wait_for(model.summary_started.wait(), 30)
        await app.engine.delete(old)
        model.hold.set()
        new = await moving
        assert [text for _, _, text in await app.entry_texts(new)][1] == SUMMARY_INTRO + "They talked."
        await run_turns(app, new, "on we go")
        with pytest.raises(NoSuchSession):
            await app.store.session(old)


async def test_two_concurrent_moves_of_a_deleted_conversation_reach_one_successor(
    tmp_path: Path,
) -> None:
    """C12"""
    async with running_app(tmp_path) as app:
        model = install_summarizing_model(app)
        old = await app.create_session()
        await run_turns(app, old, "one")
        own = tmp_path / "workspaces" / old
        own.mkdir(parents=True, exist_ok=True)
        (own / "kept.txt").write_text("kept")
        model.hold = asyncio.Event()
        movers = [asyncio.create_task(app.engine.continuation.continue_session(old)) for _ in range(4)]

        async def are_all_asking() -> bool:
            return len(model.summarized_texts) == len(movers)

        await app.wait_until(are_all_asking)
        await app.engine.delete(old)
        model.hold.set()
        async with asyncio.timeout(30):
            (new,) = set(await asyncio.gather(*movers))
        assert (tmp_path / "workspaces" / new / "kept.txt").read_text() == "kept"
        # Who comes later finds it too: to move it, to ask where it is, and to send something there.
        assert (
            await app.engine.continuation.continue_session(old)
            == await app.engine.continuation.current_session(old)
            == new
        )
        late = await app.send(old, "late", key="late")
        assert late.session_id == new
        await app.wait_for_run(late.run_id, "completed")
        assert (await user_texts(app, new))[1:] == ["late"]
        listed = (await app.store.sessions(None, 10)).sessions
        assert [row.id for row in listed] == [new]


async def test_a_conversation_that_was_deleted_before_is_not_moved(tmp_path: Path) -> None:
    """C12"""
    async with running_app(tmp_path) as app:
        install_summarizing_model(app)
        old = await app.create_session()
        await run_turns(app, old, "one")
        await app.engine.delete(old)
        with pytest.raises(NoSuchSession):
            await app.engine.continuation.continue_session(old)


async def test_the_old_id_reaches_the_successor_even_when_deleted(tmp_path: Path) -> None:
    """C12"""
    chat_app = FakeChatApp()
    async with running_app(tmp_path) as engine_app, channel_harness(engine_app, chat_app) as harness:
        model = install_summarizing_model(engine_app)
        chat_app.post_message("hello")
        await harness.wait_until_idle()
        (route,) = await engine_app.store.routes()
        old = route.session_id
        await queue_messages(engine_app, model, old)
        new = await engine_app.engine.continuation.continue_session(old)
        await engine_app.engine.delete(old)
        sent = await engine_app.send(old, "late", key="late")
        assert sent.session_id == new
        assert (await engine_app.send(old, "late", key="late")).turn_id == sent.turn_id
        assert (await engine_app.send(old, "queued 2", key="k2")).session_id == new
        await engine_app.wait_for_run(sent.run_id, "completed")
        chat_app.post_message("still there?")
        await harness.wait_until_idle()
        assert (await user_texts(engine_app, new))[1:] == [
            "queued 0",
            "queued 1",
            "queued 2",
            "late",
            "still there?",
        ]


async def test_moving_and_deleting_at_the_same_moment_leaves_one_whole_conversation(tmp_path: Path) -> None:
    """C12"""
    async with running_app(tmp_path) as app:
        install_summarizing_model(app)
        for _ in range(10):
            old = await app.create_session()
            await run_turns(app, old, "one")
            row = await app.store.session(old)
            drafted = await app.engine.summaries.draft(old, 0)
            new, _ = await asyncio.gather(
                app.engine.continuation._start_successor(row, drafted), app.engine.delete(old)
            )
            assert (await app.store.session(new)).live_turns == 1
            assert await app.store.successor(old) == new
