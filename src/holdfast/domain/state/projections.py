"""Apply each fact to a session's rows.

This is the only definition: stores apply it as they append, doctor applies it to the whole journal, and the
two must agree. Deltas change no row. A fact whose rows are missing (a newer program wrote the journal, or it
was cut short) changes the rows that exist and invents none.
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
from holdfast.domain.events.codec import Event, UnknownFact
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.ids import RunId, Seq, SessionId
from holdfast.domain.ranges import clip_ranges, expand_ranges
from holdfast.domain.state.rows import (
    MessageRow,
    PendingRecovery,
    RunRow,
    RunStatus,
    SessionRow,
    SessionStatus,
    ToolRow,
    TurnRow,
)
from holdfast.domain.state.session_state import InMemorySessionState, SessionState

_CHANGES_CONTEXT = frozenset({
    f.SessionConfigured, f.SessionCleared, f.SessionCompacted, f.SessionForked, f.SessionContinued,
    f.TurnAccepted, f.TurnSteered, f.TurnsUndone, f.TurnsRestored, f.MessageSettled, f.ToolSettled,
    f.ToolResolved, f.RunInterrupted, f.RunCancelled, f.RunFailed, f.ContextPrepared,
})  # fmt: skip
_IS_ACTIVITY = frozenset({
    f.SessionCreated, f.TurnAccepted, f.TurnSteered, f.ToolSettled,
    f.RunWaiting, f.RunCompleted, f.RunCancelled, f.RunFailed, f.RunInterrupted,
})  # fmt: skip


class _EventInfo(msgspec.Struct, frozen=True):
    """The session, number and time of the fact that is being applied."""

    session_id: SessionId
    seq: Seq
    at: Instant


def project(
    state: SessionState, session_id: SessionId, seq: Seq, at: Instant, fact: f.AnyFact | UnknownFact
) -> None:
    """Update `state` with one fact."""
    handler = _HANDLERS.get(type(fact))
    if handler is not None:
        handler(state, fact, _EventInfo(session_id, seq, at))
    cls = type(fact)
    if cls in _CHANGES_CONTEXT or cls in _IS_ACTIVITY:
        _touch(state, cls in _CHANGES_CONTEXT, cls in _IS_ACTIVITY, seq, at)


def fold(
    session_id: SessionId, events: Iterable[Event], state: InMemorySessionState | None = None
) -> InMemorySessionState:
    """Return the rows that follow from `events`, starting from `state` if it is given."""
    state = state or InMemorySessionState()
    for event in events:
        if event.kind not in f.DELTA_KINDS:
            project(state, session_id, event.seq, event.at, event.fact)
    return state


def message_key_digest(parts: tuple[AnyPart, ...]) -> str:
    """Return a digest of a message, to refuse the same key with another message."""
    return hashlib.blake2b(msgspec.json.encode(parts), digest_size=8).hexdigest()


def _touch(state: SessionState, context: bool, activity: bool, seq: Seq, at: Instant) -> None:
    row = state.session()
    if row is not None:
        version = seq if context else row.context_version
        # If the clock was set back, a session that was just used must not move down the list.
        updated_at = max(at, row.updated_at) if activity else row.updated_at
        state.put_session(replace(row, context_version=version, updated_at=updated_at))


def _session_created(state: SessionState, fact: f.SessionCreated, event: _EventInfo) -> None:
    state.put_session(SessionRow(
        id=event.session_id, created_at=event.at, updated_at=event.at,
        title=fact.title, title_by="user" if fact.title else "",
        agent=fact.agent, model=fact.model, workspace=fact.workspace,
        previous_session_id=fact.previous_session_id, remember=fact.remember,
    ))  # fmt: skip


def _update_session(state: SessionState, **changes: Any) -> None:
    row = state.session()
    if row is not None:
        state.put_session(replace(row, **changes))


def _session_renamed(state: SessionState, fact: f.SessionRenamed, event: _EventInfo) -> None:
    row = state.session()
    # A background title never replaces one that a person chose, whichever comes first.
    if row is not None and not (fact.by == "model" and row.title_by == "user"):
        state.put_session(replace(row, title=fact.title, title_by=fact.by))


def _session_configured(state: SessionState, fact: f.SessionConfigured, event: _EventInfo) -> None:
    changes = {name: getattr(fact, name) for name in fact.__struct_fields__}
    _update_session(state, **{name: value for name, value in changes.items() if value is not None})


def _session_forked(state: SessionState, fact: f.SessionForked, event: _EventInfo) -> None:
    _update_session(state, parent_session_id=fact.source_session_id)


def _session_cleared(state: SessionState, fact: f.SessionCleared, event: _EventInfo) -> None:
    _end_turns(state, [t for t in state.live_turns(0) if t.turn <= fact.through_turn], "cleared")


def _turns_undone(state: SessionState, fact: f.TurnsUndone, event: _EventInfo) -> None:
    _end_turns(state, list(state.live_turns(fact.from_turn)), "undone")
    memory_queue.remove_turns(state, fact.from_turn)


def _turns_restored(state: SessionState, fact: f.TurnsRestored, event: _EventInfo) -> None:
    if fact.from_turn:
        _end_turns(state, list(state.live_turns(fact.from_turn)), "undone")
        memory_queue.remove_turns(state, fact.from_turn)
    row = state.session()
    if row is None:
        return
    restored_count = 0
    for number in expand_ranges(clip_ranges(fact.turns, row.last_turn)):
        turn = state.turn(number)
        if turn is not None and turn.status == "undone":
            state.put_turn(replace(turn, status="live"))
            restored_count += 1
    state.put_session(replace(row, live_turns=row.live_turns + restored_count))
    for number, owner in fact.owed:
        memory_queue.enqueue_restored_turn(state, number, owner, event.at)


def _end_turns(state: SessionState, turns: list[TurnRow], status: Any) -> None:
    for turn in turns:
        state.put_turn(replace(turn, status=status))
    row = state.session()
    if row is not None:
        state.put_session(replace(row, live_turns=row.live_turns - len(turns)))


def _session_continued(state: SessionState, fact: f.SessionContinued, event: _EventInfo) -> None:
    _update_session(state, successor_session_id=fact.successor_session_id)
    moved_turns = list(state.live_turns(fact.from_turn)) if fact.from_turn else []
    for turn in moved_turns:
        state.delete_message(turn.turn, 0)
        run = state.run(turn.run_id) if turn.run_id is not None else None
        if run is not None and run.status == "queued":
            _end_run(state, run.id, event, status="completed")
    if moved_turns:
        _end_turns(state, moved_turns, "moved")
        _update_session(state, status="idle")


def _session_archived(state: SessionState, fact: f.SessionArchived, event: _EventInfo) -> None:
    _update_session(state, archived=fact.archived)


def _session_deleted(state: SessionState, fact: f.SessionDeleted, event: _EventInfo) -> None:
    _update_session(state, deleted_at=event.at)
    memory_queue.drop_for_deleted_session(state, fact.notes)


def _turn_accepted(state: SessionState, fact: f.TurnAccepted, event: _EventInfo) -> None:
    state.put_turn(TurnRow(
        turn=fact.turn, id=fact.turn_id, seq=event.seq, run_id=fact.run_id, replaces=fact.replaces,
        key=fact.key, key_digest=message_key_digest(fact.parts) if fact.key is not None else None,
    ))  # fmt: skip
    state.put_message(MessageRow(fact.turn, 0, fact.message_id, "user", "settled", event.seq, event.seq))
    if fact.run_id is not None:
        state.put_run(RunRow(fact.run_id, fact.turn, steers=fact.steers))
    row = state.session()
    if row is not None:
        last = max(row.last_turn, fact.turn)
        state.put_session(replace(row, last_turn=last, live_turns=row.live_turns + 1))


def _turn_queued(state: SessionState, fact: f.TurnQueued, event: _EventInfo) -> None:
    _update_run(state, fact.run_id, status="queued")


def _turn_dequeued(state: SessionState, fact: f.TurnDequeued, event: _EventInfo) -> None:
    _update_run(state, fact.run_id, status="accepted")


def _turn_steered(state: SessionState, fact: f.TurnSteered, event: _EventInfo) -> None:
    row = MessageRow(
        fact.turn, fact.place, fact.message_id, "user", "settled", event.seq, event.seq, fact.run_id
    )
    state.put_message(row)
    _advance_place(state, fact.run_id, fact.place)
    original = state.message(fact.from_turn, 0)
    if original is not None and original.id == fact.message_id and fact.from_turn != fact.turn:
        state.delete_message(fact.from_turn, 0)
        _end_steered(state, fact.from_turn, event)


def _end_steered(state: SessionState, number: int, event: _EventInfo) -> None:
    """End a queued turn whose message went to another run."""
    turn = state.turn(number)
    if turn is not None and turn.status == "live":
        _end_turns(state, [turn], "steered")
    run = state.run(turn.run_id) if turn is not None and turn.run_id is not None else None
    if run is not None and run.status == "queued":
        _end_run(state, run.id, event, status="completed")


def _update_run(state: SessionState, run_id: RunId, **changes: Any) -> None:
    run = state.run(run_id)
    if run is not None:
        state.put_run(replace(run, **changes))


def _advance_place(state: SessionState, run_id: RunId | None, place: int, steps: int = 0) -> None:
    run = state.run(run_id) if run_id is not None else None
    if run is not None and (place > run.place or steps):
        state.put_run(replace(run, place=max(run.place, place), steps=run.steps + steps))


def _run_started(state: SessionState, fact: f.RunStarted, event: _EventInfo) -> None:
    _update_run(state, fact.run_id, status="running", started_at=event.at)
    _update_session(state, status="working", run_id=fact.run_id)


def _run_waiting(state: SessionState, fact: f.RunWaiting, event: _EventInfo) -> None:
    _update_run(state, fact.run_id, status="waiting", waiting=fact.reason, detail=fact.detail)
    _update_session(state, status="needs_you")


def _run_resumed(state: SessionState, fact: f.RunResumed, event: _EventInfo) -> None:
    run = state.run(fact.run_id)
    if run is not None:
        # A person's answer is not an attempt, so it leaves both counts alone.
        stalled = run.stalled + (fact.attempt > run.attempts)
        allowances = run.allowances + (run.waiting == "limit")
        changes = {"status": "running", "waiting": None, "detail": "", "ended_at": None, "stalled": stalled}
        state.put_run(replace(run, attempts=fact.attempt, allowances=allowances, **changes))
    _update_session(state, status="working", run_id=fact.run_id)


def _run_completed(state: SessionState, fact: f.RunCompleted, event: _EventInfo) -> None:
    run = state.run(fact.run_id)
    if fact.owed and run is not None:
        memory_queue.enqueue_turn(state, run.turn, fact.owner, event.at)
    _end_run(state, fact.run_id, event, status="completed")


def _run_cancelled(state: SessionState, fact: f.RunCancelled, event: _EventInfo) -> None:
    _end_run(state, fact.run_id, event, status="cancelled")


def _run_failed(state: SessionState, fact: f.RunFailed, event: _EventInfo) -> None:
    _end_run(state, fact.run_id, event, status="failed", failure=fact.failure)


def _run_interrupted(state: SessionState, fact: f.RunInterrupted, event: _EventInfo) -> None:
    _end_run(state, fact.run_id, event, status="interrupted", notice_place=fact.place)
    if fact.orderly:
        # An orderly stop says nothing against this run.
        _update_run(state, fact.run_id, stalled=0)
    if fact.asks:
        _update_session(state, status="needs_you")
    _advance_place(state, fact.run_id, fact.place)
    state.put_message(MessageRow(
        fact.turn, fact.place, fact.message_id, "notice", "interrupted", event.seq, event.seq, fact.run_id
    ))  # fmt: skip


def _end_run(
    state: SessionState, run_id: RunId, event: _EventInfo, status: RunStatus, **changes: Any
) -> None:
    run = state.run(run_id)
    if run is None:
        return
    for message in state.streaming_messages(run.turn):
        state.put_message(replace(message, status="interrupted"))
    state.put_run(replace(run, status=status, waiting=None, detail="", ended_at=event.at, **changes))
    row = state.session()
    # A queued run that is cancelled was never the session's current run.
    if row is not None and (row.run_id == run_id or run.status != "queued"):
        row = replace(row, status=_status_after(state, status), run_id=None)
    if row is not None:
        # An interrupted run is counted when it finally ends, so it counts once.
        counts = status != "interrupted"
        state.put_session(replace(row, usage=row.usage + run.usage if counts else row.usage))


def _status_after(state: SessionState, ended: RunStatus) -> SessionStatus:
    """Return the session's status after a run: only a completed run starts the next queued one."""
    if ended == "failed" or ended == "interrupted":
        return ended
    if not any(run.status in ("queued", "accepted") for run in state.open_runs()):
        return "idle"
    return "working" if ended == "completed" else "needs_you"


def _recovery_pending(state: SessionState, fact: f.RecoveryPending, event: _EventInfo) -> None:
    _update_notice(state, fact.turn, fact.place, status="pending", body_seq=event.seq)
    _update_run(
        state, fact.run_id, pending=PendingRecovery(fact.process_id, fact.since or event.at, fact.reads)
    )


def _recovery_finished(state: SessionState, fact: f.RecoveryFinished, event: _EventInfo) -> None:
    status = "recovered" if fact.recovered else "final"
    _update_notice(state, fact.turn, fact.place, status=status, body_seq=event.seq)
    _update_run(state, fact.run_id, pending=None)


def _update_notice(state: SessionState, turn: int, place: int, **changes: Any) -> None:
    notice = state.message(turn, place)
    if notice is not None and notice.role == "notice":
        state.put_message(replace(notice, **changes))


def _model_step_started(state: SessionState, fact: f.ModelStepStarted, event: _EventInfo) -> None:
    # A fallback model that starts before any text was written continues the same step.
    is_begun = state.message(fact.turn, fact.place) is not None
    state.put_message(MessageRow(
        fact.turn, fact.place, fact.message_id, "assistant", "streaming", event.seq, run_id=fact.run_id
    ))  # fmt: skip
    _advance_place(state, fact.run_id, fact.place, steps=0 if is_begun else 1)


def _model_step_settled(state: SessionState, fact: f.ModelStepSettled, event: _EventInfo) -> None:
    run = state.run(fact.run_id)
    if run is not None:
        state.put_run(replace(run, usage=run.usage + fact.usage))


def _message_settled(state: SessionState, fact: f.MessageSettled, event: _EventInfo) -> None:
    _settle_row(state, fact, fact.message_id, fact.role, event)


def _tool_settled(state: SessionState, fact: f.ToolSettled, event: _EventInfo) -> None:
    _settle_row(state, fact, fact.call_id, "tool", event)
    tool = state.tool(fact.call_id)
    if tool is not None:
        state.put_tool(replace(tool, state="settled"))


def _settle_row(
    state: SessionState, fact: f.MessageSettled | f.ToolSettled, row_id: str, role: f.Role, event: _EventInfo
) -> None:
    before = state.message(fact.turn, fact.place)
    state.put_message(MessageRow(
        fact.turn, fact.place, row_id, role, fact.status,
        before.first_seq if before else event.seq, event.seq, fact.run_id, fact.late,
    ))  # fmt: skip
    run = state.run(fact.run_id) if fact.run_id is not None and fact.status == "settled" else None
    if run is not None:
        state.put_run(replace(run, place=max(run.place, fact.place), stalled=0))


def _tool_intended(state: SessionState, fact: f.ToolIntended, event: _EventInfo) -> None:
    state.put_tool(ToolRow(fact.call_id, fact.run_id, fact.turn, fact.place, fact.name, fact.effect))
    state.put_message(MessageRow(
        fact.turn, fact.place, fact.call_id, "tool", "streaming", event.seq, run_id=fact.run_id
    ))  # fmt: skip
    _advance_place(state, fact.run_id, fact.place)


def _update_tool(session_state: SessionState, call_id: Any, **changes: Any) -> None:
    tool = session_state.tool(call_id)
    if tool is not None:
        session_state.put_tool(replace(tool, **changes))


def _tool_started(state: SessionState, fact: f.ToolStarted, event: _EventInfo) -> None:
    _update_tool(state, fact.call_id, state="started")


def _tool_in_doubt(state: SessionState, fact: f.ToolInDoubt, event: _EventInfo) -> None:
    _update_tool(state, fact.call_id, state="in_doubt")


def _tool_resolved(state: SessionState, fact: f.ToolResolved, event: _EventInfo) -> None:
    # A call that is to run again may have run before, so its outcome is unknown if nothing more is recorded.
    approved = {"approval": "approve"} if fact.decision == "rerun" and fact.by == "user" else {}
    _update_tool(state, fact.call_id, state="resolved", **approved)


def _approval_requested(state: SessionState, fact: f.ApprovalRequested, event: _EventInfo) -> None:
    _update_tool(state, fact.call_id, approval="requested")


def _approval_resolved(state: SessionState, fact: f.ApprovalResolved, event: _EventInfo) -> None:
    _update_tool(state, fact.call_id, approval=fact.decision)


def _question_asked(state: SessionState, fact: f.QuestionAsked, event: _EventInfo) -> None:
    _update_tool(state, fact.call_id, approval="asked")


def _question_answered(state: SessionState, fact: f.QuestionAnswered, event: _EventInfo) -> None:
    _update_tool(state, fact.call_id, approval="answered")


def _question_closed(state: SessionState, fact: f.QuestionClosed, event: _EventInfo) -> None:
    _update_tool(state, fact.call_id, approval="closed")


def _memory_started(state: SessionState, fact: f.MemoryCommitStarted, event: _EventInfo) -> None:
    memory_queue.apply_started(state, fact, event.at)


def _memory_outcome(state: SessionState, fact: Any, event: _EventInfo) -> None:
    memory_queue.apply_outcome(state, fact, event.at)


def _memory_forgotten(state: SessionState, fact: f.MemoryForgotten, event: _EventInfo) -> None:
    memory_queue.apply_forgotten(state, fact, event.at)


_HANDLERS: Mapping[type, Callable[[SessionState, Any, _EventInfo], None]] = MappingProxyType({
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
