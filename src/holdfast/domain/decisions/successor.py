"""Moving a conversation on to another session: decided over the old one's rows, for both at once.

The new one begins with a summary, as a turn that is said already; what waited in the old one's queue waits in
the new one, under the same names, and its first begins. The old one stays readable, and nothing is added to
it any more: whoever sends something there has it kept in the new one.
"""

import msgspec

from holdfast.domain.decisions.compaction import Drafted, last_covered
from holdfast.domain.decisions.turns import turns_since
from holdfast.domain.errors import Busy, NoSuchSession, SessionMoved, SummaryRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.events.stream_fold import digest_of_parts
from holdfast.domain.ids import Ids, RunId, SessionId
from holdfast.domain.state.rows import RunRow, SessionRow
from holdfast.domain.state.session_state import View

OPENING = "Go on from our conversation so far."
SUMMED_UP = "What we came to so far:\n\n"


class Moving(msgspec.Struct, frozen=True):
    """The facts of both sessions, and the run to begin in the new one, if any waited."""

    old: tuple[f.AnyFact, ...]
    new: tuple[f.AnyFact, ...]
    begins: RunId | None = None


def move_on(
    view: View, session_id: SessionId, successor: SessionId, drafted: Drafted, workspace: str, ids: Ids
) -> Moving:
    """Move what `view` is of on to `successor`, which works in `workspace`.

    Raises NoSuchSession; SessionMoved where that was done before; Busy while a run is at work or waits for a
    person; SummaryRefused when something was said or taken back since it was summarised.
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
    _check_is_all(view, row, drafted, {run.turn for run in queued})
    moved = [fact for number, run in enumerate(queued, 2) for fact in _moved(view, run, number)]
    from_turn = queued[0].turn if queued else 0
    archived = [] if row.archived else [f.SessionArchived()]
    return Moving(
        (f.SessionContinued(successor, from_turn), *archived),
        (*beginning(row, drafted, workspace, ids), *moved),
        queued[0].id if queued else None,
    )


def lead_on(view: View, session_id: SessionId, successor: SessionId) -> list[f.AnyFact]:
    """Have whoever looks for a conversation that was deleted while it was summed up find `successor`.

    Raises NoSuchSession once nothing is left of it, and SessionMoved where it goes on already.
    """
    row = view.session()
    if row is None:
        raise NoSuchSession(session_id=session_id)
    if row.successor_session_id is not None:
        raise SessionMoved(session_id=session_id, successor=row.successor_session_id)
    return [f.SessionContinued(successor)]


def beginning(row: SessionRow, drafted: Drafted, workspace: str, ids: Ids) -> list[f.AnyFact]:
    """How a session begins that goes on from `row`, whether or not that is still there."""
    named = row.title if row.title_by != "model" else ""
    parts, said = (Text(OPENING),), (Text(SUMMED_UP + drafted.summary),)
    created = f.SessionCreated(named, row.agent, row.model, workspace, row.id, row.remember)
    renamed = [f.SessionRenamed(row.title, "model")] if row.title and not named else []
    configured = [f.SessionConfigured(resume=row.resume)] if row.resume is not None else []
    return [
        created, *renamed, *configured,
        f.TurnAccepted(ids.turn(), 1, ids.message(), parts),
        f.MessageSettled(1, 1, ids.message(), "assistant", said, digest_of_parts(said)),
    ]  # fmt: skip


def _check_is_all(view: View, row: SessionRow, drafted: Drafted, queued: set[int]) -> None:
    """Raises SummaryRefused unless the summary is of all that was said, and of nothing else."""
    settled = [turn.turn for turn in turns_since(view, row, drafted.before) if turn.turn not in queued]
    last = settled[-1] if settled else last_covered(drafted.before)
    if last != drafted.through_turn:
        raise SummaryRefused(session_id=row.id, why="more was said meanwhile")


def _moved(view: View, run: RunRow, turn: int) -> list[f.AnyFact]:
    """A turn that waited, as the turn `turn` of the new session: the first begins, the others wait on."""
    row = view.message(run.turn, 0)
    events = view.written(row) if row is not None else ()
    said = events[0].fact if events else None
    assert isinstance(said, f.TurnAccepted), f"{run.id} waits, so it was asked for"
    accepted = f.TurnAccepted(said.turn_id, turn, said.message_id, said.parts, run.id, said.key)
    return [accepted, f.TurnQueued(turn, run.id)] if turn > 2 else [accepted]
