"""Read projections and journals. Every function is one short read on one connection."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import apsw

from holdfast.domain.errors import BadCursor, NoSuchRun, NoSuchSession
from holdfast.domain.events.codec import Event
from holdfast.domain.events.facts import DELTA_KINDS, SessionCompacted
from holdfast.domain.events.tool_facts import ToolOutputAppended
from holdfast.domain.ids import Position, RunId, Seq, SessionId
from holdfast.domain.limits import PAGE_MESSAGES_MAX, PAGE_SESSIONS_MAX, READ_EVENTS_MAX
from holdfast.domain.state.rows import MessageRow, RunRow, SessionRow, ToolRow, TurnRow
from holdfast.store.ports import MessagePage, SessionPage, StoredMessage, StoreTotals
from holdfast.store.sqlite.bodies import event_from_row
from holdfast.store.sqlite.sql import (
    MESSAGES,
    RUNS,
    SESSIONS,
    TOOLS,
    TURNS,
    fetch_all,
    fetch_one,
    fetch_value,
    read_transaction,
)

LAST = 1 << 62
"""Greater than every number in use."""
_TITLES_PER_SLICE = 1_000
_SUMMARIES_MAX = 32
"""Summaries read at most: undone ones are useless."""


def find_number_and_head(db: apsw.Connection, session_id: SessionId) -> tuple[int, Seq] | None:
    """Return a session's number and head, or None if there is no such session."""
    row = fetch_one(db, "session_head", session_id)
    return None if row is None else (row[0], row[1] or 0)


def get_number_and_head(db: apsw.Connection, session_id: SessionId) -> tuple[int, Seq]:
    """Return a session's number and head. Raises NoSuchSession."""
    found = find_number_and_head(db, session_id)
    if found is None:
        raise NoSuchSession(session_id=session_id)
    return found


def session(db: apsw.Connection, session_id: SessionId) -> SessionRow:
    no, _ = get_number_and_head(db, session_id)
    return SESSIONS.read(fetch_all(db, "get_session", no)[0])


def events(
    db: apsw.Connection, session_id: SessionId, after: Seq, limit: int, bytes_max: int | None = None
) -> list[Event]:
    no, _ = get_number_and_head(db, session_id)
    found: list[Event] = []
    size = 0
    for row in fetch_all(db, "read_events", no, after, clamp_limit(limit, READ_EVENTS_MAX)):
        event = event_from_row(row)
        size += len(event.body)
        # At least one event, however large: a reader must always make progress.
        if found and bytes_max is not None and size > bytes_max:
            break
        found.append(event)
    return found


def sessions(
    db: apsw.Connection, cursor: str | None, limit: int, archived: bool, title_words: Sequence[str] = ()
) -> SessionPage:
    limit = clamp_limit(limit, PAGE_SESSIONS_MAX)
    updated_at, no = _two_numbers(cursor) if cursor is not None else (LAST, LAST)
    if title_words:
        found = _titled(db, updated_at, no, limit, archived, [word.casefold() for word in title_words])
    else:
        found = fetch_all(db, "sessions_page", archived, updated_at, no, limit)
    page = tuple(SESSIONS.read(row[1:]) for row in found)
    more = f"{page[-1].updated_at}.{found[-1][0]}" if len(page) == limit else None
    return SessionPage(page, more)


def _titled(
    db: apsw.Connection, updated_at: int, no: int, limit: int, archived: bool, words: Sequence[str]
) -> list[tuple[Any, ...]]:
    """Return the next sessions whose titles contain all of `words`, each with its number in front."""
    found: list[tuple[Any, ...]] = []
    with read_transaction(db):
        while slice_ := fetch_all(db, "titles_page", archived, updated_at, no, _TITLES_PER_SLICE):
            for number, _, title in slice_:
                folded = title.casefold()
                if all(word in folded for word in words):
                    found.append((number, *fetch_all(db, "get_session", number)[0]))
                    if len(found) == limit:
                        return found
            no, updated_at, _ = slice_[-1]
    return found


def messages(db: apsw.Connection, session_id: SessionId, before: str | None, limit: int) -> MessagePage:
    """Return one page, read in one snapshot, so that no message appears half settled."""
    limit = clamp_limit(limit, PAGE_MESSAGES_MAX)
    turn, place = _two_numbers(before) if before is not None else (LAST, LAST)
    with read_transaction(db):
        no, head = get_number_and_head(db, session_id)
        columns = fetch_all(db, "messages_page", no, turn, place, limit)
        found = [(MESSAGES.read(row[:-1]), row[-1] == "live") for row in reversed(columns)]
        page = tuple(StoredMessage(row, live, read_message_events(db, no, row)) for row, live in found)
    first = page[0].row if len(page) == limit else None
    return MessagePage(page, head, f"{first.turn}.{first.place}" if first else None)


def prepared_contexts(
    db: apsw.Connection, session_id: SessionId, from_turn: int, before: Seq | None
) -> Sequence[Event]:
    no, _ = get_number_and_head(db, session_id)
    end = before if before is not None else LAST
    return [event_from_row(row) for row in fetch_all(db, "prepared_from", no, from_turn, end)]


def turns(db: apsw.Connection, session_id: SessionId) -> Sequence[TurnRow]:
    no, _ = get_number_and_head(db, session_id)
    return [TURNS.read(row) for row in fetch_all(db, "all_turns", no)]


def removals(db: apsw.Connection, session_id: SessionId) -> Sequence[Event]:
    no, _ = get_number_and_head(db, session_id)
    return [event_from_row(row) for row in fetch_all(db, "removals", no)]


def summary(db: apsw.Connection, session_id: SessionId) -> tuple[Event | None, Seq]:
    with read_transaction(db):
        no, head = get_number_and_head(db, session_id)
        for row in fetch_all(db, "summaries", no, _SUMMARIES_MAX):
            event = event_from_row(row)
            fact = event.fact
            if isinstance(fact, SessionCompacted) and _is_live(db, no, fact):
                return event, head
    return None, head


def _is_live(db: apsw.Connection, no: int, summary: SessionCompacted) -> bool:
    live = all(fetch_value(db, "count_live", no, a, b) == b - a + 1 for a, b in summary.covers)
    return live and bool(summary.covers) and bool(summary.summary.strip())


def successor(db: apsw.Connection, session_id: SessionId) -> SessionId | None:
    row = fetch_one(db, "successor", session_id)
    return SessionId(row[0]) if row is not None and row[0] is not None else None


def deleted_session_number(db: apsw.Connection, session_id: SessionId) -> int:
    row = fetch_one(db, "buried", session_id)
    return int(row[0]) if row is not None else 0


def get_run(db: apsw.Connection, run_id: RunId) -> tuple[SessionId, RunRow]:
    row = fetch_one(db, "find_run", run_id)
    if row is None:
        raise NoSuchRun(run_id=run_id)
    return SessionId(row[0]), RUNS.read(row[1:])


def active_runs(db: apsw.Connection) -> Sequence[tuple[SessionId, RunRow]]:
    return [(SessionId(row[0]), RUNS.read(row[1:])) for row in fetch_all(db, "active_runs")]


def open_runs(db: apsw.Connection) -> Sequence[tuple[SessionId, RunRow]]:
    return [(SessionId(row[0]), RUNS.read(row[1:])) for row in fetch_all(db, "all_open_runs")]


def pending_runs(db: apsw.Connection) -> Sequence[tuple[SessionId, RunRow]]:
    return [(SessionId(row[0]), RUNS.read(row[1:])) for row in fetch_all(db, "pending_runs")]


def runs_of_turns(db: apsw.Connection, session_id: SessionId, first: int, last: int) -> Sequence[RunRow]:
    no, _ = get_number_and_head(db, session_id)
    return [RUNS.read(row) for row in fetch_all(db, "runs_of_turns", no, first, last)]


def open_tools(db: apsw.Connection, session_id: SessionId, run_id: RunId) -> Sequence[ToolRow]:
    no, _ = get_number_and_head(db, session_id)
    return [TOOLS.read(row) for row in fetch_all(db, "open_tools", no, run_id)]


def clamp_limit(limit: int, limit_max: int) -> int:
    """Return a limit of at least one: an empty page could not say where the next one begins."""
    return max(1, min(limit, limit_max))


def _two_numbers(cursor: str) -> tuple[int, int]:
    first, dot, second = cursor.partition(".")
    if not (dot and first.isdecimal() and second.isdecimal()) or max(len(first), len(second)) > 18:
        raise BadCursor(cursor=repr(cursor[:40]))
    return int(first), int(second)


def newest_indexable(db: apsw.Connection) -> Position:
    """Return the position of the newest event that is no delta, the furthest that the index can get."""
    return int(fetch_value(db, "newest_indexable"))


def newest_position(db: apsw.Connection) -> Position:
    """Return the position of the newest event of all."""
    return int(fetch_value(db, "newest_position"))


def totals(db: apsw.Connection, file: Path) -> StoreTotals:
    (sessions, events, archived) = fetch_all(db, "totals")[0]
    wal = file.with_name(file.name + "-wal")
    size = sum(path.stat().st_size for path in (file, wal) if path.exists())
    return StoreTotals(sessions, events or 0, size, int(db.pragma("user_version")), archived)


def count_sessions(db: apsw.Connection) -> int:
    return int(fetch_value(db, "count_sessions"))


def read_message_events(db: apsw.Connection, no: int, row: MessageRow) -> tuple[Event, ...]:
    """Return a message's body, or the event that opened it and its deltas so far."""
    if row.body_seq:
        return tuple(event_from_row(columns) for columns in fetch_all(db, "read_event", no, row.body_seq))
    first = [event_from_row(columns) for columns in fetch_all(db, "read_event", no, row.first_seq)]
    return (*first, *deltas_of(db, no, row, LAST))


def deltas_of(db: apsw.Connection, no: int, row: MessageRow, until: Seq) -> list[Event]:
    """Return the deltas of a message or call up to `until`."""
    events = [event_from_row(columns) for columns in fetch_all(db, "read_deltas", no, row.first_seq, until)]
    return [event for event in events if is_delta_of(event, row)]


def is_delta_of(event: Event, row: MessageRow) -> bool:
    """Return whether an event is a delta of the message or tool call in `row`."""
    if event.kind not in DELTA_KINDS:
        return False
    fact = event.fact
    if isinstance(fact, ToolOutputAppended):
        return row.role == "tool" and fact.call_id == row.id
    return row.role != "tool" and getattr(fact, "message_id", None) == row.id
