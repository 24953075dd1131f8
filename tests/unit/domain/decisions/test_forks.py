"""A fork is a copy of live, settled turns that reads the same and has nothing to do."""

import pytest

from holdfast.domain.context.context import ModelProfile, build_request
from holdfast.domain.decisions import forks
from holdfast.domain.errors import NoSuchSession, NoSuchTurn
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text, ToolCall
from holdfast.domain.ids import CallId, MessageId, RunId, TurnId
from holdfast.domain.limits import TITLE_CHARS_MAX
from holdfast.domain.transcript.transcript import fold
from tests.support.in_memory_session import SESSION, InMemoryJournal


def source() -> InMemoryJournal:
    """Four turns: one undone, one steered with a call and late output, one continued, one under way."""
    journal = InMemoryJournal()
    journal.append(f.SessionCreated("Plans", model="demo"))
    for turn in (1, 2, 3, 4):
        run_id = RunId(f"r_{turn}")
        said = (Text(f"question {turn}"),)
        journal.append(
            f.TurnAccepted(TurnId(f"t_{turn}"), turn, MessageId(f"u_{turn}"), said, run_id, f"key {turn}")
        )
        journal.append(f.RunStarted(run_id))
        if turn == 1:
            journal.append(f.RunCompleted(run_id), f.TurnsUndone(1))
        if turn == 2:
            _converse(journal, run_id)
        if turn == 3:
            partial = f.MessageSettled(
                3, 1, MessageId("half"), "assistant", (Text("Ro"),), "", run_id, "interrupted"
            )
            rest = f.MessageSettled(
                3, 2, MessageId("rest"), "assistant", (Text("ses"),), "", run_id, "settled", MessageId("half")
            )
            journal.append(partial, rest, f.RunCompleted(run_id))
    return journal


def _converse(journal: InMemoryJournal, run_id: RunId) -> None:
    call = (ToolCall("c_1", "shell", "{}"),)
    journal.append(
        f.MessageSettled(2, 1, MessageId("calls"), "assistant", call, "digest", run_id),
        f.TurnSteered(run_id, 2, 2, MessageId("steer"), (Text("hurry"),)),
        f.ToolIntended(run_id, 2, 3, MessageId("calls"), CallId("c_1"), "shell", "{}", "pure"),
        f.ToolSettled(2, 3, MessageId("calls"), CallId("c_1"), "shell", "done", (Text("42"),), "d", run_id),
        f.MessageSettled(
            2, 4, MessageId("late"), "assistant", (Text("late"),), "", run_id, "recovered", None, True
        ),
        f.RunCompleted(run_id),
    )


def bodies(journal: InMemoryJournal) -> list[f.Body]:
    found = [m.events[0].fact for m in journal.pages() if m.row.body_seq]
    return [fact for fact in found if isinstance(fact, f.Body)]


def fork_of(journal: InMemoryJournal, through_turn: int | None = None) -> InMemoryJournal:
    child = InMemoryJournal()
    facts = forks.fork(journal.book, SESSION, journal.head, bodies(journal), journal.ids, through_turn)
    child.append(*facts)
    return child


def test_a_fork_copies_live_settled_turns_numbered_anew() -> None:
    child = fork_of(source())
    turns = fold(child.events).turns
    assert [turn.turn for turn in turns] == [1, 2]
    said = [[e.parts[0].text if isinstance(e.parts[0], Text) else "call" for e in t.entries] for t in turns]
    assert said == [["question 2", "call", "hurry", "42"], ["question 3", "Ro", "ses"]]
    assert child.book.row is not None
    assert (child.book.row.title, child.book.row.parent_session_id) == ("Plans (branch)", SESSION)


@pytest.mark.parametrize(
    ("title", "branch"),
    [
        ("Plans", "Plans (branch)"),
        ("Plans (branch)", "Plans (branch 2)"),
        ("Plans (branch 9)", "Plans (branch 10)"),
        ("The (branch) of Rome", "The (branch) of Rome (branch)"),
        ("", ""),
        ("x" * TITLE_CHARS_MAX, "x" * (TITLE_CHARS_MAX - 9) + " (branch)"),
    ],
)
def test_a_branch_has_a_title_of_its_own(title: str, branch: str) -> None:
    assert forks.branch_title(title) == branch


def test_a_fork_has_no_runs_and_no_keys() -> None:
    child = fork_of(source())
    assert not child.book.runs and not child.book.tools
    assert all(turn.key is None and turn.run_id is None for turn in child.book.turns.values())
    assert all(row.run_id is None for row in child.book.messages.values())


def test_a_fork_names_its_messages_anew_and_keeps_who_made_which_call() -> None:
    journal = source()
    child = fork_of(journal)
    facts = [event.fact for event in child.events]
    old = {row.id for row in journal.book.messages.values() if row.role != "tool"}
    new = [fact.message_id for fact in facts if isinstance(fact, f.TurnAccepted | f.MessageSettled)]
    assert not old & set(new) and len(set(new)) == len(new)
    settled = {fact.parts: fact for fact in facts if isinstance(fact, f.MessageSettled)}
    [tool] = [fact for fact in facts if isinstance(fact, f.ToolSettled)]
    assert tool.message_id == settled[(ToolCall("c_1", "shell", "{}"),)].message_id
    assert settled[(Text("ses"),)].continues == settled[(Text("Ro"),)].message_id


def test_the_model_is_shown_the_same_in_a_fork() -> None:
    journal = source()
    journal.append(f.TurnsUndone(4), f.RunCancelled(RunId("r_4")))
    child = fork_of(journal)
    profile = ModelProfile("demo", 100_000)
    assert build_request(fold(child.events), "", profile) == build_request(fold(journal.events), "", profile)


def test_a_fork_up_to_a_turn_leaves_out_what_follows() -> None:
    assert [turn.turn for turn in fold(fork_of(source(), 2).events).turns] == [1]
    for turn in (1, 9):
        with pytest.raises(NoSuchTurn):
            fork_of(source(), turn)


def test_a_session_that_is_not_there_cannot_be_forked() -> None:
    with pytest.raises(NoSuchSession):
        forks.fork(InMemoryJournal().book, SESSION, 0, [], InMemoryJournal().ids)


def test_a_fork_of_a_fork_reads_the_same() -> None:
    child = fork_of(source())
    again = fork_of(child)
    profile = ModelProfile("demo", 100_000)
    assert build_request(fold(again.events), "", profile) == build_request(fold(child.events), "", profile)
