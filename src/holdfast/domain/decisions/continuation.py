"""Continue a conversation in a new session.

One decision over the old session's rows returns the facts of both. The new session begins with a summary, as
a completed turn. Turns that waited in the old queue move to the new one with the same ids, and the first of
them starts. The old session stays readable; later messages to it go to the new one.
"""

import msgspec

from holdfast.domain.decisions.compaction import DraftSummary, last_covered
from holdfast.domain.decisions.turns import turns_since
from holdfast.domain.errors import Busy, NoSuchSession, SessionMoved, SummaryRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.events.stream_fold import parts_digest
from holdfast.domain.ids import IdGenerator, RunId, SessionId
from holdfast.domain.state.rows import RunRow, SessionRow
from holdfast.domain.state.session_state import SessionStateView

OPENING = "Go on from our conversation so far."
SUMMARY_INTRO = "What we came to so far:\n\n"


class Continuation(msgspec.Struct, frozen=True):
    """The facts of both sessions, and the run to start in the new one, if any waited."""

    old_facts: tuple[f.AnyFact, ...]
    new_facts: tuple[f.AnyFact, ...]
    first_run: RunId | None = None


def continue_in(
    view: SessionStateView,
    session_id: SessionId,
    successor: SessionId,
    draft: DraftSummary,
    workspace: str,
    ids: IdGenerator,
) -> Continuation:
    """Continue the session of `view` in `successor`, which works in `workspace`.

    Raises NoSuchSession; SessionMoved if it was continued before; Busy while a run works or waits for a
    person; SummaryRefused if turns were added or removed after the summary.
    """
    row = view.session()
    if row is None or row.deleted_at is not None:
        raise NoSuchSession(session_id=session_id)
    if row.successor_session_id is not None:
        raise SessionMoved(session_id=session_id, successor=row.successor_session_id)
    queued = view.open_runs()
    for run in queued:
        if run.status != "queued":
            raise Busy(session_id=session_id, run_id=run.id, status=run.status)
    _check_summary_is_current(view, row, draft, {run.turn for run in queued})
    moved = [fact for number, run in enumerate(queued, 2) for fact in _move_turn(view, run, number)]
    from_turn = queued[0].turn if queued else 0
    archived = [] if row.archived else [f.SessionArchived()]
    return Continuation(
        (f.SessionContinued(successor, from_turn), *archived),
        (*opening_facts(row, draft, workspace, ids), *moved),
        queued[0].id if queued else None,
    )


def link_successor(view: SessionStateView, session_id: SessionId, successor: SessionId) -> list[f.AnyFact]:
    """Record `successor` for a conversation that was deleted while it was being summarised.

    Raises NoSuchSession if its row is gone, and SessionMoved if it has a successor.
    """
    row = view.session()
    if row is None:
        raise NoSuchSession(session_id=session_id)
    if row.successor_session_id is not None:
        raise SessionMoved(session_id=session_id, successor=row.successor_session_id)
    return [f.SessionContinued(successor)]


def opening_facts(row: SessionRow, draft: DraftSummary, workspace: str, ids: IdGenerator) -> list[f.AnyFact]:
    """Return the first facts of a session that continues `row`, which may be deleted."""
    title = row.title if row.title_by != "model" else ""
    parts, answer = (Text(OPENING),), (Text(SUMMARY_INTRO + draft.summary),)
    created = f.SessionCreated(title, row.agent, row.model, workspace, row.id, row.remember)
    renamed = [f.SessionRenamed(row.title, "model")] if row.title and not title else []
    configured = [f.SessionConfigured(resume=row.resume)] if row.resume is not None else []
    return [
        created, *renamed, *configured,
        f.TurnAccepted(ids.turn(), 1, ids.message(), parts),
        f.MessageSettled(1, 1, ids.message(), "assistant", answer, parts_digest(answer)),
    ]  # fmt: skip


def _check_summary_is_current(
    view: SessionStateView, row: SessionRow, draft: DraftSummary, queued: set[int]
) -> None:
    """Raise SummaryRefused unless the draft covers exactly the settled turns."""
    settled = [turn.turn for turn in turns_since(view, row, draft.before) if turn.turn not in queued]
    last = settled[-1] if settled else last_covered(draft.before)
    if last != draft.through_turn:
        raise SummaryRefused(session_id=row.id, why="more was said meanwhile")


def _move_turn(view: SessionStateView, run: RunRow, turn: int) -> list[f.AnyFact]:
    """Return the facts that move a queued turn to number `turn` of the new session: the first one starts."""
    row = view.message(run.turn, 0)
    events = view.message_events(row) if row is not None else ()
    original = events[0].fact if events else None
    assert isinstance(original, f.TurnAccepted), f"{run.id} waits, so it was asked for"
    accepted = f.TurnAccepted(
        original.turn_id, turn, original.message_id, original.parts, run.id, original.key
    )
    return [accepted, f.TurnQueued(turn, run.id)] if turn > 2 else [accepted]
