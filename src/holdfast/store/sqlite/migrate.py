"""From whatever format a file has to this program's, with a copy of the file before each step."""

import re
import time
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path

import apsw

from holdfast.domain.errors import NotAStore, StoreCorrupt, StoreTooNew
from holdfast.store.plain_files import make_own, replacing, sync, sync_names
from holdfast.store.sqlite.connection import APPLICATION_ID, Place
from holdfast.store.sqlite.sql import read, run

FORMAT = 6


def migrations() -> Mapping[int, str]:
    """The steps in `migrations/`: `0002_what.sql` brings format 1 to format 2."""
    folder = files(__package__).joinpath("migrations")
    named = {path.name: path for path in folder.iterdir() if re.match(r"\d{4}_.*\.sql$", path.name)}
    return {int(name[:4]): named[name].read_text(encoding="utf-8") for name in sorted(named)}


def prepare(
    db: apsw.Connection, place: Place, steps: Mapping[int, str] | None = None, target: int = FORMAT
) -> Path | None:
    """Make `db` a store of format `target`; returns the copy of it as it was before, where that was older.

    The caller holds the write turn. Raises NotAStore, StoreTooNew or StoreCorrupt, and has changed nothing
    then.
    """
    if db.pragma("schema_version") == 0:
        if place.stamp.exists():
            detail = f"it is empty, though it held a store; to begin anew, remove {place.stamp}"
            raise StoreCorrupt(path=place.file, detail=detail)
        _create(db)
    _check(db, place, target)
    found = int(db.pragma("user_version"))
    copies: list[Path] = []
    for number in range(found + 1, target + 1):
        copies.append(_keep_copy(db, place, number - 1))
        _step(db, (steps if steps is not None else migrations())[number], number)
    if not place.stamp.exists():
        sync_names(place.folder)
    # From here on an empty file is a loss to be told of, not a new store.
    _write_stamp(place, f"A Holdfast store lives here. Format {target}.\n".encode())
    return copies[0] if copies else None


def _write_stamp(place: Place, text: bytes) -> None:
    """Whole or not at all: while another is written, the one before stays."""
    if not place.stamp.exists() or place.stamp.read_bytes() != text:
        with replacing(place.stamp) as part:
            part.write_bytes(text)


def _create(db: apsw.Connection) -> None:
    run(db, "begin")
    with db:
        db.execute(read("schema.sql"))
        db.pragma("application_id", APPLICATION_ID)
        db.pragma("user_version", FORMAT)
    run(db, "commit")
    # On disk whatever the durability: the stamp that is written next says that a store is here.
    db.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)


def _check(db: apsw.Connection, place: Place, target: int) -> None:
    if db.pragma("application_id") != APPLICATION_ID:
        raise NotAStore(path=place.file)
    found = int(db.pragma("user_version"))
    if found > target:
        raise StoreTooNew(path=place.file, found=found, known=target)
    log_bytes = place.log.stat().st_size if place.log.exists() else 0
    pages, page_bytes = int(db.pragma("page_count")), int(db.pragma("page_size"))
    if not log_bytes and place.file.stat().st_size < pages * page_bytes:
        raise StoreCorrupt(path=place.file, detail="the file is shorter than it should be")


def _keep_copy(db: apsw.Connection, place: Place, number: int) -> Path:
    folder = place.folder / "backups"
    folder.mkdir(mode=0o700, exist_ok=True)
    path = folder / f"format-{number}-{time.strftime('%Y%m%dT%H%M%S')}.db"
    copy_whole(db, path)
    sync(place.folder)
    return path


def copy_whole(source: apsw.Connection, path: Path) -> None:
    """Copy a file that nobody else writes to now; the copy appears once it is complete and on disk."""
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)
    make_own(part)
    target = apsw.Connection(str(part))
    try:
        with target.backup("main", source, "main") as backup:
            backup.step()
        target.pragma("journal_mode", "delete")
    finally:
        target.close()
    sync(part)
    part.replace(path)
    sync(path.parent)


def _step(db: apsw.Connection, sql: str, number: int) -> None:
    run(db, "begin")
    try:
        db.execute(sql)
        db.pragma("user_version", number)
        run(db, "commit")
    except BaseException:
        run(db, "rollback")
        raise
