"""Putting a backup in place of the store, and its workspaces, if it has any, in place of those that are here.

Both are prepared first: the store as `restoring.db`, the workspaces in `restoring/`. Renaming `restoring.db`
to `holdfast.db` is the commit point. `restoring/` without `restoring.db` means that the store is replaced and
the workspaces are not: the next process to open the store moves them.

`restoring/` has one entry, a folder or a link to one that an earlier restore kept. Its name is the one under
which the current workspaces will be kept in `backups/`.

A restore holds the lock on the data folder from beginning to end. A process that opens the store holds it for
a moment, so none can come in while a restore is under way.
"""

import os
import time
from itertools import count
from pathlib import Path

import apsw

from holdfast.domain.errors import DiskFull, NotAStore, StoreCorrupt, StoreInUse, StoreTooNew, StoreUnreadable
from holdfast.domain.ids import ProcessId
from holdfast.store import archive
from holdfast.store.archive import WORKSPACES
from holdfast.store.plain_files import locked, remove_tree, sync
from holdfast.store.ports import DELETED, Progress, Replaced
from holdfast.store.sqlite.backup import steps
from holdfast.store.sqlite.connection import APPLICATION_ID, Place, translated
from holdfast.store.sqlite.filesystem import is_mount_point
from holdfast.store.sqlite.migrate import FORMAT
from holdfast.store.sqlite.processes import ProcessLock
from holdfast.store.sqlite.sql import rows, run

BACKUPS = "backups"
KEPT = ".workspaces"
"""The workspaces that a restore replaced lie beside the store that it replaced, with this ending."""
_FRESH, _READY, _PART = "restoring.db", "restoring", "restoring.part"
_FIRST_WITH_SHELF = 2


def restore(folder: Path, path: Path, process_id: ProcessId, progress: Progress) -> Replaced:
    """Put the backup at `path` in place of what is here. Return where that is now.

    A backup without workspaces leaves those that are here as they are. Raises StoreInUse while any process
    has the store open; NotAStore, BadBackup, StoreTooNew or StoreCorrupt for a file that would not work.
    Nothing is changed then.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = Place(folder, "full", None, 1.0)
    with locked(folder, place.wait_s) as is_held:
        lock = ProcessLock(folder, process_id)
        try:
            if not is_held or lock.others():
                raise StoreInUse(path=folder)
            with translated(path, place.wait_s):
                clean_up(folder)
                try:
                    return _replace(place, path, progress)
                finally:
                    _discard(folder)
        finally:
            lock.release()


def clean_up(folder: Path) -> None:
    """Finish a restore that was killed after it had replaced the store; discard one that had not.

    The caller holds the lock on the folder.
    """
    _finish(folder)
    _discard(folder)


def _finish(folder: Path) -> None:
    ready, own = folder / _READY, folder / WORKSPACES
    if not ready.exists() or (folder / _FRESH).exists():
        return
    for entry in ready.iterdir():
        waiting = ready / entry.readlink() if entry.is_symlink() else entry
        if os.path.lexists(waiting):
            if os.path.lexists(own):
                (folder / BACKUPS).mkdir(mode=0o700, exist_ok=True)
                own.rename(folder / BACKUPS / entry.name)
                sync(folder / BACKUPS)
            waiting.rename(own)
        entry.unlink(missing_ok=True)
    ready.rmdir()
    sync(folder)


def _replace(place: Place, path: Path, progress: Progress) -> Replaced:
    folder, part = place.folder, place.folder / _PART
    part.mkdir(mode=0o700)
    copy, workspaces, left_out = path, _kept_with(folder, path), list[str]()
    if archive.is_archive(path):
        left_out = archive.unpack(path, part, progress)
        copy, workspaces = part / archive.STORE, part / WORKSPACES
    _verify(copy)
    _copy_back(copy, folder / _FRESH, progress, has_workspaces=workspaces is not None)
    kept = _free_name(folder / BACKUPS)
    if workspaces is not None:
        _check_disk(folder)
        _make_ready(folder, workspaces, kept.with_suffix(KEPT).name)
    was_there = _keep_old(place, kept)
    # The commit point: before it the folder holds the old store, after it the new one.
    (folder / _FRESH).replace(place.file)
    sync(folder)
    _finish(folder)
    aside = kept.with_suffix(KEPT)
    return Replaced(kept if was_there else None, aside if os.path.lexists(aside) else None, tuple(left_out))


def _discard(folder: Path) -> None:
    """Remove what was prepared for a restore that did not come to replace the store."""
    fresh, ready, part = folder / _FRESH, folder / _READY, folder / _PART
    remove_tree(part)
    if fresh.exists() and ready.exists():
        # Gone before `restoring.db` is: without that it would be put in place.
        ready.rename(part)
        sync(folder)
        remove_tree(part)
    for suffix in ("", "-journal"):
        _beside(fresh, suffix).unlink(missing_ok=True)


def _kept_with(folder: Path, path: Path) -> Path | None:
    """Return the workspaces that an earlier restore kept together with the store at `path`, if it did."""
    aside = folder / BACKUPS / path.with_suffix(KEPT).name
    return aside if aside.is_dir() and path.parent.resolve() == aside.parent.resolve() else None


def _check_disk(folder: Path) -> None:
    """Raise StoreUnreadable where the workspaces that are here cannot be moved aside."""
    for path in (folder / WORKSPACES, folder / BACKUPS):
        is_elsewhere = os.path.lexists(path) and path.lstat().st_dev != folder.stat().st_dev
        if is_elsewhere or is_mount_point(path):
            raise StoreUnreadable(path=path, detail="it is on another disk than the data folder")


def _make_ready(folder: Path, workspaces: Path, name: str) -> None:
    part = folder / _PART
    if workspaces.parent == part:
        (part / archive.STORE).unlink()
        workspaces.rename(part / name)
    else:
        # Linked, not moved: they stay where they are kept unless the store is replaced.
        (part / name).symlink_to(Path("..", BACKUPS, workspaces.name))
    os.sync()
    part.rename(folder / _READY)
    sync(folder)


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


def _copy_back(path: Path, fresh: Path, progress: Progress, has_workspaces: bool) -> None:
    """A whole copy through SQLite, so that a log lying beside the file comes along."""
    disk = os.statvfs(fresh.parent)
    if disk.f_bavail * disk.f_frsize < path.stat().st_size:
        raise DiskFull(path=fresh.parent)
    source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    target = apsw.Connection(str(fresh))
    fresh.chmod(0o600)
    try:
        with target.backup("main", source, "main") as backup:
            for done, total in steps(backup):
                progress(done, total)
        target.pragma("journal_mode", "delete")
        if not has_workspaces and target.pragma("user_version") >= _FIRST_WITH_SHELF:
            # These records would apply to the current workspaces, where a deleted session may be back.
            run(target, "delete_items", DELETED)
    finally:
        target.close()
        source.close()
    sync(fresh)


def _free_name(folder: Path) -> Path:
    stem = f"before-restore-{time.strftime('%Y%m%dT%H%M%S')}"
    names = (folder / (f"{stem}-{n}.db" if n else f"{stem}.db") for n in count())
    return next(name for name in names if not name.exists() and not os.path.lexists(name.with_suffix(KEPT)))


def _keep_old(place: Place, kept: Path) -> bool:
    """Give the old store a second name, and leave no log behind that could meet the new file.

    Return whether there was one.
    """
    if place.file.exists():
        _fold_log(place.file)
    left = [path for suffix in ("-wal", "") if (path := _beside(place.file, suffix)).exists()]
    if left:
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        sync(place.folder)
    for path in left:
        os.link(path, _beside(kept, path.name.removeprefix(place.file.name)))
        sync(kept.parent)
    for suffix in ("-wal", "-shm"):
        _beside(place.file, suffix).unlink(missing_ok=True)
    sync(place.folder)
    return bool(left)


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
