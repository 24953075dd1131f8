"""What each fact does to a session's rows. The one definition: stores apply it as they append, doctor
applies it to the whole journal, and the two must agree.

Deltas do nothing here: text never touches a row. A fact whose rows are missing (a journal written by a
newer program, or cut short) changes what it can and invents nothing.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

import msgspec
from msgspec.structs import replace

from holdfast.domain.clock import Instant
from holdfast.domain.decisions import memory_queue
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, Unknown
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.ids import RunId, Seq, SessionId
from holdfast.domain.ranges import numbers_in, within
from holdfast.domain.state.rows import (
    MessageRow,
    Pending,
    RunRow,
    RunStatus,
    SessionRow,
    SessionStatus,
    ToolRow,
    TurnRow,
)
from holdfast.domain.state.session_state import Book, MemoryBook

_MOVES_CONTEXT = frozenset({
    f.SessionConfigured, f.SessionCleared, f.SessionCompacted, f.SessionForked, f.SessionContinued,
    f.TurnAccepted, f.TurnSteered, f.TurnsUndone, f.TurnsRestored, f.MessageSettled, f.ToolSettled,
    f.ToolResolved, f.RunInterrupted, f.RunCancelled, f.RunFailed, f.ContextPrepared,
})  # fmt: skip
_IS_ACTIVITY = frozenset({
    f.SessionCreated, f.TurnAccepted, f.TurnSteered, f.ToolSettled,
    f.RunWaiting, f.RunCompleted, f.RunCancelled, f.RunFailed, f.RunInterrupted,
})  # fmt: skip


class _At(msgspec.Struct, frozen=True):
    """Where and when the fact being applied happened."""

    session_id: SessionId
    seq: Seq
    at: Instant


def project(book: Book, session_id: SessionId, seq: Seq, at: Instant, fact: f.AnyFact | Unknown) -> None:
    """Bring `book` from the state before `fact` to the state after it."""
    rule = _RULES.get(type(fact))
    if rule is not None:
        rule(book, fact, _At(session_id, seq, at))
    cls = type(fact)
    if cls in _MOVES_CONTEXT or cls in _IS_ACTIVITY:
        _touch(book, cls in _MOVES_CONTEXT, cls in _IS_ACTIVITY, seq, at)


def fold(session_id: SessionId, events: Iterable[Event], book: MemoryBook | None = None) -> MemoryBook:
    """The rows that `events` add up to, on top of `book` where one is given."""
    book = book or MemoryBook()
    for event in events:
        if event.kind not in f.DELTA_KINDS:
            project(book, session_id, event.seq, event.at, event.fact)
    return book


def key_digest(parts: tuple[AnyPart, ...]) -> str:
    """What a send's key stands for, so that the same key with another message is refused."""
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=8).hexdigest()


def _touch(book: Book, context: bool, activity: bool, seq: Seq, at: Instant) -> None:
    row = book.session()
    if row is not None:
        version = seq if context else row.context_version
        # A clock set back must not sink a session that was just used.
        updated_at = max(at, row.updated_at) if activity else row.updated_at
        book.put_session(replace(row, context_version=version, updated_at=updated_at))


def _session_created(book: Book, fact: f.SessionCreated, at: _At) -> None:
    book.put_session(SessionRow(
        id=at.session_id, created_at=at.at, updated_at=at.at,
        title=fact.title, title_by="user" if fact.title else "",
        agent=fact.agent, model=fact.model, workspace=fact.workspace,
        previous_session_id=fact.previous_session_id, remember=fact.remember,
    ))  # fmt: skip


def _change_session(book: Book, **changes: Any) -> None:
    row = book.session()
    if row is not None:
        book.put_session(replace(row, **changes))


def _session_renamed(book: Book, fact: f.SessionRenamed, at: _At) -> None:
    row = book.session()
    # Whichever comes first: a title made in the background never replaces one that a person chose.
    if row is not None and not (fact.by == "model" and row.title_by == "user"):
        book.put_session(replace(row, title=fact.title, title_by=fact.by))


def _session_configured(book: Book, fact: f.SessionConfigured, at: _At) -> None:
    changes = {name: getattr(fact, name) for name in fact.__struct_fields__}
    _change_session(book, **{name: value for name, value in changes.items() if value is not None})


def _session_forked(book: Book, fact: f.SessionForked, at: _At) -> None:
    _change_session(book, parent_session_id=fact.source_session_id)


def _session_cleared(book: Book, fact: f.SessionCleared, at: _At) -> None:
    _end_turns(book, [t for t in book.live_turns(0) if t.turn <= fact.through_turn], "cleared")


def _turns_undone(book: Book, fact: f.TurnsUndone, at: _At) -> None:
    _end_turns(book, list(book.live_turns(fact.from_turn)), "undone")
    memory_queue.undo(book, fact.from_turn)


def _turns_restored(book: Book, fact: f.TurnsRestored, at: _At) -> None:
    if fact.from_turn:
        _end_turns(book, list(book.live_turns(fact.from_turn)), "undone")
        memory_queue.undo(book, fact.from_turn)
    row = book.session()
    if row is None:
        return
    back = 0
    for number in numbers_in(within(fact.turns, row.last_turn)):
        turn = book.turn(number)
        if turn is not None and turn.status == "undone":
            book.put_turn(replace(turn, status="live"))
            back += 1
    book.put_session(replace(row, live_turns=row.live_turns + back))
    for number, owner in fact.owed:
        memory_queue.mark_again(book, number, owner, at.at)


def _end_turns(book: Book, turns: list[TurnRow], status: Any) -> None:
    for turn in turns:
        book.put_turn(replace(turn, status=status))
    row = book.session()
    if row is not None:
        book.put_session(replace(row, live_turns=row.live_turns - len(turns)))


def _session_continued(book: Book, fact: f.SessionContinued, at: _At) -> None:
    _change_session(book, successor_session_id=fact.successor_session_id)
    moved = list(book.live_turns(fact.from_turn)) if fact.from_turn else []
    for turn in moved:
        book.drop_message(turn.turn, 0)
        run = book.run(turn.run_id) if turn.run_id is not None else None
        if run is not None and run.status == "queued":
            _end_run(book, run.id, at, status="completed")
    if moved:
        _end_turns(book, moved, "moved")
        _change_session(book, status="idle")


def _session_archived(book: Book, fact: f.SessionArchived, at: _At) -> None:
    _change_session(book, archived=fact.archived)


def _session_deleted(book: Book, fact: f.SessionDeleted, at: _At) -> None:
    _change_session(book, deleted_at=at.at)
    memory_queue.drop_for_deleted_session(book, fact.notes)


def _turn_accepted(book: Book, fact: f.TurnAccepted, at: _At) -> None:
    book.put_turn(TurnRow(
        turn=fact.turn, id=fact.turn_id, seq=at.seq, run_id=fact.run_id, replaces=fact.replaces,
        key=fact.key, key_digest=key_digest(fact.parts) if fact.key is not None else None,
    ))  # fmt: skip
    book.put_message(MessageRow(fact.turn, 0, fact.message_id, "user", "settled", at.seq, at.seq))
    if fact.run_id is not None:
        book.put_run(RunRow(fact.run_id, fact.turn, steers=fact.steers))
    row = book.session()
    if row is not None:
        last = max(row.last_turn, fact.turn)
        book.put_session(replace(row, last_turn=last, live_turns=row.live_turns + 1))


def _turn_queued(book: Book, fact: f.TurnQueued, at: _At) -> None:
    _move_run(book, fact.run_id, status="queued")


def _turn_dequeued(book: Book, fact: f.TurnDequeued, at: _At) -> None:
    _move_run(book, fact.run_id, status="accepted")


def _turn_steered(book: Book, fact: f.TurnSteered, at: _At) -> None:
    row = MessageRow(fact.turn, fact.place, fact.message_id, "user", "settled", at.seq, at.seq, fact.run_id)
    book.put_message(row)
    _reach_place(book, fact.run_id, fact.place)
    moved = book.message(fact.from_turn, 0)
    if moved is not None and moved.id == fact.message_id and fact.from_turn != fact.turn:
        book.drop_message(fact.from_turn, 0)
        _end_steered(book, fact.from_turn, at)


def _end_steered(book: Book, number: int, at: _At) -> None:
    """The turn whose message was told to another run has nothing left to be done, nor to be shown."""
    turn = book.turn(number)
    if turn is not None and turn.status == "live":
        _end_turns(book, [turn], "steered")
    run = book.run(turn.run_id) if turn is not None and turn.run_id is not None else None
    if run is not None and run.status == "queued":
        _end_run(book, run.id, at, status="completed")


def _move_run(book: Book, run_id: RunId, **changes: Any) -> None:
    run = book.run(run_id)
    if run is not None:
        book.put_run(replace(run, **changes))


def _reach_place(book: Book, run_id: RunId | None, place: int, steps: int = 0) -> None:
    run = book.run(run_id) if run_id is not None else None
    if run is not None and (place > run.place or steps):
        book.put_run(replace(run, place=max(run.place, place), steps=run.steps + steps))


def _run_started(book: Book, fact: f.RunStarted, at: _At) -> None:
    _move_run(book, fact.run_id, status="running", started_at=at.at)
    _change_session(book, status="working", run_id=fact.run_id)


def _run_waiting(book: Book, fact: f.RunWaiting, at: _At) -> None:
    _move_run(book, fact.run_id, status="waiting", waiting=fact.reason, detail=fact.detail)
    _change_session(book, status="needs_you")


def _run_resumed(book: Book, fact: f.RunResumed, at: _At) -> None:
    run = book.run(fact.run_id)
    if run is not None:
        # A person's answer is no attempt; it leaves both counts alone.
        stalled = run.stalled + (fact.attempt > run.attempts)
        allowances = run.allowances + (run.waiting == "limit")
        changes = {"status": "running", "waiting": None, "detail": "", "ended_at": None, "stalled": stalled}
        book.put_run(replace(run, attempts=fact.attempt, allowances=allowances, **changes))
    _change_session(book, status="working", run_id=fact.run_id)


def _run_completed(book: Book, fact: f.RunCompleted, at: _At) -> None:
    run = book.run(fact.run_id)
    if fact.owed and run is not None:
        memory_queue.mark(book, run.turn, fact.owner, at.at)
    _end_run(book, fact.run_id, at, status="completed")


def _run_cancelled(book: Book, fact: f.RunCancelled, at: _At) -> None:
    _end_run(book, fact.run_id, at, status="cancelled")


def _run_failed(book: Book, fact: f.RunFailed, at: _At) -> None:
    _end_run(book, fact.run_id, at, status="failed", failure=fact.failure)


def _run_interrupted(book: Book, fact: f.RunInterrupted, at: _At) -> None:
    _end_run(book, fact.run_id, at, status="interrupted", notice_place=fact.place)
    if fact.orderly:
        # It is not this run that takes its processes down.
        _move_run(book, fact.run_id, stalled=0)
    if fact.asks:
        _change_session(book, status="needs_you")
    _reach_place(book, fact.run_id, fact.place)
    book.put_message(MessageRow(
        fact.turn, fact.place, fact.message_id, "notice", "interrupted", at.seq, at.seq, fact.run_id
    ))  # fmt: skip


def _end_run(book: Book, run_id: RunId, at: _At, status: RunStatus, **changes: Any) -> None:
    run = book.run(run_id)
    if run is None:
        return
    for message in book.streaming(run.turn):
        book.put_message(replace(message, status="interrupted"))
    book.put_run(replace(run, status=status, waiting=None, detail="", ended_at=at.at, **changes))
    row = book.session()
    # A queued run that is cancelled ends without having been the one that works.
    if row is not None and (row.run_id == run_id or run.status != "queued"):
        row = replace(row, status=_status_after(book, status), run_id=None)
    if row is not None:
        # An interrupted run is counted when it is over at last, so that it is counted once.
        counts = status != "interrupted"
        book.put_session(replace(row, usage=row.usage + run.usage if counts else row.usage))


def _status_after(book: Book, ended: RunStatus) -> SessionStatus:
    """What the list shows once a run has ended: behind one that completed the queue goes on by itself."""
    if ended == "failed" or ended == "interrupted":
        return ended
    if not any(run.status in ("queued", "accepted") for run in book.open_runs()):
        return "idle"
    return "working" if ended == "completed" else "needs_you"


def _recovery_pending(book: Book, fact: f.RecoveryPending, at: _At) -> None:
    _change_notice(book, fact.turn, fact.place, status="pending", body_seq=at.seq)
    _move_run(book, fact.run_id, pending=Pending(fact.process_id, fact.since or at.at, fact.reads))


def _recovery_finished(book: Book, fact: f.RecoveryFinished, at: _At) -> None:
    status = "recovered" if fact.recovered else "final"
    _change_notice(book, fact.turn, fact.place, status=status, body_seq=at.seq)
    _move_run(book, fact.run_id, pending=None)


def _change_notice(book: Book, turn: int, place: int, **changes: Any) -> None:
    notice = book.message(turn, place)
    if notice is not None and notice.role == "notice":
        book.put_message(replace(notice, **changes))


def _model_step_started(book: Book, fact: f.ModelStepStarted, at: _At) -> None:
    # One that another model is asked for, before a word of it was written, is the same step.
    is_begun = book.message(fact.turn, fact.place) is not None
    book.put_message(MessageRow(
        fact.turn, fact.place, fact.message_id, "assistant", "streaming", at.seq, run_id=fact.run_id
    ))  # fmt: skip
    _reach_place(book, fact.run_id, fact.place, steps=0 if is_begun else 1)


def _model_step_settled(book: Book, fact: f.ModelStepSettled, at: _At) -> None:
    run = book.run(fact.run_id)
    if run is not None:
        book.put_run(replace(run, usage=run.usage + fact.usage))


def _message_settled(book: Book, fact: f.MessageSettled, at: _At) -> None:
    _settle_row(book, fact, fact.message_id, fact.role, at)


def _tool_settled(book: Book, fact: f.ToolSettled, at: _At) -> None:
    _settle_row(book, fact, fact.call_id, "tool", at)
    tool = book.tool(fact.call_id)
    if tool is not None:
        book.put_tool(replace(tool, state="settled"))


def _settle_row(
    book: Book, fact: f.MessageSettled | f.ToolSettled, row_id: str, role: f.Role, at: _At
) -> None:
    before = book.message(fact.turn, fact.place)
    book.put_message(MessageRow(
        fact.turn, fact.place, row_id, role, fact.status,
        before.first_seq if before else at.seq, at.seq, fact.run_id, fact.late,
    ))  # fmt: skip
    run = book.run(fact.run_id) if fact.run_id is not None and fact.status == "settled" else None
    if run is not None:
        book.put_run(replace(run, place=max(run.place, fact.place), stalled=0))


def _tool_intended(book: Book, fact: f.ToolIntended, at: _At) -> None:
    book.put_tool(ToolRow(fact.call_id, fact.run_id, fact.turn, fact.place, fact.name, fact.effect))
    book.put_message(MessageRow(
        fact.turn, fact.place, fact.call_id, "tool", "streaming", at.seq, run_id=fact.run_id
    ))  # fmt: skip
    _reach_place(book, fact.run_id, fact.place)


def _change_tool(book: Book, call_id: Any, **changes: Any) -> None:
    tool = book.tool(call_id)
    if tool is not None:
        book.put_tool(replace(tool, **changes))


def _tool_started(book: Book, fact: f.ToolStarted, at: _At) -> None:
    _change_tool(book, fact.call_id, state="started")


def _tool_in_doubt(book: Book, fact: f.ToolInDoubt, at: _At) -> None:
    _change_tool(book, fact.call_id, state="in_doubt")


def _tool_resolved(book: Book, fact: f.ToolResolved, at: _At) -> None:
    # A call that is to run again is not one that never ran: if nothing comes of it, its outcome is unknown.
    approved = {"approval": "approve"} if fact.decision == "rerun" and fact.by == "user" else {}
    _change_tool(book, fact.call_id, state="resolved", **approved)


def _approval_requested(book: Book, fact: f.ApprovalRequested, at: _At) -> None:
    _change_tool(book, fact.call_id, approval="requested")


def _approval_resolved(book: Book, fact: f.ApprovalResolved, at: _At) -> None:
    _change_tool(book, fact.call_id, approval=fact.decision)


def _question_asked(book: Book, fact: f.QuestionAsked, at: _At) -> None:
    _change_tool(book, fact.call_id, approval="asked")


def _question_answered(book: Book, fact: f.QuestionAnswered, at: _At) -> None:
    _change_tool(book, fact.call_id, approval="answered")


def _question_closed(book: Book, fact: f.QuestionClosed, at: _At) -> None:
    _change_tool(book, fact.call_id, approval="closed")


def _memory_started(book: Book, fact: f.MemoryCommitStarted, at: _At) -> None:
    memory_queue.note_started(book, fact, at.at)


def _memory_outcome(book: Book, fact: Any, at: _At) -> None:
    memory_queue.note_outcome(book, fact, at.at)


def _memory_forgotten(book: Book, fact: f.MemoryForgotten, at: _At) -> None:
    memory_queue.note_forgotten(book, fact, at.at)


_RULES: Mapping[type, Callable[[Book, Any, _At], None]] = MappingProxyType({
    f.SessionCreated: _session_created,
    f.SessionRenamed: _session_renamed,
    f.SessionConfigured: _session_configured,
    f.SessionForked: _session_forked,
    f.SessionCleared: _session_cleared,
    f.SessionContinued: _session_continued,
    f.SessionArchived: _session_archived,
    f.SessionDeleted: _session_deleted,
    f.TurnAccepted: _turn_accepted,
    f.TurnQueued: _turn_queued,
    f.TurnDequeued: _turn_dequeued,
    f.TurnSteered: _turn_steered,
    f.TurnsUndone: _turns_undone,
    f.TurnsRestored: _turns_restored,
    f.RunStarted: _run_started,
    f.RunWaiting: _run_waiting,
    f.RunResumed: _run_resumed,
    f.RunCompleted: _run_completed,
    f.RunCancelled: _run_cancelled,
    f.RunFailed: _run_failed,
    f.RunInterrupted: _run_interrupted,
    f.RecoveryPending: _recovery_pending,
    f.RecoveryFinished: _recovery_finished,
    f.ModelStepStarted: _model_step_started,
    f.ModelStepSettled: _model_step_settled,
    f.MessageSettled: _message_settled,
    f.ToolIntended: _tool_intended,
    f.ToolStarted: _tool_started,
    f.ToolInDoubt: _tool_in_doubt,
    f.ToolResolved: _tool_resolved,
    f.ToolSettled: _tool_settled,
    f.ApprovalRequested: _approval_requested,
    f.ApprovalResolved: _approval_resolved,
    f.QuestionAsked: _question_asked,
    f.QuestionAnswered: _question_answered,
    f.QuestionClosed: _question_closed,
    f.MemoryCommitStarted: _memory_started,
    f.MemoryCommitted: _memory_outcome,
    f.MemoryCommitFailed: _memory_outcome,
    f.MemoryInDoubt: _memory_outcome,
    f.MemoryResolved: _memory_outcome,
    f.MemoryForgotten: _memory_forgotten,
})  # fmt: skip
