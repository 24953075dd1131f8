"""The writing side of the store: one connection, one thread, one transaction per batch.

The connection also finds other processes' events: those past the last position that it knows. It reads them
at the start of each transaction, or by a cheap poll between transactions. After any fault it is closed and
reopened: a failed sync must never be retried on the same file handle.
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
from holdfast.store.hub import CommittedEvents
from holdfast.store.sqlite import notes, search
from holdfast.store.sqlite.bodies import event_from_row
from holdfast.store.sqlite.checkpoints import Checkpointer
from holdfast.store.sqlite.connection import StoreLocation, as_fault, connect, inode
from holdfast.store.sqlite.journal import Tx, apply_all
from holdfast.store.sqlite.migrate import FORMAT, prepare
from holdfast.store.sqlite.sql import execute, fetch_all, fetch_value
from holdfast.store.sqlite.views import newest_position
from holdfast.store.sqlite.write_lock import WriteLock
from holdfast.store.writer import PendingWrite

CATCH_UP_EVENTS_MAX = 1_000
_DELETED = KINDS[SessionDeleted]
_HOUSEKEEPING_INTERVAL_S = 0.25
"""Under steady load a slice of housekeeping runs this often."""
_POLL_INTERVAL_S, _POLL_INTERVAL_ALONE_S = 0.04, 0.1
"""Interval of the polls for other processes' commits: waking the thread costs more than the poll."""
_ALONE_AFTER_S = 10.0
"""After this long without another process's commit, polls become rarer."""


class SqliteCommitter:
    """Write to the store. All methods but the constructor belong to the writer's thread."""

    def __init__(
        self,
        location: StoreLocation,
        clock: Clock,
        publish: Callable[[CommittedEvents], None],
        wal_bytes_max: int,
    ) -> None:
        self._location = location
        self._clock = clock
        self._publish = publish
        self._write_lock = WriteLock(location.folder, location.wait_s)
        self._checkpoints = Checkpointer(wal_bytes_max)
        self._db: apsw.Connection | None = None
        self._position: Position | None = None
        self._version = -1
        self._sync_failed = False
        self._inode = 0
        self._has_unindexed = True
        self._housekeeping_at = 0.0
        self._others_seen_at = 0.0
        self.pre_migration_copy: Path | None = None
        """The copy of the store from before its migration, if there was one."""
        try:
            self._connection()
        except BaseException:
            self.close()
            raise

    def commit(self, writes: Sequence[PendingWrite]) -> tuple[Sequence[object], CommittedEvents]:
        try:
            return self._commit_once(writes)
        except HoldfastError as fault:
            self._disconnect()
            return [fault] * len(writes), ()
        # The edge of the writer's task: the callers get whatever went wrong.
        except Exception as error:
            if len(writes) == 1:
                return [error], ()
        # One write is at fault, not the store: commit each alone, so that only that one fails.
        results: list[object] = []
        events: list[tuple[SessionId, Event]] = []
        for write in writes:
            result, new_events = self.commit([write])
            results += result
            events += new_events
        return results, events

    def housekeep(self, idle: bool) -> bool:
        now = time.monotonic()
        try:
            if self._checkpoints.is_due(idle):
                self._checkpoint()
            if not idle and now - self._housekeeping_at < _HOUSEKEEPING_INTERVAL_S:
                return False
            self._housekeeping_at = now
            return self._housekeep_once(idle)
        except StoreUnreadable:
            # Do not reconnect: if housekeeping adopted the new file, the next append would not raise.
            return False
        except (apsw.Error, OSError, HoldfastError):
            # No caller waits for this. The next append meets the same fault and raises it.
            self._disconnect()
            return False

    def poll_interval_s(self) -> float:
        is_alone = time.monotonic() - self._others_seen_at > _ALONE_AFTER_S
        return _POLL_INTERVAL_ALONE_S if is_alone else _POLL_INTERVAL_S

    def close(self) -> None:
        if self._db is not None:
            try:
                with self._write_lock.hold(lambda: None):
                    self._checkpoints.final(self._db)
            except (apsw.Error, HoldfastError):
                self._disconnect()
        self._disconnect()
        self._write_lock.close()

    def _commit_once(self, writes: Sequence[PendingWrite]) -> tuple[Sequence[object], CommittedEvents]:
        try:
            with self._transaction() as db:
                known = self._catch_up(db)
                tx = Tx(db, self._clock.now_ms(), known)
                results = [_execute(tx, write) for write in writes]
            self._position = tx.position
        except (apsw.ConstraintError, apsw.SQLError, apsw.MismatchError):
            raise
        except (apsw.Error, OSError) as error:
            raise as_fault(error, self._location.file, self._location.wait_s) from error
        self._has_unindexed = self._has_unindexed or any(
            event.kind in BODY_KINDS for _, event in tx.new_events
        )
        return results, tx.new_events

    @contextmanager
    def _transaction(self) -> Iterator[apsw.Connection]:
        """Hold the write lock and a transaction; commit on leaving, roll back on an error."""
        db = self._connection()
        self._write_lock.acquire(self._poll_others)
        try:
            self._refuse_if_replaced()
            execute(db, "begin")
            self._refuse_if_newer(db)
            yield db
            execute(db, "commit")
        except BaseException as error:
            self._sync_failed = self._sync_failed or isinstance(error, apsw.IOError)
            if db.in_transaction:
                execute(db, "rollback")
            raise
        finally:
            self._write_lock.release()

    def _catch_up(self, db: apsw.Connection) -> Position:
        """Publish what other processes have committed; return the newest position."""
        end = newest_position(db)
        known = self._position if self._position is not None else end
        while known < end:
            found = fetch_all(db, "events_since", known, CATCH_UP_EVENTS_MAX)
            if not found:
                break
            known = found[-1][0]
            # Outside a transaction more may have come since `end` was read; do not publish it twice.
            end = max(end, known)
            self._publish([(SessionId(row[1]), event_from_row(row[2:])) for row in found])
            self._has_unindexed = True
        self._position = end
        return end

    def _poll_others(self) -> None:
        """Check for other processes' commits with one cheap pragma."""
        db = self._connection()
        version = db.pragma("data_version")
        if version != self._version:
            self._version, self._others_seen_at = version, time.monotonic()
            self._catch_up(db)

    def _housekeep_once(self, idle: bool) -> bool:
        db = self._connection()
        if idle:
            self._poll_others()
        if self._has_unindexed:
            self._index(db, search.SLICE_CHARS if idle else search.SLICE_CHARS_BUSY)
        return idle and self._has_unindexed

    def _checkpoint(self) -> None:
        db = self._connection()
        with self._write_lock.hold(self._poll_others):
            self._checkpoints.passive(db)

    def _index(self, db: apsw.Connection, chars_max: int) -> None:
        start, end, words = search.next_slice(db, chars_max)
        if end == start:
            self._has_unindexed = False
            return
        with self._transaction() as db:
            search.add_slice(Tx(db, 0, 0), start, end, words)

    def _connection(self) -> apsw.Connection:
        if self._db is None:
            # Lock before the first read: another process may still be creating the file.
            with self._write_lock.hold(lambda: None):
                self._db = self._connect()
            self._inode = inode(self._location)
            self._version, self._sync_failed, self._has_unindexed = -1, False, True
        return self._db

    def _connect(self) -> apsw.Connection:
        db = connect(self._location, writes=True)
        try:
            self.pre_migration_copy = prepare(db, self._location) or self.pre_migration_copy
            if self._sync_failed:
                # Data whose sync failed still reads well from memory. Nothing may follow it in the log: copy
                # all of it to the main file and start the log over.
                self._checkpoints.start_over(db)
            self._checkpoints.watch(db)
            if self._position is None:
                self._position = newest_position(db)
        except BaseException as error:
            db.close()
            raise as_fault(error, self._location.file, self._location.wait_s) from error
        return db

    def _refuse_if_newer(self, db: apsw.Connection) -> None:
        found = fetch_value(db, "format")
        if found > FORMAT:
            raise StoreTooNew(path=self._location.file, found=found, known=FORMAT)

    def _refuse_if_replaced(self) -> None:
        if inode(self._location) != self._inode:
            # A write to a file without a name would be acknowledged and lost.
            raise StoreUnreadable(path=self._location.file, detail="it was moved or replaced while in use")

    def _disconnect(self) -> None:
        db, self._db = self._db, None
        if db is not None:
            try:
                db.close()
            except apsw.Error:
                return


def _execute(tx: Tx, write: PendingWrite) -> object:
    try:
        if write.work is not None:
            return write.work(tx)
        first = len(tx.new_events)
        receipts = apply_all(tx, write.merged_appends())
        _delete_notes(tx, tx.new_events[first:])
        return receipts
    except StoreFault:
        raise
    except HoldfastError as refusal:
        return refusal


def _delete_notes(tx: Tx, events: CommittedEvents) -> None:
    """Delete the notes of sessions that were deleted with their notes, in the same transaction."""
    for session_id, event in events:
        if event.kind == _DELETED and isinstance(fact := event.fact, SessionDeleted) and fact.notes:
            notes.forget_session(tx, session_id)
