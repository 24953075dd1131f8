"""Decide what people do to a session; the engine's session commands commit the facts.

Each function returns the facts of one transaction, or raises. An empty list means that nothing has to change.
The store decides whether a send repeats an earlier one (its key).
"""

from collections.abc import Iterator, Sequence
from typing import Literal

from holdfast.domain.decisions import memory_queue, runs
from holdfast.domain.decisions.endings import ReadMessageEvents, cancel
from holdfast.domain.errors import (
    Busy,
    NoSuchSession,
    NoSuchTurn,
    NothingToRestore,
    NoTurnLeft,
    RestoreRefused,
    RunRefused,
    SessionExists,
    SessionMoved,
    SummaryRefused,
    TooLarge,
)
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart, message_text
from holdfast.domain.ids import IdGenerator, RunId, SessionId, TurnId
from holdfast.domain.limits import KEY_CHARS_MAX, TEXT_BYTES_MAX, TITLE_CHARS_MAX
from holdfast.domain.ranges import expand_ranges, to_ranges
from holdfast.domain.state.rows import RunRow, SessionRow, TurnRow
from holdfast.domain.state.session_state import SessionStateView
from holdfast.domain.transcript.removals import TurnHistory

BusyPolicy = Literal["queue", "steer", "interrupt", "reject"]
"""The policy for a message to a busy session.

Queue it, give it to the current run before its next step, cancel that run, or refuse the message.
"""


def create_session(view: SessionStateView, created: f.SessionCreated) -> list[f.AnyFact]:
    """Begin a session. Raises SessionExists, TooLarge."""
    row = view.session()
    if row is not None:
        raise SessionExists(session_id=row.id)
    _check_title(created.title)
    return [created]


def accept_turn(
    view: SessionStateView,
    session_id: SessionId,
    ids: IdGenerator,
    parts: tuple[AnyPart, ...],
    key: str | None = None,
    read_events: ReadMessageEvents | None = None,
    resumes: bool = True,
    if_busy: BusyPolicy = "queue",
) -> list[f.AnyFact]:
    """Accept a person's message with a new run; queue it behind a run that is at work.

    The message cancels a run that waits for a person, since it is the answer, and an interrupted run unless
    that `resumes` on its own. A stalled queue continues. Messages are answered in order: `interrupt` cancels
    the current run, and queued ones still come first. Raises NoSuchSession, TooLarge, SessionMoved, and Busy
    if `if_busy` is `reject`.
    """
    row = _session(view, session_id)
    _check_message(parts, key)
    _check_not_moved(view, row, key)
    open_runs = view.open_runs()
    superseded = [run for run in open_runs if _is_superseded(run, resumes, if_busy)]
    earlier_runs = [run for run in open_runs if run not in superseded]
    # A message that was accepted before is not refused now: the store returns its first result.
    if earlier_runs and if_busy == "reject" and (key is None or view.turn_by_key(key) is None):
        raise Busy(session_id=session_id, run_id=earlier_runs[0].id, status=earlier_runs[0].status)
    facts = _cancel_all(view, superseded, read_events)
    if earlier_runs and earlier_runs[0].status == "queued":
        facts += runs.dequeue(earlier_runs[0])
    at_work = next((run.id for run in earlier_runs if run.status != "queued"), None)
    steers = at_work if if_busy == "steer" else None
    return [*facts, *_accept(row.last_turn + 1, ids, parts, key, None, bool(earlier_runs), steers)]


def take_steering(view: SessionStateView, run: RunRow, read_events: ReadMessageEvents) -> list[f.AnyFact]:
    """Give the run every queued message meant for it, before its next step and in order."""
    facts: list[f.AnyFact] = []
    for queued in view.open_runs():
        if queued.status != "queued" or queued.steers != run.id:
            continue
        row = view.message(queued.turn, 0)
        events = read_events(row) if row is not None else ()
        original = events[0].fact if events else None
        if isinstance(original, f.TurnAccepted):
            place = runs.next_place(run) + len(facts)
            facts += runs.steer(run, original.message_id, original.parts, place, queued.turn)
    return facts


def replace_turns(
    view: SessionStateView,
    session_id: SessionId,
    ids: IdGenerator,
    turn_id: TurnId,
    parts: tuple[AnyPart, ...],
    reason: Literal["edit", "retry"],
    key: str | None = None,
    read_events: ReadMessageEvents | None = None,
) -> list[f.AnyFact]:
    """Edit or retry: undo from a turn on and accept another in its stead, as one change.

    Raises NoSuchSession, NoSuchTurn, TooLarge, SessionMoved.
    """
    row = _session(view, session_id)
    _check_message(parts, key)
    _check_not_moved(view, row, key)
    if key is not None and view.turn_by_key(key) is not None:
        # A repeat: its turn may be gone by now, and the store returns the result of the first try.
        return _accept(row.last_turn + 1, ids, parts, key, turn_id, busy=False)
    undo_facts = undo(view, session_id, turn_id, reason, read_events)
    last = undo_facts[-1]
    assert isinstance(last, f.TurnsUndone)
    # The undone turns' runs end here, so only older ones can be open.
    busy = any(run.turn < last.from_turn for run in view.open_runs())
    return [*undo_facts, *_accept(row.last_turn + 1, ids, parts, key, turn_id, busy)]


def rename(
    view: SessionStateView, session_id: SessionId, title: str, by: Literal["user", "model"]
) -> list[f.AnyFact]:
    """Give the session a title. A model's never replaces a person's. Raises NoSuchSession, TooLarge."""
    row = _session(view, session_id)
    _check_title(title)
    if (by == "model" and row.title_by == "user") or (row.title, row.title_by) == (title, by):
        return []
    return [f.SessionRenamed(title, by)]


def configure(
    view: SessionStateView, session_id: SessionId, requested: f.SessionConfigured
) -> list[f.AnyFact]:
    """Change settings; unchanged values are left out.

    The workspace cannot change while a run is open: an approved call must run in the folder that the person
    saw. Turning `remember` off drops the uncommitted queue entries. Raises NoSuchSession, RunRefused.
    """
    row = _session(view, session_id)
    changes = {
        name: value
        for name in requested.__struct_fields__
        if (value := getattr(requested, name)) is not None and value != getattr(row, name)
    }
    for run in view.open_runs() if "workspace" in changes else ():
        raise RunRefused(run_id=run.id, status=run.status, verb="be moved to another folder")
    dropped = memory_queue.drop_uncommitted(view) if requested.remember is False else []
    return [*([f.SessionConfigured(**changes)] if changes else []), *dropped]


def archive(view: SessionStateView, session_id: SessionId, archived: bool = True) -> list[f.AnyFact]:
    """Archive the session, or restore it to the list. Raises NoSuchSession."""
    row = _session(view, session_id)
    return [f.SessionArchived(archived)] if row.archived != archived else []


def delete(
    view: SessionStateView,
    session_id: SessionId,
    read_events: ReadMessageEvents | None = None,
    notes: bool = False,
) -> list[f.AnyFact]:
    """Cancel all runs and delete the session; with `notes`, also its saved notes. Raises NoSuchSession."""
    _session(view, session_id)
    return [*_cancel_all(view, view.open_runs(), read_events), f.SessionDeleted(notes)]


def undo(
    view: SessionStateView,
    session_id: SessionId,
    turn_id: TurnId | None = None,
    reason: Literal["undo", "edit", "retry"] = "undo",
    read_events: ReadMessageEvents | None = None,
) -> list[f.AnyFact]:
    """Undo the last live turn, or all from `turn_id` on, and cancel their runs.

    Raises NoSuchSession, NoSuchTurn, SessionMoved.
    """
    _check_not_moved(view, _session(view, session_id))
    turn = view.last_live_turn() if turn_id is None else _live_turn(view, turn_id)
    if turn is None and turn_id is None:
        raise NoTurnLeft(session_id=session_id)
    if turn is None:
        raise NoSuchTurn(session_id=session_id, turn=turn_id)
    cancelled = [run for run in view.open_runs() if run.turn >= turn.turn]
    return [*_cancel_all(view, cancelled, read_events), f.TurnsUndone(turn.turn, reason)]


def restore(
    view: SessionStateView,
    session_id: SessionId,
    turn_id: TurnId | None = None,
    read_events: ReadMessageEvents | None = None,
) -> list[f.AnyFact]:
    """Restore a removed turn, with all turns before it and those that were removed with it.

    Without `turn_id`, restore the turns that were undone last. Live turns outside that path are removed, and
    their runs cancelled. A live turn stays as it is. Raises NoSuchSession, NoSuchTurn, NothingToRestore,
    SessionMoved, RestoreRefused.
    """
    row = _session(view, session_id)
    _check_not_moved(view, row)
    turns_by_number = {turn.turn: turn for turn in view.all_turns()}
    history = TurnHistory(list(turns_by_number.values()), view.removals())
    number = history.last_undone() if turn_id is None else history.number(turn_id)
    if number is None and turn_id is None:
        raise NothingToRestore(session_id=session_id)
    if number is None:
        raise NoSuchTurn(session_id=session_id, turn=turn_id)
    chosen = turns_by_number[number]
    if chosen.status == "live":
        return []
    if chosen.turn not in history.removed:
        raise RestoreRefused
    path = history.path_through(chosen.turn)
    restored = [turns_by_number[turn] for turn in path if turns_by_number[turn].status != "live"]
    from_turn = next((turn.turn for turn in view.live_turns(0) if turn.turn not in path), 0)
    cancelled = [run for run in view.open_runs() if from_turn and run.turn >= from_turn]
    is_version = from_turn and history.first_version(from_turn) == history.first_version(restored[0].turn)
    return [
        *_cancel_all(view, cancelled, read_events),
        f.TurnsRestored(
            turns=to_ranges(turn.turn for turn in restored),
            from_turn=from_turn,
            reason="version" if is_version else "undo",
            owed=tuple(_queued_before(view, restored)) if row.remember else (),
        ),
    ]


def clear(
    view: SessionStateView, session_id: SessionId, read_events: ReadMessageEvents | None = None
) -> list[f.AnyFact]:
    """Hide all turns so far from the model and cancel open runs.

    Raises NoSuchSession, SessionMoved.
    """
    _check_not_moved(view, _session(view, session_id))
    last = view.last_live_turn()
    if last is None:
        return []
    return [*_cancel_all(view, view.open_runs(), read_events), f.SessionCleared(last.turn)]


def compact(
    view: SessionStateView,
    session_id: SessionId,
    through_turn: int,
    summary: str,
    before: f.SessionCompacted | None = None,
) -> list[f.AnyFact]:
    """Replace the live turns up to `through_turn` by `summary`, with those that `before` covers."""
    row = _session(view, session_id)
    _check_not_moved(view, row)
    _check_size("the summary", summary)
    since = turns_since(view, row, before)
    covered = [turn.turn for turn in since if turn.turn <= through_turn]
    # Turns are removed from the end: while the last one is live, all before it are.
    if covered[-1:] != [through_turn]:
        raise SummaryRefused(session_id=session_id, why="it was changed meanwhile")
    for run in view.open_runs():
        if run.turn <= through_turn:
            raise RunRefused(run_id=run.id, status=run.status, verb="be summarised")
    known = expand_ranges(before.covers) if before is not None else []
    return [f.SessionCompacted(to_ranges([*known, *covered]), summary)]


def turns_since(
    view: SessionStateView, row: SessionRow, before: f.SessionCompacted | None
) -> Sequence[TurnRow]:
    """Return the live turns after those that `before` covers. Raises SummaryRefused if one was removed since.

    The ancestors of a live turn are live, so looking at the last covered turn is enough.
    """
    if before is None or not before.covers:
        return view.live_turns(0)
    last = view.turn(before.covers[-1][1])
    if last is None or last.status != "live":
        raise SummaryRefused(session_id=row.id, why="it was changed meanwhile")
    return view.live_turns(last.turn + 1)


def check_not_moved(view: SessionStateView, session_id: SessionId) -> None:
    """Raise NoSuchSession if the session is deleted, or SessionMoved if it was continued in another."""
    _check_not_moved(view, _session(view, session_id))


def _check_not_moved(view: SessionStateView, row: SessionRow, key: str | None = None) -> None:
    """Raise SessionMoved, unless `key` names a message that was accepted here and did not move."""
    kept_turn = view.turn_by_key(key) if key is not None and row.successor_session_id is not None else None
    if row.successor_session_id is not None and (kept_turn is None or kept_turn.status == "moved"):
        raise SessionMoved(session_id=row.id, successor=row.successor_session_id)


def _session(view: SessionStateView, session_id: SessionId) -> SessionRow:
    row = view.session()
    if row is None or row.deleted_at is not None:
        raise NoSuchSession(session_id=session_id)
    return row


def _live_turn(view: SessionStateView, turn_id: TurnId) -> TurnRow | None:
    return next((turn for turn in reversed(view.live_turns(0)) if turn.id == turn_id), None)


def _queued_before(view: SessionStateView, turns: Sequence[TurnRow]) -> Iterator[tuple[int, str]]:
    """Yield the turns that joined the memory queue when they completed, each with its owner."""
    runs_of = {turn.run_id: turn.turn for turn in turns if turn.run_id is not None}
    completed = {run_id for run_id in runs_of if (run := view.run(run_id)) and run.status == "completed"}
    owner_by_turn: dict[int, str] = {}
    for event in view.completions(turns[0].seq):
        fact = event.fact
        if isinstance(fact, f.RunCompleted) and fact.run_id in completed:
            completed.remove(fact.run_id)
            if fact.owed:
                owner_by_turn[runs_of[fact.run_id]] = fact.owner
        if not completed:
            break
    yield from sorted(owner_by_turn.items())


def _accept(
    turn: int,
    ids: IdGenerator,
    parts: tuple[AnyPart, ...],
    key: str | None,
    replaces: TurnId | None,
    busy: bool,
    steers: RunId | None = None,
) -> list[f.AnyFact]:
    run_id = ids.run()
    accepted = f.TurnAccepted(ids.turn(), turn, ids.message(), parts, run_id, key, replaces, steers)
    return [accepted, f.TurnQueued(turn, run_id)] if busy else [accepted]


def _is_superseded(run: RunRow, resumes: bool, if_busy: BusyPolicy) -> bool:
    """Return whether a new message cancels the run: a person has moved on."""
    if if_busy == "interrupt":
        return run.status != "queued"
    is_abandoned = run.status == "interrupted" and not (resumes and runs.may_resume(run))
    return run.status == "waiting" or is_abandoned


def _cancel_all(
    view: SessionStateView, open_runs: Sequence[RunRow], read_events: ReadMessageEvents | None
) -> list[f.AnyFact]:
    return [fact for run in open_runs for fact in cancel(view, run, "user", read_events)]


def _check_message(parts: tuple[AnyPart, ...], key: str | None) -> None:
    _check_size("the message", message_text(parts))
    if key is not None and len(key) > KEY_CHARS_MAX:
        raise TooLarge(what="the key", size=len(key), limit=KEY_CHARS_MAX)


def _check_size(what: str, text: str) -> None:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > TEXT_BYTES_MAX:
        raise TooLarge(what=what, size=size, limit=TEXT_BYTES_MAX)


def _check_title(title: str) -> None:
    if len(title) > TITLE_CHARS_MAX:
        raise TooLarge(what="the title", size=len(title), limit=TITLE_CHARS_MAX)
