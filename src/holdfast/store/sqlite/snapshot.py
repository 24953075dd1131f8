"""Combine several reads in one read transaction of SQLite."""

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

import apsw

from holdfast.domain.events.codec import Event
from holdfast.domain.events.facts import Ranges
from holdfast.domain.ids import RunId, Seq, SessionId
from holdfast.domain.state.rows import QueuedCommit, QueuedCommitRow, RunRow, SessionRow, ToolRow, TurnRow
from holdfast.store.ports import MessagePage, SearchHit, SessionPage, Snapshot, StoredMessage
from holdfast.store.session_status import SessionStatus
from holdfast.store.sqlite import key_value, memory_queue, notes, search, session_status, views
from holdfast.store.sqlite.sql import read_transaction

T = TypeVar("T")


class SqliteSnapshot:
    """Implement `Snapshot` over a connection inside a read transaction."""

    def __init__(self, db: apsw.Connection) -> None:
        self._db = db

    def session(self, session_id: SessionId) -> SessionRow:
        return views.session(self._db, session_id)

    def head(self, session_id: SessionId) -> Seq:
        return views.get_number_and_head(self._db, session_id)[1]

    def sessions(
        self, cursor: str | None, limit: int, archived: bool = False, title_words: Sequence[str] = ()
    ) -> SessionPage:
        return views.sessions(self._db, cursor, limit, archived, title_words)

    def messages(self, session_id: SessionId, before: str | None, limit: int) -> MessagePage:
        return views.messages(self._db, session_id, before, limit)

    def search(self, query: str, limit: int, session_id: SessionId | None = None) -> Sequence[SearchHit]:
        return search.find(self._db, query, limit, session_id)

    def prepared_contexts(
        self, session_id: SessionId, from_turn: int, before: Seq | None = None
    ) -> Sequence[Event]:
        return views.prepared_contexts(self._db, session_id, from_turn, before)

    def turns(self, session_id: SessionId) -> Sequence[TurnRow]:
        return views.turns(self._db, session_id)

    def removals(self, session_id: SessionId) -> Sequence[Event]:
        return views.removals(self._db, session_id)

    def summary(self, session_id: SessionId) -> tuple[Event | None, Seq]:
        return views.summary(self._db, session_id)

    def run(self, run_id: RunId) -> tuple[SessionId, RunRow]:
        return views.get_run(self._db, run_id)

    def runs(self, session_id: SessionId, first: int, last: int) -> Sequence[RunRow]:
        return views.runs_of_turns(self._db, session_id, first, last)

    def tools(self, session_id: SessionId, run_id: RunId) -> Sequence[ToolRow]:
        return views.open_tools(self._db, session_id, run_id)

    def session_statuses(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, SessionStatus]:
        return session_status.session_statuses(self._db, session_ids)

    def queued_commits(self, session_id: SessionId) -> Sequence[QueuedCommitRow]:
        return memory_queue.queued_commits(self._db, session_id, deleted=False)

    def pending_commits(self, limit: int) -> Sequence[QueuedCommit]:
        return memory_queue.pending_commits(self._db, limit)

    def unretracted_commits(self, limit: int) -> Sequence[QueuedCommit]:
        return memory_queue.unretracted_commits(self._db, limit)

    def turn_messages(self, session_id: SessionId, turns: Ranges) -> Sequence[StoredMessage]:
        return memory_queue.turn_messages(self._db, session_id, turns, number=0)

    def count_notes(self, session_id: SessionId) -> int:
        return notes.count_of_session(self._db, session_id)

    def item(self, kind: str, item_id: str) -> bytes | None:
        return key_value.item(self._db, kind, item_id)


def read(db: apsw.Connection, query: Callable[[Snapshot], T]) -> T:
    """Return `query` of a snapshot that ends with this call."""
    with read_transaction(db):
        return query(SqliteSnapshot(db))
