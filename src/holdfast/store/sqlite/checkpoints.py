"""When the write-ahead log goes back into the main file: passive when idle, forced past a bound.

Only whoever holds the write turn does it.
"""

import apsw

WAL_BYTES_MAX = 64_000_000
"""A log this long is brought back even under load."""
IDLE_PAGES = 500
_PAGE_BYTES = 4_096


class Checkpoints:
    """Knows how long the log is, from the hook that SQLite calls after each commit."""

    def __init__(self, wal_bytes_max: int) -> None:
        self._pages_max = wal_bytes_max // _PAGE_BYTES
        self._pages = 0
        self._tried_at = 0

    def watch(self, db: apsw.Connection) -> None:
        db.set_wal_hook(self._note)

    def due(self, idle: bool) -> bool:
        # After a try that a reader held up, wait until there is something new to do.
        return self._pages > (IDLE_PAGES if idle else self._pages_max) and self._pages != self._tried_at

    def after_commit(self, db: apsw.Connection) -> None:
        if self._pages > self._pages_max:
            self.passive(db)

    def passive(self, db: apsw.Connection) -> None:
        """Copy what no reader still needs; the next commit starts the log over if that was all of it."""
        self._tried_at = self._pages
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def final(self, db: apsw.Connection) -> None:
        """Leave one file behind."""
        db.set_busy_timeout(0)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _note(self, db: apsw.Connection, name: str, pages: int) -> int:
        self._pages = pages
        return apsw.SQLITE_OK
