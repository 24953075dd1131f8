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
        self._done = 0

    def watch(self, db: apsw.Connection) -> None:
        db.set_wal_hook(self._on_commit)

    def is_due(self, idle: bool) -> bool:
        return self._pages - self._done > (min(IDLE_PAGES, self._pages_max) if idle else self._pages_max)

    def passive(self, db: apsw.Connection) -> None:
        """Copy what no reader still needs; the next commit starts the log over if that was all of it."""
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        # Counted from here even if a reader held some of it up, so that it is not tried at every commit.
        self._done = self._pages

    def start_over(self, db: apsw.Connection) -> None:
        """Copy all of it and empty the log; waits for readers."""
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def final(self, db: apsw.Connection) -> None:
        """Leave one file behind."""
        db.set_busy_timeout(0)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _on_commit(self, db: apsw.Connection, name: str, pages: int) -> int:
        if pages < self._pages:
            self._done = 0  # The log was started over.
        self._pages = pages
        return apsw.SQLITE_OK
