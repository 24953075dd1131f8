"""What people do to a session, each as one list of facts that says all of it or is refused."""

from collections.abc import Callable, Sequence

import pytest

from holdfast.domain.decisions import endings, runs, turns
from holdfast.domain.errors import (
    Busy,
    NoSuchSession,
    NoSuchTurn,
    RunRefused,
    SessionExists,
    SummaryRefused,
    TooLarge,
)
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import CallId, MessageId, TurnId
from holdfast.domain.state.rows import RunRow
from holdfast.domain.transcript.transcript import fold as fold_transcript
from tests.support.in_memory_session import SESSION, InMemoryJournal


def journal_with_session() -> InMemoryJournal:
    journal = InMemoryJournal()
    journal.append(*turns.create_session(journal.book, f.SessionCreated(model="demo")))
    return journal


def accept(
    journal: InMemoryJournal, text: str = "hello", if_busy: turns.BusyPolicy = "queue", key: str | None = None
) -> RunRow:
    journal.append(
        *turns.accept_turn(
            journal.book, SESSION, journal.ids, (Text(text),), key, journal.written, True, if_busy
        )
    )
    assert journal.book.row is not None
    return next(r for r in journal.book.runs.values() if r.turn == journal.book.row.last_turn)


def finish(journal: InMemoryJournal, run: RunRow) -> None:
    journal.append(*runs.start(journal.run(run.id)))
    journal.append(*runs.complete(journal.run(run.id)))


def kinds(facts: Sequence[f.AnyFact]) -> list[str]:
    return [f.KINDS[type(fact)] for fact in facts]


def test_a_session_is_created_once() -> None:
    with pytest.raises(SessionExists):
        turns.create_session(journal_with_session().book, f.SessionCreated())


def test_turns_are_numbered_from_one_and_wait_for_each_other() -> None:
    journal = journal_with_session()
    first, second = accept(journal), accept(journal)
    assert (first.turn, first.status) == (1, "accepted")
    assert (second.turn, second.status) == (2, "queued")


def test_a_turn_ends_a_run_that_waits_for_a_person() -> None:
    journal = journal_with_session()
    run = accept(journal)
    journal.append(*runs.start(run))
    journal.append(
        f.ModelStepStarted(run.id, 1, 1, MessageId("m_a"), "demo"),
        f.ToolIntended(run.id, 1, 2, MessageId("m_a"), call_named("c_ask"), "shell", "{}", "unsafe"),
        f.ApprovalRequested(run.id, call_named("c_ask")),
        f.ToolIntended(run.id, 1, 3, MessageId("m_a"), call_named("c_doubt"), "shell", "{}", "unsafe"),
        f.ToolStarted(run.id, call_named("c_doubt")),
        f.ToolInDoubt(run.id, call_named("c_doubt")),
        f.RunWaiting(run.id, "approval"),
    )
    facts = turns.accept_turn(
        journal.book, SESSION, journal.ids, (Text("never mind"),), None, journal.written
    )
    journal.append(*facts)
    ends = {fact.call_id: fact.outcome for fact in facts if isinstance(fact, f.ToolSettled)}
    assert ends == {"c_ask": "denied", "c_doubt": "unknown"}
    assert kinds(facts)[-2:] == ["run_cancelled", "turn_accepted"]
    assert journal.run(run.id).status == "cancelled"
    assert [r.status for r in journal.book.open_runs()] == ["accepted"]


@pytest.mark.parametrize("status", ["accepted", "running", "interrupted"])
def test_a_message_that_steers_is_queued_and_says_whom_it_is_meant_for(status: str) -> None:
    journal = journal_with_session()
    run = in_state(journal, accept(journal), status)
    steered = accept(journal, "quick", "steer")
    assert (steered.status, steered.steers, run.steers) == ("queued", run.id, None)
    # Nothing under way, only a queue that stood still: it is a turn like any other.
    journal.append(*endings.cancel(journal.book, journal.run(run.id)))
    assert accept(journal, "and this", "steer").steers is None


def in_state(journal: InMemoryJournal, run: RunRow, status: str) -> RunRow:
    if status != "accepted":
        journal.append(*runs.start(run))
    if status == "interrupted":
        journal.append(*endings.interrupt(journal.book, journal.run(run.id), journal.ids.message()))
    assert journal.run(run.id).status == status
    return journal.run(run.id)


def test_a_steering_message_moves_into_the_turn_of_its_run() -> None:
    journal = journal_with_session()
    run = in_state(journal, accept(journal), "running")
    accept(journal, "for later")
    steered = [accept(journal, text, "steer") for text in ("first", "second")]
    facts = turns.take_steering(journal.book, journal.run(run.id), journal.written)
    journal.append(*facts)
    assert [(fact.turn, fact.place, fact.from_turn) for fact in facts if isinstance(fact, f.TurnSteered)] == [
        (1, 1, 3), (1, 2, 4),
    ]  # fmt: skip
    assert [journal.run(each.id).status for each in steered] == ["completed"] * 2
    assert [journal.book.turns[number].status for number in (1, 2, 3, 4)] == ["live", "live"] + 2 * [
        "steered"
    ]
    assert journal.book.message(3, 0) is None and journal.book.message(4, 0) is None
    assert journal.run(run.id).place == 2
    row = journal.book.row
    assert row is not None and (row.live_turns, row.last_turn, row.run_id) == (2, 4, run.id)
    assert turns.take_steering(journal.book, journal.run(run.id), journal.written) == []


def test_a_fact_that_names_another_turns_message_leaves_that_turn_alone() -> None:
    journal = journal_with_session()
    run = in_state(journal, accept(journal), "running")
    waiting = accept(journal, "for later")
    for from_turn in (1, 2, 9):
        journal.append(*runs.steer(journal.run(run.id), MessageId("m_stray"), (Text("?"),), None, from_turn))
    assert journal.run(waiting.id).status == "queued" and journal.book.message(2, 0) is not None
    assert [turn.turn for turn in journal.book.live_turns(0)] == [1, 2]
    assert [turn.turn for turn in fold_transcript(journal.events).turns] == [1, 2]


@pytest.mark.parametrize("status", ["accepted", "running", "interrupted"])
def test_interrupting_cancels_the_active_run_and_keeps_queue_order(status: str) -> None:
    journal = journal_with_session()
    run = in_state(journal, accept(journal), status)
    second, third = accept(journal, "2"), accept(journal, "3")
    last = accept(journal, "4", "interrupt")
    assert journal.run(run.id).status == "cancelled"
    assert [(r.id, r.status) for r in journal.book.open_runs()] == [
        (second.id, "accepted"), (third.id, "queued"), (last.id, "queued"),
    ]  # fmt: skip


def test_a_busy_session_rejects_a_new_message_but_accepts_a_repeat() -> None:
    journal = journal_with_session()
    finish(journal, accept(journal, "kept", "reject", "k"))
    run = accept(journal)
    moves: Sequence[Callable[[], list[f.AnyFact]]] = (
        list,
        lambda: runs.start(run),
        lambda: endings.interrupt(journal.book, journal.run(run.id), journal.ids.message()),
    )
    for move in moves:
        journal.append(*move())
        with pytest.raises(Busy):
            turns.accept_turn(journal.book, SESSION, journal.ids, (Text("x"),), None, None, True, "reject")
        parts = (Text("kept"),)
        assert turns.accept_turn(journal.book, SESSION, journal.ids, parts, "k", None, True, "reject")
    # One that will not go on by itself is in nobody's way.
    facts = turns.accept_turn(journal.book, SESSION, journal.ids, (Text("x"),), None, None, False, "reject")
    assert kinds(facts) == ["run_cancelled", "turn_accepted"]


def call_named(name: str) -> CallId:
    return CallId(name)


def test_undo_takes_the_last_live_turn_and_its_run() -> None:
    journal = journal_with_session()
    finish(journal, accept(journal))
    run = accept(journal)
    journal.append(*runs.start(run))
    facts = turns.undo(journal.book, SESSION)
    journal.append(*facts)
    assert kinds(facts) == ["run_cancelled", "turns_undone"]
    assert [t.turn for t in journal.book.live_turns(0)] == [1]
    journal.append(*turns.undo(journal.book, SESSION))
    with pytest.raises(NoSuchTurn):
        turns.undo(journal.book, SESSION)


def test_undo_from_a_turn_takes_all_after_it() -> None:
    journal = journal_with_session()
    for _ in range(3):
        finish(journal, accept(journal))
    journal.append(*turns.undo(journal.book, SESSION, journal.book.turns[2].id))
    assert [t.turn for t in journal.book.live_turns(0)] == [1]
    with pytest.raises(NoSuchTurn):
        turns.undo(journal.book, SESSION, journal.book.turns[2].id)
    with pytest.raises(NoSuchTurn):
        turns.undo(journal.book, SESSION, TurnId("t_unknown"))


def test_a_retry_undoes_and_accepts_in_one_list() -> None:
    journal = journal_with_session()
    run = accept(journal)
    journal.append(*runs.start(run))
    old = journal.book.turns[1].id
    facts = turns.replace_turns(journal.book, SESSION, journal.ids, old, (Text("again"),), "retry")
    journal.append(*facts)
    assert kinds(facts) == ["run_cancelled", "turns_undone", "turn_accepted"]
    assert journal.book.turns[2].replaces == old
    assert [r.status for r in journal.book.open_runs()] == ["accepted"]


def test_clear_hides_every_turn_and_again_changes_nothing() -> None:
    journal = journal_with_session()
    finish(journal, accept(journal))
    accept(journal)
    journal.append(*turns.clear(journal.book, SESSION))
    assert not journal.book.live_turns(0) and not journal.book.open_runs()
    assert {t.status for t in journal.book.turns.values()} == {"cleared"}
    assert turns.clear(journal.book, SESSION) == []


def test_compaction_covers_the_live_turns_as_ranges() -> None:
    journal = journal_with_session()
    for _ in range(2):
        finish(journal, accept(journal))
    finish(journal, accept(journal))
    journal.append(*turns.undo(journal.book, SESSION))
    for _ in range(2):
        finish(journal, accept(journal))
    facts = turns.compact(journal.book, SESSION, 4, "so far")
    assert facts == [f.SessionCompacted(((1, 2), (4, 4)), "so far")]
    for gone in (0, 3):
        with pytest.raises(SummaryRefused):
            turns.compact(journal.book, SESSION, gone, "nothing that is there")


def test_a_turn_that_is_worked_on_cannot_be_summarised() -> None:
    journal = journal_with_session()
    accept(journal)
    with pytest.raises(RunRefused):
        turns.compact(journal.book, SESSION, 1, "too early")


def test_a_title_made_in_the_background_never_replaces_one_that_a_person_chose() -> None:
    journal = journal_with_session()
    journal.append(*turns.rename(journal.book, SESSION, "made", "model"))
    journal.append(*turns.rename(journal.book, SESSION, "chosen", "user"))
    assert turns.rename(journal.book, SESSION, "made later", "model") == []
    assert journal.book.row is not None and journal.book.row.title == "chosen"


def test_a_change_without_effect_appends_no_fact() -> None:
    journal = journal_with_session()
    assert turns.configure(journal.book, SESSION, f.SessionConfigured(model="demo")) == []
    changed = turns.configure(journal.book, SESSION, f.SessionConfigured(model="other", resume="ask"))
    assert changed == [f.SessionConfigured(model="other", resume="ask")]
    journal.append(*turns.archive(journal.book, SESSION))
    assert turns.archive(journal.book, SESSION) == []
    assert turns.archive(journal.book, SESSION, archived=False) == [f.SessionArchived(False)]


def test_the_workspace_cannot_change_while_a_run_is_open() -> None:
    elsewhere = f.SessionConfigured(workspace="/elsewhere", model="other")

    def is_refused(journal: InMemoryJournal) -> bool:
        try:
            turns.configure(journal.book, SESSION, elsewhere)
        except RunRefused as refused:
            assert "cannot be moved to another folder" in str(refused)
            return True
        return False

    journal = journal_with_session()
    assert turns.configure(journal.book, SESSION, elsewhere) == [elsewhere]
    run = accept(journal)
    refused = {run.status: is_refused(journal)}
    journal.append(*runs.start(run))
    refused[journal.run(run.id).status] = is_refused(journal)
    second = accept(journal)
    journal.append(*runs.wait(journal.run(run.id), "approval", "may it?"))
    refused[journal.run(run.id).status] = is_refused(journal)
    assert turns.configure(journal.book, SESSION, f.SessionConfigured(workspace="", model="other"))
    journal.append(*endings.cancel(journal.book, journal.run(run.id), "user", journal.written))
    refused[journal.run(second.id).status] = is_refused(journal)
    journal.append(*runs.dequeue(journal.run(second.id)))
    journal.append(*runs.start(journal.run(second.id)))
    journal.append(*endings.interrupt(journal.book, journal.run(second.id), journal.ids.message()))
    refused[journal.run(second.id).status] = is_refused(journal)
    assert refused == dict.fromkeys(("accepted", "running", "waiting", "queued", "interrupted"), True)
    journal.append(*endings.cancel(journal.book, journal.run(second.id), "user", journal.written))
    assert not is_refused(journal)


def test_delete_ends_everything() -> None:
    journal = journal_with_session()
    journal.append(*runs.start(accept(journal)))
    journal.append(*turns.delete(journal.book, SESSION))
    assert not journal.book.open_runs()
    assert journal.book.row is not None and journal.book.row.deleted_at is not None


VERBS: Sequence[Callable[[InMemoryJournal], object]] = (
    lambda j: turns.accept_turn(j.book, SESSION, j.ids, (Text("x"),)),
    lambda j: turns.replace_turns(j.book, SESSION, j.ids, TurnId("t"), (Text("x"),), "edit"),
    lambda j: turns.rename(j.book, SESSION, "x", "user"),
    lambda j: turns.configure(j.book, SESSION, f.SessionConfigured(model="x")),
    lambda j: turns.archive(j.book, SESSION),
    lambda j: turns.delete(j.book, SESSION),
    lambda j: turns.undo(j.book, SESSION),
    lambda j: turns.clear(j.book, SESSION),
    lambda j: turns.compact(j.book, SESSION, 1, "x"),
)


@pytest.mark.parametrize("verb", VERBS)
def test_nothing_can_be_done_to_a_session_that_is_not_there(
    verb: Callable[[InMemoryJournal], object],
) -> None:
    with pytest.raises(NoSuchSession):
        verb(InMemoryJournal())
    deleted = journal_with_session()
    deleted.append(*turns.delete(deleted.book, SESSION))
    with pytest.raises(NoSuchSession):
        verb(deleted)


def test_what_is_too_large_is_refused() -> None:
    journal = journal_with_session()
    with pytest.raises(TooLarge):
        turns.accept_turn(journal.book, SESSION, journal.ids, (Text("é" * 500_001),))
    with pytest.raises(TooLarge):
        turns.accept_turn(journal.book, SESSION, journal.ids, (Text("x"),), key="k" * 201)
    with pytest.raises(TooLarge):
        turns.rename(journal.book, SESSION, "t" * 201, "user")
    with pytest.raises(TooLarge):
        turns.create_session(InMemoryJournal().book, f.SessionCreated("t" * 201))
