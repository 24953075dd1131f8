"""Summarising older messages: by hand and by itself, in nobody's way, and never wrongly."""

import asyncio
from pathlib import Path

import pytest

from holdfast.agent.agent import Agent
from holdfast.agent.model_step import ModelStep
from holdfast.agent.registry import AgentRegistry
from holdfast.agent.tool_execution import ToolExecutor
from holdfast.domain.agents import AgentSpec
from holdfast.domain.clock import SystemClock
from holdfast.domain.context import context
from holdfast.domain.decisions import compaction
from holdfast.domain.errors import NothingToSummarise, RunRefused, SummaryFailed, SummaryRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.transcript.transcript import Transcript
from holdfast.models.ports import Model, ModelFailure
from holdfast.tools.files.pdf_text import PdfTextExtractor
from holdfast.tools.sandbox.sandbox import NO_SANDBOX
from tests.support.in_process_app import (
    UNLIMITED_ALLOWANCE,
    AppHarness,
    FakeTool,
    ScriptedModel,
    running_app,
    text_step,
    tool_call_step,
)
from tests.support.summarising_model import install_summarizing_model, run_turns, text_parts


async def compaction_facts(app: AppHarness, session_id: SessionId) -> list[f.SessionCompacted]:
    found = [event.fact for event in await app.store.read(session_id, 0, 1000)]
    return [fact for fact in found if isinstance(fact, f.SessionCompacted)]


async def test_a_manual_summary_covers_all_but_the_last_turns_and_history_stays_readable(
    tmp_path: Path,
) -> None:
    async with running_app(tmp_path) as app:
        model = install_summarizing_model(app)
        session_id = await app.create_session()
        await run_turns(app, session_id, "one", "two", "three", "four")
        await app.engine.summaries.summarise(session_id)
        assert await compaction_facts(app, session_id) == [f.SessionCompacted(((1, 2),), "They talked.")]
        assert "User: one" in model.summarized_texts[0] and "three" not in model.summarized_texts[0]
        await run_turns(app, session_id, "five")
        assert text_parts(model.requests[-1])[0] == context.SUMMARY + "They talked."
        assert "one" not in " ".join(text_parts(model.requests[-1])) and "three" in text_parts(
            model.requests[-1]
        )
        assert [text for role, _, text in await app.entry_texts(session_id) if role == "user"] == [
            "one", "two", "three", "four", "five",
        ]  # fmt: skip


async def test_a_summary_of_a_summary_covers_the_turns_of_both(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        model = install_summarizing_model(app)
        session_id = await app.create_session()
        await run_turns(app, session_id, "one", "two", "three")
        await app.engine.summaries.summarise(session_id)
        await run_turns(app, session_id, "four")
        model.summary = "They talked on."
        await app.engine.summaries.summarise(session_id)
        assert (
            "Summary so far:\nThey talked." in model.summarized_texts[1]
            and "User: one" not in model.summarized_texts[1]
        )
        assert (await compaction_facts(app, session_id))[-1] == f.SessionCompacted(
            ((1, 2),), "They talked on."
        )


async def test_a_summary_is_found_again_after_a_restart(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        install_summarizing_model(app)
        session_id = await app.create_session()
        await run_turns(app, session_id, *(f"turn {i}" for i in range(24)))
        await app.engine.summaries.summarise(session_id)
    async with running_app(tmp_path) as app:
        model = install_summarizing_model(app)
        await run_turns(app, session_id, "still there?")
        assert text_parts(model.requests[-1])[0] == context.SUMMARY + "They talked."
        # Another process's view of it is read without what it stands for.
        assert "turn 1" not in text_parts(model.requests[-1]) and "turn 23" in text_parts(model.requests[-1])


async def test_undoing_into_summarised_turns_restores_them(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        install_summarizing_model(app)
        session_id = await app.create_session()
        await run_turns(app, session_id, *(f"turn {i}" for i in range(24)))
        await app.engine.summaries.summarise(session_id)
        turns = [event.fact for event in await app.store.read(session_id, 0, 1000)]
        third = next(fact for fact in turns if isinstance(fact, f.TurnAccepted) and fact.turn == 3)
    async with running_app(tmp_path) as app:
        model = install_summarizing_model(app)
        await run_turns(app, session_id, "held")
        await app.engine.commands.undo(session_id, third.turn_id)
        await run_turns(app, session_id, "again")
        assert text_parts(model.requests[-1]) == ["turn 0", "(nothing)", "turn 1", "(nothing)", "again"]


async def test_a_conversation_that_fills_the_window_is_summarised_after_the_answer(tmp_path: Path) -> None:
    async with running_app(tmp_path, summarise_above=0.5) as app:
        model = install_summarizing_model(app)
        session_id = await app.create_session()
        await run_turns(app, session_id, *["some words " * 100] * 8)
        await app.wait_until(lambda: compaction_facts(app, session_id), "a summary")
        (first, *_) = await compaction_facts(app, session_id)
        assert first.covers[0][0] == 1 and first.covers[-1][1] < 8
        assert model.summarized_texts


async def test_no_automatic_summary_when_disabled_or_below_the_threshold(tmp_path: Path) -> None:
    for above, said in ((0.0, "some words " * 100), (0.5, "short")):
        async with running_app(tmp_path / str(above), summarise_above=above) as app:
            model = install_summarizing_model(app)
            session_id = await app.create_session()
            await run_turns(app, session_id, *[said] * 8)
            await app.engine.summaries.wait_idle(session_id)
            assert model.summarized_texts == [] and await compaction_facts(app, session_id) == []


async def test_an_answer_does_not_wait_for_a_summary_under_way(tmp_path: Path) -> None:
    async with running_app(tmp_path, summarise_above=0.3) as app:
        model = install_summarizing_model(app)
        model.hold = asyncio.Event()
        session_id = await app.create_session()
        await run_turns(app, session_id, *["some words " * 100] * 6)
        await asyncio.wait_for(model.summary_started.wait(), 30)
        await run_turns(app, session_id, "and now?")
        model.hold.set()
        await app.wait_until(lambda: compaction_facts(app, session_id), "a summary")


async def test_a_failed_or_empty_summary_changes_nothing_and_backs_off(
    tmp_path: Path,
) -> None:
    for n, said in enumerate(
        (ModelFailure(detail="no", retryable=True), "  \n", "\0\0", "\u200b \x07\ufeff")
    ):
        async with running_app(tmp_path / str(n), summarise_above=0.3) as app:
            model = install_summarizing_model(app)
            model.summary = said
            session_id = await app.create_session()
            await run_turns(app, session_id, *["some words " * 100] * 6)
            await asyncio.wait_for(model.summary_started.wait(), 30)
            await app.engine.summaries.wait_idle(session_id)
            asked = len(model.summarized_texts)
            await run_turns(app, session_id, *["some words " * 100] * 3)
            await app.engine.summaries.wait_idle(session_id)
            assert len(model.summarized_texts) == asked == 1
            assert await compaction_facts(app, session_id) == []
            with pytest.raises(SummaryFailed):
                await app.engine.summaries.summarise(session_id)


async def test_turns_undone_during_summarising_are_not_covered(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        model = install_summarizing_model(app)
        session_id = await app.create_session()
        await run_turns(app, session_id, "one", "two", "three", "four")
        await app.engine.summaries.summarise(session_id)
        await run_turns(app, session_id, "five")
        model.hold = asyncio.Event()
        model.summary_started.clear()
        making = asyncio.create_task(app.engine.summaries.summarise(session_id))
        await asyncio.wait_for(model.summary_started.wait(), 30)
        first = next(e.fact for e in await app.store.read(session_id, 0, 50) if e.kind == "turn_accepted")
        assert isinstance(first, f.TurnAccepted)
        await app.engine.commands.undo(session_id, first.turn_id)
        await run_turns(app, session_id, "anew")
        model.hold.set()
        with pytest.raises(SummaryRefused):
            await making
        await run_turns(app, session_id, "and?")
        assert text_parts(model.requests[-1]) == ["anew", "(nothing)", "and?"]


@pytest.mark.parametrize("how", ["undo", "undo the last", "clear", "retry", "edit"])
async def test_a_summary_of_turns_undone_meanwhile_is_refused(tmp_path: Path, how: str) -> None:
    async with running_app(tmp_path) as app:
        model = install_summarizing_model(app)
        session_id = await app.create_session()
        await run_turns(app, session_id, "one", "two", "three", "four")
        model.hold = asyncio.Event()
        making = asyncio.create_task(app.engine.summaries.summarise(session_id))
        await asyncio.wait_for(model.summary_started.wait(), 30)
        facts = [event.fact for event in await app.store.read(session_id, 0, 100)]
        turns = [fact.turn_id for fact in facts if isinstance(fact, f.TurnAccepted)]
        match how:
            case "undo":
                await app.engine.commands.undo(session_id, turns[0])
            case "undo the last":  # The summary tells of it, and the first is still there.
                await app.engine.commands.undo(session_id, turns[1])
            case "clear":
                await app.engine.clear(session_id)
            case "retry":
                await app.engine.replace(session_id, turns[0], None)
            case "edit":
                await app.engine.replace(session_id, turns[0], (Text("otherwise"),))
        model.hold.set()
        with pytest.raises(SummaryRefused):
            await making
        assert await compaction_facts(app, session_id) == []


async def test_a_running_turn_is_never_summarised(tmp_path: Path) -> None:
    tool = FakeTool("lever", "unsafe")
    async with running_app(tmp_path, tool, approvals="ask") as app:
        model = install_summarizing_model(app)
        session_id = await app.create_session()
        with pytest.raises(NothingToSummarise):
            await app.engine.summaries.summarise(session_id)
        await run_turns(app, session_id, "one", "two", "three")
        model.steps = [tool_call_step("lever")]
        sent = await app.send(session_id, "pull it")
        await app.wait_for_run(sent.run_id, "waiting")
        await app.engine.summaries.summarise(session_id)
        assert (await compaction_facts(app, session_id))[-1].covers == ((1, 1),)
        drafted = compaction.DraftSummary(4, None, "too far")
        with pytest.raises(RunRefused):
            await app.engine.commands.compact(session_id, drafted)
        model.steps = [text_step("Pulled.")]
        call = (await app.store.tools(session_id, sent.run_id or ""))[0]  # type: ignore[arg-type]
        await app.engine.resolve(sent.run_id, call.id, "approve")  # type: ignore[arg-type]
        await app.wait_for_run(sent.run_id, "completed")
        assert tool.run_arguments == ["{}"]


async def test_a_model_without_an_address_never_summarises() -> None:
    async def read(chars: int) -> Transcript:
        raise AssertionError("nothing needs to be read for that")

    def build(spec: AgentSpec, model: Model) -> Agent:
        clock = SystemClock()
        asking = ModelStep(clock, IdGenerator(clock), {}, lambda: 0.0)
        return Agent(
            "",
            model,
            {},
            asking,
            ToolExecutor({}, "allow", clock),
            UNLIMITED_ALLOWANCE,
            clock,
            pdfs=PdfTextExtractor(NO_SANDBOX),
        )

    board = AgentRegistry(build, ScriptedModel(), "", can_complete=False)
    assert await board.summarise(read, 0.0, 0) is None
