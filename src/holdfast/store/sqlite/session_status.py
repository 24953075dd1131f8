"""How conversations stand for the person who owns them: what is unread or pinned, what waits for an answer.

Read from the rows and the few events that they name, each time as of one moment. Only the marks of what was
read and the pins are kept, on the shelf: they are no facts of a conversation.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import apsw
import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.decisions.tools import needs_a_person
from holdfast.domain.errors import BadCursor, TooLarge
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import text_of
from holdfast.domain.ids import CallId, RunId, Seq, SessionId
from holdfast.domain.limits import (
    FEED_OPEN_MAX,
    FEED_SESSIONS_MAX,
    PINS_MAX,
    QUESTION_ARGUMENTS_CHARS_MAX,
    QUESTIONS_MAX,
    SEEN_NEWS_MAX,
)
from holdfast.domain.state.rows import SessionRow, ToolRow
from holdfast.domain.transcript.labels import first_words
from holdfast.store.session_status import Question, Standing, Survey
from holdfast.store.sqlite import key_value
from holdfast.store.sqlite.bodies import event_of
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.sql import SESSIONS, TOOLS, one, rows, snapshot, value
from holdfast.store.sqlite.views import LAST, bounded, locate

SEEN, PIN = "seen", "pin"
_MOVES = "seen_moves"


class _Moves(msgspec.Struct, array_like=True):
    """How often a mark or a pin was moved in all, and whose were the last."""

    number: int = 0
    sessions: tuple[SessionId, ...] = ()


class _Run(msgspec.Struct, frozen=True):
    """A run that waits, and the session around it."""

    no: int
    session_id: SessionId
    title: str
    workspace: str
    updated_at: Instant
    id: RunId
    waiting: f.Waiting


def survey(db: apsw.Connection) -> Survey:
    with snapshot(db):
        newest = rows(db, "sessions_page", False, LAST, LAST, FEED_SESSIONS_MAX + 1)
        unsettled = rows(db, "unsettled_sessions", FEED_OPEN_MAX + 1)
        more = len(newest) > FEED_SESSIONS_MAX or len(unsettled) > FEED_OPEN_MAX
        pinned = rows(db, "pinned_sessions", PINS_MAX)
        # By number, so that a conversation that is in several is there once.
        found = {row[0]: row for row in (*newest[:FEED_SESSIONS_MAX], *unsettled[:FEED_OPEN_MAX], *pinned)}
        asked = _questions(db, rows(db, "waiting_runs", QUESTIONS_MAX))
        standings = [_standing(db, no, SESSIONS.read(row[1:]), asked) for no, row in found.items()]
    return Survey(tuple(standings), tuple(asked), more)


def standings(db: apsw.Connection, session_ids: Sequence[SessionId]) -> Mapping[SessionId, Standing]:
    found: dict[SessionId, Standing] = {}
    with snapshot(db):
        for session_id in session_ids:
            row = one(db, "session_by_id", session_id)
            if row is not None:
                asked = _questions(db, rows(db, "waiting_runs_of", row[0]))
                found[session_id] = _standing(db, row[0], SESSIONS.read(row[1:]), asked)
    return found


def questions(db: apsw.Connection, limit: int) -> Sequence[Question]:
    with snapshot(db):
        return _questions(db, rows(db, "waiting_runs", bounded(limit, QUESTIONS_MAX)))[:limit]


def unread(db: apsw.Connection, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
    with snapshot(db):
        found = [(session_id, one(db, "session_by_id", session_id)) for session_id in session_ids]
        return frozenset(name for name, row in found if row is not None and _is_unread(db, row[0]))


def see(tx: Tx, session_id: SessionId, seq: Seq) -> bool:
    """Move a session's mark forward; False if it was there already. Raises NoSuchSession, BadCursor."""
    _, head = locate(tx.db, session_id)
    if seq > head:
        raise BadCursor(cursor=seq)
    if seq <= value(tx.db, "mark", session_id):
        return False
    key_value.put(tx, SEEN, session_id, b"%d" % seq)
    _tell(tx, session_id)
    return True


def pin(tx: Tx, session_id: SessionId, pinned: bool) -> bool:
    """Pin a session, or no longer; False if it was so already. Raises NoSuchSession, TooLarge."""
    locate(tx.db, session_id)
    if pinned == _is_pinned(tx.db, session_id):
        return False
    if not pinned:
        key_value.take(tx, PIN, session_id)
    elif (count := value(tx.db, "count_pins")) >= PINS_MAX:
        raise TooLarge(what="The list of pinned conversations", size=count + 1, limit=PINS_MAX)
    else:
        key_value.put(tx, PIN, session_id, b"")
    _tell(tx, session_id)
    return True


def pinned(db: apsw.Connection, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
    with snapshot(db):
        return frozenset(session_id for session_id in session_ids if _is_pinned(db, session_id))


def seen_since(db: apsw.Connection, number: int) -> tuple[int, frozenset[SessionId] | None]:
    moves = _moves(db)
    behind = moves.number - number
    # Ahead of the last move: another store has been put in this one's place.
    if not 0 <= behind <= len(moves.sessions):
        return moves.number, None
    return moves.number, frozenset(moves.sessions[len(moves.sessions) - behind :])


def _tell(tx: Tx, session_id: SessionId) -> None:
    """Let the other processes know that a mark or a pin was moved."""
    moves = _moves(tx.db)
    told = (*moves.sessions, session_id)[-SEEN_NEWS_MAX:]
    key_value.put(tx, _MOVES, "", msgspec.json.encode(_Moves(moves.number + 1, told)))


def _moves(db: apsw.Connection) -> _Moves:
    kept = key_value.items(db, _MOVES).get("")
    return msgspec.json.decode(kept, type=_Moves) if kept is not None else _Moves()


def _standing(db: apsw.Connection, no: int, row: SessionRow, asked: Iterable[Question]) -> Standing:
    own = tuple(question for question in asked if question.session_id == row.id)
    return Standing(row, _is_unread(db, no), own, _is_pinned(db, row.id), _opening(db, no, row))


def _opening(db: apsw.Connection, no: int, row: SessionRow) -> str:
    found = None if row.title else one(db, "first_turn_event", no)
    fact = _fact(found) if found is not None else None
    return first_words(text_of(fact.parts)) if isinstance(fact, f.TurnAccepted) else ""


def _is_pinned(db: apsw.Connection, session_id: SessionId) -> bool:
    return bool(value(db, "is_pinned", session_id))


def _is_unread(db: apsw.Connection, no: int) -> bool:
    row = one(db, "is_unread", no)
    return row is not None and bool(row[0])


def _questions(db: apsw.Connection, waiting: Iterable[tuple[Any, ...]]) -> list[Question]:
    """What these runs ask, the oldest question first."""
    found = [question for columns in waiting for question in _asked(db, _Run(*columns))]
    return sorted(found, key=lambda question: (question.asked_at, question.run_id))[:QUESTIONS_MAX]


def _asked(db: apsw.Connection, run: _Run) -> list[Question]:
    tools = [TOOLS.read(row) for row in rows(db, "open_tools", run.no, run.id)]
    calls = [tool for tool in tools if needs_a_person(tool)]
    if calls:
        told = _told(db, run, calls)
        return [_about_call(run, tool, told[tool.id]) for tool in calls]
    row = one(db, "newest_waiting", run.no)
    at, fact = (row[1], _fact(row)) if row is not None else (run.updated_at, None)
    reason = fact.detail if isinstance(fact, f.RunWaiting) and fact.run_id == run.id else ""
    return [_question(run, run.waiting, at, reason)]


class _Told(msgspec.Struct):
    """What the journal says of a call: its newest arguments, when it was asked about, and why."""

    asked_at: Instant
    arguments: str = ""
    reason: str = ""
    asked: f.QuestionAsked | None = None


def _told(db: apsw.Connection, run: _Run, calls: Sequence[ToolRow]) -> dict[CallId, _Told]:
    told = {tool.id: _Told(run.updated_at) for tool in calls}
    for row in rows(db, "call_events", run.no, calls[0].turn, calls[0].place):
        fact, at = _fact(row), row[1]
        if not isinstance(fact, f.ToolIntended | f.ApprovalRequested | f.QuestionAsked | f.ToolInDoubt):
            continue
        of_call = told.get(fact.call_id)
        if of_call is None:
            continue
        if isinstance(fact, f.ToolIntended):
            of_call.arguments = fact.arguments
        else:
            of_call.asked_at = at
            of_call.asked = fact if isinstance(fact, f.QuestionAsked) else None
            of_call.reason = fact.reason if isinstance(fact, f.ApprovalRequested) else ""
    return told


def _fact(row: tuple[Any, ...]) -> object:
    try:
        return event_of(row).fact
    except msgspec.ValidationError:
        # Damaged: doctor tells. The question is shown all the same, without what cannot be read.
        return None


def _about_call(run: _Run, tool: ToolRow, told: _Told) -> Question:
    in_doubt = tool.state == "in_doubt"
    kind: f.Waiting = "in_doubt" if in_doubt else "question" if tool.approval == "asked" else "approval"
    question = _question(run, kind, told.asked_at, told.reason)
    if told.asked is not None:
        asked = told.asked
        question = msgspec.structs.replace(
            question, question=asked.question, choices=asked.choices, multiple=asked.multiple
        )
    cut = told.arguments[:QUESTION_ARGUMENTS_CHARS_MAX]
    return msgspec.structs.replace(
        question, call_id=tool.id, name=tool.name, arguments=cut, effect=tool.effect,
        arguments_cut=len(cut) < len(told.arguments), may_have_run=in_doubt,
    )  # fmt: skip


def _question(run: _Run, kind: f.Waiting, at: Instant, reason: str) -> Question:
    return Question(run.session_id, run.title, run.workspace, run.id, kind, at, reason)
