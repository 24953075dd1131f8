"""Copy a store while it is in use.

The copy proceeds in steps, so that no read lasts long. SQLite starts over whenever another connection has
written. After a few restarts the copy holds the write lock for the rest, so that it ends.
"""

from collections.abc import Iterator
from pathlib import Path

import apsw

from holdfast.domain.errors import StoreInUse
from holdfast.store.maintenance import Progress
from holdfast.store.plain_files import atomic_write
from holdfast.store.sqlite.connection import StoreLocation, connect, translate_errors
from holdfast.store.sqlite.write_lock import WriteLock

STEP_PAGES = 1_000
RESTARTS_MAX = 3


def copy_store(location: StoreLocation, path: Path, progress: Progress) -> None:
    """Write a whole, checked copy to `path`, which appears only once it is complete.

    Raises StoreInUse when `path` is the store itself.
    """
    if path.exists() and location.file.exists() and path.samefile(location.file):
        raise StoreInUse(path=path)
    with translate_errors(path, location.wait_s), atomic_write(path) as part:
        _copy_file(location, part, progress)


def _copy_file(location: StoreLocation, part: Path, progress: Progress) -> None:
    source = connect(location, writes=False)
    target = apsw.Connection(str(part))
    write_lock = WriteLock(location.folder, location.wait_s)
    try:
        with target.backup("main", source, "main") as backup:
            if not _copy_in_steps(backup, progress):
                with write_lock.hold(lambda: None):
                    for done, total in copy_steps(backup):
                        progress(done, total)
        # Otherwise a restore could leave files beside the copy behind.
        target.pragma("journal_mode", "delete")
    finally:
        write_lock.close()
        target.close()
        source.close()


def _copy_in_steps(backup: apsw.Backup, progress: Progress) -> bool:
    restarts, before = 0, 0
    for done, total in copy_steps(backup):
        # After a write SQLite starts the copy over, so the count does not grow.
        restarts += done <= before
        before = done
        progress(done, total)
        if restarts > RESTARTS_MAX:
            return False
    return True


def copy_steps(backup: apsw.Backup) -> Iterator[tuple[int, int]]:
    """Copy in steps; yield the numbers of copied pages and of all pages."""
    while not backup.done:
        backup.step(STEP_PAGES)
        yield backup.page_count - backup.remaining, backup.page_count
