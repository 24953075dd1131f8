"""Checkpoints of the write-ahead log: passive when idle, forced past a limit.

Only the holder of the write lock runs them.
"""

import apsw

WAL_BYTES_MAX = 64_000_000
"""A log of this size is copied back even under load."""
IDLE_PAGES = 500
_PAGE_BYTES = 4_096


class Checkpointer:
    """Track the length of the log through the hook that SQLite calls after each commit."""

    def __init__(self, wal_bytes_max: int) -> None:
        self._pages_max = wal_bytes_max // _PAGE_BYTES
        self._pages = 0
        self._done = 0

    def watch(self, db: apsw.Connection) -> None:
        db.set_wal_hook(self._on_commit)

    def is_due(self, idle: bool) -> bool:
        return self._pages - self._done > (min(IDLE_PAGES, self._pages_max) if idle else self._pages_max)

    def passive(self, db: apsw.Connection) -> None:
        """Copy what no reader still needs. If that was all of it, the next commit starts the log over."""
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
        # Counted from here even if a reader held some pages up: otherwise every commit would try again.
        self._done = self._pages

    def start_over(self, db: apsw.Connection) -> None:
        """Copy all of the log and empty it; wait for readers."""
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def final(self, db: apsw.Connection) -> None:
        """Copy all of the log, so that one file is left."""
        db.set_busy_timeout(0)
        db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)

    def _on_commit(self, db: apsw.Connection, name: str, pages: int) -> int:
        if pages < self._pages:
            self._done = 0  # SQLite started the log over.
        self._pages = pages
        return apsw.SQLITE_OK
