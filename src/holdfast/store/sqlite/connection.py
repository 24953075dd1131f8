"""Open the file: check it, set up each connection, and translate SQLite's errors."""

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import apsw

from holdfast.domain.errors import (
    DiskFull,
    HoldfastError,
    NotAStore,
    SqliteTooOld,
    StoreBusy,
    StoreCorrupt,
    StoreFault,
    StoreReadOnly,
    StoreUnreadable,
)
from holdfast.store.plain_files import create_private_file
from holdfast.store.ports import Durability

SQLITE_MIN = (3, 51, 3)
APPLICATION_ID = 0x484F4C44  # "HOLD"
WRITE_WAIT_S = 30.0
"""Longest wait for another writer before the store reports a fault."""
_MAGIC = b"SQLite format 3\x00"
_HEAD_BYTES = 100
_WRITER_CACHE_KIB, _READER_CACHE_KIB = 32_000, 8_000
T = TypeVar("T")


class StoreLocation:
    """A store's paths and the options to open it with."""

    def __init__(self, folder: Path, durability: Durability, vfs: str | None, wait_s: float) -> None:
        self.folder = folder
        self.file = folder / "holdfast.db"
        self.name = str(self.file)
        self.wal = folder / "holdfast.db-wal"
        self.journal = folder / "holdfast.db-journal"
        self.shm = folder / "holdfast.db-shm"
        self.marker = folder / "format"
        """Marks that a store was created here: without it an empty folder is a new store, with it a lost one.
        """
        self.durability = durability
        self.vfs = vfs
        self.wait_s = wait_s


def connect(location: StoreLocation, *, writes: bool) -> apsw.Connection:
    """Open a connection for one thread. Raises a StoreFault that says what to do."""
    with translate_errors(location.file, location.wait_s):
        if writes:
            _check_before_opening(location)
            create_private_file(location.file)
        flags = apsw.SQLITE_OPEN_READWRITE | (apsw.SQLITE_OPEN_CREATE if writes else 0)
        db = apsw.Connection(str(location.file), flags=flags, vfs=location.vfs, statementcachesize=200)
        try:
            _set_up(db, location, writes)
        except BaseException:
            db.close()
            raise
        return db


def inode(location: StoreLocation) -> int:
    """Return the inode of the store's file; 0 if there is none."""
    try:
        return os.stat(location.name).st_ino  # noqa: PTH116 (once per commit, and half the price)
    except FileNotFoundError:
        return 0


def _check_before_opening(location: StoreLocation) -> None:
    """Refuse a foreign or lost file before SQLite opens it.

    Opening writes, and beside an empty file it removes the log, which may hold acknowledged writes.
    """
    head = b""
    if location.file.exists():
        with location.file.open("rb") as file:
            head = file.read(_HEAD_BYTES)
    if not head:
        if location.marker.exists():
            what = "empty" if location.file.exists() else "missing"
            detail = f"it is {what}, though it held a store; to begin anew, remove {location.marker}"
            raise StoreCorrupt(path=location.file, detail=detail)
        return
    if location.wal.exists() or location.journal.exists():
        return  # SQLite recovers what a crash left in the file, its header included, from these.
    if len(head) < _HEAD_BYTES or not head.startswith(_MAGIC):
        raise StoreCorrupt(path=location.file, detail="it is not a database")
    owner, changes = int.from_bytes(head[68:72]), int.from_bytes(head[40:44])
    # No owner, and no table was ever created: the creating process died before that.
    if owner != APPLICATION_ID and (owner or changes):
        raise NotAStore(path=location.file)


def _set_up(db: apsw.Connection, location: StoreLocation, writes: bool) -> None:
    db.set_busy_timeout(int(location.wait_s * 1000))
    db.pragma("cell_size_check", True)
    if writes:
        if db.pragma("schema_version") == 0:
            # Lets the sweeper free space in slices. Only for a new file: the pragma writes to it.
            db.pragma("auto_vacuum", "incremental")
        db.pragma("journal_mode", "wal")
        db.pragma("synchronous", "full" if location.durability == "full" else "normal")
        db.pragma("fullfsync", location.durability == "full")
        db.pragma("checkpoint_fullfsync", location.durability == "full")
        db.pragma("cache_size", -_WRITER_CACHE_KIB)
        db.wal_autocheckpoint(0)
    else:
        db.pragma("query_only", True)
        db.pragma("cache_size", -_READER_CACHE_KIB)


def check_library() -> None:
    """Raise SqliteTooOld if the library can damage a file that several processes write."""
    found = tuple(int(n) for n in apsw.sqlite_lib_version().split("."))
    if found < SQLITE_MIN:
        raise SqliteTooOld(found=apsw.sqlite_lib_version(), needed=".".join(map(str, SQLITE_MIN)))


@contextmanager
def translate_errors(path: Path, wait_s: float) -> Iterator[None]:
    """Turn SQLite's errors into the store's own, which say what to do."""
    try:
        yield
    except apsw.Error as error:
        raise as_fault(error, path, wait_s) from error
    except OSError as error:
        raise as_fault(error, path, wait_s) from error


def as_fault(error: BaseException, path: Path, wait_s: float) -> HoldfastError:
    """Return the store's error for an error of SQLite or the system."""
    match error:
        case HoldfastError():
            return error
        case apsw.FullError():
            return DiskFull(path=path)
        case apsw.BusyError() | apsw.LockedError():
            return StoreBusy(seconds=round(wait_s), path=path)
        case apsw.ReadOnlyError() | apsw.PermissionsError() | PermissionError():
            return StoreReadOnly(path=path)
        case apsw.CantOpenError():
            return _cannot_open(error, path)
        case apsw.CorruptError() | apsw.NotADBError() | apsw.FormatError():
            return StoreCorrupt(path=path, detail=str(error))
        case apsw.IOError() if getattr(error, "extendedresult", 0) == apsw.SQLITE_IOERR_SHORT_READ:
            return StoreCorrupt(path=path, detail="the file is shorter than it should be")
        case FileExistsError() | NotADirectoryError():
            return StoreUnreadable(path=path, detail="there is a file where a folder should be")
        case FileNotFoundError():
            return StoreUnreadable(path=path, detail="it cannot be made there")
        case OSError() if error.errno == 28:
            return DiskFull(path=path)
        case OSError() if error.errno == 30:
            return StoreReadOnly(path=path)
        case _:
            return StoreFault(detail=f"{type(error).__name__}: {error}")


def _cannot_open(error: BaseException, path: Path) -> HoldfastError:
    folder = path.parent
    if folder.is_dir() and not os.access(folder, os.W_OK):
        return StoreReadOnly(path=folder)
    return StoreUnreadable(path=path, detail=str(error))


async def open_in_thread(open_: Callable[[], T], close: Callable[[T], None]) -> T:
    """Return the result of `open_`, run in a thread; close it if the caller is cancelled."""
    opening = asyncio.ensure_future(asyncio.to_thread(open_))
    try:
        return await asyncio.shield(opening)
    except asyncio.CancelledError:
        await asyncio.wait([opening])
        if opening.exception() is None:
            close(opening.result())
        raise
