"""Migrate a file of any older format to the current one, with a copy of the file before each step."""

import re
import time
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import apsw

from holdfast.domain.errors import NotAStore, StoreCorrupt, StoreTooNew
from holdfast.store.plain_files import atomic_write, create_private_file, fsync_folders, fsync_path
from holdfast.store.sqlite.connection import APPLICATION_ID, StoreLocation
from holdfast.store.sqlite.sql import execute, read_file

FORMAT = 7


def migrations() -> Mapping[int, str]:
    """Return the steps in `migrations/`: `0002_what.sql` brings format 1 to format 2."""
    folder = files(__package__).joinpath("migrations")
    named = {path.name: path for path in folder.iterdir() if re.match(r"\d{4}_.*\.sql$", path.name)}
    return {int(name[:4]): named[name].read_text(encoding="utf-8") for name in sorted(named)}


def prepare(
    db: apsw.Connection, location: StoreLocation, steps: Mapping[int, str] | None = None, target: int = FORMAT
) -> Path | None:
    """Make `db` a store of format `target`; return the copy from before, if it had an older format.

    The caller holds the write lock. Raises NotAStore, StoreTooNew or StoreCorrupt before changing anything.
    """
    if db.pragma("schema_version") == 0:
        if location.marker.exists():
            detail = f"it is empty, though it held a store; to begin anew, remove {location.marker}"
            raise StoreCorrupt(path=location.file, detail=detail)
        _create(db)
    _check(db, location, target)
    found = int(db.pragma("user_version"))
    copies: list[Path] = []
    for number in range(found + 1, target + 1):
        copies.append(_make_backup(db, location, number - 1))
        _run_migration(db, (steps if steps is not None else migrations())[number], number)
    if not location.marker.exists():
        fsync_folders(location.folder)
    # From here on an empty file is a loss to report, not a new store.
    _write_stamp(location, f"A Holdfast store lives here. Format {target}.\n".encode())
    return copies[0] if copies else None


def _write_stamp(location: StoreLocation, text: bytes) -> None:
    """Replace the stamp atomically: the old one stays until the new one is complete."""
    if not location.marker.exists() or location.marker.read_bytes() != text:
        with atomic_write(location.marker) as part:
            part.write_bytes(text)


def _create(db: apsw.Connection) -> None:
    execute(db, "begin")
    with db:
        db.execute(read_file("schema.sql"))
        db.pragma("application_id", APPLICATION_ID)
        db.pragma("user_version", FORMAT)
    execute(db, "commit")
    # On disk whatever the durability: the stamp written next says that a store is here.
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _check(db: apsw.Connection, location: StoreLocation, target: int) -> None:
    if db.pragma("application_id") != APPLICATION_ID:
        raise NotAStore(path=location.file)
    found = int(db.pragma("user_version"))
    if found > target:
        raise StoreTooNew(path=location.file, found=found, known=target)
    log_bytes = location.wal.stat().st_size if location.wal.exists() else 0
    pages, page_bytes = int(db.pragma("page_count")), int(db.pragma("page_size"))
    if not log_bytes and location.file.stat().st_size < pages * page_bytes:
        raise StoreCorrupt(path=location.file, detail="the file is shorter than it should be")


def _make_backup(db: apsw.Connection, location: StoreLocation, number: int) -> Path:
    folder = location.folder / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"format-{number}-{time.strftime('%Y%m%dT%H%M%S')}.db"
    copy_file(db, path)
    fsync_path(location.folder)
    return path


def copy_file(source: apsw.Connection, path: Path) -> None:
    """Copy a file without other writers; the copy appears once it is complete and on disk."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    create_private_file(part)
    target = apsw.Connection(str(part))
    try:
        with target.backup("main", source, "main") as backup:
            backup.step()
        target.pragma("journal_mode", "delete")
    finally:
        target.close()
    fsync_path(part)
    part.replace(path)
    fsync_path(path.parent)


def _run_migration(db: apsw.Connection, sql: str, number: int) -> None:
    execute(db, "begin")
    try:
        db.execute(sql)
        db.pragma("user_version", number)
        execute(db, "commit")
    except BaseException:
        execute(db, "rollback")
        raise
