"""What memory is owed: what marks it, what undoing, forking, deleting and importing do to it."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.decisions import memory_queue, turns
from holdfast.domain.errors import DebtRefused, NoSuchDebt, ProviderCannot, ProviderFailure
from holdfast.domain.events import facts as f
from holdfast.domain.limits import COMMIT_RETRY_MS, COMMIT_RETRY_MS_MAX, PURGE_AFTER_MS, SEGMENT_TURNS_MAX
from holdfast.domain.state.rows import DebtRow
from holdfast.memory.backoff import Rests
from holdfast.memory.scheduler import Outcome
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_memory_providers import Keeper, home
from tests.support.memory_queue_session import HERE, Owing


def test_turns_gather_in_one_stretch_until_it_is_begun() -> None:
    owing = Owing().turns(3)
    assert owing.told == [("owed", ((1, 3),))]
    owing.start()
    owing.turns(2)
    assert owing.told == [("committing", ((1, 3),)), ("owed", ((4, 5),))]


def test_another_owner_begins_another_stretch() -> None:
    owing = Owing().turns(1, "a").turns(2, "b").turns(1, "a")
    assert [(row.owner, row.turns) for row in owing.book.debts.values()] == [
        ("a", ((1, 1),)), ("b", ((2, 3),)), ("a", ((4, 4),))
    ]  # fmt: skip


def test_a_stretch_has_so_many_turns_and_no_more() -> None:
    owing = Owing().turns(SEGMENT_TURNS_MAX + 1)
    last = SEGMENT_TURNS_MAX + 1
    assert owing.told == [("owed", ((1, SEGMENT_TURNS_MAX),)), ("owed", ((last, last),))]


def test_a_turn_that_is_not_owed_leaves_a_gap() -> None:
    assert Owing().turns(1).turns(1, None).turns(1).told == [("owed", ((1, 1), (3, 3)))]


def test_undone_turns_leave_what_nobody_was_told() -> None:
    owing = Owing().turns(3).undo(2)
    assert owing.told == [("owed", ((1, 1),))]
    owing.turns(1)
    assert owing.told == [("owed", ((1, 1), (4, 4)))]
    owing.undo(1)
    assert owing.told == [("void", ((1, 1), (4, 4)))] and memory_queue.oldest(owing.book) is None


def test_clearing_leaves_everything_owed() -> None:
    owing = Owing().turns(2).clear()
    assert owing.told == [("owed", ((1, 2),))]


def test_deleting_drops_all_that_memory_was_not_told() -> None:
    owing = Owing().turns(1, "a").turns(1, "b").turns(1, "c").turns(1, "d")
    owing.pay(owing.start("a"))
    owing.lose(owing.start("b"), takes_key=False)
    owing.fail(owing.start("c"))
    assert [state for state, _ in owing.told] == ["paid", "in_doubt", "failed", "owed"]
    owing.delete()
    assert [state for state, _ in owing.told] == ["paid", "dropped", "dropped", "dropped"]
    assert not owing.book.open_debts() and owing.book.debts[3].retry_at == 0


@pytest.mark.parametrize(
    ("end", "state"), [("pay", "paid"), ("fail", "dropped"), ("lose_keyed", "dropped"), ("lose", "dropped")]
)
def test_what_is_being_told_when_a_conversation_is_deleted_is_not_tried_again(end: str, state: str) -> None:
    owing = Owing().turns(1)
    row = owing.start()
    owing.delete()
    assert owing.told == [("committing", ((1, 1),))]
    _end(owing, row, end)
    assert owing.told == [(state, ((1, 1),))] and not owing.book.open_debts()


@pytest.mark.parametrize("outcome", ["done", "cannot"])
@pytest.mark.parametrize("end", ["pay", "lose"])
def test_what_was_undone_is_forgotten_after_a_deletion_and_the_rest_is_not_owed_anew(
    end: str, outcome: str
) -> None:
    owing = Owing().turns(2)
    _end(owing, owing.start(), end)
    owing.undo(2).delete()
    assert owing.book.debts[1].retraction == "wanted"
    owing.forget(1, "failed", retry_at=99)
    assert owing.book.open_debts()
    owing.forget(1, outcome)
    assert not owing.book.open_debts() and len(owing.book.debts) == 1


@pytest.mark.parametrize("end", ["pay", "fail", "lose_keyed", "lose"])
def test_deleting_with_the_notes_has_memory_forget_all_that_it_may_have(end: str) -> None:
    owing = Owing().turns(1, "a").turns(1, "b")
    row = owing.start("a")
    if end in ("pay", "fail"):
        _end(owing, row, end)
        owing.delete(notes=True)
    else:
        owing.delete(notes=True)
        _end(owing, row, end)
    assert [debt.n for debt in owing.book.open_debts()] == [1]
    assert owing.book.debts[1].retraction == "wanted" and memory_queue.oldest(owing.book) is None
    owing.forget(1, "done")
    assert not owing.book.open_debts()


def test_deleting_without_the_notes_takes_nothing_back() -> None:
    owing = Owing().turns(1)
    owing.pay(owing.start())
    owing.delete()
    assert owing.book.debts[1].retraction == "" and not owing.book.open_debts()


def _end(owing: Owing, row: DebtRow, end: str) -> None:
    match end:
        case "pay":
            owing.pay(row)
        case "fail":
            owing.fail(row)
        case _:
            owing.lose(row, takes_key=end == "lose_keyed")


@pytest.mark.parametrize("end", ["pay", "fail", "lose_keyed", "lose"])
def test_turns_undone_while_they_are_told_are_taken_back_and_the_rest_is_owed_anew(end: str) -> None:
    owing = Owing().turns(3)
    row = owing.start()
    owing.undo(3)
    assert owing.book.debts[1].retraction == "wanted"
    assert not owing.forget(1, "done")  # Not while it is being told.
    _end(owing, row, end)
    assert memory_queue.oldest(owing.book) is None  # It is not told again: it is taken back first.
    assert owing.book.debts[1].retry_at == 0
    owing.forget(1, "done")
    assert owing.told == [("void", ((1, 3),)), ("owed", ((1, 2),))]
    assert owing.book.debts[2].owner == "me" and owing.book.debts[2].key == ""


def test_turns_undone_after_they_were_told_are_taken_back() -> None:
    owing = Owing().turns(2)
    owing.pay(owing.start())
    owing.undo(1).turns(1)
    row = owing.book.debts[1]
    assert (row.state, row.retraction, row.receipt) == ("paid", "wanted", "receipt")
    owing.forget(1, "failed", retry_at=50)
    assert owing.book.debts[1].is_open and owing.book.debts[1].retry_at == 50
    owing.forget(1, "done")
    assert owing.told == [("void", ((1, 2),)), ("owed", ((3, 3),))]
    assert not owing.forget(1, "done")


def test_what_memory_cannot_forget_stays_told_and_is_not_told_again() -> None:
    owing = Owing().turns(2)
    owing.pay(owing.start())
    owing.undo(2)
    owing.forget(1, "cannot")
    assert owing.told == [("paid", ((1, 2),))]
    assert owing.book.debts[1].retraction == "cannot" and not owing.book.open_debts()
    owing.undo(1)
    assert not owing.book.open_debts()


def test_what_may_have_been_told_and_cannot_be_forgotten_is_for_a_person_to_say() -> None:
    def doubtful() -> Owing:
        owing = Owing().turns(2)
        row = owing.start()
        owing.undo(2)
        owing.lose(row, takes_key=False)
        owing.forget(1, "cannot")
        assert owing.told == [("in_doubt", ((1, 2),))]
        return owing

    again, done = doubtful(), doubtful()
    again.resolve(1, "retry")
    assert again.told == [("void", ((1, 2),)), ("owed", ((1, 1),))]
    done.resolve(1, "done")
    assert done.told == [("paid", ((1, 2),))] and not done.book.open_debts()


def test_what_is_not_to_be_remembered_is_not_owed_any_more() -> None:
    def forgo(owing: Owing) -> Owing:
        unwanted = f.SessionConfigured(remember=False)
        owing.decide(lambda view: turns.configure(view, owing.id, unwanted))
        return owing

    owing = Owing().turns(1, "a")
    owing.pay(owing.start())
    owing.turns(1, "b")
    owing.fail(owing.start())
    owing.turns(1, "c")
    forgo(owing)
    assert [row.state for row in owing.book.debts.values()] == ["paid", "dropped", "dropped"]
    assert forgo(owing).book.open_debts() == []
    told = Owing().turns(1)
    row = told.start()
    assert [each.state for each in forgo(told).book.open_debts()] == ["committing"]
    told.fail(row)
    assert forgo(told).told == [("dropped", ((1, 1),))]


@pytest.mark.parametrize("was_told", [True, False])
def test_what_is_being_taken_back_is_taken_back_though_nothing_more_is_to_be_remembered(
    was_told: bool,
) -> None:
    owing = Owing().turns(2)
    row = owing.start()
    owing.pay(row) if was_told else owing.fail(row)
    owing.undo(2)
    unwanted = f.SessionConfigured(remember=False)
    owing.decide(lambda view: turns.configure(view, owing.id, unwanted))
    assert owing.book.debts[1].retraction == "wanted"
    owing.forget(1, "done")
    # What memory had of it stays remembered; what it never had is not told now.
    assert owing.told == [("void", ((1, 2),))] + ([("owed", ((1, 1),))] if was_told else [])


def test_a_retry_keeps_the_key_the_turns_and_what_is_told() -> None:
    owing = Owing().turns(1)
    first = owing.start()
    owing.fail(first)
    owing.turns(1)
    row = owing.book.debts[1]
    owing.decide(
        lambda view: memory_queue.start(view, 1, row.turns, "you", "another key", "another digest", HERE)
    )
    again = owing.book.debts[1]
    assert (again.key, again.digest, again.turns, again.attempts) == (first.key, "digest", ((1, 1),), 2)
    assert again.owner == "you"
    assert not owing.pay(first) and not owing.fail(first)  # The first try is fenced.
    assert owing.pay(again)


def test_a_stretch_that_grew_since_it_was_read_is_not_begun() -> None:
    owing = Owing().turns(1)
    assert not owing.decide(lambda view: memory_queue.start(view, 1, ((1, 2),), "me", "k", "d", HERE))
    assert not owing.decide(lambda view: memory_queue.start(view, 2, ((1, 1),), "me", "k", "d", HERE))
    owing.start()
    assert not owing.decide(lambda view: memory_queue.start(view, 1, ((1, 1),), "me", "k", "d", HERE))


def test_one_in_doubt_keeps_no_other_waiting() -> None:
    owing = Owing().turns(1)
    owing.lose(owing.start(), takes_key=False)
    owing.turns(1)
    oldest = memory_queue.oldest(owing.book)
    assert oldest is not None and oldest.n == 2


def test_a_person_says_what_becomes_of_a_stretch() -> None:
    owing = Owing().turns(1)
    with pytest.raises(NoSuchDebt):
        owing.resolve(2, "drop")
    for decision in ("retry", "done", "sing"):
        with pytest.raises(DebtRefused):
            owing.resolve(1, decision)
    row = owing.start()
    with pytest.raises(DebtRefused):
        owing.resolve(1, "drop")  # It is being told this very moment.
    owing.lose(row, takes_key=False)
    owing.resolve(1, "retry")
    assert owing.book.debts[1].state == "failed" and owing.book.debts[1].retry_at == 0
    owing.resolve(1, "drop")
    assert owing.told == [("dropped", ((1, 1),))] and not owing.book.open_debts()
    owing.undo(1)
    assert not owing.book.open_debts()


def test_a_person_may_ask_again_for_what_is_being_taken_back() -> None:
    owing = Owing().turns(1)
    owing.pay(owing.start())
    owing.undo(1)
    assert owing.resolve(1, "retry") == [] and owing.book.debts[1].retraction == "wanted"
    owing.resolve(1, "drop")
    assert owing.told == [("dropped", ((1, 1),))] and not owing.book.open_debts()


def test_each_further_failure_waits_longer_up_to_a_limit() -> None:
    clock = FakeClock()
    waits = [Rests(clock, lambda: 0.5).retry_at(attempts) - clock.now_ms() for attempts in range(1, 40)]
    assert waits[:3] == [COMMIT_RETRY_MS, 2 * COMMIT_RETRY_MS, 4 * COMMIT_RETRY_MS]
    assert waits == sorted(waits) and waits[-1] == COMMIT_RETRY_MS_MAX
    assert Rests(clock, lambda: 0.0).retry_at(1) - clock.now_ms() == COMMIT_RETRY_MS // 2
    assert Rests(clock, lambda: 1.0).retry_at(1) - clock.now_ms() == COMMIT_RETRY_MS * 3 // 2


# In a real store.


async def test_a_fork_inherits_no_debt(tmp_path: Path) -> None:
    async with home(tmp_path) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        child = await here.here.engine.verbs.fork(session_id)
        assert await here.debts(child) == [] and await here.states(session_id) == ["owed"]


async def test_a_deleted_conversation_is_kept_until_memory_has_forgotten_what_it_is_to_forget(
    tmp_path: Path,
) -> None:
    keeper, clock = Keeper(), FakeClock()
    keeper.retractions = [ProviderFailure(detail="down")]
    async with home(tmp_path, keeper, clock=clock) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        await here.lifecycle.settle(session_id)
        await here.here.engine.delete(session_id, notes=True)
        await here.here.until(lambda: _is_asked_to_forget(keeper), "a request to forget")
        clock.advance(PURGE_AFTER_MS + 1)
        assert (await here.here.store.sweep()).sessions == 0
        await here.lifecycle.settle(session_id, asked=True)
        assert keeper.kept == {} and len(keeper.retracted) == 2
        await here.here.begin()  # The newest event of all stays until another one follows it.
        assert (await here.here.store.sweep()).sessions == 1
        assert await here.debts(session_id, buried=True) == []


async def _is_asked_to_forget(keeper: Keeper) -> bool:
    return bool(keeper.retracted)


async def test_a_conversation_deleted_while_it_is_told_is_paid_all_the_same(tmp_path: Path) -> None:
    keeper = Keeper()
    keeper.hold = asyncio.Event()
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        commit = asyncio.create_task(here.lifecycle.settle(session_id, asked=True))
        await keeper.called.wait()
        await here.here.engine.delete(session_id)
        keeper.hold.set()
        assert await commit == Outcome("paid", 1)
        assert await here.lifecycle.totals() == (0, 0) and len(keeper.calls) == 1


async def test_what_is_imported_is_not_this_stores_to_tell(tmp_path: Path) -> None:
    async with home(tmp_path / "there") as there:
        session_id = await there.here.begin()
        await there.turn(session_id, "one")
        events = await there.here.store.read(session_id, 0, 1000)
    async with home(tmp_path / "here") as here:
        await here.here.store.adopt(session_id, events, closes=True)
        assert await here.states(session_id) == ["dropped"]
        assert await here.lifecycle.settle(session_id) == Outcome("nothing")


async def test_undoing_what_was_told_takes_it_back_at_the_next_boundary(tmp_path: Path) -> None:
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        for text in ("one", "two"):
            await here.turn(session_id, text)
        await here.lifecycle.settle(session_id)
        (first,) = keeper.kept
        await here.here.engine.verbs.undo(session_id, None)
        keeper.retractions = [ProviderFailure(detail="not now")]
        assert (await here.lifecycle.settle(session_id)).status == "failed"
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("paid", 1)
        assert keeper.retracted == [(first, f"receipt {first}")] * 2
        (told,) = keeper.kept.values()
        assert told.key != first and [said.text for said in told.messages] == ["one", "Noted."]
        assert here.lifecycle.counts == {"paid": 2, "forget_failed": 1, "forget_done": 1}


async def test_a_provider_that_cannot_forget_is_asked_once(tmp_path: Path) -> None:
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        await here.lifecycle.settle(session_id)
        await here.here.engine.verbs.undo(session_id, None)
        keeper.retractions = [ProviderCannot(verb="forget")]
        await here.lifecycle.settle(session_id)
        assert (await here.debts(session_id))[0].retraction == "cannot"
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("nothing")
        assert len(keeper.retracted) == 1 and len(keeper.calls) == 1


async def test_what_waits_for_its_time_does_not_stand_in_front_of_what_is_due(tmp_path: Path) -> None:
    clock = FakeClock()
    async with home(tmp_path, Keeper("a"), Keeper("b"), clock=clock) as here:
        a, b = here.keepers["a"], here.keepers["b"]
        a.answers = [ProviderFailure(detail="down")]
        waiting, due = await here.here.begin(), await here.here.begin()
        await here.turn(waiting, "one")
        await here.lifecycle.settle(waiting)
        await here.turn(waiting, "two")  # Behind one that is to be tried again later.
        here.attic.present = None
        owner = await here.keep("b")
        await here.turn(due, "three")
        assert [row.state for row in await here.debts(waiting)] == ["failed", "owed"]
        now = clock.now_ms()
        listed = [debt.session_id for debt in await here.ledger.due_debts(now, now, 10)]
        assert listed == [due]
        assert await here.ledger.due_debts(now, now, 10, ["", owner]) == []
        later = now + 2 * COMMIT_RETRY_MS
        assert [
            d.row.n for d in await here.ledger.due_debts(later, later, 10) if d.session_id == waiting
        ] == [1]
        assert not b.calls


async def test_doctor_agrees_after_everything_that_can_happen_to_a_debt(tmp_path: Path) -> None:
    owing = Owing().turns(2).turns(1, "you")
    owing.fail(owing.start())
    owing.lose(owing.start(), takes_key=False)
    owing.resolve(1, "retry")
    owing.pay(owing.start())
    owing.turns(1).undo(2)
    owing.forget(1, "failed")
    owing.forget(1, "done")
    owing.start()
    store = await SqliteStore.open(tmp_path)
    try:
        await store.adopt(owing.id, owing.events)
        assert not await store.check(False, lambda done, total: None)
        rows = await store.debts(owing.id)
        assert [row.n for row in rows] == list(owing.book.debts)
        closed = {row.n: row for row in owing.book.debts.values() if not row.is_open}
        assert closed and all(row == closed[row.n] for row in rows if row.n in closed)
    finally:
        await store.close()


def test_a_mark_names_who_tells_it() -> None:
    owing = Owing().turns(1, "")
    assert owing.book.debts[1].owner == ""
    completed = [event.fact for event in owing.events if isinstance(event.fact, f.RunCompleted)]
    assert [(fact.owed, fact.owner) for fact in completed] == [(True, "")]
