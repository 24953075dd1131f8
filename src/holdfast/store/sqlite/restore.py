"""Replace the store by a backup, and the workspaces by those of the backup, if it has any.

A restore stages both first: the store as `restoring.db`, the workspaces in `restoring/`. Renaming
`restoring.db` to `holdfast.db` is the commit point. `restoring/` without `restoring.db` means that the store
is replaced and the workspaces are not: the next process to open the store moves them.

`restoring/` has one entry: a folder, or a link to one that an earlier restore kept. The current workspaces
will be kept under its name in `backups/`.

A restore holds the lock on the data folder from beginning to end. A process that opens the store takes that
lock for a moment, so none can open it during a restore.
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
from holdfast.store.maintenance import BackupRestoreResult, Progress
from holdfast.store.plain_files import folder_lock, fsync_path, remove_tree
from holdfast.store.ports import DELETED
from holdfast.store.sqlite.backup import copy_steps
from holdfast.store.sqlite.connection import APPLICATION_ID, StoreLocation, translate_errors
from holdfast.store.sqlite.filesystem import is_mount_point
from holdfast.store.sqlite.migrate import FORMAT
from holdfast.store.sqlite.processes import ProcessLock
from holdfast.store.sqlite.sql import execute, fetch_all

BACKUPS = "backups"
WORKSPACES_SUFFIX = ".workspaces"
"""The suffix of replaced workspaces, which lie beside the store replaced with them."""
_STAGED_STORE, _STAGED_WORKSPACES, _STAGING = "restoring.db", "restoring", "restoring.part"
_FIRST_FORMAT_WITH_KV = 2


def restore(folder: Path, path: Path, process_id: ProcessId, progress: Progress) -> BackupRestoreResult:
    """Replace the store by the backup at `path`. Return where the old store is now.

    A backup without workspaces leaves the current ones alone. Raises StoreInUse while any process has the
    store open; NotAStore, BadBackup, StoreTooNew or StoreCorrupt for an unusable file. Nothing has changed
    then.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    location = StoreLocation(folder, "full", None, 1.0)
    with folder_lock(folder, location.wait_s) as is_held:
        lock = ProcessLock(folder, process_id)
        try:
            if not is_held or lock.living_others():
                raise StoreInUse(path=folder)
            with translate_errors(path, location.wait_s):
                clean_up(folder)
                try:
                    return _replace(location, path, progress)
                finally:
                    _discard_staged(folder)
        finally:
            lock.release()


def clean_up(folder: Path) -> None:
    """Finish a restore that was killed after it had replaced the store; discard one that had not.

    The caller holds the lock on the folder.
    """
    _finish_workspaces(folder)
    _discard_staged(folder)


def _finish_workspaces(folder: Path) -> None:
    ready, own = folder / _STAGED_WORKSPACES, folder / WORKSPACES
    if not ready.exists() or (folder / _STAGED_STORE).exists():
        return
    for entry in ready.iterdir():
        waiting = ready / entry.readlink() if entry.is_symlink() else entry
        if os.path.lexists(waiting):
            if os.path.lexists(own):
                (folder / BACKUPS).mkdir(mode=0o700, exist_ok=True)
                own.rename(folder / BACKUPS / entry.name)
                fsync_path(folder / BACKUPS)
            waiting.rename(own)
        entry.unlink(missing_ok=True)
    ready.rmdir()
    fsync_path(folder)


def _replace(location: StoreLocation, path: Path, progress: Progress) -> BackupRestoreResult:
    folder, part = location.folder, location.folder / _STAGING
    part.mkdir(mode=0o700)
    copy, workspaces, left_out = path, _workspaces_kept_with(folder, path), list[str]()
    if archive.is_archive(path):
        left_out = archive.unpack(path, part, progress)
        copy, workspaces = part / archive.STORE, part / WORKSPACES
    _verify(copy)
    _stage_store(copy, folder / _STAGED_STORE, progress, has_workspaces=workspaces is not None)
    kept = _free_name(folder / BACKUPS)
    if workspaces is not None:
        _check_disk(folder)
        _stage_workspaces(folder, workspaces, kept.with_suffix(WORKSPACES_SUFFIX).name)
    was_there = _set_aside_old_store(location, kept)
    # The commit point: before it the folder holds the old store, after it the new one.
    (folder / _STAGED_STORE).replace(location.file)
    fsync_path(folder)
    _finish_workspaces(folder)
    aside = kept.with_suffix(WORKSPACES_SUFFIX)
    return BackupRestoreResult(
        kept if was_there else None, aside if os.path.lexists(aside) else None, tuple(left_out)
    )


def _discard_staged(folder: Path) -> None:
    """Remove the staged files of a restore that did not replace the store."""
    fresh, ready, part = folder / _STAGED_STORE, folder / _STAGED_WORKSPACES, folder / _STAGING
    remove_tree(part)
    if fresh.exists() and ready.exists():
        # Move it away before `restoring.db` goes: alone, `restoring/` would be put in place.
        ready.rename(part)
        fsync_path(folder)
        remove_tree(part)
    for suffix in ("", "-journal"):
        _with_suffix(fresh, suffix).unlink(missing_ok=True)


def _workspaces_kept_with(folder: Path, path: Path) -> Path | None:
    """Return the workspaces that an earlier restore kept with the store at `path`, if any."""
    aside = folder / BACKUPS / path.with_suffix(WORKSPACES_SUFFIX).name
    return aside if aside.is_dir() and path.parent.resolve() == aside.parent.resolve() else None


def _check_disk(folder: Path) -> None:
    """Raise StoreUnreadable if the current workspaces cannot be moved aside."""
    for path in (folder / WORKSPACES, folder / BACKUPS):
        is_elsewhere = os.path.lexists(path) and path.lstat().st_dev != folder.stat().st_dev
        if is_elsewhere or is_mount_point(path):
            raise StoreUnreadable(path=path, detail="it is on another disk than the data folder")


def _stage_workspaces(folder: Path, workspaces: Path, name: str) -> None:
    part = folder / _STAGING
    if workspaces.parent == part:
        (part / archive.STORE).unlink()
        workspaces.rename(part / name)
    else:
        # A link, not a move: the kept workspaces stay in place until the store is replaced.
        (part / name).symlink_to(Path("..", BACKUPS, workspaces.name))
    os.sync()
    part.rename(folder / _STAGED_WORKSPACES)
    fsync_path(folder)


def _verify(path: Path) -> None:
    if not path.is_file():
        raise NotAStore(path=path)
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        if db.pragma("application_id") != APPLICATION_ID:
            raise NotAStore(path=path)
        if db.pragma("user_version") > FORMAT:
            raise StoreTooNew(path=path, found=db.pragma("user_version"), known=FORMAT)
        found = fetch_all(db, "integrity_check")
        if found != [("ok",)]:
            raise StoreCorrupt(path=path, detail=str(found[0][0]))
    except apsw.NotADBError as error:
        raise NotAStore(path=path) from error
    finally:
        db.close()


def _stage_store(path: Path, fresh: Path, progress: Progress, has_workspaces: bool) -> None:
    """Stage a complete copy through SQLite, so that a log beside the file is included."""
    disk = os.statvfs(fresh.parent)
    if disk.f_bavail * disk.f_frsize < path.stat().st_size:
        raise DiskFull(path=fresh.parent)
    source = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    target = apsw.Connection(str(fresh))
    fresh.chmod(0o600)
    try:
        with target.backup("main", source, "main") as backup:
            for done, total in copy_steps(backup):
                progress(done, total)
        target.pragma("journal_mode", "delete")
        if not has_workspaces and target.pragma("user_version") >= _FIRST_FORMAT_WITH_KV:
            # These records would apply to the current workspaces, where a deleted session may be back.
            execute(target, "delete_items", DELETED)
    finally:
        target.close()
        source.close()
    fsync_path(fresh)


def _free_name(folder: Path) -> Path:
    stem = f"before-restore-{time.strftime('%Y%m%dT%H%M%S')}"
    names = (folder / (f"{stem}-{n}.db" if n else f"{stem}.db") for n in count())
    return next(
        name
        for name in names
        if not name.exists() and not os.path.lexists(name.with_suffix(WORKSPACES_SUFFIX))
    )


def _set_aside_old_store(location: StoreLocation, kept: Path) -> bool:
    """Give the old store a second name, and remove its log, which must not meet the new file.

    Return whether there was a store.
    """
    if location.file.exists():
        _checkpoint_wal(location.file)
    left = [path for suffix in ("-wal", "") if (path := _with_suffix(location.file, suffix)).exists()]
    if left:
        kept.parent.mkdir(mode=0o700, exist_ok=True)
        fsync_path(location.folder)
    for path in left:
        os.link(path, _with_suffix(kept, path.name.removeprefix(location.file.name)))
        fsync_path(kept.parent)
    for suffix in ("-wal", "-shm"):
        _with_suffix(location.file, suffix).unlink(missing_ok=True)
    fsync_path(location.folder)
    return bool(left)


def _checkpoint_wal(file: Path) -> None:
    """Copy a log that a crash left back into its file. A damaged store keeps its log."""
    try:
        db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            # A connection does not know the log before its first read.
            db.pragma("schema_version")
            db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
        finally:
            db.close()
    except apsw.Error:
        return


def _with_suffix(file: Path, suffix: str) -> Path:
    return file.with_name(file.name + suffix)
