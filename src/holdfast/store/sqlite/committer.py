"""The writing half of the store: one connection, one thread, one transaction per batch.

The connection also listens: other processes' events are those past the position that this one knows, seen at
the start of each transaction, or by a cheap poll when there is none. After any fault the connection is
dropped and opened anew: a sync that failed is never tried again on the same file handle.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import apsw

from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError, StoreFault, StoreTooNew, StoreUnreadable
from holdfast.domain.events.codec import Event
from holdfast.domain.events.facts import BODY_KINDS, KINDS, SessionDeleted
from holdfast.domain.ids import Position, SessionId
from holdfast.store.hub import News
from holdfast.store.sqlite import notes, search
from holdfast.store.sqlite.bodies import event_of
from holdfast.store.sqlite.checkpoints import Checkpoints
from holdfast.store.sqlite.connection import Place, as_fault, connect, inode
from holdfast.store.sqlite.journal import Tx, apply_all
from holdfast.store.sqlite.migrate import FORMAT, prepare
from holdfast.store.sqlite.sql import rows, run, value
from holdfast.store.sqlite.views import newest
from holdfast.store.sqlite.write_lock import WriteTurn
from holdfast.store.writer import Ticket

NEWS_EVENTS_MAX = 1_000
_DELETED = KINDS[SessionDeleted]
_CHORE_EVERY_S = 0.25
"""Under steady load a slice of housekeeping gets its turn this often."""
_LOOK_EVERY_S, _LOOK_EVERY_S_ALONE = 0.04, 0.1
"""How often other processes' commits are looked for: to wake the thread costs more than the look."""
_ALONE_AFTER_S = 10.0
"""Whoever has met nothing of theirs for so long looks less often."""


class SqliteCommitter:
    """Everything that writes. All methods but the constructor belong to the writer's thread."""

    def __init__(self, place: Place, clock: Clock, tell: Callable[[News], None], wal_bytes_max: int) -> None:
        self._place = place
        self._clock = clock
        self._tell = tell
        self._turn = WriteTurn(place.folder, place.wait_s)
        self._checkpoints = Checkpoints(wal_bytes_max)
        self._db: apsw.Connection | None = None
        self._position: Position | None = None
        self._version = -1
        self._distrusted = False
        self._inode = 0
        self._to_index = True
        self._chore_at = 0.0
        self._others_at = 0.0
        self.copy_before: Path | None = None
        """The store as it was before its format was changed here, if it was."""
        try:
            self._connected()
        except BaseException:
            self.close()
            raise

    def commit(self, tickets: Sequence[Ticket]) -> tuple[Sequence[object], News]:
        try:
            return self._commit_once(tickets)
        except HoldfastError as fault:
            self._drop()
            return [fault] * len(tickets), ()
        # The edge of the writer's task: whatever went wrong is the answer to whoever asked.
        except Exception as error:
            if len(tickets) == 1:
                return [error], ()
        # One of them is at fault, and not the store: each alone, so that it fails alone.
        results: list[object] = []
        news: list[tuple[SessionId, Event]] = []
        for ticket in tickets:
            result, its_news = self.commit([ticket])
            results += result
            news += its_news
        return results, news

    def chores(self, idle: bool) -> bool:
        now = time.monotonic()
        try:
            if self._checkpoints.due(idle):
                self._checkpoint()
            if not idle and now - self._chore_at < _CHORE_EVERY_S:
                return False
            self._chore_at = now
            return self._chores(idle)
        except StoreUnreadable:
            # Kept open: a chore that took the new file in silence would leave the next append unwarned.
            return False
        except (apsw.Error, OSError, HoldfastError):
            # Nobody waits for this. The next append meets the same fault and reports it.
            self._drop()
            return False

    def idle_s(self) -> float:
        is_alone = time.monotonic() - self._others_at > _ALONE_AFTER_S
        return _LOOK_EVERY_S_ALONE if is_alone else _LOOK_EVERY_S

    def close(self) -> None:
        if self._db is not None:
            try:
                with self._turn.held(lambda: None):
                    self._checkpoints.final(self._db)
            except (apsw.Error, HoldfastError):
                self._drop()
        self._drop()
        self._turn.close()

    def _commit_once(self, tickets: Sequence[Ticket]) -> tuple[Sequence[object], News]:
        try:
            with self._transaction() as db:
                known = self._catch_up(db)
                tx = Tx(db, self._clock.now_ms(), known)
                results = [_perform(tx, ticket) for ticket in tickets]
            self._position = tx.position
        except (apsw.ConstraintError, apsw.SQLError, apsw.MismatchError):
            raise
        except (apsw.Error, OSError) as error:
            raise as_fault(error, self._place.file, self._place.wait_s) from error
        self._to_index = self._to_index or any(event.kind in BODY_KINDS for _, event in tx.news)
        return results, tx.news

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """Hold the write turn and a transaction: committed on leaving, rolled back on an error."""
        db = self._connected()
        self._turn.take(self._listen)
        try:
            self._refuse_if_replaced()
            run(db, "begin")
            self._refuse_if_newer(db)
            yield db
            run(db, "commit")
        except BaseException as error:
            self._distrusted = self._distrusted or isinstance(error, apsw.IOError)
            if db.in_transaction:
                run(db, "rollback")
            raise
        finally:
            self._turn.give_back()

    def _catch_up(self, db: apsw.Connection) -> Position:
        """Tell of what other processes have committed; returns the newest position there is."""
        end = newest(db)
        known = self._position if self._position is not None else end
        while known < end:
            found = rows(db, "events_since", known, NEWS_EVENTS_MAX)
            if not found:
                break
            known = found[-1][0]
            # Outside a transaction more may have come since `end` was read; it must not be told twice.
            end = max(end, known)
            self._tell([(SessionId(row[1]), event_of(row[2:])) for row in found])
            self._to_index = True
        self._position = end
        return end

    def _listen(self) -> None:
        """One cheap look for other processes' commits."""
        db = self._connected()
        version = db.pragma("data_version")
        if version != self._version:
            self._version, self._others_at = version, time.monotonic()
            self._catch_up(db)

    def _chores(self, idle: bool) -> bool:
        db = self._connected()
        if idle:
            self._listen()
        if self._to_index:
            self._index(db, search.SLICE_CHARS if idle else search.SLICE_CHARS_BUSY)
        return idle and self._to_index

    def _checkpoint(self) -> None:
        db = self._connected()
        with self._turn.held(self._listen):
            self._checkpoints.passive(db)

    def _index(self, db: apsw.Connection, chars_max: int) -> None:
        start, end, words = search.next_slice(db, chars_max)
        if end == start:
            self._to_index = False
            return
        with self._transaction() as db:
            search.add_slice(Tx(db, 0, 0), start, end, words)

    def _connected(self) -> apsw.Connection:
        if self._db is None:
            # From the first look on: the file may be half made by another process until its turn ends.
            with self._turn.held(lambda: None):
                self._db = self._connect()
            self._inode = inode(self._place)
            self._version, self._distrusted, self._to_index = -1, False, True
        return self._db

    def _connect(self) -> apsw.Connection:
        db = connect(self._place, writes=True)
        try:
            self.copy_before = prepare(db, self._place) or self.copy_before
            if self._distrusted:
                # What failed to be synced still reads well from memory. Nothing may follow it in the
                # log: all of it goes to the main file, and the log begins anew.
                self._checkpoints.start_over(db)
            self._checkpoints.watch(db)
            if self._position is None:
                self._position = newest(db)
        except BaseException as error:
            db.close()
            raise as_fault(error, self._place.file, self._place.wait_s) from error
        return db

    def _refuse_if_newer(self, db: apsw.Connection) -> None:
        found = value(db, "format")
        if found > FORMAT:
            raise StoreTooNew(path=self._place.file, found=found, known=FORMAT)

    def _refuse_if_replaced(self) -> None:
        if inode(self._place) != self._inode:
            # A write to a file that has lost its name would be acknowledged and gone.
            raise StoreUnreadable(path=self._place.file, detail="it was moved or replaced while in use")

    def _drop(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            try:
                db.close()
            except apsw.Error:
                return


def _perform(tx: Tx, ticket: Ticket) -> object:
    try:
        if ticket.work is not None:
            return ticket.work(tx)
        first = len(tx.news)
        receipts = apply_all(tx, ticket.sealed())
        _delete_notes(tx, tx.news[first:])
        return receipts
    except StoreFault:
        raise
    except HoldfastError as refusal:
        return refusal


def _delete_notes(tx: Tx, news: News) -> None:
    """Delete the notes of each conversation that was deleted with them, in the same transaction."""
    for session_id, event in news:
        if event.kind == _DELETED and isinstance(fact := event.fact, SessionDeleted) and fact.notes:
            notes.forget_session(tx, session_id)
