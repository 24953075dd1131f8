"""Check that the store agrees with its journal, and repair it where it does not.

SQLite checks a copy of the file: an integrity check reads everything in one transaction, and no read of the
live file may take that long. Doctor compares projections session by session. A repair writes only the rows
that differ, in one transaction per session.
"""

import os
from collections.abc import Awaitable, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol

import apsw
import msgspec

from holdfast.domain.errors import StoreCorrupt
from holdfast.domain.events.codec import Event, decode
from holdfast.domain.events.facts import BODY_KINDS, Body
from holdfast.domain.events.parts import message_text
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.search_text import index_text
from holdfast.domain.state.projections import fold
from holdfast.domain.state.session_state import InMemorySessionState
from holdfast.store.maintenance import Progress, StoreFinding
from holdfast.store.sqlite import backup, notes
from holdfast.store.sqlite.bodies import decompress, event_from_row
from holdfast.store.sqlite.connection import StoreLocation
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.readers import ReaderPool
from holdfast.store.sqlite.sql import (
    MESSAGES,
    QUEUED_COMMITS,
    RUNS,
    SESSIONS,
    TOOLS,
    TURNS,
    Columns,
    R,
    execute,
    fetch_all,
    fetch_one,
    fetch_value,
    read_transaction,
)
from holdfast.store.sqlite.views import count_sessions

SLICE_EVENTS = 1_000
Difference = tuple[str, tuple[Any, ...], tuple[Any, ...] | None]
"""Table, key, and the expected columns; None if no row should be there."""


def next_session(db: apsw.Connection, after: int) -> tuple[int, SessionId] | None:
    row = fetch_one(db, "sessions_after", after)
    return (row[0], SessionId(row[1])) if row is not None else None


def read_slice(db: apsw.Connection, no: int, after: Seq) -> list[Event]:
    return [event_from_row(row) for row in fetch_all(db, "read_events", no, after, SLICE_EVENTS)]


class SessionFold:
    """The fold of one session's journal, built in slices, with the defects of the journal itself."""

    def __init__(self, session_id: SessionId) -> None:
        self.session_id = session_id
        self.state = InMemorySessionState()
        self.head: Seq = 0
        self._unreadable: list[str] = []
        self._gaps: list[tuple[Seq, Seq]] = []

    def add(self, events: list[Event]) -> None:
        for event in events:
            if event.seq != self.head + 1:
                self._gaps.append((self.head + 1, event.seq - 1))
            try:
                fold(self.session_id, (event,), self.state)
            except msgspec.ValidationError as error:
                self._unreadable.append(f"event {event.seq} ({event.kind}) cannot be read: {error}")
            self.head = event.seq

    def problems(self) -> list[str]:
        """Return what no rebuild can repair: events that are damaged, or missing but not pruned."""
        spans = sorted((row.first_seq, row.body_seq) for row in self.state.messages.values())
        lost = [gap for gap in self._gaps if not _is_pruned(gap, spans)]
        return self._unreadable + [f"events {first} to {last} are missing" for first, last in lost]


def _is_pruned(gap: tuple[Seq, Seq], spans: list[tuple[Seq, Seq]]) -> bool:
    """Return whether a gap lies between a message's first event and its body, where deltas are pruned."""
    return any(first < gap[0] and gap[1] < body for first, body in spans)


def compare(db: apsw.Connection, no: int, session_fold: SessionFold) -> list[str]:
    """Return the names of the rows that differ from the fold, as of one moment."""
    with read_transaction(db):
        while events := read_slice(db, no, session_fold.head):
            session_fold.add(events)
        differing = list(differences(db, no, session_fold.state))
    return [f"{table} {'.'.join(map(str, key))}" for table, key, _ in differing]


def differences(db: apsw.Connection, no: int, state: InMemorySessionState) -> Iterator[Difference]:
    """Yield each row that is wrong, missing or surplus."""
    yield from _table_differences(db, no, "turn", TURNS, state.turns.values(), lambda row: (row.turn,))
    yield from _table_differences(db, no, "run", RUNS, state.runs.values(), lambda row: (row.id,))
    yield from _table_differences(db, no, "tool", TOOLS, state.tools.values(), lambda row: (row.id,))
    yield from _table_differences(
        db, no, "message", MESSAGES, state.messages.values(), lambda row: (row.turn, row.place)
    )
    yield from _table_differences(
        db, no, "queued_commit", QUEUED_COMMITS, state.queued_commits.values(), lambda row: (row.n,)
    )
    stored = SESSIONS.read(fetch_all(db, "get_session", no)[0])
    if state.row is not None and stored != state.row:
        yield "session", (no,), SESSIONS.write(state.row)


def _table_differences(
    db: apsw.Connection,
    no: int,
    table: str,
    columns: Columns[R],
    expected: Iterable[R],
    key_of: Callable[[R], tuple[Any, ...]],
) -> Iterator[Difference]:
    stored = {key_of(row): row for row in map(columns.read, fetch_all(db, f"all_{table}s", no))}
    for row in expected:
        if stored.pop(key_of(row), None) != row:
            yield table, key_of(row), columns.write(row)
    for key in stored:
        yield table, key, None


def repair_session(tx: Tx, no: int, session_fold: SessionFold) -> int:
    """Bring `session_fold` up to date in the transaction and write the rows that differ; return how many."""
    while events := read_slice(tx.db, no, session_fold.head):
        session_fold.add(events)
    differing = list(differences(tx.db, no, session_fold.state))
    for table, key, columns in differing:
        if table == "session":
            execute(tx.db, "update_session", *(columns or ()), no)
        elif columns is None:
            execute(tx.db, f"delete_{table}", no, *key)
        else:
            execute(tx.db, f"put_{table}", no, *columns)
    return len(differing)


def unindexed(db: apsw.Connection, after: int) -> tuple[int, int]:
    """Return how many bodies of one slice the index lacks, and where the slice ended (0: at the cursor)."""
    end = missing = 0
    # One snapshot: another process may be purging a session, its events together with its words.
    with read_transaction(db):
        limit = fetch_value(db, "search_cursor")
        for position, kind, version, body in fetch_all(db, "unindexed", after, SLICE_EVENTS):
            if position > limit:
                return missing, 0
            end = position
            has_words = kind in BODY_KINDS and _is_indexable(kind, version, decompress(body))
            if has_words and not _is_indexed(db, position):
                missing += 1
    return missing, end


def reset_search(tx: Tx) -> None:
    execute(tx.db, "clear_search")
    execute(tx.db, "move_search_cursor", 0)


def file_findings(path: Path) -> list[StoreFinding]:
    """Return what SQLite itself finds wrong with a copy of the file."""
    db = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        found = [str(row[0]) for row in fetch_all(db, "integrity_check")]
        for table, count in fetch_all(db, "orphans"):
            if count:
                found.append(f"{count} rows of {table} belong to no conversation")
    except apsw.Error as error:
        found = [str(error)]
    finally:
        db.close()
    return [StoreFinding("file", what) for what in found if what != "ok"]


def _is_indexable(kind: str, version: int, body: bytes) -> bool:
    try:
        fact = decode(kind, version, body)
    except msgspec.ValidationError:
        return False  # The check of its session reports the damage.
    return isinstance(fact, Body) and bool(index_text(message_text(fact.parts)))


def _is_indexed(db: apsw.Connection, position: int) -> bool:
    return fetch_one(db, "is_indexed", position) is not None


class RunInTransaction(Protocol):
    """Run work inside a write transaction."""

    def __call__(self, work: Callable[[Tx], Any]) -> Awaitable[Any]: ...


class StoreCheck:
    """Check one store."""

    def __init__(self, location: StoreLocation, readers: ReaderPool, write: RunInTransaction) -> None:
        self._location = location
        self._readers = readers
        self._write = write

    async def run(self, repair: bool, progress: Progress) -> list[StoreFinding]:
        found = await self._check_file(progress)
        try:
            found += await self._check_sessions(repair, progress)
            found += await self._check_search(repair)
            found += await self._check_notes(repair)
        except StoreCorrupt as fault:
            # A damaged file may not be readable to the end; report what was found until then.
            found.append(StoreFinding("file", str(fault)))
        return found

    async def _check_file(self, progress: Progress) -> list[StoreFinding]:
        copy = self._location.folder / "checking.db"
        disk = os.statvfs(self._location.folder)
        size, free = self._location.file.stat().st_size, disk.f_bavail * disk.f_frsize
        if free < 2 * size:
            what = f"not checked: a copy needs {size // 1_000_000} MB more free disk than there is"
            return [StoreFinding("file", what)]
        try:
            await self._readers.run(backup.copy_store, self._location, copy, progress)
            return await self._readers.run(file_findings, copy)
        finally:
            copy.unlink(missing_ok=True)

    async def _check_sessions(self, repair: bool, progress: Progress) -> list[StoreFinding]:
        found: list[StoreFinding] = []
        done, total, no = 0, await self._readers.read(count_sessions), 0
        while (session := await self._readers.read(next_session, no)) is not None:
            no = session[0]
            found += await self._check_session(no, session[1], repair)
            done += 1
            progress(done, max(done, total))
        return found

    async def _check_session(self, no: int, session_id: SessionId, repair: bool) -> list[StoreFinding]:
        session_fold = SessionFold(session_id)
        # Fold outside any transaction, a slice at a time; `compare` reads only the last few events inside
        # one.
        while events := await self._readers.read(read_slice, no, session_fold.head):
            session_fold.add(events)
        differing = await self._readers.read(compare, no, session_fold)
        where = f"conversation {session_id}"
        faults = [StoreFinding(where, fault) for fault in session_fold.problems()]
        if differing and repair:
            await self._write(lambda tx: repair_session(tx, no, session_fold))
        return faults + [
            StoreFinding(where, f"{row} does not say what was recorded", repaired=repair) for row in differing
        ]

    async def _check_search(self, repair: bool) -> list[StoreFinding]:
        missing = after = 0
        while True:
            more, after = await self._readers.read(unindexed, after)
            missing += more
            if not after:
                break
        if not missing:
            return []
        if repair:
            await self._write(reset_search)
        return [StoreFinding("search", f"{missing} messages are not in the index", repaired=repair)]

    async def _check_notes(self, repair: bool) -> list[StoreFinding]:
        misindexed = await self._readers.read(notes.count_misindexed)
        if misindexed and repair:
            await self._write(notes.repair_index)
        what = f"{misindexed} notes are not in the index as they are remembered"
        return [StoreFinding("notes", what, repaired=repair)] if misindexed else []
