"""A session's rows in SQLite, as `domain.projections` reads and writes them inside a transaction."""

from collections.abc import Sequence
from typing import Any

import apsw

from holdfast.domain.codec import Event
from holdfast.domain.ids import CallId, RunId
from holdfast.domain.rows import MessageRow, RunRow, SessionRow, ToolRow, TurnRow
from holdfast.store.sqlite.contents import content
from holdfast.store.sqlite.rows import MESSAGES, RUNS, SESSIONS, TOOLS, TURNS, Columns, R
from holdfast.store.sqlite.sql import one, rows, run


class SqlBook:
    """Writes through, except the session's own row: many facts touch it, `flush` writes it once."""

    def __init__(self, db: apsw.Connection, session_no: int) -> None:
        self._db = db
        self._no = session_no
        self._session: SessionRow | None = None
        self._stored: SessionRow | None = None
        if session_no:
            self._session = self._stored = self._one(SESSIONS, "get_session")

    def flush(self) -> None:
        if self._session is not None and self._session is not self._stored:
            run(self._db, "update_session", *SESSIONS.write(self._session), self._no)
            self._stored = self._session

    def session(self) -> SessionRow | None:
        return self._session

    def turn(self, turn: int) -> TurnRow | None:
        return self._one(TURNS, "get_turn", turn)

    def turn_by_key(self, key: str) -> TurnRow | None:
        return self._one(TURNS, "turn_by_key", key)

    def live_turns(self, from_turn: int) -> Sequence[TurnRow]:
        return self._all(TURNS, "live_turns", from_turn)

    def last_live_turn(self) -> TurnRow | None:
        return self._one(TURNS, "last_live_turn")

    def run(self, run_id: RunId) -> RunRow | None:
        return self._one(RUNS, "get_run", run_id)

    def open_runs(self) -> Sequence[RunRow]:
        return self._all(RUNS, "open_runs")

    def tool(self, call_id: CallId) -> ToolRow | None:
        return self._one(TOOLS, "get_tool", call_id)

    def open_tools(self, run_id: RunId) -> Sequence[ToolRow]:
        return self._all(TOOLS, "open_tools", run_id)

    def message(self, turn: int, place: int) -> MessageRow | None:
        return self._one(MESSAGES, "get_message", turn, place)

    def streaming(self, turn: int) -> Sequence[MessageRow]:
        return self._all(MESSAGES, "streaming_messages", turn)

    def written(self, row: MessageRow) -> Sequence[Event]:
        return content(self._db, self._no, row)

    def put_session(self, row: SessionRow) -> None:
        if not self._no:
            run(self._db, "insert_session", *SESSIONS.write(row))
            self._no = self._db.last_insert_rowid()
            self._stored = row
        self._session = row

    def put_turn(self, row: TurnRow) -> None:
        run(self._db, "put_turn", self._no, *TURNS.write(row))

    def put_run(self, row: RunRow) -> None:
        run(self._db, "put_run", self._no, *RUNS.write(row))
        if row.is_over:
            # Nobody may write for it any more, whatever epoch they hold.
            run(self._db, "delete_lease", row.id)

    def put_tool(self, row: ToolRow) -> None:
        run(self._db, "put_tool", self._no, *TOOLS.write(row))

    def put_message(self, row: MessageRow) -> None:
        run(self._db, "put_message", self._no, *MESSAGES.write(row))

    @property
    def no(self) -> int:
        return self._no

    def _one(self, columns: Columns[R], name: str, *keys: Any) -> R | None:
        row = one(self._db, name, self._no, *keys)
        return columns.read(row) if row is not None else None

    def _all(self, columns: Columns[R], name: str, *keys: Any) -> list[R]:
        return [columns.read(row) for row in rows(self._db, name, self._no, *keys)]
