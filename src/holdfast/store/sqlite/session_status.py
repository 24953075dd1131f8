"""The status of sessions for their owner: unread, pinned, waiting for an answer.

All reads are snapshots of rows and of the few events that they name. Only read marks and pins are stored, as
key-value items: they are no facts of a session.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apsw
import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.decisions.tools import needs_user
from holdfast.domain.errors import BadCursor, TooLarge
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import message_text
from holdfast.domain.ids import CallId, RunId, Seq, SessionId
from holdfast.domain.limits import (
    FEED_OPEN_MAX,
    FEED_SESSIONS_MAX,
    PINS_MAX,
    QUESTION_ARGUMENTS_CHARS_MAX,
    QUESTIONS_MAX,
    SEEN_UPDATES_MAX,
)
from holdfast.domain.state.rows import SessionRow, ToolRow
from holdfast.domain.transcript.labels import first_words
from holdfast.store.session_status import OpenQuestion, SessionOverview, SessionStatus
from holdfast.store.sqlite import key_value
from holdfast.store.sqlite.bodies import event_from_row
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.sql import SESSIONS, TOOLS, fetch_all, fetch_one, fetch_value, read_transaction
from holdfast.store.sqlite.views import LAST, clamp_limit, get_number_and_head

READ_MARK, PIN = "seen", "pin"
_MARK_MOVES = "seen_moves"


class _MarkChanges(msgspec.Struct, array_like=True):
    """The number of mark and pin changes so far, and the sessions of the last ones."""

    number: int = 0
    sessions: tuple[SessionId, ...] = ()


class _Run(msgspec.Struct, frozen=True):
    """A run that waits, and its session."""

    no: int
    session_id: SessionId
    title: str
    workspace: str
    updated_at: Instant
    id: RunId
    waiting: f.WaitReason


def overview(db: apsw.Connection) -> SessionOverview:
    with read_transaction(db):
        newest = fetch_all(db, "sessions_page", False, LAST, LAST, FEED_SESSIONS_MAX + 1)
        unsettled = fetch_all(db, "unsettled_sessions", FEED_OPEN_MAX + 1)
        more = len(newest) > FEED_SESSIONS_MAX or len(unsettled) > FEED_OPEN_MAX
        pinned = fetch_all(db, "pinned_sessions", PINS_MAX)
        # Keyed by number, so that a session in several of the lists appears once.
        found = {row[0]: row for row in (*newest[:FEED_SESSIONS_MAX], *unsettled[:FEED_OPEN_MAX], *pinned)}
        questions = _questions(db, fetch_all(db, "waiting_runs", QUESTIONS_MAX))
        statuses = [_session_status(db, no, SESSIONS.read(row[1:]), questions) for no, row in found.items()]
    return SessionOverview(tuple(statuses), tuple(questions), more)


def session_statuses(
    db: apsw.Connection, session_ids: Sequence[SessionId]
) -> Mapping[SessionId, SessionStatus]:
    found: dict[SessionId, SessionStatus] = {}
    with read_transaction(db):
        for session_id in session_ids:
            row = fetch_one(db, "session_by_id", session_id)
            if row is not None:
                questions = _questions(db, fetch_all(db, "waiting_runs_of", row[0]))
                found[session_id] = _session_status(db, row[0], SESSIONS.read(row[1:]), questions)
    return found


def questions(db: apsw.Connection, limit: int) -> Sequence[OpenQuestion]:
    with read_transaction(db):
        return _questions(db, fetch_all(db, "waiting_runs", clamp_limit(limit, QUESTIONS_MAX)))[:limit]


def unread(db: apsw.Connection, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
    with read_transaction(db):
        found = [(session_id, fetch_one(db, "session_by_id", session_id)) for session_id in session_ids]
        return frozenset(name for name, row in found if row is not None and _is_unread(db, row[0]))


def mark_read(tx: Tx, session_id: SessionId, seq: Seq) -> bool:
    """Move a session's read mark forward; return False if it was there already.

    Raises NoSuchSession, BadCursor.
    """
    _, head = get_number_and_head(tx.db, session_id)
    if seq > head:
        raise BadCursor(cursor=seq)
    if seq <= fetch_value(tx.db, "mark", session_id):
        return False
    key_value.put(tx, READ_MARK, session_id, b"%d" % seq)
    _record_mark_change(tx, session_id)
    return True


def pin(tx: Tx, session_id: SessionId, pinned: bool) -> bool:
    """Pin or unpin a session; return False if nothing changed. Raises NoSuchSession, TooLarge."""
    get_number_and_head(tx.db, session_id)
    if pinned == _is_pinned(tx.db, session_id):
        return False
    if not pinned:
        key_value.take(tx, PIN, session_id)
    elif (count := fetch_value(tx.db, "count_pins")) >= PINS_MAX:
        raise TooLarge(what="The list of pinned conversations", size=count + 1, limit=PINS_MAX)
    else:
        key_value.put(tx, PIN, session_id, b"")
    _record_mark_change(tx, session_id)
    return True


def pinned(db: apsw.Connection, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
    with read_transaction(db):
        return frozenset(session_id for session_id in session_ids if _is_pinned(db, session_id))


def mark_changes_since(db: apsw.Connection, number: int) -> tuple[int, frozenset[SessionId] | None]:
    moves = _load_mark_changes(db)
    behind = moves.number - number
    # Ahead of the last change: a restore has replaced the store.
    if not 0 <= behind <= len(moves.sessions):
        return moves.number, None
    return moves.number, frozenset(moves.sessions[len(moves.sessions) - behind :])


def _record_mark_change(tx: Tx, session_id: SessionId) -> None:
    """Record a mark or pin change for the other processes."""
    moves = _load_mark_changes(tx.db)
    sessions = (*moves.sessions, session_id)[-SEEN_UPDATES_MAX:]
    key_value.put(tx, _MARK_MOVES, "", msgspec.json.encode(_MarkChanges(moves.number + 1, sessions)))


def _load_mark_changes(db: apsw.Connection) -> _MarkChanges:
    stored = key_value.items(db, _MARK_MOVES).get("")
    return msgspec.json.decode(stored, type=_MarkChanges) if stored is not None else _MarkChanges()


def _session_status(
    db: apsw.Connection, no: int, row: SessionRow, questions: Iterable[OpenQuestion]
) -> SessionStatus:
    own = tuple(question for question in questions if question.session_id == row.id)
    return SessionStatus(row, _is_unread(db, no), own, _is_pinned(db, row.id), _opening_text(db, no, row))


def _opening_text(db: apsw.Connection, no: int, row: SessionRow) -> str:
    found = None if row.title else fetch_one(db, "first_turn_event", no)
    fact = _fact(found) if found is not None else None
    return first_words(message_text(fact.parts)) if isinstance(fact, f.TurnAccepted) else ""


def _is_pinned(db: apsw.Connection, session_id: SessionId) -> bool:
    return bool(fetch_value(db, "is_pinned", session_id))


def _is_unread(db: apsw.Connection, no: int) -> bool:
    row = fetch_one(db, "is_unread", no)
    return row is not None and bool(row[0])


def _questions(db: apsw.Connection, waiting: Iterable[tuple[Any, ...]]) -> list[OpenQuestion]:
    """Return the open questions of these runs, oldest first."""
    found = [question for columns in waiting for question in _questions_of_run(db, _Run(*columns))]
    return sorted(found, key=lambda question: (question.asked_at, question.run_id))[:QUESTIONS_MAX]


def _questions_of_run(db: apsw.Connection, run: _Run) -> list[OpenQuestion]:
    tools = [TOOLS.read(row) for row in fetch_all(db, "open_tools", run.no, run.id)]
    calls = [tool for tool in tools if needs_user(tool)]
    if calls:
        call_infos = _call_infos(db, run, calls)
        return [_question_about_call(run, tool, call_infos[tool.id]) for tool in calls]
    row = fetch_one(db, "newest_waiting", run.no)
    at, fact = (row[1], _fact(row)) if row is not None else (run.updated_at, None)
    reason = fact.detail if isinstance(fact, f.RunWaiting) and fact.run_id == run.id else ""
    return [_question(run, run.waiting, at, reason)]


class _CallInfo(msgspec.Struct):
    """The journal's data about a call: its newest arguments, when and why a person was asked."""

    asked_at: Instant
    arguments: str = ""
    reason: str = ""
    asked: f.QuestionAsked | None = None


def _call_infos(db: apsw.Connection, run: _Run, calls: Sequence[ToolRow]) -> dict[CallId, _CallInfo]:
    call_infos = {tool.id: _CallInfo(run.updated_at) for tool in calls}
    for row in fetch_all(db, "call_events", run.no, calls[0].turn, calls[0].place):
        fact, at = _fact(row), row[1]
        if not isinstance(fact, f.ToolIntended | f.ApprovalRequested | f.QuestionAsked | f.ToolInDoubt):
            continue
        of_call = call_infos.get(fact.call_id)
        if of_call is None:
            continue
        if isinstance(fact, f.ToolIntended):
            of_call.arguments = fact.arguments
        else:
            of_call.asked_at = at
            of_call.asked = fact if isinstance(fact, f.QuestionAsked) else None
            of_call.reason = fact.reason if isinstance(fact, f.ApprovalRequested) else ""
    return call_infos


def _fact(row: tuple[Any, ...]) -> object:
    try:
        return event_from_row(row).fact
    except msgspec.ValidationError:
        # Doctor reports the damage. Show the question anyway, without what cannot be read.
        return None


def _question_about_call(run: _Run, tool: ToolRow, call_info: _CallInfo) -> OpenQuestion:
    in_doubt = tool.state == "in_doubt"
    kind: f.WaitReason = "in_doubt" if in_doubt else "question" if tool.approval == "asked" else "approval"
    question = _question(run, kind, call_info.asked_at, call_info.reason)
    if call_info.asked is not None:
        asked = call_info.asked
        question = msgspec.structs.replace(
            question, question=asked.question, choices=asked.choices, multiple=asked.multiple
        )
    cut = call_info.arguments[:QUESTION_ARGUMENTS_CHARS_MAX]
    return msgspec.structs.replace(
        question, call_id=tool.id, name=tool.name, arguments=cut, effect=tool.effect,
        arguments_cut=len(cut) < len(call_info.arguments), may_have_run=in_doubt,
    )  # fmt: skip


def _question(run: _Run, kind: f.WaitReason, at: Instant, reason: str) -> OpenQuestion:
    return OpenQuestion(run.session_id, run.title, run.workspace, run.id, kind, at, reason)
