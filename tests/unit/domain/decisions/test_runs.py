"""The run's state machine: every command in every state either leads where it says or is refused."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import get_args

import pytest

from holdfast.domain.decisions import endings, runs
from holdfast.domain.errors import RunRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import MessageId, ProcessId, RunId, TurnId
from holdfast.domain.limits import RECOVERY_PLACES
from holdfast.domain.state.rows import RunRow, RunStatus
from holdfast.domain.usage import Usage
from tests.support.in_memory_session import InMemoryJournal

RUN, GONE = RunId("r_1"), ProcessId("p_1")
BROKE = f.Failure("model_error", "it broke")
PATHS: Mapping[RunStatus, Sequence[f.AnyFact]] = MappingProxyType({
    "accepted": (),
    "queued": (f.TurnQueued(1, RUN),),
    "running": (f.RunStarted(RUN),),
    "waiting": (f.RunStarted(RUN), f.RunWaiting(RUN, "approval")),
    "completed": (f.RunStarted(RUN), f.RunCompleted(RUN)),
    "cancelled": (f.RunStarted(RUN), f.RunCancelled(RUN)),
    "failed": (f.RunStarted(RUN), f.RunFailed(RUN, BROKE)),
    "interrupted": (f.RunStarted(RUN), f.RunInterrupted(RUN, 1, RECOVERY_PLACES, MessageId("m_9"))),
})  # fmt: skip
Command = Callable[[InMemoryJournal, RunRow], Sequence[f.AnyFact]]
COMMANDS: Mapping[str, tuple[Command, RunStatus]] = MappingProxyType({
    "be queued": (lambda j, run: runs.queue(run), "queued"),
    "leave the queue": (lambda j, run: runs.dequeue(run), "accepted"),
    "start": (lambda j, run: runs.start(run), "running"),
    "prepare its context": (lambda j, run: runs.prepare(run, "digest", ("a memory",)), "running"),
    "begin a step": (lambda j, run: [runs.begin_step(run, MessageId("m_2"), "demo")], "running"),
    "be told more": (lambda j, run: runs.steer(run, MessageId("m_3"), (Text("hurry"),)), "running"),
    "wait": (lambda j, run: runs.wait(run, "question"), "waiting"),
    "be answered": (lambda j, run: runs.answer(run), "running"),
    "be resumed": (lambda j, run: runs.resume(run), "running"),
    "be interrupted": (lambda j, run: endings.interrupt(j.book, run, MessageId("m_4")), "interrupted"),
    "complete": (lambda j, run: runs.complete(run), "completed"),
    "fail": (lambda j, run: endings.fail(j.book, run, BROKE), "failed"),
    "be cancelled": (lambda j, run: endings.cancel(j.book, run), "cancelled"),
})  # fmt: skip


def journal_with_run(status: RunStatus) -> InMemoryJournal:
    journal = InMemoryJournal()
    accepted = f.TurnAccepted(TurnId("t_1"), 1, MessageId("m_1"), (Text("hello"),), RUN)
    journal.append(f.SessionCreated(), accepted, *PATHS[status])
    assert journal.run(RUN).status == status
    return journal


@pytest.mark.parametrize("status", get_args(RunStatus))
@pytest.mark.parametrize("verb", COMMANDS)
def test_each_command_reaches_its_status_or_is_refused(verb: str, status: RunStatus) -> None:
    journal = journal_with_run(status)
    command, leads_to = COMMANDS[verb]
    if status in runs.ALLOWED_STATUSES[verb]:
        journal.append(*command(journal, journal.run(RUN)))
        assert journal.run(RUN).status == leads_to
    else:
        with pytest.raises(RunRefused) as refused:
            command(journal, journal.run(RUN))
        assert refused.value.fields == {"run_id": RUN, "status": status, "verb": verb}


def test_every_edge_of_the_machine_has_a_command() -> None:
    assert set(COMMANDS) == set(runs.ALLOWED_STATUSES)


def test_a_run_that_is_over_takes_no_command() -> None:
    assert not any(
        {"completed", "failed", "cancelled"} & set(states) for states in runs.ALLOWED_STATUSES.values()
    )


def test_an_answer_costs_no_attempt_and_a_resumption_does() -> None:
    journal = journal_with_run("waiting")
    journal.append(*runs.answer(journal.run(RUN)))
    assert journal.run(RUN).attempts == 0
    for attempt in (1, 2):
        journal.append(*endings.interrupt(journal.book, journal.run(RUN), journal.ids.message()))
        journal.append(*runs.resume(journal.run(RUN)))
        assert journal.run(RUN).attempts == attempt


def test_an_interruption_leaves_room_before_its_notice_and_work_goes_on_after_it() -> None:
    journal = journal_with_run("running")
    journal.append(runs.begin_step(journal.run(RUN), MessageId("m_2"), "demo"))
    journal.append(*endings.interrupt(journal.book, journal.run(RUN), MessageId("m_3")))
    notice = 1 + RECOVERY_PLACES
    assert journal.run(RUN).notice_place == notice
    message = journal.book.message(1, notice)
    assert message is not None and (message.role, message.status) == ("notice", "interrupted")
    journal.append(*runs.resume(journal.run(RUN)))
    assert runs.next_place(journal.run(RUN)) == notice + 1


@pytest.mark.parametrize(("recovered", "says"), [(True, "recovered"), (False, "final")])
def test_a_notice_shows_the_recovery_status(recovered: bool, says: str) -> None:
    journal = journal_with_run("interrupted")
    journal.append(*runs.await_recovery(journal.run(RUN), GONE, 5))
    assert journal.book.messages[1, RECOVERY_PLACES].status == "pending"
    journal.append(*runs.finish_recovery(journal.run(RUN), recovered))
    assert journal.book.messages[1, RECOVERY_PLACES].status == says


def test_recovery_may_finish_after_the_run_went_on_but_not_without_an_interruption() -> None:
    journal = journal_with_run("interrupted")
    journal.append(*runs.resume(journal.run(RUN)), *runs.finish_recovery(journal.run(RUN), True))
    assert journal.book.messages[1, RECOVERY_PLACES].status == "recovered"
    with pytest.raises(RunRefused):
        runs.await_recovery(journal_with_run("running").run(RUN), GONE, 5)


def test_a_run_that_ends_leaves_no_message_streaming_and_keeps_what_was_written() -> None:
    journal = journal_with_run("running")
    journal.append(
        runs.begin_step(journal.run(RUN), MessageId("m_2"), "demo"),
        f.TextAppended(RUN, MessageId("m_2"), "Half an ans"),
    )
    facts = endings.cancel(journal.book, journal.run(RUN), "user", journal.written)
    journal.append(*facts)
    settled = facts[0]
    assert isinstance(settled, f.MessageSettled)
    assert (settled.parts, settled.status) == ((Text("Half an ans"),), "interrupted")
    assert journal.book.messages[1, 1].status == "interrupted"


def test_a_run_that_ends_unread_still_leaves_nothing_streaming() -> None:
    journal = journal_with_run("running")
    journal.append(runs.begin_step(journal.run(RUN), MessageId("m_2"), "demo"))
    facts = endings.fail(journal.book, journal.run(RUN), BROKE)
    journal.append(*facts)
    assert facts == [f.RunFailed(RUN, BROKE)]
    assert journal.book.messages[1, 1].status == "interrupted"


def test_usage_is_counted_once_when_the_run_is_over() -> None:
    journal = journal_with_run("running")
    journal.append(f.ModelStepSettled(RUN, MessageId("m_2"), "stop", Usage(7, 5)))
    journal.append(*endings.interrupt(journal.book, journal.run(RUN), MessageId("m_3")))
    journal.append(*runs.resume(journal.run(RUN)))
    journal.append(f.ModelStepSettled(RUN, MessageId("m_4"), "stop", Usage(1, 1)), f.RunCompleted(RUN))
    assert journal.book.row is not None
    assert journal.book.row.usage == journal.run(RUN).usage == Usage(8, 6)
