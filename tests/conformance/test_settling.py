"""Settling and pruning: deltas go once their body says the same, and no reader can tell."""

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PRUNE_AFTER_MS
from holdfast.domain.state.projections import fold
from holdfast.domain.transcript.transcript import fold as fold_transcript
from holdfast.store.maintenance import SweepResult
from holdfast.store.ports import Append, Store
from tests.conformance.factories import StoreHome
from tests.support.turn_events import TurnEvents, created, turn_facts, turn_with_tool


def ignore_progress(done: int, total: int) -> None:
    """Ignore the progress of a check."""


async def create_session(store: Store, *facts: f.AnyFact) -> SessionId:
    new = created()
    await store.append(new)
    await store.append(Append(new.session_id, facts))
    return new.session_id


async def events(store: Store, session_id: SessionId) -> list[Event]:
    return list(await store.read(session_id, 0, 1_000))


def kinds(found: list[Event]) -> set[str]:
    return {event.kind for event in found}


async def test_deltas_are_pruned_an_hour_after_their_body_was_settled(store: Store, clock: FakeClock) -> None:
    session_id = await create_session(store, *turn_with_tool(1))
    before = await events(store, session_id)
    clock.advance(PRUNE_AFTER_MS - 1)
    assert await store.sweep() == SweepResult()
    assert await events(store, session_id) == before
    clock.advance(1)
    swept = await store.sweep()
    after = await events(store, session_id)
    assert (swept.deltas, swept.mismatched) == (7, 0)
    assert after == [event for event in before if event.kind not in f.DELTA_KINDS]
    assert (await store.sweep()).deltas == 0


async def test_pruning_changes_nothing_that_can_be_seen(store: Store, clock: FakeClock) -> None:
    story = TurnEvents(3)
    facts = [*turn_with_tool(1), *turn_facts(2), *story.opening(), story.text("still "), story.text("going")]
    session_id = await create_session(store, *facts)
    whole = await events(store, session_id)
    page = await store.messages(session_id, None, 100)
    row, hits = await store.session(session_id), await store.search("look", 10)
    clock.advance(PRUNE_AFTER_MS)
    assert (await store.sweep()).deltas == 8
    left = await events(store, session_id)
    assert len(left) == len(whole) - 8
    assert await store.messages(session_id, None, 100) == page
    assert await store.session(session_id) == row
    assert await store.search("look", 10) == hits
    assert fold_transcript(left) == fold_transcript(whole)
    assert vars(fold(session_id, left)) == vars(fold(session_id, whole))
    assert list(await store.check(False, ignore_progress)) == []


async def test_every_cursor_stays_valid_across_pruning(store: Store, clock: FakeClock) -> None:
    session_id = await create_session(store, *turn_facts(1, answer=("a", "b", "c", "d")))
    whole = await events(store, session_id)
    clock.advance(PRUNE_AFTER_MS)
    await store.sweep()
    for cut in range(len(whole) + 1):
        rest = list(await store.read(session_id, cut, 100))
        assert fold_transcript([*whole[:cut], *rest]) == fold_transcript(whole)
    (receipt,) = await store.append(Append(session_id, (f.SessionRenamed("x", "user"),)))
    assert receipt.last_seq == len(whole) + 1


async def test_deltas_that_do_not_add_up_are_kept_and_counted(store: Store, clock: FakeClock) -> None:
    good, bad, tool = TurnEvents(1), TurnEvents(2), TurnEvents(3)
    facts = [*good.opening(), *good.rest("fine")]
    facts += [*bad.opening(), bad.text("said"), bad.message_settled_as("something else"), bad.completed()]
    facts += [*tool.opening(), tool.message_settled(), tool.tool_intended(), tool.tool_output("one")]
    wrong = f.ToolSettled(3, 2, tool.message_id, tool.call_id, "shell", "done", (Text("two"),), "no digest")
    session_id = await create_session(store, *facts, wrong, tool.completed())
    clock.advance(PRUNE_AFTER_MS)
    swept = await store.sweep()
    assert (swept.deltas, swept.mismatched) == (1, 2)
    left = await events(store, session_id)
    assert [e.fact for e in left if e.kind == "text_appended"] == [
        f.TextAppended(bad.run_id, bad.message_id, "said")
    ]
    assert "tool_output_appended" in kinds(left)
    assert await store.sweep() == SweepResult()


async def test_only_the_deltas_of_settled_messages_go(store: Store, clock: FakeClock) -> None:
    done, going = TurnEvents(1), TurnEvents(2)
    mixed = [*done.opening(), *going.opening(), done.text("a"), going.text("x"), done.reasoning("b")]
    mixed += [going.text("y"), done.text("c"), done.message_settled(), going.text("z"), done.completed()]
    session_id = await create_session(store, *mixed)
    clock.advance(PRUNE_AFTER_MS)
    assert (await store.sweep()).deltas == 3
    facts = [event.fact for event in await events(store, session_id)]
    assert [fact.text for fact in facts if isinstance(fact, f.TextAppended)] == ["x", "y", "z"]
    message = (await store.messages(session_id, None, 10)).messages[-1]
    assert len(message.events) == 4


async def test_a_resettled_body_is_compared_with_all_its_deltas(store: Store, clock: FakeClock) -> None:
    story = TurnEvents()
    facts = [*story.opening(), story.text("a"), story.message_settled("interrupted")]
    facts += [story.text("b"), story.message_settled()]
    session_id = await create_session(store, *facts)
    clock.advance(PRUNE_AFTER_MS)
    swept = await store.sweep()
    assert (swept.deltas, swept.mismatched) == (2, 0)
    assert not kinds(await events(store, session_id)) & f.DELTA_KINDS
    assert list(await store.check(False, ignore_progress)) == []


@pytest.mark.parametrize("count", [19, 20, 21, 45])
async def test_one_sweep_does_all_that_is_due(store: Store, clock: FakeClock, count: int) -> None:
    silent: list[f.AnyFact] = []
    for turn in range(1, count + 1):
        story = TurnEvents(turn)
        silent += [*story.opening(), story.message_settled(), story.tool_intended()]
        silent += [story.tool_settled(), story.completed()]
    await create_session(store, *silent)
    session_id = await create_session(store, *turn_facts(1))
    clock.advance(PRUNE_AFTER_MS)
    assert (await store.sweep()).deltas == 1
    assert not kinds(await events(store, session_id)) & f.DELTA_KINDS


async def test_a_stream_of_thousands_is_pruned_whole(store: Store, clock: FakeClock) -> None:
    story = TurnEvents()
    session_id = await create_session(store, *story.opening(), *story.rest(*(f"{n} " for n in range(3_000))))
    clock.advance(PRUNE_AFTER_MS)
    assert (await store.sweep()).deltas == 3_000
    assert len(await events(store, session_id)) == 7


async def test_what_another_store_settled_is_pruned_too(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    session_id = await create_session(store, *turn_facts(1))
    other = await home.open(clock)
    clock.advance(PRUNE_AFTER_MS)
    assert (await other.sweep()).deltas == 1
    assert not kinds(await events(store, session_id)) & f.DELTA_KINDS
