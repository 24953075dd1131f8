"""Operations on a data folder while no store is open in it."""

from pathlib import Path

import apsw

from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import IdGenerator
from holdfast.store.maintenance import BackupRestoreResult, Progress
from holdfast.store.sqlite import restore
from holdfast.store.sqlite.connection import WRITE_WAIT_S, StoreLocation, translate_errors
from holdfast.store.sqlite.processes import ProcessLock


class SqliteDataDir:
    """Operations on any data folder; keeps nothing open."""

    @property
    def engine(self) -> str:
        return f"SQLite {apsw.sqlite_lib_version()}"

    def holds_store(self, folder: Path) -> bool:
        """Return whether there is a store, or was one: a missing file is a loss to report."""
        location = StoreLocation(folder, "full", None, WRITE_WAIT_S)
        return location.file.exists() or (folder / "format").exists()

    def count_other_processes(self, folder: Path) -> int:
        """Return how many other processes have the store open. Raises a StoreFault."""
        with translate_errors(folder, WRITE_WAIT_S):
            lock = ProcessLock(folder, IdGenerator(SystemClock()).process())
            try:
                return len(lock.living_others())
            finally:
                lock.release()

    def restore(self, folder: Path, path: Path, progress: Progress) -> BackupRestoreResult:
        """Replace the store by the backup at `path`; see `restore.restore` for what it raises."""
        return restore.restore(folder, path, IdGenerator(SystemClock()).process(), progress)
