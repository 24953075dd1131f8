"""Summaries that hold, and successors: found again after any change."""

import pytest

from holdfast.domain.clock import SystemClock
from holdfast.domain.decisions.compaction import DraftSummary
from holdfast.domain.decisions.continuation import continue_in
from holdfast.domain.errors import NoSuchSession
from holdfast.domain.events import facts as f
from holdfast.domain.ids import IdGenerator, RunId, SessionId
from holdfast.store.ports import Append, Store
from tests.support.turn_events import TurnEvents, created, turn_facts

IDS = IdGenerator(SystemClock())


async def create_session_with_turns(store: Store, turns: int) -> SessionId:
    new = created()
    await store.append(new)
    for turn in range(1, turns + 1):
        await store.append(Append(new.session_id, turn_facts(turn)))
    return new.session_id


async def summary_of(store: Store, session_id: SessionId) -> str | None:
    event, head = await store.summary(session_id)
    assert head == await store.head(session_id)
    return event.fact.summary if event is not None and isinstance(event.fact, f.SessionCompacted) else None


async def test_the_newest_summary_whose_turns_are_all_live_is_found(store: Store) -> None:
    session_id = await create_session_with_turns(store, 5)
    assert await summary_of(store, session_id) is None
    for covers, summary in (
        (((1, 2),), "two"),
        (((1, 4),), "four"),
        (((1, 9),), "of turns that are not there"),
    ):
        await store.append(Append(session_id, (f.SessionCompacted(covers, summary),)))
    assert await summary_of(store, session_id) == "four"
    await store.append(Append(session_id, (f.TurnsUndone(4),)))
    assert await summary_of(store, session_id) == "two"
    await store.append(Append(session_id, (f.SessionCleared(3),)))
    assert await summary_of(store, session_id) is None


async def continue_in_successor(store: Store, old: SessionId) -> SessionId:
    """Continue the session in a successor, in one change."""
    new, facts = IDS.session(), list[f.AnyFact]()

    def leave(view):  # type: ignore[no-untyped-def]
        last = view.last_live_turn()
        queued = [run.turn for run in view.open_runs()]
        drafted = DraftSummary(min([*queued, last.turn + 1]) - 1, None, "So far.")
        moving = continue_in(view, old, new, drafted, "", IDS)
        facts[:] = moving.new_facts
        return moving.old_facts

    await store.append(Append(old, leave), Append(new, lambda view: facts, expect=0))
    return new


async def test_the_successor_of_a_deleted_session_is_known(store: Store) -> None:
    old = await create_session_with_turns(store, 2)
    assert await store.successor(old) is None and await store.successor(SessionId("s_nothing")) is None
    new = await continue_in_successor(store, old)
    assert await store.successor(old) == new and await store.successor(new) is None
    row = await store.session(new)
    assert (row.previous_session_id, row.live_turns, row.status) == (old, 1, "idle")
    await store.append(Append(old, (f.SessionDeleted(),)))
    assert await store.successor(old) == new


async def test_a_deleted_session_is_found_by_number_and_names_its_successor(
    store: Store,
) -> None:
    old, new = await create_session_with_turns(store, 2), IDS.session()
    assert (
        await store.deleted_session_number(old)
        == await store.deleted_session_number(SessionId("s_nothing"))
        == 0
    )
    await store.append(Append(old, (f.SessionDeleted(),)))
    number = await store.deleted_session_number(old)
    assert number and await store.successor(old) is None
    await store.append(Append(old, (f.SessionContinued(new),), number=number))
    assert await store.successor(old) == new
    with pytest.raises(NoSuchSession):
        await store.session(old)
    # One that has its id since then is another.
    await store.append(Append(old, (f.SessionCreated("again"),)))
    assert await store.deleted_session_number(old) == number and await store.successor(old) is None


async def test_a_run_that_waited_is_found_where_its_conversation_went_on(store: Store) -> None:
    old = await create_session_with_turns(store, 1)
    accepted = TurnEvents(2, "wait", "key").accepted()
    queued = f.TurnQueued(accepted.turn, accepted.run_id or RunId(""))
    await store.append(Append(old, (accepted, queued)))
    new = await continue_in_successor(store, old)
    session_id, run = await store.run(accepted.run_id or RunId(""))
    assert (session_id, run.status, run.turn) == (new, "accepted", 2)
    assert [run.status for run in await store.runs(old, 1, 9)] == ["completed", "completed"]
    page = await store.messages(old, None, 50)
    assert accepted.message_id not in [message.row.id for message in page.messages]
    assert (await store.session(old)).live_turns == 1
