"""C11, C12: a conversation that moves on to a new session loses nothing, and takes nothing twice.

The move is made by a real engine over a real store, while other processes, chats and readers use the old id.
"""

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import pytest

from holdfast.domain.decisions.successor import OPENING, SUMMED_UP
from holdfast.domain.errors import Busy, NoSuchSession, SessionMoved, SummaryRefused
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.engine.session_commands import Accepted
from holdfast.store.ports import Store
from tests.support.crashing_proxy import Fate, Mortal
from tests.support.fake_channel import Parlour, desk
from tests.support.in_process_app import House, house, says
from tests.support.summarising_model import Scribe, scribe, talk

ROOT = Path(__file__).resolve().parents[2]
MOVE_STEPS = frozenset({"session", "pinned", "append", "pin"})


async def users(here: House, session_id: SessionId) -> list[str]:
    """What people said in it, in order."""
    return [text for role, _, text in await here.text(session_id) if role == "user"]


async def queue_up(here: House, model: Scribe, session_id: SessionId) -> list[f.TurnAccepted]:
    """Three messages behind an answer that failed: they wait for a person."""
    hold = asyncio.Event()
    model.steps = [[hold, RuntimeError("broken")]]
    failed = await here.say(session_id, "break")
    for n in range(3):
        await here.say(session_id, f"queued {n}", key=f"k{n}")
    hold.set()
    await here.until_run(failed.run_id, "failed")
    found = [event.fact for event in await here.store.read(session_id, 0, 1000)]
    return [fact for fact in found if isinstance(fact, f.TurnAccepted) and (fact.key or "")[:1] == "k"]


async def test_what_waits_for_the_old_id_moves_and_what_is_sent_there_later_is_carried_over(
    tmp_path: Path,
) -> None:
    """C11"""
    boundaries: list[SessionId] = []
    async with house(tmp_path, boundary=boundaries.append) as here:
        model = scribe(here)
        old = await here.begin()
        kept = await here.say(old, "one", key="first")
        await here.until_run(kept.run_id, "completed")
        waiting = await queue_up(here, model, old)
        reader = here.store.tail(old, await here.store.head(old))
        new = await here.engine.moves.move_on(old)
        # The reader of the old one is told where it goes on, as the next thing that happens.
        told = (await asyncio.wait_for(anext(reader), 30)).fact
        assert isinstance(told, f.SessionContinued) and told.successor_session_id == new
        assert boundaries == [old] and (await here.store.session(new)).previous_session_id == old
        late = await here.say(old, "late", key="late")
        assert late.session_id == new
        # The same key is the same turn, whether it stayed, moved or came later.
        for key, text, turn in (
            ("first", "one", kept.turn_id),
            ("k1", "queued 1", waiting[1].turn_id),
            ("late", "late", late.turn_id),
        ):
            assert (await here.say(old, text, key=key)).turn_id == turn
        await here.until_run(late.run_id, "completed")
        assert await users(here, old) == ["one", "break"]
        assert (await users(here, new))[1:] == ["queued 0", "queued 1", "queued 2", "late"]
        for fact in waiting:
            session_id, run = await here.store.run(fact.run_id or "")  # type: ignore[arg-type]
            assert (session_id, run.status) == (new, "completed")
        assert await here.engine.moves.move_on(old) == new
        with pytest.raises(SessionMoved):
            await here.engine.verbs.undo(old, None)


async def test_a_run_under_way_is_not_moved_from_under_itself(tmp_path: Path) -> None:
    """C11"""
    async with house(tmp_path) as here:
        model = scribe(here)
        old = await here.begin()
        await talk(here, old, "one")
        go_on = asyncio.Event()
        model.steps = [[go_on, *says("done")]]
        sent = await here.say(old, "work")
        await here.until_run(sent.run_id, "running")
        with pytest.raises(Busy):
            await here.engine.moves.move_on(old)
        go_on.set()
        await here.until_run(sent.run_id, "completed")
        new = await here.engine.moves.move_on(old)
        assert (await here.store.session(new)).live_turns == 1


async def test_what_is_said_while_it_is_summed_up_is_in_the_summary_or_waits(tmp_path: Path) -> None:
    """C11"""
    async with house(tmp_path) as here:
        model = scribe(here)
        old = await here.begin()
        await talk(here, old, "one")
        model.hold = asyncio.Event()
        moving = asyncio.create_task(here.engine.moves.move_on(old))
        await asyncio.wait_for(model.asking.wait(), 30)
        await talk(here, old, "two")
        model.hold.set()
        await moving
        assert ["two" in asked for asked in model.asked] == [False, True]


@pytest.mark.parametrize("deed", ["answered", "under way", "taken back"])
async def test_nothing_lands_between_the_summary_and_the_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, deed: str
) -> None:
    """C11: what is said once the summary is made is summed up too, or the move is refused."""
    async with house(tmp_path) as here:
        model = scribe(here)
        old, go_on = await here.begin(), asyncio.Event()
        await talk(here, old, "one", "two")
        pinned, sent = here.store.pinned, list[Accepted]()

        async def pinned_after_a_deed(session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
            """The summary is made, and nothing is moved yet."""
            monkeypatch.setattr(here.store, "pinned", pinned)
            assert len(model.asked) == 1 and (await here.store.session(old)).successor_session_id is None
            if deed == "taken back":
                await here.engine.verbs.undo(old, None)
            else:
                model.steps = [[go_on, *says("done")]]
                sent.append(await here.say(old, "between"))
                if deed == "answered":
                    go_on.set()
                    await here.until_run(sent[0].run_id, "completed")
            return await pinned(session_ids)

        monkeypatch.setattr(here.store, "pinned", pinned_after_a_deed)
        if deed == "under way":
            with pytest.raises(Busy):
                await here.engine.moves.move_on(old)
            assert await here.store.successor(old) is None
            go_on.set()
            await here.until_run(sent[0].run_id, "completed")
        new = await here.engine.moves.move_on(old)
        said = ["one"] if deed == "taken back" else ["one", "two", "between"]
        assert len(model.asked) == 2
        assert [each for each in ("one", "two", "between") if each in model.asked[-1]] == said
        assert await users(here, new) == [OPENING]
        assert (await here.store.session(old)).live_turns == len(said)


@pytest.mark.parametrize("is_after", [False, True])
async def test_a_move_that_a_crash_cuts_off_has_happened_or_has_not(tmp_path: Path, is_after: bool) -> None:
    """C11: whichever step of the move the process dies at, nothing is lost, and nothing is there twice."""
    async with house(tmp_path) as here:
        model, queue = scribe(here), [f"queued {n}" for n in range(3)]
        for step in range(1, 10):
            old = await here.begin()
            await talk(here, old, "one")
            await here.store.pin(old, True)
            waiting = await queue_up(here, model, old)
            doomed, fate = here.engine.moves._store, Fate(step, is_after)
            here.engine.moves._store = cast(Store, Mortal(doomed, fate, MOVE_STEPS))
            moving = asyncio.create_task(here.engine.moves.move_on(old))
            over = asyncio.create_task(fate.is_over.wait())
            await asyncio.wait({moving, over}, timeout=30, return_when=asyncio.FIRST_COMPLETED)
            is_dead = not moving.done()
            here.engine.moves._store = doomed
            fate.bury()
            over.cancel()
            await asyncio.gather(moving, over, return_exceptions=True)
            at = await here.engine.moves.where(old)
            if at == old:
                assert is_dead and await users(here, old) == ["one", "break", *queue]
                continue
            sent = await here.say(old, "after")
            assert sent.session_id == at
            for run_id in (*(fact.run_id for fact in waiting), sent.run_id):
                await here.until_run(run_id, "completed")
            assert await users(here, old) == ["one", "break"]
            assert await users(here, at) == [OPENING, *queue, "after"]
            if not is_dead:
                return
        raise AssertionError("a move has fewer steps than that")


async def test_processes_that_use_the_old_id_are_serialised_with_the_move(tmp_path: Path) -> None:
    """C11"""
    async with house(tmp_path) as here:
        scribe(here)
        old = await here.begin()
        await talk(here, old, "begin")
        senders = [await _sender(tmp_path, old, name) for name in ("ada", "bob")]
        try:
            first = [await asyncio.wait_for(_line(each), 60) for each in senders]
            async with asyncio.timeout(60):
                new = await _moved(here, old)
                rest = [line for each in senders for line in await _lines(each)]
        finally:
            for each in senders:
                each.kill()
                await each.wait()
        receipts = [line.split() for line in (*first, *rest)]
        said = [*await users(here, old), *(await users(here, new))[1:]]
        # Each once, and each sender's in the order in which they were sent.
        assert sorted(said) == sorted(["begin", *(key for key, _, _ in receipts)])
        for name in ("ada", "bob"):
            sent = [key for key, _, _ in receipts if key.startswith(name)]
            assert [key for key in said if key.startswith(name)] == sent
        for key, session_id, turn_id in receipts:
            # Where its receipt says, unless it waited there still when the conversation moved.
            again = await here.say(old, key, key=key)
            assert again.turn_id == turn_id
            assert again.session_id in (session_id, new)
            assert key in await users(here, again.session_id)


async def test_a_queue_and_its_chat_move_while_processes_send_to_the_old_id(tmp_path: Path) -> None:
    """C11"""
    app = Parlour()
    async with house(tmp_path) as here, desk(here, app) as at:
        model = scribe(here)
        app.say("hello")
        await at.quiet()
        (route,) = await here.store.routes()
        old = route.session_id
        waiting = await queue_up(here, model, old)
        senders = [await _sender(tmp_path, old, name) for name in ("ada", "bob")]
        try:
            # They come while the queue moves, or while it is worked on where it moved to.
            async with asyncio.timeout(60):
                new = await _moved(here, old)
                lines = [line for each in senders for line in await _lines(each)]
        finally:
            for each in senders:
                each.kill()
                await each.wait()
        keys = [line.split()[0] for line in lines]
        app.say("still there?")
        await at.quiet()
        said = [*await users(here, old), *(await users(here, new))[1:]]
        asked = ["hello", "break", "queued 0", "queued 1", "queued 2"]
        assert said[:5] == asked and said[-1] == "still there?" and sorted(said[5:-1]) == sorted(keys)
        for name in ("ada", "bob"):
            assert [key for key in said if key.startswith(name)] == [k for k in keys if k.startswith(name)]
        assert [(await here.run(fact.run_id)).status for fact in waiting] == ["completed"] * 3
        assert (await here.store.routes())[0].session_id == new


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


async def _moved(here: House, old: SessionId) -> SessionId:
    """Moves it as soon as nothing is under way."""
    while True:
        try:
            return await here.engine.moves.move_on(old)
        except (Busy, SummaryRefused):
            await asyncio.sleep(0.01)


async def test_a_chat_follows_its_conversation(tmp_path: Path) -> None:
    """C11"""
    app = Parlour()
    async with house(tmp_path) as here, desk(here, app) as at:
        model = scribe(here)
        model.steps = [says("first answer")]
        app.say("hello")
        await at.quiet()
        (route,) = await here.store.routes()
        new = await here.engine.moves.move_on(route.session_id)
        await at.quiet()
        assert (await here.store.routes())[0].session_id == new
        model.steps = [says("second answer")]
        app.say("and now?")
        await at.quiet()
        assert (await users(here, new))[1:] == ["and now?"]
        assert app.texts()[0] == "first answer" and app.texts()[-1] == "second answer"
        assert not any(SUMMED_UP in text for text in app.texts())


async def test_the_move_succeeds_though_the_old_session_is_deleted_meanwhile(tmp_path: Path) -> None:
    """C12"""
    async with house(tmp_path) as here:
        model = scribe(here)
        old = await here.begin()
        await talk(here, old, "one")
        model.hold = asyncio.Event()
        moving = asyncio.create_task(here.engine.moves.move_on(old))
        await asyncio.wait_for(model.asking.wait(), 30)
        await here.engine.delete(old)
        model.hold.set()
        new = await moving
        assert [text for _, _, text in await here.text(new)][1] == SUMMED_UP + "They talked."
        await talk(here, new, "on we go")
        with pytest.raises(NoSuchSession):
            await here.store.session(old)


async def test_two_who_move_a_conversation_that_is_deleted_meanwhile_reach_the_same_one(
    tmp_path: Path,
) -> None:
    """C12"""
    async with house(tmp_path) as here:
        model = scribe(here)
        old = await here.begin()
        await talk(here, old, "one")
        own = tmp_path / "workspaces" / old
        own.mkdir(parents=True, exist_ok=True)
        (own / "kept.txt").write_text("kept")
        model.hold = asyncio.Event()
        movers = [asyncio.create_task(here.engine.moves.move_on(old)) for _ in range(4)]

        async def are_all_asking() -> bool:
            return len(model.asked) == len(movers)

        await here.until(are_all_asking)
        await here.engine.delete(old)
        model.hold.set()
        async with asyncio.timeout(30):
            (new,) = set(await asyncio.gather(*movers))
        assert (tmp_path / "workspaces" / new / "kept.txt").read_text() == "kept"
        # Who comes later finds it too: to move it, to ask where it is, and to send something there.
        assert await here.engine.moves.move_on(old) == await here.engine.moves.where(old) == new
        late = await here.say(old, "late", key="late")
        assert late.session_id == new
        await here.until_run(late.run_id, "completed")
        assert (await users(here, new))[1:] == ["late"]
        listed = (await here.store.sessions(None, 10)).sessions
        assert [row.id for row in listed] == [new]


async def test_a_conversation_that_was_deleted_before_is_not_moved(tmp_path: Path) -> None:
    """C12"""
    async with house(tmp_path) as here:
        scribe(here)
        old = await here.begin()
        await talk(here, old, "one")
        await here.engine.delete(old)
        with pytest.raises(NoSuchSession):
            await here.engine.moves.move_on(old)


async def test_whoever_uses_the_old_id_reaches_the_new_one_though_the_old_is_deleted(tmp_path: Path) -> None:
    """C12"""
    app = Parlour()
    async with house(tmp_path) as here, desk(here, app) as at:
        model = scribe(here)
        app.say("hello")
        await at.quiet()
        (route,) = await here.store.routes()
        old = route.session_id
        await queue_up(here, model, old)
        new = await here.engine.moves.move_on(old)
        await here.engine.delete(old)
        sent = await here.say(old, "late", key="late")
        assert sent.session_id == new
        assert (await here.say(old, "late", key="late")).turn_id == sent.turn_id
        assert (await here.say(old, "queued 2", key="k2")).session_id == new
        await here.until_run(sent.run_id, "completed")
        app.say("still there?")
        await at.quiet()
        assert (await users(here, new))[1:] == ["queued 0", "queued 1", "queued 2", "late", "still there?"]


async def test_moving_and_deleting_at_the_same_moment_leaves_one_whole_conversation(tmp_path: Path) -> None:
    """C12"""
    async with house(tmp_path) as here:
        scribe(here)
        for _ in range(10):
            old = await here.begin()
            await talk(here, old, "one")
            row = await here.store.session(old)
            drafted = await here.engine.summaries.draft(old, 0)
            new, _ = await asyncio.gather(here.engine.moves._move(row, drafted), here.engine.delete(old))
            assert (await here.store.session(new)).live_turns == 1
            assert await here.store.successor(old) == new
