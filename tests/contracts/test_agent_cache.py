"""G: an agent and the cached context of a conversation are reused exactly when that is right.

A real engine over a real store runs everything. The other process is a second store on the same folder, or a
real process; the counters of the cache show what it did.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from random import random

from msgspec.structs import replace

from holdfast.agent.agent import Agent
from holdfast.agent.cached_context import Baseline, advance, may_reuse
from holdfast.agent.context_cache import ContextCache
from holdfast.agent.model_step import ModelStep
from holdfast.agent.registry import AgentRegistry
from holdfast.agent.tool_execution import ToolExecutor
from holdfast.domain.agents import MAIN_AGENT, AgentSpec
from holdfast.domain.clock import FakeClock, SystemClock
from holdfast.domain.context.context import Request, UserMessage
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, encode
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import MessageId, SessionId, TurnId
from holdfast.domain.state.changes import CommittedChange, LoadedContext
from holdfast.domain.transcript.transcript import TranscriptFold
from holdfast.engine.engine import Engine
from holdfast.engine.load_context import FIRST_PAGE_MESSAGES
from holdfast.engine.session_commands import AcceptedMessage
from holdfast.models.ports import Model
from holdfast.store.ports import Append
from holdfast.tools.files.pdf_text import PdfTextExtractor
from holdfast.tools.sandbox.sandbox import NO_SANDBOX
from tests.support.fake_channel import FakeChatApp, channel_harness
from tests.support.in_process_app import (
    UNLIMITED_ALLOWANCE,
    AppHarness,
    ScriptedModel,
    running_app,
    text_step,
)

ROOT = Path(__file__).resolve().parents[2]
ONE, OTHER = SessionId("s_0000000000000001"), SessionId("s_0000000000000002")


async def run_turn(app: AppHarness, session_id: SessionId, text: str, answer: str) -> AcceptedMessage:
    """Run one turn to its end."""
    app.model.steps = [text_step(answer)]
    sent = await app.send(session_id, text)
    await app.wait_for_run(sent.run_id, "completed")
    return sent


def request_texts(request: Request) -> list[str]:
    """Return the user messages that the model received."""
    parts = [part for m in request.messages if isinstance(m, UserMessage) for part in m.parts]
    return [part.text for part in parts if isinstance(part, Text)]


def cache_counts(app: AppHarness) -> tuple[int, dict[str, int]]:
    return app.contexts.hits, dict(app.contexts.rebuilds)


async def test_a_route_keeps_its_agent_from_one_conversation_to_the_next(tmp_path: Path) -> None:
    """G1: by the route that a program gives the engine, as a chat that begins another conversation."""
    built: list[tuple[str, Model]] = []
    chat_app = FakeChatApp()
    async with running_app(tmp_path, started=False) as engine_app:
        clock, ids, contexts = SystemClock(), engine_app.ids, ContextCache(SystemClock())
        asking, calls = ModelStep(clock, ids, {}, random), ToolExecutor({}, "allow", clock)

        def build(spec: AgentSpec, model: Model) -> Agent:
            built.append((spec.name, model))
            return Agent(
                "Be brief.",
                model,
                {},
                asking,
                calls,
                UNLIMITED_ALLOWANCE,
                clock,
                pdfs=PdfTextExtractor(NO_SANDBOX),
            )

        async def open_model(name: str, fallbacks: tuple[str, ...]) -> Model:
            return chosen

        old, chosen, new = ScriptedModel(), ScriptedModel(), ScriptedModel()
        board = AgentRegistry(
            build, old, "", False, lambda: contexts.count_rebuild("configuration"),
            lambda name: AgentSpec(name=name or MAIN_AGENT), open_model,
        )  # fmt: skip
        engine = Engine(engine_app.store, clock, ids, board.handle_for, tmp_path, "auto", None, 10, contexts)
        async with channel_harness(engine_app, chat_app, engine=engine) as harness:
            sessions = []
            for _ in range(3):
                for text in ("Hello", "Hello again"):
                    chat_app.post_message(text)
                    await harness.wait_until_idle()
                sessions.append(await harness.session_id())
                chat_app.post_message("/new")
                await harness.wait_until_idle()
            assert len(set(sessions)) == 3 and built == [(MAIN_AGENT, old)], "built once, whichever it is at"
            assert len(old.requests) == 6
            assert (contexts.hits, dict(contexts.rebuilds)) == (3, {"new": 3})

            # Another model, or another agent, is another one; so is one whose configuration has changed.
            async def answered_by(**created: str) -> None:
                session_id = await engine.create(f.SessionCreated(**created))
                sent = await engine.send(session_id, (Text("Hello"),))
                await engine_app.wait_for_run(sent.run_id, "completed")

            for created in ({"model": "a:b"}, {"agent": "reader"}, {}) * 2:
                await answered_by(**created)
            assert built == [(MAIN_AGENT, old), (MAIN_AGENT, chosen), ("reader", old)]
            board.set_default_model(new, "", can_complete=False)
            chat_app.post_message("Hello")
            await harness.wait_until_idle()
            assert built[3:] == [(MAIN_AGENT, new)] and len(new.requests) == 1
        await engine.stop(0)
        await board.close()
    # Whichever conversation it is at, how far another one has come says nothing of it.
    assert may_reuse(Baseline(ONE, 7), OTHER, 99)


async def test_consecutive_turns_reuse_the_cached_context_and_advance_the_baseline(tmp_path: Path) -> None:
    """G2"""
    async with running_app(tmp_path, started=False) as app:
        session_id = await app.create_session()
        for n in range(1, 5):
            await run_turn(app, session_id, f"Question {n}", f"Answer {n}")
        assert cache_counts(app) == (3, {"new": 1})
        assert request_texts(app.model.requests[-1]) == [f"Question {n}" for n in range(1, 5)]
        await app.engine.commands.undo(session_id, None)
        edited = await app.engine.replace(session_id, None, (Text("Question 3 again"),))
        await app.wait_for_run(edited.run_id, "completed")
        assert request_texts(app.model.requests[-1]) == ["Question 1", "Question 2", "Question 3 again"]
        assert cache_counts(app) == (4, {"new": 1}), "undoing and asking differently were our own doing"


async def _run_turn_elsewhere(folder: Path, session_id: SessionId, text: str, answer: str) -> None:
    """Run one turn to its end in a process of its own."""
    module = "tests.contracts.single_turn_process"
    command = [sys.executable, "-m", module, str(folder), session_id, text, answer]
    await asyncio.to_thread(subprocess.run, command, cwd=ROOT, check=True, timeout=60)


async def test_changes_of_another_process_are_read_before_the_next_answer(tmp_path: Path) -> None:
    """G3"""
    async with running_app(tmp_path, started=False) as app:
        session_id = await app.create_session()
        await run_turn(app, session_id, "Here", "First")
        await _run_turn_elsewhere(tmp_path, session_id, "There", "Second")
        await run_turn(app, session_id, "Here again", "Third")
        assert cache_counts(app) == (0, {"new": 1, "foreign": 1})
        assert request_texts(app.model.requests[-1]) == ["Here", "There", "Here again"]
        await run_turn(app, session_id, "And again", "Fourth")
        assert cache_counts(app) == (1, {"new": 1, "foreign": 1}), "once read back, it is used again"


async def test_checking_for_a_due_summary_neither_counts_nor_rebuilds(
    tmp_path: Path,
) -> None:
    """G3"""
    async with running_app(tmp_path, started=False, summarise_above=0.5) as app:
        session_id, summaries = await app.create_session(), app.engine.summaries
        await run_turn(app, session_id, "Here", "First")
        await run_turn(app, session_id, "Here again", "Second")
        await summaries.wait_idle(session_id)
        assert cache_counts(app) == (1, {"new": 1})
        await _run_turn_elsewhere(tmp_path, session_id, "There", "Third")
        summaries.schedule(session_id)
        await summaries.wait_idle(session_id)
        assert cache_counts(app) == (1, {"new": 1}), "it is not read back before there is something to answer"
        await run_turn(app, session_id, "And again", "Fourth")
        assert cache_counts(app) == (1, {"new": 1, "foreign": 1})
        assert request_texts(app.model.requests[-1]) == ["Here", "Here again", "There", "And again"]


async def test_another_conversations_changes_leave_a_baseline_alone(tmp_path: Path) -> None:
    """G4"""
    assert advance(Baseline(ONE, 7), OTHER, 3, 9) == Baseline(ONE, 7)
    async with running_app(tmp_path, started=False) as app:
        one, other = await app.create_session(), await app.create_session()
        await run_turn(app, one, "One", "Yes")
        await run_turn(app, other, "Other", "No")
        await run_turn(app, other, "Other again", "No")
        await run_turn(app, one, "One again", "Yes")
        assert cache_counts(app) == (2, {"new": 2})


async def test_a_baseline_advances_with_own_changes_unless_another_process_wrote(tmp_path: Path) -> None:
    """G5"""
    assert advance(Baseline(ONE, 7), ONE, 7, 9) == Baseline(ONE, 9)
    stale = advance(Baseline(ONE, 7), ONE, 8, 9)
    assert stale.state == "stale" and not may_reuse(stale, ONE, 9)
    assert advance(stale, ONE, 9, 10) == stale, "nothing but reading it again makes it good"
    async with running_app(tmp_path, started=False) as app, running_app(tmp_path, started=False) as there:
        session_id = await app.create_session()
        await run_turn(app, session_id, "Here", "First")
        await there.engine.commands.undo(session_id, None)
        # A change of our own after it: the position is our own again, and the entry is stale all the same.
        await app.engine.commands.configure(session_id, f.SessionConfigured(resume="ask"))
        await run_turn(app, session_id, "Here again", "Second")
        assert cache_counts(app) == (0, {"new": 1, "foreign": 1})
        assert request_texts(app.model.requests[-1]) == ["Here again"]


async def test_a_building_entry_is_kept_and_an_unknown_version_allows_reuse() -> None:
    """G6"""
    building = Baseline(ONE, state="building")
    assert advance(building, ONE, 7, 9) == building
    assert may_reuse(Baseline(ONE, None), ONE, 9), "without a baseline"
    assert may_reuse(Baseline(ONE, 7), ONE, None), "without a position"
    # What happens while a conversation is read is in it afterwards, once.
    cache = ContextCache(FakeClock())
    held = cache.acquire(ONE)
    cache.on_change(CommittedChange(ONE, 5, 5, 3, 5))
    said = f.TurnAccepted(TurnId("t1"), 1, MessageId("m1"), (Text("While it was read"),))
    begun, may_end = asyncio.Event(), asyncio.Event()

    async def read() -> LoadedContext:
        begun.set()
        await may_end.wait()
        return LoadedContext(TranscriptFold(), 5, 100, True)

    building_now = asyncio.create_task(held.fold(1_000, read))
    await begun.wait()
    cache.on_change(_change(6, 5, said))
    may_end.set()
    turns = (await building_now).transcript().turns
    assert [turn.entries[0].parts for turn in turns] == [(Text("While it was read"),)]
    assert await held.fold(1_000, read) is await building_now
    assert (cache.hits, dict(cache.rebuilds)) == (1, {"new": 1})


def test_an_entry_whose_conversation_is_not_known_is_guarded_and_adopts_a_position() -> None:
    """G7"""
    nobodys = Baseline(None, 7)
    assert may_reuse(nobodys, ONE, 7) and not may_reuse(nobodys, ONE, 8)
    assert advance(nobodys, ONE, 11, 12) == Baseline(ONE, 12)
    assert not may_reuse(advance(nobodys, ONE, 11, 12), ONE, 13)


async def test_restored_turns_outside_the_cache_reach_the_model(tmp_path: Path) -> None:
    """G3: only the end of a long conversation is loaded."""
    texts = [f"message {number}" for number in range(FIRST_PAGE_MESSAGES)]
    async with running_app(tmp_path) as app:
        session_id = await app.create_session()
        first, *_ = [await run_turn(app, session_id, text, "Yes.") for text in texts]
        await app.engine.commands.undo(session_id, first.turn_id)
    async with running_app(tmp_path) as app:
        await run_turn(app, session_id, "long " * 190_000, "Too long.")
        await app.engine.commands.restore(session_id, None)
        await run_turn(app, session_id, "the last", "Yes.")
        assert request_texts(app.model.requests[-1]) == [*texts, "the last"]


async def test_an_undo_and_a_message_elsewhere_are_noticed_and_titles_and_deliveries_are_not(
    tmp_path: Path,
) -> None:
    """G8"""
    async with running_app(tmp_path, started=False) as app, running_app(tmp_path, started=False) as there:
        session_id = await app.create_session()
        await run_turn(app, session_id, "One", "First")
        await run_turn(app, session_id, "Two", "Second")
        before = await app.store.session(session_id)
        await there.engine.commands.undo(session_id, None)
        there.model.steps = [text_step("Second, otherwise")]
        sent = await there.send(session_id, "Two, otherwise")
        await app.wait_for_run(sent.run_id, "completed")
        assert (await app.store.session(session_id)).live_turns == before.live_turns
        await run_turn(app, session_id, "Three", "Third")
        assert request_texts(app.model.requests[-1]) == ["One", "Two, otherwise", "Three"]
        assert cache_counts(app) == (1, {"new": 1, "foreign": 1})
        await there.engine.commands.rename(session_id, "A title", by="model")
        await there.engine.commands.archive(session_id, True)
        await there.store.append(Append(session_id, (f.DeliveryInDoubt("telegram", MessageId("m")),)))
        await app.engine.commands.rename(session_id, "A better one", by="user")
        await run_turn(app, session_id, "Four", "Fourth")
        assert cache_counts(app) == (2, {"new": 1, "foreign": 1})


async def test_a_new_conversation_with_the_same_id_and_version_is_detected(
    tmp_path: Path,
) -> None:
    assert advance(Baseline(ONE, 7, incarnation=1), ONE, 7, 9, 1) == Baseline(ONE, 9, incarnation=1)
    assert advance(Baseline(ONE, 7, incarnation=1), ONE, 7, 9, 2).state == "stale"
    async with running_app(tmp_path, started=False) as app, running_app(tmp_path, started=False) as there:
        session_id = await app.create_session()
        await run_turn(app, session_id, "It is red", "Yes")
        events = await app.store.read(session_id, 0, 1_000)
        other = [replace(event, body=event.body.replace(b"red", b"tan")) for event in events]
        await there.engine.commands.delete(session_id)
        await there.store.import_session(session_id, other, cancel_open_runs=True)
        assert await there.store.head(session_id) == events[-1].seq
        await run_turn(app, session_id, "What is it?", "Tan")
        assert request_texts(app.model.requests[-1]) == ["It is tan", "What is it?"]
        assert cache_counts(app) == (0, {"new": 1, "foreign": 1})


def _change(seq: int, before: int, fact: f.AnyFact) -> CommittedChange:
    return CommittedChange(ONE, seq, seq, before, seq, (Event(seq, 0, *encode(fact)),))
