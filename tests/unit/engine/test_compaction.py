"""Summarising older messages: by hand and by itself, in nobody's way, and never wrongly."""

import asyncio
from pathlib import Path

import pytest

from holdfast.agent.agent import Agent
from holdfast.agent.model_step import Asking
from holdfast.agent.registry import Switchboard
from holdfast.agent.tool_execution import Calls
from holdfast.domain.agents import AgentSpec
from holdfast.domain.clock import SystemClock
from holdfast.domain.context import context
from holdfast.domain.decisions import compaction
from holdfast.domain.errors import NothingToSummarise, RunRefused, SummaryFailed, SummaryRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import Ids, SessionId
from holdfast.domain.transcript.transcript import Transcript
from holdfast.models.ports import Model, ModelFailure
from holdfast.tools.files.pdf_text import PdfTexts
from holdfast.tools.sandbox.sandbox import NO_WALLS
from tests.support.in_process_app import UNLIMITED, House, Lever, Puppet, calls, house, says
from tests.support.summarising_model import scribe, talk, words


async def compactions(here: House, session_id: SessionId) -> list[f.SessionCompacted]:
    found = [event.fact for event in await here.store.read(session_id, 0, 1000)]
    return [fact for fact in found if isinstance(fact, f.SessionCompacted)]


async def test_a_summary_by_hand_stands_for_all_but_the_last_turns_and_the_rest_stays_readable(
    tmp_path: Path,
) -> None:
    async with house(tmp_path) as here:
        model = scribe(here)
        session_id = await here.begin()
        await talk(here, session_id, "one", "two", "three", "four")
        await here.engine.summaries.make(session_id)
        assert await compactions(here, session_id) == [f.SessionCompacted(((1, 2),), "They talked.")]
        assert "User: one" in model.asked[0] and "three" not in model.asked[0]
        await talk(here, session_id, "five")
        assert words(model.requests[-1])[0] == context.SUMMARY + "They talked."
        assert "one" not in " ".join(words(model.requests[-1])) and "three" in words(model.requests[-1])
        assert [text for role, _, text in await here.text(session_id) if role == "user"] == [
            "one", "two", "three", "four", "five",
        ]  # fmt: skip


async def test_a_summary_of_a_summary_covers_all_that_both_stand_for(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        model = scribe(here)
        session_id = await here.begin()
        await talk(here, session_id, "one", "two", "three")
        await here.engine.summaries.make(session_id)
        await talk(here, session_id, "four")
        model.said = "They talked on."
        await here.engine.summaries.make(session_id)
        assert "Summary so far:\nThey talked." in model.asked[1] and "User: one" not in model.asked[1]
        assert (await compactions(here, session_id))[-1] == f.SessionCompacted(((1, 2),), "They talked on.")


async def test_a_summary_is_found_again_after_a_restart(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        scribe(here)
        session_id = await here.begin()
        await talk(here, session_id, *(f"turn {i}" for i in range(24)))
        await here.engine.summaries.make(session_id)
    async with house(tmp_path) as here:
        model = scribe(here)
        await talk(here, session_id, "still there?")
        assert words(model.requests[-1])[0] == context.SUMMARY + "They talked."
        # Another process's view of it is read without what it stands for.
        assert "turn 1" not in words(model.requests[-1]) and "turn 23" in words(model.requests[-1])


async def test_undoing_into_what_a_summary_stands_for_brings_the_turns_back(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        scribe(here)
        session_id = await here.begin()
        await talk(here, session_id, *(f"turn {i}" for i in range(24)))
        await here.engine.summaries.make(session_id)
        turns = [event.fact for event in await here.store.read(session_id, 0, 1000)]
        third = next(fact for fact in turns if isinstance(fact, f.TurnAccepted) and fact.turn == 3)
    async with house(tmp_path) as here:
        model = scribe(here)
        await talk(here, session_id, "held")
        await here.engine.verbs.undo(session_id, third.turn_id)
        await talk(here, session_id, "again")
        assert words(model.requests[-1]) == ["turn 0", "(nothing)", "turn 1", "(nothing)", "again"]


async def test_a_conversation_that_fills_the_window_is_summarised_after_the_answer(tmp_path: Path) -> None:
    async with house(tmp_path, summarise_above=0.5) as here:
        model = scribe(here)
        session_id = await here.begin()
        await talk(here, session_id, *["some words " * 100] * 8)
        await here.until(lambda: compactions(here, session_id), "a summary")
        (first, *_) = await compactions(here, session_id)
        assert first.covers[0][0] == 1 and first.covers[-1][1] < 8
        assert model.asked


async def test_nothing_is_summarised_by_itself_where_that_is_off_or_there_is_room(tmp_path: Path) -> None:
    for above, said in ((0.0, "some words " * 100), (0.5, "short")):
        async with house(tmp_path / str(above), summarise_above=above) as here:
            model = scribe(here)
            session_id = await here.begin()
            await talk(here, session_id, *[said] * 8)
            await here.engine.summaries.settled(session_id)
            assert model.asked == [] and await compactions(here, session_id) == []


async def test_an_answer_does_not_wait_for_a_summary_under_way(tmp_path: Path) -> None:
    async with house(tmp_path, summarise_above=0.3) as here:
        model = scribe(here)
        model.hold = asyncio.Event()
        session_id = await here.begin()
        await talk(here, session_id, *["some words " * 100] * 6)
        await asyncio.wait_for(model.asking.wait(), 30)
        await talk(here, session_id, "and now?")
        model.hold.set()
        await here.until(lambda: compactions(here, session_id), "a summary")


async def test_a_failed_or_empty_summary_changes_nothing_and_rests_before_it_is_tried_again(
    tmp_path: Path,
) -> None:
    for n, said in enumerate(
        (ModelFailure(detail="no", retryable=True), "  \n", "\0\0", "\u200b \x07\ufeff")
    ):
        async with house(tmp_path / str(n), summarise_above=0.3) as here:
            model = scribe(here)
            model.said = said
            session_id = await here.begin()
            await talk(here, session_id, *["some words " * 100] * 6)
            await asyncio.wait_for(model.asking.wait(), 30)
            await here.engine.summaries.settled(session_id)
            asked = len(model.asked)
            await talk(here, session_id, *["some words " * 100] * 3)
            await here.engine.summaries.settled(session_id)
            assert len(model.asked) == asked == 1
            assert await compactions(here, session_id) == []
            with pytest.raises(SummaryFailed):
                await here.engine.summaries.make(session_id)


async def test_what_was_undone_while_it_was_summarised_is_not_covered(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        model = scribe(here)
        session_id = await here.begin()
        await talk(here, session_id, "one", "two", "three", "four")
        await here.engine.summaries.make(session_id)
        await talk(here, session_id, "five")
        model.hold = asyncio.Event()
        model.asking.clear()
        making = asyncio.create_task(here.engine.summaries.make(session_id))
        await asyncio.wait_for(model.asking.wait(), 30)
        first = next(e.fact for e in await here.store.read(session_id, 0, 50) if e.kind == "turn_accepted")
        assert isinstance(first, f.TurnAccepted)
        await here.engine.verbs.undo(session_id, first.turn_id)
        await talk(here, session_id, "anew")
        model.hold.set()
        with pytest.raises(SummaryRefused):
            await making
        await talk(here, session_id, "and?")
        assert words(model.requests[-1]) == ["anew", "(nothing)", "and?"]


@pytest.mark.parametrize("how", ["undo", "undo the last", "clear", "retry", "edit"])
async def test_what_is_taken_back_while_it_is_summarised_is_refused_as_that(tmp_path: Path, how: str) -> None:
    async with house(tmp_path) as here:
        model = scribe(here)
        session_id = await here.begin()
        await talk(here, session_id, "one", "two", "three", "four")
        model.hold = asyncio.Event()
        making = asyncio.create_task(here.engine.summaries.make(session_id))
        await asyncio.wait_for(model.asking.wait(), 30)
        told = [event.fact for event in await here.store.read(session_id, 0, 100)]
        turns = [fact.turn_id for fact in told if isinstance(fact, f.TurnAccepted)]
        match how:
            case "undo":
                await here.engine.verbs.undo(session_id, turns[0])
            case "undo the last":  # The summary tells of it, and the first is still there.
                await here.engine.verbs.undo(session_id, turns[1])
            case "clear":
                await here.engine.clear(session_id)
            case "retry":
                await here.engine.replace(session_id, turns[0], None)
            case "edit":
                await here.engine.replace(session_id, turns[0], (Text("otherwise"),))
        model.hold.set()
        with pytest.raises(SummaryRefused):
            await making
        assert await compactions(here, session_id) == []


async def test_a_turn_that_is_worked_on_is_never_summarised(tmp_path: Path) -> None:
    lever = Lever("lever", "unsafe")
    async with house(tmp_path, lever, approvals="ask") as here:
        model = scribe(here)
        session_id = await here.begin()
        with pytest.raises(NothingToSummarise):
            await here.engine.summaries.make(session_id)
        await talk(here, session_id, "one", "two", "three")
        model.steps = [calls("lever")]
        sent = await here.say(session_id, "pull it")
        await here.until_run(sent.run_id, "waiting")
        await here.engine.summaries.make(session_id)
        assert (await compactions(here, session_id))[-1].covers == ((1, 1),)
        drafted = compaction.Drafted(4, None, "too far")
        with pytest.raises(RunRefused):
            await here.engine.verbs.compact(session_id, drafted)
        model.steps = [says("Pulled.")]
        call = (await here.store.tools(session_id, sent.run_id or ""))[0]  # type: ignore[arg-type]
        await here.engine.resolve(sent.run_id, call.id, "approve")  # type: ignore[arg-type]
        await here.until_run(sent.run_id, "completed")
        assert lever.pulled == ["{}"]


async def test_a_model_that_is_not_to_be_asked_never_summarises() -> None:
    async def read(chars: int) -> Transcript:
        raise AssertionError("nothing needs to be read for that")

    def build(spec: AgentSpec, model: Model) -> Agent:
        clock = SystemClock()
        asking = Asking(clock, Ids(clock), {}, lambda: 0.0)
        return Agent(
            "", model, {}, asking, Calls({}, "allow", clock), UNLIMITED, clock, pdfs=PdfTexts(NO_WALLS)
        )

    board = Switchboard(build, Puppet(), "", names=False)
    assert await board.summarise(read, 0.0, 0) is None
