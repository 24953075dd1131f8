"""What memory is owed: what marks it, what undoing, forking, deleting and importing do to it."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.decisions import memory_queue, turns
from holdfast.domain.errors import CommitDecisionRefused, NoSuchQueuedCommit, ProviderCannot, ProviderFailure
from holdfast.domain.events import facts as f
from holdfast.domain.limits import COMMIT_RETRY_MS, COMMIT_RETRY_MS_MAX, PURGE_AFTER_MS, SEGMENT_TURNS_MAX
from holdfast.domain.state.rows import QueuedCommitRow
from holdfast.memory.backoff import OwnerBackoff
from holdfast.memory.scheduler import SegmentCommitResult
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_memory_providers import FakeProvider, memory_harness
from tests.support.memory_queue_session import HERE, MemoryQueueSession


def test_turns_join_one_queue_entry_until_its_commit_starts() -> None:
    session = MemoryQueueSession().complete_turns(3)
    assert session.segments == [("pending", ((1, 3),))]
    session.start_commit()
    session.complete_turns(2)
    assert session.segments == [("committing", ((1, 3),)), ("pending", ((4, 5),))]


def test_another_owner_begins_another_queue_entry() -> None:
    session = MemoryQueueSession().complete_turns(1, "a").complete_turns(2, "b").complete_turns(1, "a")
    assert [(row.owner, row.turns) for row in session.book.queued_commits.values()] == [
        ("a", ((1, 1),)), ("b", ((2, 3),)), ("a", ((4, 4),))
    ]  # fmt: skip


def test_a_queue_entry_has_a_maximum_number_of_turns() -> None:
    session = MemoryQueueSession().complete_turns(SEGMENT_TURNS_MAX + 1)
    last = SEGMENT_TURNS_MAX + 1
    assert session.segments == [("pending", ((1, SEGMENT_TURNS_MAX),)), ("pending", ((last, last),))]


def test_a_turn_kept_out_of_memory_leaves_a_gap() -> None:
    assert MemoryQueueSession().complete_turns(1).complete_turns(1, None).complete_turns(1).segments == [
        ("pending", ((1, 1), (3, 3)))
    ]


def test_undone_turns_leave_a_pending_queue_entry() -> None:
    session = MemoryQueueSession().complete_turns(3).undo(2)
    assert session.segments == [("pending", ((1, 1),))]
    session.complete_turns(1)
    assert session.segments == [("pending", ((1, 1), (4, 4)))]
    session.undo(1)
    assert (
        session.segments == [("void", ((1, 1), (4, 4)))] and memory_queue.oldest_pending(session.book) is None
    )


def test_clearing_keeps_every_pending_commit() -> None:
    session = MemoryQueueSession().complete_turns(2).clear()
    assert session.segments == [("pending", ((1, 2),))]


def test_deleting_drops_pending_commits() -> None:
    session = (
        MemoryQueueSession()
        .complete_turns(1, "a")
        .complete_turns(1, "b")
        .complete_turns(1, "c")
        .complete_turns(1, "d")
    )
    session.commit(session.start_commit("a"))
    session.give_up(session.start_commit("b"), takes_key=False)
    session.fail_commit(session.start_commit("c"))
    assert [state for state, _ in session.segments] == ["committed", "in_doubt", "failed", "pending"]
    session.delete()
    assert [state for state, _ in session.segments] == ["committed", "dropped", "dropped", "dropped"]
    assert not session.book.pending_commits() and session.book.queued_commits[3].retry_at == 0


@pytest.mark.parametrize(
    ("end", "state"),
    [("pay", "committed"), ("fail", "dropped"), ("lose_keyed", "dropped"), ("lose", "dropped")],
)
def test_a_commit_under_way_is_not_retried_after_deletion(end: str, state: str) -> None:
    session = MemoryQueueSession().complete_turns(1)
    row = session.start_commit()
    session.delete()
    assert session.segments == [("committing", ((1, 1),))]
    _end_attempt(session, row, end)
    assert session.segments == [(state, ((1, 1),))] and not session.book.pending_commits()


@pytest.mark.parametrize("outcome", ["done", "cannot"])
@pytest.mark.parametrize("end", ["pay", "lose"])
def test_after_deletion_undone_turns_are_retracted_and_the_rest_is_not_requeued(
    end: str, outcome: str
) -> None:
    session = MemoryQueueSession().complete_turns(2)
    _end_attempt(session, session.start_commit(), end)
    session.undo(2).delete()
    assert session.book.queued_commits[1].retraction == "wanted"
    session.forget(1, "failed", retry_at=99)
    assert session.book.pending_commits()
    session.forget(1, outcome)
    assert not session.book.pending_commits() and len(session.book.queued_commits) == 1


@pytest.mark.parametrize("end", ["pay", "fail", "lose_keyed", "lose"])
def test_deleting_with_notes_retracts_every_commit(end: str) -> None:
    session = MemoryQueueSession().complete_turns(1, "a").complete_turns(1, "b")
    row = session.start_commit("a")
    if end in ("pay", "fail"):
        _end_attempt(session, row, end)
        session.delete(notes=True)
    else:
        session.delete(notes=True)
        _end_attempt(session, row, end)
    assert [debt.n for debt in session.book.pending_commits()] == [1]
    assert (
        session.book.queued_commits[1].retraction == "wanted"
        and memory_queue.oldest_pending(session.book) is None
    )
    session.forget(1, "done")
    assert not session.book.pending_commits()


def test_deleting_without_notes_retracts_nothing() -> None:
    session = MemoryQueueSession().complete_turns(1)
    session.commit(session.start_commit())
    session.delete()
    assert session.book.queued_commits[1].retraction == "" and not session.book.pending_commits()


def _end_attempt(session: MemoryQueueSession, row: QueuedCommitRow, end: str) -> None:
    match end:
        case "pay":
            session.commit(row)
        case "fail":
            session.fail_commit(row)
        case _:
            session.give_up(row, takes_key=end == "lose_keyed")


@pytest.mark.parametrize("end", ["pay", "fail", "lose_keyed", "lose"])
def test_turns_undone_during_a_commit_are_retracted_and_the_rest_requeued(end: str) -> None:
    session = MemoryQueueSession().complete_turns(3)
    row = session.start_commit()
    session.undo(3)
    assert session.book.queued_commits[1].retraction == "wanted"
    assert not session.forget(1, "done")  # Not while it is being told.
    _end_attempt(session, row, end)
    assert memory_queue.oldest_pending(session.book) is None  # It is not told again: it is taken back first.
    assert session.book.queued_commits[1].retry_at == 0
    session.forget(1, "done")
    assert session.segments == [("void", ((1, 3),)), ("pending", ((1, 2),))]
    assert session.book.queued_commits[2].owner == "me" and session.book.queued_commits[2].key == ""


def test_turns_undone_after_their_commit_are_retracted() -> None:
    session = MemoryQueueSession().complete_turns(2)
    session.commit(session.start_commit())
    session.undo(1).complete_turns(1)
    row = session.book.queued_commits[1]
    assert (row.state, row.retraction, row.receipt) == ("committed", "wanted", "receipt")
    session.forget(1, "failed", retry_at=50)
    assert session.book.queued_commits[1].is_open and session.book.queued_commits[1].retry_at == 50
    session.forget(1, "done")
    assert session.segments == [("void", ((1, 2),)), ("pending", ((3, 3),))]
    assert not session.forget(1, "done")


def test_a_commit_that_cannot_be_retracted_stays_committed() -> None:
    session = MemoryQueueSession().complete_turns(2)
    session.commit(session.start_commit())
    session.undo(2)
    session.forget(1, "cannot")
    assert session.segments == [("committed", ((1, 2),))]
    assert session.book.queued_commits[1].retraction == "cannot" and not session.book.pending_commits()
    session.undo(1)
    assert not session.book.pending_commits()


def test_a_commit_in_doubt_that_cannot_be_retracted_waits_for_a_person() -> None:
    def doubtful() -> MemoryQueueSession:
        session = MemoryQueueSession().complete_turns(2)
        row = session.start_commit()
        session.undo(2)
        session.give_up(row, takes_key=False)
        session.forget(1, "cannot")
        assert session.segments == [("in_doubt", ((1, 2),))]
        return session

    again, done = doubtful(), doubtful()
    again.resolve(1, "retry")
    assert again.segments == [("void", ((1, 2),)), ("pending", ((1, 1),))]
    done.resolve(1, "done")
    assert done.segments == [("committed", ((1, 2),))] and not done.book.pending_commits()


def test_turning_memory_off_drops_pending_commits() -> None:
    def forgo(session: MemoryQueueSession) -> MemoryQueueSession:
        unwanted = f.SessionConfigured(remember=False)
        session.decide(lambda view: turns.configure(view, session.id, unwanted))
        return session

    queue = MemoryQueueSession().complete_turns(1, "a")
    queue.commit(queue.start_commit())
    queue.complete_turns(1, "b")
    queue.fail_commit(queue.start_commit())
    queue.complete_turns(1, "c")
    forgo(queue)
    assert [row.state for row in queue.book.queued_commits.values()] == ["committed", "dropped", "dropped"]
    assert forgo(queue).book.pending_commits() == []
    other = MemoryQueueSession().complete_turns(1)
    row = other.start_commit()
    assert [each.state for each in forgo(other).book.pending_commits()] == ["committing"]
    other.fail_commit(row)
    assert forgo(other).segments == [("dropped", ((1, 1),))]


@pytest.mark.parametrize("was_committed", [True, False])
def test_a_retraction_continues_after_memory_is_turned_off(
    was_committed: bool,
) -> None:
    session = MemoryQueueSession().complete_turns(2)
    row = session.start_commit()
    session.commit(row) if was_committed else session.fail_commit(row)
    session.undo(2)
    unwanted = f.SessionConfigured(remember=False)
    session.decide(lambda view: turns.configure(view, session.id, unwanted))
    assert session.book.queued_commits[1].retraction == "wanted"
    session.forget(1, "done")
    # What memory had of it stays remembered; what it never had is not told now.
    assert session.segments == [("void", ((1, 2),))] + ([("pending", ((1, 1),))] if was_committed else [])


def test_a_retry_keeps_key_turns_and_digest() -> None:
    session = MemoryQueueSession().complete_turns(1)
    first = session.start_commit()
    session.fail_commit(first)
    session.complete_turns(1)
    row = session.book.queued_commits[1]
    session.decide(
        lambda view: memory_queue.start(view, 1, row.turns, "you", "another key", "another digest", HERE)
    )
    again = session.book.queued_commits[1]
    assert (again.key, again.digest, again.turns, again.attempts) == (first.key, "digest", ((1, 1),), 2)
    assert again.owner == "you"
    assert not session.commit(first) and not session.fail_commit(first)  # The first try is fenced.
    assert session.commit(again)


def test_a_queue_entry_that_grew_since_it_was_read_is_not_started() -> None:
    session = MemoryQueueSession().complete_turns(1)
    assert not session.decide(lambda view: memory_queue.start(view, 1, ((1, 2),), "me", "k", "d", HERE))
    assert not session.decide(lambda view: memory_queue.start(view, 2, ((1, 1),), "me", "k", "d", HERE))
    session.start_commit()
    assert not session.decide(lambda view: memory_queue.start(view, 1, ((1, 1),), "me", "k", "d", HERE))


def test_a_commit_in_doubt_does_not_block_others() -> None:
    session = MemoryQueueSession().complete_turns(1)
    session.give_up(session.start_commit(), takes_key=False)
    session.complete_turns(1)
    oldest = memory_queue.oldest_pending(session.book)
    assert oldest is not None and oldest.n == 2


def test_a_person_resolves_a_queued_commit() -> None:
    session = MemoryQueueSession().complete_turns(1)
    with pytest.raises(NoSuchQueuedCommit):
        session.resolve(2, "drop")
    for decision in ("retry", "done", "sing"):
        with pytest.raises(CommitDecisionRefused):
            session.resolve(1, decision)
    row = session.start_commit()
    with pytest.raises(CommitDecisionRefused):
        session.resolve(1, "drop")  # It is being told this very moment.
    session.give_up(row, takes_key=False)
    session.resolve(1, "retry")
    assert session.book.queued_commits[1].state == "failed" and session.book.queued_commits[1].retry_at == 0
    session.resolve(1, "drop")
    assert session.segments == [("dropped", ((1, 1),))] and not session.book.pending_commits()
    session.undo(1)
    assert not session.book.pending_commits()


def test_a_person_may_retry_a_commit_being_retracted() -> None:
    session = MemoryQueueSession().complete_turns(1)
    session.commit(session.start_commit())
    session.undo(1)
    assert session.resolve(1, "retry") == [] and session.book.queued_commits[1].retraction == "wanted"
    session.resolve(1, "drop")
    assert session.segments == [("dropped", ((1, 1),))] and not session.book.pending_commits()


def test_each_further_failure_waits_longer_up_to_a_limit() -> None:
    clock = FakeClock()
    waits = [
        OwnerBackoff(clock, lambda: 0.5).retry_at(attempts) - clock.now_ms() for attempts in range(1, 40)
    ]
    assert waits[:3] == [COMMIT_RETRY_MS, 2 * COMMIT_RETRY_MS, 4 * COMMIT_RETRY_MS]
    assert waits == sorted(waits) and waits[-1] == COMMIT_RETRY_MS_MAX
    assert OwnerBackoff(clock, lambda: 0.0).retry_at(1) - clock.now_ms() == COMMIT_RETRY_MS // 2
    assert OwnerBackoff(clock, lambda: 1.0).retry_at(1) - clock.now_ms() == COMMIT_RETRY_MS * 3 // 2


# In a real store.


async def test_a_fork_inherits_no_pending_commits(tmp_path: Path) -> None:
    async with memory_harness(tmp_path) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        child = await harness.app.engine.commands.fork(session_id)
        assert await harness.queue_entries(child) == [] and await harness.states(session_id) == ["pending"]


async def test_a_deleted_conversation_is_purged_only_after_its_retractions(
    tmp_path: Path,
) -> None:
    provider, clock = FakeProvider(), FakeClock()
    provider.retract_errors = [ProviderFailure(detail="down")]
    async with memory_harness(tmp_path, provider, clock=clock) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        await harness.scheduler.commit_pending(session_id)
        await harness.app.engine.delete(session_id, notes=True)
        await harness.app.wait_until(lambda: _is_asked_to_forget(provider), "a request to forget")
        clock.advance(PURGE_AFTER_MS + 1)
        assert (await harness.app.store.sweep()).sessions == 0
        await harness.scheduler.commit_pending(session_id, requested=True)
        assert provider.stored == {} and len(provider.retracted) == 2
        await harness.app.create_session()  # The newest event of all stays until another one follows it.
        assert (await harness.app.store.sweep()).sessions == 1
        assert await harness.queue_entries(session_id, deleted=True) == []


async def _is_asked_to_forget(provider: FakeProvider) -> bool:
    return bool(provider.retracted)


async def test_a_commit_under_way_completes_after_deletion(tmp_path: Path) -> None:
    provider = FakeProvider()
    provider.hold = asyncio.Event()
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        commit = asyncio.create_task(harness.scheduler.commit_pending(session_id, requested=True))
        await provider.called.wait()
        await harness.app.engine.delete(session_id)
        provider.hold.set()
        assert await commit == SegmentCommitResult("committed", 1)
        assert await harness.scheduler.pending_totals() == (0, 0) and len(provider.calls) == 1


async def test_an_imported_conversation_has_no_pending_commits(tmp_path: Path) -> None:
    async with memory_harness(tmp_path / "there") as there:
        session_id = await there.app.create_session()
        await there.run_turn(session_id, "one")
        events = await there.app.store.read(session_id, 0, 1000)
    async with memory_harness(tmp_path / "here") as harness:
        await harness.app.store.import_session(session_id, events, cancel_open_runs=True)
        assert await harness.states(session_id) == ["dropped"]
        assert await harness.scheduler.commit_pending(session_id) == SegmentCommitResult("nothing")


async def test_undoing_a_committed_turn_retracts_it(tmp_path: Path) -> None:
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        for text in ("one", "two"):
            await harness.run_turn(session_id, text)
        await harness.scheduler.commit_pending(session_id)
        (first,) = provider.stored
        await harness.app.engine.commands.undo(session_id, None)
        provider.retract_errors = [ProviderFailure(detail="not now")]
        assert (await harness.scheduler.commit_pending(session_id)).status == "failed"
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 1
        )
        assert provider.retracted == [(first, f"receipt {first}")] * 2
        (commit,) = provider.stored.values()
        assert commit.key != first and [said.text for said in commit.messages] == ["one", "Noted."]
        assert harness.scheduler.counts == {"committed": 2, "forget_failed": 1, "forget_done": 1}


async def test_a_provider_that_cannot_forget_is_asked_once(tmp_path: Path) -> None:
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        await harness.scheduler.commit_pending(session_id)
        await harness.app.engine.commands.undo(session_id, None)
        provider.retract_errors = [ProviderCannot(verb="forget")]
        await harness.scheduler.commit_pending(session_id)
        assert (await harness.queue_entries(session_id))[0].retraction == "cannot"
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "nothing"
        )
        assert len(provider.retracted) == 1 and len(provider.calls) == 1


async def test_a_delayed_retry_does_not_block_due_commits(tmp_path: Path) -> None:
    clock = FakeClock()
    async with memory_harness(tmp_path, FakeProvider("a"), FakeProvider("b"), clock=clock) as harness:
        a, b = harness.providers["a"], harness.providers["b"]
        a.answers = [ProviderFailure(detail="down")]
        waiting, due = await harness.app.create_session(), await harness.app.create_session()
        await harness.run_turn(waiting, "one")
        await harness.scheduler.commit_pending(waiting)
        await harness.run_turn(waiting, "two")  # Behind one that is to be tried again later.
        harness.agent_memory.current_owner = None
        owner = await harness.save_owner("b")
        await harness.run_turn(due, "three")
        assert [row.state for row in await harness.queue_entries(waiting)] == ["failed", "pending"]
        now = clock.now_ms()
        listed = [debt.session_id for debt in await harness.queue.due_entries(now, now, 10)]
        assert listed == [due]
        assert await harness.queue.due_entries(now, now, 10, ["", owner]) == []
        later = now + 2 * COMMIT_RETRY_MS
        assert [
            d.row.n for d in await harness.queue.due_entries(later, later, 10) if d.session_id == waiting
        ] == [1]
        assert not b.calls


async def test_doctor_agrees_after_every_queued_commit_transition(tmp_path: Path) -> None:
    session = MemoryQueueSession().complete_turns(2).complete_turns(1, "you")
    session.fail_commit(session.start_commit())
    session.give_up(session.start_commit(), takes_key=False)
    session.resolve(1, "retry")
    session.commit(session.start_commit())
    session.complete_turns(1).undo(2)
    session.forget(1, "failed")
    session.forget(1, "done")
    session.start_commit()
    store = await SqliteStore.open(tmp_path)
    try:
        await store.import_session(session.id, session.events)
        assert not await store.check(False, lambda done, total: None)
        rows = await store.queued_commits(session.id)
        assert [row.n for row in rows] == list(session.book.queued_commits)
        closed = {row.n: row for row in session.book.queued_commits.values() if not row.is_open}
        assert closed and all(row == closed[row.n] for row in rows if row.n in closed)
    finally:
        await store.close()


def test_a_queue_entry_names_its_owner() -> None:
    session = MemoryQueueSession().complete_turns(1, "")
    assert session.book.queued_commits[1].owner == ""
    completed = [event.fact for event in session.events if isinstance(event.fact, f.RunCompleted)]
    assert [(fact.owed, fact.owner) for fact in completed] == [(True, "")]
