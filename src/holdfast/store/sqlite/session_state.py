"""A session's rows in SQLite, for `domain.state.projections` inside a transaction."""

from collections.abc import Iterable, Sequence
from typing import Any, Generic

import apsw

from holdfast.domain.events.codec import Event
from holdfast.domain.ids import CallId, RunId, Seq
from holdfast.domain.state.rows import MessageRow, QueuedCommitRow, RunRow, SessionRow, ToolRow, TurnRow
from holdfast.store.ports import DELETED
from holdfast.store.sqlite.bodies import event_from_row
from holdfast.store.sqlite.sql import (
    MESSAGES,
    QUEUED_COMMITS,
    RUNS,
    SESSIONS,
    TOOLS,
    TURNS,
    Columns,
    R,
    execute,
    fetch_all,
    fetch_one,
    iter_rows,
)
from holdfast.store.sqlite.views import read_message_events


class SqlSessionState:
    """Cache a session's rows, so that each changed row is written once, by `flush`.

    A change touches the same few rows again and again. A query for several rows flushes first, so that it
    sees all changes.
    """

    def __init__(self, db: apsw.Connection, session_no: int) -> None:
        self._db = db
        self._no = session_no
        self._session: SessionRow | None = None
        self._stored: SessionRow | None = None
        self._turns = _RowCache(db, TURNS, "turn")
        self._runs = _RowCache(db, RUNS, "run")
        self._tools = _RowCache(db, TOOLS, "tool")
        self._messages = _RowCache(db, MESSAGES, "message")
        self._queued_commits = _RowCache(db, QUEUED_COMMITS, "queued_commit")
        if session_no:
            columns = fetch_one(db, "get_session", session_no)
            self._session = self._stored = SESSIONS.read(columns) if columns is not None else None

    @property
    def no(self) -> int:
        return self._no

    def flush(self) -> None:
        """Write the changed rows."""
        for cache in (self._turns, self._runs, self._tools, self._messages, self._queued_commits):
            cache.flush(self._no)
        if self._session is not None and self._session is not self._stored:
            execute(self._db, "update_session", *SESSIONS.write(self._session), self._no)
            self._stored = self._session

    def session(self) -> SessionRow | None:
        return self._session

    def turn(self, turn: int) -> TurnRow | None:
        return self._turns.get(self._no, turn)

    def turn_by_key(self, key: str) -> TurnRow | None:
        found = self._all(TURNS, "turn_by_key", key)
        return found[0] if found else None

    def live_turns(self, from_turn: int) -> Sequence[TurnRow]:
        return self._all(TURNS, "live_turns", from_turn)

    def last_live_turn(self) -> TurnRow | None:
        found = self._all(TURNS, "last_live_turn")
        return found[0] if found else None

    def all_turns(self) -> Sequence[TurnRow]:
        return self._all(TURNS, "all_turns")

    def removals(self) -> Sequence[Event]:
        return [event_from_row(row) for row in fetch_all(self._db, "removals", self._no)]

    def completions(self, after: Seq) -> Iterable[Event]:
        return map(event_from_row, iter_rows(self._db, "completions", self._no, after))

    def run(self, run_id: RunId) -> RunRow | None:
        return self._runs.get(self._no, run_id)

    def open_runs(self) -> Sequence[RunRow]:
        return self._all(RUNS, "open_runs")

    def tool(self, call_id: CallId) -> ToolRow | None:
        return self._tools.get(self._no, call_id)

    def open_tools(self, run_id: RunId) -> Sequence[ToolRow]:
        return self._all(TOOLS, "open_tools", run_id)

    def message(self, turn: int, place: int) -> MessageRow | None:
        return self._messages.get(self._no, turn, place)

    def streaming_messages(self, turn: int) -> Sequence[MessageRow]:
        return self._all(MESSAGES, "streaming_messages", turn)

    def queued_commit(self, n: int) -> QueuedCommitRow | None:
        return self._queued_commits.get(self._no, n)

    def last_queued_commit(self) -> QueuedCommitRow | None:
        found = self._all(QUEUED_COMMITS, "last_queued_commit")
        return found[0] if found else None

    def pending_commits(self) -> Sequence[QueuedCommitRow]:
        return self._all(QUEUED_COMMITS, "open_queued_commits")

    def queued_commits_from(self, turn: int) -> Sequence[QueuedCommitRow]:
        return self._all(QUEUED_COMMITS, "queued_commits_from", turn)

    def message_events(self, row: MessageRow) -> Sequence[Event]:
        return read_message_events(self._db, self._no, row)

    def put_session(self, row: SessionRow) -> None:
        if not self._no:
            execute(self._db, "insert_session", *SESSIONS.write(row))
            self._no = self._db.last_insert_rowid()
            self._stored = row
            execute(self._db, "delete_item", DELETED, row.id)
        elif row.deleted_at is not None and self._session is not None and self._session.deleted_at is None:
            execute(self._db, "put_item", DELETED, row.id, str(row.deleted_at).encode())
        self._session = row

    def put_turn(self, row: TurnRow) -> None:
        self._turns.put(row, row.turn)

    def put_run(self, row: RunRow) -> None:
        self._runs.put(row, row.id)
        if row.is_finished:
            # No process may write for a finished run, whatever its epoch.
            execute(self._db, "delete_lease", row.id)
        elif row.status == "waiting":
            # In this transaction, not when the process releases it: if a kill comes first, the process that
            # continues after the answer must not be mistaken for one that recovers a cut-off run.
            execute(self._db, "free_lease", row.id)

    def put_tool(self, row: ToolRow) -> None:
        self._tools.put(row, row.id)

    def put_message(self, row: MessageRow) -> None:
        self._messages.put(row, row.turn, row.place)

    def put_queued_commit(self, row: QueuedCommitRow) -> None:
        self._queued_commits.put(row, row.n)

    def delete_message(self, turn: int, place: int) -> None:
        self._messages.delete(turn, place)

    def _all(self, columns: Columns[R], name: str, *keys: Any) -> list[R]:
        if self._no:
            self.flush()
        return [columns.read(row) for row in fetch_all(self._db, name, self._no, *keys)]


class _RowCache(Generic[R]):
    """The rows of one table that a change has read, and which of them it has changed."""

    def __init__(self, db: apsw.Connection, columns: Columns[R], name: str) -> None:
        self._db = db
        self._columns = columns
        self._name = name
        self._rows: dict[tuple[Any, ...], R | None] = {}
        self._changed: set[tuple[Any, ...]] = set()

    def get(self, session_no: int, *key: Any) -> R | None:
        if key not in self._rows:
            columns = fetch_one(self._db, f"get_{self._name}", session_no, *key)
            self._rows[key] = self._columns.read(columns) if columns is not None else None
        return self._rows[key]

    def put(self, row: R, *key: Any) -> None:
        self._rows[key] = row
        self._changed.add(key)

    def delete(self, *key: Any) -> None:
        self._rows[key] = None
        self._changed.add(key)

    def flush(self, session_no: int) -> None:
        for key in self._changed:
            row = self._rows[key]
            if row is None:
                execute(self._db, f"delete_{self._name}", session_no, *key)
            else:
                execute(self._db, f"put_{self._name}", session_no, *self._columns.write(row))
        self._changed.clear()
