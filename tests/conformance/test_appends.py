"""Appending: numbers, preconditions, decisions, and what a refusal leaves behind (nothing)."""

import asyncio
from collections.abc import Sequence

import pytest

from holdfast.domain.errors import (
    HoldfastError,
    NoSuchSession,
    RunRefused,
    SeqMismatch,
    SessionExists,
    TooLarge,
)
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import EVENT_BYTES_MAX, FACTS_PER_APPEND_MAX
from holdfast.domain.state.session_state import SessionStateView
from holdfast.store.ports import Append, AppendReceipt, Store
from tests.support.turn_events import IDS, TurnEvents, accept, created, turn_facts


def rename(session_id: SessionId, title: str = "x", expect: int | None = None) -> Append:
    return Append(session_id, (f.SessionRenamed(title, "user"),), expect)


async def create_session(store: Store, title: str = "") -> SessionId:
    (receipt,) = await store.append(created(title))
    return receipt.session_id


async def kinds(store: Store, session_id: SessionId) -> list[tuple[int, str]]:
    return [(event.seq, event.kind) for event in await store.read(session_id, 0, 1_000)]


async def test_events_are_numbered_densely_from_one(store: Store) -> None:
    new = created()
    (first,) = await store.append(new)
    (second,) = await store.append(Append(new.session_id, turn_facts(1)))
    assert (first.first_seq, first.last_seq) == (1, 1)
    assert (second.first_seq, second.last_seq) == (2, 8)
    assert [seq for seq, _ in await kinds(store, new.session_id)] == list(range(1, 9))
    assert await store.head(new.session_id) == 8


async def test_what_is_read_back_is_what_was_appended(store: Store) -> None:
    session_id = await create_session(store)
    facts = turn_facts(1, "Ünïcode, 会议, \U0001f600, \x00 and \\", ("a", "\n"))
    await store.append(Append(session_id, facts))
    assert [event.fact for event in await store.read(session_id, 1, 100)] == facts


async def test_interleaved_sessions_keep_numbers_of_their_own(store: Store) -> None:
    ids = [await create_session(store) for _ in range(3)]
    waiting = [store.submit(rename(ids[n % 3], str(n))) for n in range(60)]
    receipts = [(await each)[0] for each in waiting]
    for session_id in ids:
        mine = [r.last_seq for r in receipts if r.session_id == session_id]
        assert mine == list(range(2, 22))
        assert [seq for seq, _ in await kinds(store, session_id)] == list(range(1, 22))


async def test_a_session_begins_only_with_its_creation(store: Store) -> None:
    unknown = IDS.session()
    with pytest.raises(NoSuchSession):
        await store.append(rename(unknown))
    with pytest.raises(NoSuchSession):
        await store.append(Append(unknown, ()))
    with pytest.raises(NoSuchSession):
        await store.head(unknown)


async def test_a_session_is_created_once(store: Store) -> None:
    session_id = await create_session(store)
    with pytest.raises(SessionExists):
        await store.append(created("again", session_id))
    assert await store.head(session_id) == 1


async def test_exactly_one_of_two_concurrent_creations_wins(store: Store) -> None:
    session_id = IDS.session()
    tried = await asyncio.gather(
        *(store.append(created(str(n), session_id)) for n in range(8)), return_exceptions=True
    )
    assert sum(isinstance(each, tuple) for each in tried) == 1
    assert sum(isinstance(each, SessionExists) for each in tried) == 7


async def test_expect_is_the_seq_that_the_session_must_be_at(store: Store) -> None:
    session_id = await create_session(store)
    await store.append(rename(session_id, "two", expect=1))
    with pytest.raises(SeqMismatch) as stale:
        await store.append(rename(session_id, "three", expect=1))
    assert stale.value.fields == {"session_id": session_id, "head": 2, "expect": 1}
    assert await store.head(session_id) == 2


async def test_expect_zero_means_that_the_session_must_not_exist(store: Store) -> None:
    new = created()
    await store.append(Append(new.session_id, new.facts, expect=0))
    with pytest.raises(SeqMismatch):
        await store.append(rename(new.session_id, expect=0))
    with pytest.raises(SeqMismatch):
        await store.append(Append(IDS.session(), (f.SessionCreated(),), expect=3))


async def test_exactly_one_of_many_appends_racing_for_a_seq_wins(store: Store) -> None:
    session_id = await create_session(store)
    tried = await asyncio.gather(
        *(store.append(rename(session_id, str(n), expect=1)) for n in range(20)), return_exceptions=True
    )
    assert [type(each) for each in tried].count(SeqMismatch) == 19
    assert await store.head(session_id) == 2


async def test_several_sessions_change_together_or_not_at_all(store: Store) -> None:
    one, two = await create_session(store), await create_session(store)
    receipts = await store.append(rename(one, "a", expect=1), rename(two, "b", expect=1))
    assert [receipt.session_id for receipt in receipts] == [one, two]
    with pytest.raises(SeqMismatch):
        await store.append(rename(one, "c"), rename(two, "d", expect=1))
    with pytest.raises(SeqMismatch):
        await store.append(rename(one, "c", expect=1), rename(two, "d"))
    with pytest.raises(NoSuchSession):
        await store.append(rename(one, "c"), created("new"), rename(IDS.session()))
    assert [(await store.session(each)).title for each in (one, two)] == ["a", "b"]
    assert [await store.head(each) for each in (one, two)] == [2, 2]
    assert len((await store.sessions(None, 10)).sessions) == 2


async def test_the_first_refusal_is_the_one_raised(store: Store) -> None:
    one, two = await create_session(store), await create_session(store)
    with pytest.raises(NoSuchSession):
        await store.append(rename(one), rename(IDS.session()), rename(two, expect=9))


async def test_a_decision_runs_on_current_rows_inside_the_transaction(store: Store) -> None:
    session_id = await create_session(store, "old")
    seen: list[str] = []

    def decide(view: SessionStateView) -> Sequence[f.AnyFact]:
        row = view.session()
        assert row is not None
        seen.append(row.title)
        return (f.SessionRenamed(row.title + "+", "user"),)

    waiting = [store.submit(rename(session_id, "new"))]
    waiting += [store.submit(Append(session_id, decide)) for _ in range(3)]
    await asyncio.gather(*waiting)
    # A store may run a decision again: what each of them saw is what counts.
    assert list(dict.fromkeys(seen)) == ["new", "new+", "new++"]
    assert (await store.session(session_id)).title == "new+++"


async def test_racing_decisions_serialise(store: Store) -> None:
    session_id = await create_session(store)
    await asyncio.gather(*(store.append(accept(session_id, f"turn {n}")) for n in range(50)))
    page = await store.messages(session_id, None, 100)
    assert [message.row.turn for message in page.messages] == list(range(1, 51))
    row = await store.session(session_id)
    assert (row.last_turn, row.live_turns) == (50, 50)


async def test_a_decision_may_create_its_session(store: Store) -> None:
    session_id = IDS.session()

    def decide(view: SessionStateView) -> Sequence[f.AnyFact]:
        assert view.session() is None
        assert view.last_live_turn() is None
        assert list(view.open_runs()) == []
        return (f.SessionCreated("made"),)

    await store.append(Append(session_id, decide))
    assert (await store.session(session_id)).title == "made"


async def test_a_decision_that_finds_nothing_to_do_stores_nothing(store: Store) -> None:
    session_id = await create_session(store)
    (receipt,) = await store.append(Append(session_id, lambda view: ()))
    assert receipt.last_seq == 1 == await store.head(session_id)


async def test_an_append_raises_what_its_decision_raises(store: Store) -> None:
    session_id = await create_session(store)

    def refuse(view: SessionStateView) -> Sequence[f.AnyFact]:
        raise RunRefused(run_id="r", status="completed", verb="start")

    with pytest.raises(RunRefused):
        await store.append(Append(session_id, refuse))
    assert await store.head(session_id) == 1


@pytest.mark.parametrize("error", [RunRefused(run_id="r", status="x", verb="y"), ZeroDivisionError("!")])
async def test_a_refused_append_does_not_fail_its_neighbours(store: Store, error: Exception) -> None:
    one, two = await create_session(store), await create_session(store)

    def refuse(view: SessionStateView) -> Sequence[f.AnyFact]:
        raise error

    batch = [rename(one, "a"), Append(one, refuse), rename(two, "b"), rename(two, "no", expect=1)]
    batch += [created("new"), rename(IDS.session()), rename(one, "c")]
    tried = await asyncio.gather(*(store.submit(each) for each in batch), return_exceptions=True)
    refused = [type(each) if isinstance(each, BaseException) else None for each in tried]
    assert refused == [None, type(error), None, SeqMismatch, None, NoSuchSession, None]
    assert (await store.session(one)).title == "c"
    assert (await store.session(two)).title == "b"
    assert await kinds(store, one) == [(1, "session_created"), (2, "session_renamed"), (3, "session_renamed")]


async def test_submits_are_stored_in_the_order_they_were_handed_over(store: Store) -> None:
    session_id = await create_session(store)
    await asyncio.gather(*(store.submit(rename(session_id, str(n))) for n in range(200)))
    facts = [event.fact for event in await store.read(session_id, 1, 1_000)]
    assert [fact.title for fact in facts if isinstance(fact, f.SessionRenamed)] == [
        str(n) for n in range(200)
    ]


async def test_reading_starts_after_a_cursor_and_ends_at_a_limit(store: Store) -> None:
    session_id = await create_session(store)
    await asyncio.gather(*(store.submit(rename(session_id, str(n))) for n in range(20)))
    assert [event.seq for event in await store.read(session_id, 5, 3)] == [6, 7, 8]
    assert [event.seq for event in await store.read(session_id, 20, 10)] == [21]
    assert list(await store.read(session_id, 21, 10)) == []
    with pytest.raises(NoSuchSession):
        await store.read(IDS.session(), 0, 10)


@pytest.mark.parametrize("limit", [0, -1])
async def test_an_invalid_limit_never_reads_everything(store: Store, limit: int) -> None:
    session_id = await create_session(store)
    await asyncio.gather(*(store.append(accept(session_id, f"word {n}")) for n in range(5)))
    assert len(await store.read(session_id, 0, limit)) <= 1
    assert len((await store.sessions(None, limit)).sessions) <= 1
    assert len((await store.messages(session_id, None, limit)).messages) <= 1
    assert len(await store.search("word", limit)) <= 1


async def test_what_is_too_large_is_refused_and_nothing_is_stored(store: Store) -> None:
    session_id = await create_session(store)
    huge = TurnEvents(1, "x" * EVENT_BYTES_MAX).accepted()
    many = [f.SessionRenamed("x", "user")] * (FACTS_PER_APPEND_MAX + 1)
    for facts in ([f.SessionRenamed("no", "user"), huge], many):
        with pytest.raises(TooLarge):
            await store.append(Append(session_id, facts))
    assert await store.head(session_id) == 1
    assert (await store.session(session_id)).title == ""
    page = await store.messages(session_id, None, 10)
    assert page.messages == ()


async def test_text_that_cannot_be_encoded_is_refused_alone(store: Store) -> None:
    session_id = await create_session(store)
    half = "\ud83d"
    batch = [rename(session_id, "a"), rename(session_id, half), rename(session_id, "b")]
    tried = await asyncio.gather(*(store.submit(each) for each in batch), return_exceptions=True)
    assert [isinstance(each, BaseException) for each in tried] == [False, True, False]
    assert isinstance(tried[1], HoldfastError | UnicodeEncodeError)
    assert (await store.session(session_id)).title == "b"


def versions(receipts: tuple[AppendReceipt, ...]) -> tuple[int, int]:
    return receipts[0].context_before, receipts[0].context_after


async def test_the_context_version_moves_exactly_on_facts_that_change_the_context(store: Store) -> None:
    session_id = await create_session(store)
    story = TurnEvents(1)

    async def add(*facts: f.AnyFact) -> tuple[int, int]:
        return versions(await store.append(Append(session_id, facts)))

    assert await add(f.SessionRenamed("t", "user")) == (0, 0)
    assert await add(story.accepted()) == (0, 3)
    assert await add(story.started(), story.step_started()) == (3, 3)
    assert await add(story.text("text"), story.reasoning("more")) == (3, 3)
    assert await add(story.message_settled()) == (3, 8)
    assert await add(story.step_settled()) == (8, 8)
    assert await add(story.tool_intended(), story.tool_started(), story.tool_output("out")) == (8, 8)
    assert await add(story.tool_settled()) == (8, 13)
    assert await add(f.MemoryCommitted(1, "k", 1, 1), f.DeliveryInDoubt("x", story.message_id)) == (13, 13)
    assert await add(story.completed()) == (13, 13)
    assert await add(f.SessionArchived(True)) == (13, 13)
    assert await add(f.SessionCompacted(((1, 1),), "sum")) == (13, 18)
    assert await add(f.SessionCleared(1)) == (18, 19)
    assert await add(f.TurnsUndone(1), f.SessionRenamed("u", "user")) == (19, 20)
    assert (await store.session(session_id)).context_version == 20


async def test_a_receipt_of_a_batch_knows_its_own_versions_only(store: Store) -> None:
    session_id = await create_session(store)
    waiting = [store.submit(accept(session_id, str(n))) for n in range(4)]
    receipts = [(await each)[0] for each in waiting]
    # The first turn's run is in the way of the others: they are queued, which takes a second fact.
    assert [(r.context_before, r.context_after) for r in receipts] == [(0, 2), (2, 3), (3, 5), (5, 7)]


async def test_the_same_message_can_be_sent_again_without_a_key(store: Store) -> None:
    session_id = await create_session(store)
    for _ in range(2):
        (receipt,) = await store.append(accept(session_id, "again"))
        assert receipt.repeated_turn is None
    assert (await store.session(session_id)).last_turn == 2


async def test_a_copy_without_a_run_leaves_nothing_to_do(store: Store) -> None:
    session_id = await create_session(store)
    copy = f.TurnAccepted(IDS.turn(), 1, IDS.message(), (Text("copied"),))
    await store.append(Append(session_id, (copy,)))
    assert list(await store.open_runs()) == []
