"""Usage as a fold equals what the rows hold."""

from holdfast.domain.events import facts as f
from holdfast.domain.ids import MessageId, RunId, TurnId
from holdfast.domain.transcript.usage_totals import usage_totals
from holdfast.domain.usage import Usage
from tests.support.in_memory_session import InMemoryJournal

STEP = Usage(10, 5, 2, 7)


def test_a_session_counts_runs_that_are_over_and_a_run_counts_its_steps() -> None:
    journal = InMemoryJournal()
    journal.append(f.SessionCreated())
    for turn in (1, 2):
        run_id = RunId(f"r_{turn}")
        journal.append(f.TurnAccepted(TurnId(f"t_{turn}"), turn, MessageId(f"m_{turn}"), (), run_id))
        journal.append(
            f.RunStarted(run_id), *[f.ModelStepSettled(run_id, MessageId("m"), "stop", STEP)] * turn
        )
    journal.append(f.RunCompleted(RunId("r_1")))
    tally = usage_totals(journal.events)
    assert (
        tally.runs == {"r_1": STEP, "r_2": STEP + STEP} == {r.id: r.usage for r in journal.book.runs.values()}
    )
    assert journal.book.row is not None
    assert tally.session == STEP == journal.book.row.usage
    assert tally.total == STEP + STEP + STEP


def test_a_copied_turn_and_a_step_of_an_unknown_run_use_nothing() -> None:
    journal = InMemoryJournal()
    journal.append(f.SessionCreated(), f.TurnAccepted(TurnId("t"), 1, MessageId("m"), ()))
    journal.append(
        f.ModelStepSettled(RunId("r_x"), MessageId("m"), "stop", STEP), f.RunCompleted(RunId("r_x"))
    )
    assert usage_totals(journal.events).total == usage_totals(journal.events).session == Usage()
