"""Copying a store while it is used, and putting a copy back.

A copy is made in steps, so that no read lasts long. SQLite starts over when another connection has written
meanwhile; after a few of those the rest is copied while holding the write turn, so that it ends.
"""

import os
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import apsw

from holdfast.domain.errors import DiskFull, NotAStore, StoreCorrupt, StoreInUse, StoreTooNew
from holdfast.domain.ids import ProcessId
from holdfast.store.disk import sync
from holdfast.store.ports import Progress
from holdfast.store.sqlite.connection import APPLICATION_ID, Place, connect, translated
from holdfast.store.sqlite.migrate import FORMAT
from holdfast.store.sqlite.processes import ProcessLock
from holdfast.store.sqlite.sql import rows
from holdfast.store.sqlite.turnstile import WriteTurn

STEP_PAGES = 1_000
RESTARTS_MAX = 3


def copy(place: Place, path: Path, progress: Progress) -> None:
    """Write a whole, checked copy to `path`, which appears only once it is complete.

    Raises StoreInUse when `path` is the store itself.
    """
    if path.exists() and place.file.exists() and path.samefile(place.file):
        raise StoreInUse(path=path)
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    try:
        with translated(path, place.wait_s):
            _copy_file(place, part, progress)
            sync(part)
            part.replace(path)
            sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


def _copy_file(place: Place, part: Path, progress: Progress) -> None:
    source = connect(place, writes=False)
    target = apsw.Connection(str(part))
    part.chmod(0o600)
    turn = WriteTurn(place.folder, place.wait_s)
    try:
        with target.backup("main", source, "main") as backup:
            if not _in_steps(backup, progress):
                with turn.held(lambda: None):
                    for done, total in _steps(backup):
                        progress(done, total)
        # The copy is one file: nothing beside it that could be left behind.
        target.pragma("journal_mode", "delete")
    finally:
        turn.close()
        target.close()
        source.close()


def _in_steps(backup: apsw.Backup, progress: Progress) -> bool:
    restarts, before = 0, 0
    for done, total in _steps(backup):
        # A write between any two steps has every step begin again: the count then stands still.
        restarts += done <= before
        before = done
        progress(done, total)
        if restarts > RESTARTS_MAX:
            return False
    return True


def _steps(backup: apsw.Backup) -> Iterator[tuple[int, int]]:
    while not backup.done:
        backup.step(STEP_PAGES)
        yield backup.page_count - backup.remaining, backup.page_count


def restore(folder: Path, path: Path, process_id: ProcessId, progress: Progress) -> Path | None:
    """Put the copy at `path` in place of the store; returns where the old one was moved to, if there was one.

    Raises StoreInUse while any process has the store open; NotAStore, StoreTooNew or StoreCorrupt for
    a file that would not work. The store is untouched then.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = Place(folder, "full", None, 1.0)
    lock = ProcessLock(folder, process_id)
    fresh = folder / "restoring.db"
    try:
        if lock.others():
            raise StoreInUse(path=folder)
        with translated(path, place.wait_s):
            _verify(path)
            fresh.unlink(missing_ok=True)
            _copy_back(path, fresh, progress)
            kept = _keep_old(place)
            # The one step that counts: before it the folder holds the old store, after it the new one.
            fresh.replace(place.file)
            sync(folder)
            return kept
    finally:
        fresh.unlink(missing_ok=True)
        lock.release()


def _verify(path: Path) -> None:
    if not path.is_file():
        raise NotAStore(path=path)
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        if db.pragma("application_id") != APPLICATION_ID:
            raise NotAStore(path=path)
        if db.pragma("user_version") > FORMAT:
            raise StoreTooNew(path=path, found=db.pragma("user_version"), known=FORMAT)
        found = rows(db, "integrity_check")
        if found != [("ok",)]:
            raise StoreCorrupt(path=path, detail=str(found[0][0]))
    except apsw.NotADBError as error:
        raise NotAStore(path=path) from error
    finally:
        db.close()


def _copy_back(path: Path, fresh: Path, progress: Progress) -> None:
    """A whole copy through SQLite, so that a log lying beside the file comes along."""
    disk = os.statvfs(fresh.parent)
    if disk.f_bavail * disk.f_frsize < path.stat().st_size:
        raise DiskFull(path=fresh.parent)
    source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    target = apsw.Connection(str(fresh))
    fresh.chmod(0o600)
    try:
        with target.backup("main", source, "main") as backup:
            for done, total in _steps(backup):
                progress(done, total)
        target.pragma("journal_mode", "delete")
    finally:
        target.close()
        source.close()
    sync(fresh)


def _keep_old(place: Place) -> Path | None:
    """Give the old store a second name, and leave no log behind that could meet the new file."""
    if place.file.exists():
        _fold_log(place.file)
    left = [path for suffix in ("-wal", "") if (path := _beside(place.file, suffix)).exists()]
    folder = place.folder / "backups"
    stem = f"before-restore-{time.strftime('%Y%m%dT%H%M%S')}"
    names = (folder / (f"{stem}-{n}.db" if n else f"{stem}.db") for n in count())
    kept = next(name for name in names if not name.exists())
    if left:
        folder.mkdir(mode=0o700, exist_ok=True)
        sync(place.folder)
    for path in left:
        os.link(path, _beside(kept, path.name.removeprefix(place.file.name)))
        sync(folder)
    for suffix in ("-wal", "-shm"):
        _beside(place.file, suffix).unlink(missing_ok=True)
    sync(place.folder)
    return kept if left else None


def _fold_log(file: Path) -> None:
    """Bring a log that a crash left back into its file. A damaged store keeps its log as it is."""
    try:
        db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            # A connection that has read nothing yet knows of no log.
            db.pragma("schema_version")
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            db.close()
    except apsw.Error:
        return


def _beside(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)
