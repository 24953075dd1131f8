"""G: an agent and what is held of a conversation are reused exactly when that is right.

Runs are carried out by a real engine over a real store. The other process is a second store on the same
folder, or a process of its own; what the cache made of it is what it has counted.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from random import random

from msgspec.structs import replace

from holdfast.agent.agent import Agent
from holdfast.agent.cached_context import Baseline, may_reuse, moved
from holdfast.agent.context_cache import ContextCache
from holdfast.agent.model_step import Asking
from holdfast.agent.registry import Switchboard
from holdfast.agent.tool_execution import Calls
from holdfast.domain.agents import MAIN, AgentSpec
from holdfast.domain.clock import FakeClock, SystemClock
from holdfast.domain.context.context import Request, UserMessage
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, encode
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import MessageId, SessionId, TurnId
from holdfast.domain.state.changes import Change, ReadBack
from holdfast.domain.transcript.transcript import TranscriptFold
from holdfast.engine.engine import Engine
from holdfast.engine.load_context import FIRST_PAGE_MESSAGES
from holdfast.engine.session_commands import Accepted
from holdfast.models.ports import Model
from holdfast.store.ports import Append
from holdfast.tools.files.pdf_text import PdfTexts
from holdfast.tools.sandbox.sandbox import NO_WALLS
from tests.support.fake_channel import Parlour, desk
from tests.support.in_process_app import UNLIMITED, House, Puppet, house, says

ROOT = Path(__file__).resolve().parents[2]
ONE, OTHER = SessionId("s_0000000000000001"), SessionId("s_0000000000000002")


async def answered(here: House, session_id: SessionId, text: str, answer: str) -> Accepted:
    """One turn, to its end."""
    here.model.steps = [says(answer)]
    sent = await here.say(session_id, text)
    await here.until_run(sent.run_id, "completed")
    return sent


def shown(request: Request) -> list[str]:
    """What people have said, as the model was shown it."""
    parts = [part for m in request.messages if isinstance(m, UserMessage) for part in m.parts]
    return [part.text for part in parts if isinstance(part, Text)]


def counted(here: House) -> tuple[int, dict[str, int]]:
    return here.contexts.hits, dict(here.contexts.rebuilds)


async def test_a_route_keeps_its_agent_from_one_conversation_to_the_next(tmp_path: Path) -> None:
    """G1: of a chat that begins another conversation, by what the program puts in an engine."""
    built: list[tuple[str, Model]] = []
    app = Parlour()
    async with house(tmp_path, started=False) as here:
        clock, ids, contexts = SystemClock(), here.ids, ContextCache(SystemClock())
        asking, calls = Asking(clock, ids, {}, random), Calls({}, "allow", clock)

        def build(spec: AgentSpec, model: Model) -> Agent:
            built.append((spec.name, model))
            return Agent("Be brief.", model, {}, asking, calls, UNLIMITED, clock, pdfs=PdfTexts(NO_WALLS))

        async def open_model(name: str, fallbacks: tuple[str, ...]) -> Model:
            return chosen

        old, chosen, new = Puppet(), Puppet(), Puppet()
        board = Switchboard(
            build, old, "", False, lambda: contexts.count("configuration"),
            lambda name: AgentSpec(name=name or MAIN), open_model,
        )  # fmt: skip
        engine = Engine(here.store, clock, ids, board.of, tmp_path, "auto", None, 10, contexts)
        async with desk(here, app, engine=engine) as at:
            sessions = []
            for _ in range(3):
                for text in ("Hello", "Hello again"):
                    app.say(text)
                    await at.quiet()
                sessions.append(await at.session())
                app.say("/new")
                await at.quiet()
            assert len(set(sessions)) == 3 and built == [(MAIN, old)], "built once, whichever it is at"
            assert len(old.requests) == 6
            assert (contexts.hits, dict(contexts.rebuilds)) == (3, {"new": 3})

            # Another model, or another agent, is another one; so is one whose configuration has changed.
            async def answered_by(**created: str) -> None:
                session_id = await engine.create(f.SessionCreated(**created))
                sent = await engine.send(session_id, (Text("Hello"),))
                await here.until_run(sent.run_id, "completed")

            for created in ({"model": "a:b"}, {"agent": "reader"}, {}) * 2:
                await answered_by(**created)
            assert built == [(MAIN, old), (MAIN, chosen), ("reader", old)]
            board.switch(new, "", names=False)
            app.say("Hello")
            await at.quiet()
            assert built[3:] == [(MAIN, new)] and len(new.requests) == 1
        await engine.stop(0)
        await board.close()
    # Whichever conversation it is at, how far another one has come says nothing of it.
    assert may_reuse(Baseline(ONE, 7), OTHER, 99)


async def test_consecutive_turns_go_on_with_what_is_held_and_the_baseline_follows(tmp_path: Path) -> None:
    """G2"""
    async with house(tmp_path, started=False) as here:
        session_id = await here.begin()
        for n in range(1, 5):
            await answered(here, session_id, f"Question {n}", f"Answer {n}")
        assert counted(here) == (3, {"new": 1})
        assert shown(here.model.requests[-1]) == [f"Question {n}" for n in range(1, 5)]
        await here.engine.verbs.undo(session_id, None)
        edited = await here.engine.replace(session_id, None, (Text("Question 3 again"),))
        await here.until_run(edited.run_id, "completed")
        assert shown(here.model.requests[-1]) == ["Question 1", "Question 2", "Question 3 again"]
        assert counted(here) == (4, {"new": 1}), "undoing and asking differently were our own doing"


async def _answered_elsewhere(folder: Path, session_id: SessionId, text: str, answer: str) -> None:
    """One turn, to its end, by a process of its own."""
    module = "tests.contracts.single_turn_process"
    command = [sys.executable, "-m", module, str(folder), session_id, text, answer]
    await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=True, timeout=60)


async def test_what_another_process_said_is_read_before_the_next_answer(tmp_path: Path) -> None:
    """G3"""
    async with house(tmp_path, started=False) as here:
        session_id = await here.begin()
        await answered(here, session_id, "Here", "First")
        await _answered_elsewhere(tmp_path, session_id, "There", "Second")
        await answered(here, session_id, "Here again", "Third")
        assert counted(here) == (0, {"new": 1, "foreign": 1})
        assert shown(here.model.requests[-1]) == ["Here", "There", "Here again"]
        await answered(here, session_id, "And again", "Fourth")
        assert counted(here) == (1, {"new": 1, "foreign": 1}), "once read back, it is used again"


async def test_looking_whether_a_summary_is_due_neither_counts_nor_reads_what_another_process_said(
    tmp_path: Path,
) -> None:
    """G3"""
    async with house(tmp_path, started=False, summarise_above=0.5) as here:
        session_id, summaries = await here.begin(), here.engine.summaries
        await answered(here, session_id, "Here", "First")
        await answered(here, session_id, "Here again", "Second")
        await summaries.settled(session_id)
        assert counted(here) == (1, {"new": 1})
        await _answered_elsewhere(tmp_path, session_id, "There", "Third")
        summaries.consider(session_id)
        await summaries.settled(session_id)
        assert counted(here) == (1, {"new": 1}), "it is not read back before there is something to answer"
        await answered(here, session_id, "And again", "Fourth")
        assert counted(here) == (1, {"new": 1, "foreign": 1})
        assert shown(here.model.requests[-1]) == ["Here", "Here again", "There", "And again"]


async def test_another_conversations_changes_leave_a_baseline_alone(tmp_path: Path) -> None:
    """G4"""
    assert moved(Baseline(ONE, 7), OTHER, 3, 9) == Baseline(ONE, 7)
    async with house(tmp_path, started=False) as here:
        one, other = await here.begin(), await here.begin()
        await answered(here, one, "One", "Yes")
        await answered(here, other, "Other", "No")
        await answered(here, other, "Other again", "No")
        await answered(here, one, "One again", "Yes")
        assert counted(here) == (2, {"new": 2})


async def test_a_baseline_goes_along_with_our_own_changes_unless_another_came_between(tmp_path: Path) -> None:
    """G5"""
    assert moved(Baseline(ONE, 7), ONE, 7, 9) == Baseline(ONE, 9)
    stale = moved(Baseline(ONE, 7), ONE, 8, 9)
    assert stale.state == "stale" and not may_reuse(stale, ONE, 9)
    assert moved(stale, ONE, 9, 10) == stale, "nothing but reading it again makes it good"
    async with house(tmp_path, started=False) as here, house(tmp_path, started=False) as there:
        session_id = await here.begin()
        await answered(here, session_id, "Here", "First")
        await there.engine.verbs.undo(session_id, None)
        # A change of our own after it: the position is our own again, and the entry is stale all the same.
        await here.engine.verbs.configure(session_id, f.SessionConfigured(resume="ask"))
        await answered(here, session_id, "Here again", "Second")
        assert counted(here) == (0, {"new": 1, "foreign": 1})
        assert shown(here.model.requests[-1]) == ["Here again"]


async def test_what_is_being_built_is_left_alone_and_what_cannot_be_known_speaks_for_reuse() -> None:
    """G6"""
    building = Baseline(ONE, state="building")
    assert moved(building, ONE, 7, 9) == building
    assert may_reuse(Baseline(ONE, None), ONE, 9), "without a baseline"
    assert may_reuse(Baseline(ONE, 7), ONE, None), "without a position"
    # What happens while a conversation is read is in it afterwards, once.
    cache = ContextCache(FakeClock())
    held = cache.hold(ONE)
    cache.note(Change(ONE, 5, 5, 3, 5))
    said = f.TurnAccepted(TurnId("t1"), 1, MessageId("m1"), (Text("While it was read"),))
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def read() -> ReadBack:
        begun.set()
        await may_end.wait()
        return ReadBack(TranscriptFold(), 5, 100, True)

    building_now = asyncio.create_task(held.fold(1_000, read))
    await begun.wait()
    cache.note(_change(6, 5, said))
    may_end.set()
    turns = (await building_now).transcript().turns
    assert [turn.entries[0].parts for turn in turns] == [(Text("While it was read"),)]
    assert await held.fold(1_000, read) is await building_now
    assert (cache.hits, dict(cache.rebuilds)) == (1, {"new": 1})


def test_an_entry_whose_conversation_is_not_known_is_guarded_and_adopts_a_position() -> None:
    """G7"""
    nobodys = Baseline(None, 7)
    assert may_reuse(nobodys, ONE, 7) and not may_reuse(nobodys, ONE, 8)
    assert moved(nobodys, ONE, 11, 12) == Baseline(ONE, 12)
    assert not may_reuse(moved(nobodys, ONE, 11, 12), ONE, 13)


async def test_restored_turns_that_were_never_read_are_shown_to_the_model(tmp_path: Path) -> None:
    """G3: only the end of a long conversation is read."""
    texts = [f"message {number}" for number in range(FIRST_PAGE_MESSAGES)]
    async with house(tmp_path) as here:
        session_id = await here.begin()
        first, *_ = [await answered(here, session_id, text, "Yes.") for text in texts]
        await here.engine.verbs.undo(session_id, first.turn_id)
    async with house(tmp_path) as here:
        await answered(here, session_id, "long " * 190_000, "Too long.")
        await here.engine.verbs.restore(session_id, None)
        await answered(here, session_id, "the last", "Yes.")
        assert shown(here.model.requests[-1]) == [*texts, "the last"]


async def test_an_undo_and_a_message_elsewhere_are_noticed_and_titles_and_deliveries_are_not(
    tmp_path: Path,
) -> None:
    """G8"""
    async with house(tmp_path, started=False) as here, house(tmp_path, started=False) as there:
        session_id = await here.begin()
        await answered(here, session_id, "One", "First")
        await answered(here, session_id, "Two", "Second")
        before = await here.store.session(session_id)
        await there.engine.verbs.undo(session_id, None)
        there.model.steps = [says("Second, otherwise")]
        sent = await there.say(session_id, "Two, otherwise")
        await here.until_run(sent.run_id, "completed")
        assert (await here.store.session(session_id)).live_turns == before.live_turns
        await answered(here, session_id, "Three", "Third")
        assert shown(here.model.requests[-1]) == ["One", "Two, otherwise", "Three"]
        assert counted(here) == (1, {"new": 1, "foreign": 1})
        await there.engine.verbs.rename(session_id, "A title", by="model")
        await there.engine.verbs.archive(session_id, True)
        await there.store.append(Append(session_id, (f.DeliveryInDoubt("telegram", MessageId("m")),)))
        await here.engine.verbs.rename(session_id, "A better one", by="user")
        await answered(here, session_id, "Four", "Fourth")
        assert counted(here) == (2, {"new": 1, "foreign": 1})


async def test_a_conversation_that_is_another_under_the_same_id_and_version_is_noticed(
    tmp_path: Path,
) -> None:
    assert moved(Baseline(ONE, 7, incarnation=1), ONE, 7, 9, 1) == Baseline(ONE, 9, incarnation=1)
    assert moved(Baseline(ONE, 7, incarnation=1), ONE, 7, 9, 2).state == "stale"
    async with house(tmp_path, started=False) as here, house(tmp_path, started=False) as there:
        session_id = await here.begin()
        await answered(here, session_id, "It is red", "Yes")
        events = await here.store.read(session_id, 0, 1_000)
        other = [replace(event, body=event.body.replace(b"red", b"tan")) for event in events]
        await there.engine.verbs.delete(session_id)
        await there.store.adopt(session_id, other, closes=True)
        assert await there.store.head(session_id) == events[-1].seq
        await answered(here, session_id, "What is it?", "Tan")
        assert shown(here.model.requests[-1]) == ["It is tan", "What is it?"]
        assert counted(here) == (0, {"new": 1, "foreign": 1})


def _change(seq: int, before: int, fact: f.AnyFact) -> Change:
    return Change(ONE, seq, seq, before, seq, (Event(seq, 0, *encode(fact)),))
