"""SQLite behind the ports: puts the parts of this package together and adds nothing of its own.

Notes and chats, which are ports of their own, are in `note_store` and `chat_store`.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TypeVar

from holdfast.domain.clock import Clock, Instant, SystemClock
from holdfast.domain.errors import ImportConflict, StoreInUse, TooLarge
from holdfast.domain.events.codec import Event
from holdfast.domain.events.facts import Ranges
from holdfast.domain.ids import Ids, ProcessId, RunId, Seq, SessionId
from holdfast.domain.limits import BLOB_BYTES_MAX, ITEM_BYTES_MAX, READ_BYTES_MAX, READ_EVENTS_MAX
from holdfast.domain.state.changes import Change
from holdfast.domain.state.rows import Debt, DebtRow, RunRow, SessionRow, ToolRow
from holdfast.store.archive import WORKSPACES
from holdfast.store.commit_metrics import CommitMeter
from holdfast.store.hub import Follower, Hub, News, Watch, following, tail
from holdfast.store.plain_files import keep_own, locked
from holdfast.store.ports import (
    Append,
    Durability,
    Finding,
    Hit,
    Lease,
    Message,
    MessagePage,
    Progress,
    Receipt,
    SessionPage,
    Snapshot,
    Swept,
    Totals,
)
from holdfast.store.session_status import Question, Standing, Survey
from holdfast.store.sqlite import (
    backup,
    blobs,
    journal,
    key_value,
    leases,
    memory_queue,
    restore,
    search,
    session_status,
    snapshot,
    sweeper,
    views,
)
from holdfast.store.sqlite.chat_store import ChatStore
from holdfast.store.sqlite.checkpoints import WAL_BYTES_MAX
from holdfast.store.sqlite.committer import SqliteCommitter
from holdfast.store.sqlite.connection import WRITE_WAIT_S, Place, check_library, opened, translated
from holdfast.store.sqlite.doctor import Checkup
from holdfast.store.sqlite.filesystem import refuse_network
from holdfast.store.sqlite.note_store import NoteStore
from holdfast.store.sqlite.processes import ProcessLock
from holdfast.store.sqlite.readers import Readers
from holdfast.store.writer import Writer

T = TypeVar("T")
ADOPT_EVENTS_PER_CHANGE = 20_000
"""An import of up to so many events is one change: no server sees it half, and takes up work in it."""


class SqliteStore(NoteStore, ChatStore):
    """One file that any number of processes share. Open it with `open`; belongs to one event loop."""

    def __init__(
        self,
        place: Place,
        clock: Clock,
        lock: ProcessLock,
        readers: Readers,
        writer: Writer,
        hub: Hub,
        copy_before: Path | None = None,
    ) -> None:
        super().__init__(clock, lock, readers, writer)
        self._place = place
        self._hub = hub
        self._copy_before = copy_before
        self._lease_grace = leases.LeaseGrace()

    @classmethod
    async def open(
        cls,
        folder: Path,
        durability: Durability = "full",
        *,
        clock: Clock | None = None,
        vfs: str | None = None,
        wait_s: float = WRITE_WAIT_S,
        wal_bytes_max: int = WAL_BYTES_MAX,
    ) -> "SqliteStore":
        """Open the store in `folder`, or make it there. Raises a StoreFault that says what to do."""
        clock = clock or SystemClock()
        check_library()
        place = Place(folder, durability, vfs, wait_s)
        lock = await opened(lambda: _move_in(place, clock), ProcessLock.release)
        loop, hub = asyncio.get_running_loop(), Hub()

        def tell(news: News) -> None:
            loop.call_soon_threadsafe(hub.publish, news)

        try:
            committer = await opened(
                lambda: SqliteCommitter(place, clock, tell, wal_bytes_max), SqliteCommitter.close
            )
        except BaseException:
            lock.release()
            raise
        writer = Writer(committer, hub.publish)
        return cls(place, clock, lock, Readers(place), writer, hub, committer.copy_before)

    async def close(self) -> None:
        await self._writer.close()
        await asyncio.to_thread(self._readers.close)
        self._lock.release()
        # Tails that wait find out that the store is closed.
        self._hub.wake()

    # The journal.

    async def append(self, *appends: Append) -> tuple[Receipt, ...]:
        await self._writer.room()
        return await asyncio.shield(self._writer.submit(*appends))

    def submit(self, append: Append) -> "asyncio.Future[tuple[Receipt, ...]]":
        return self._writer.submit(append)

    @property
    def has_room(self) -> bool:
        return self._writer.has_room

    async def room(self) -> None:
        await self._writer.room()

    def note_changes(self, note: Callable[[Change], None]) -> None:
        self._writer.notes.append(note)

    async def read(self, session_id: SessionId, after: Seq, limit: int) -> Sequence[Event]:
        return await self._readers.read(views.events, session_id, after, limit)

    def tail(self, session_id: SessionId, after: Seq) -> AsyncIterator[Event]:
        return tail(self._hub, self._read_on, session_id, after)

    def follow(
        self, session_id: SessionId, after: Seq, ring: Callable[[], None]
    ) -> AbstractContextManager[Follower]:
        return following(self._hub, self._read_on, session_id, after, ring)

    async def adopt(self, session_id: SessionId, events: Sequence[Event], closes: bool = False) -> int:
        await self._refuse_conflict(session_id, events)
        count = 0
        for start in range(0, len(events), ADOPT_EVENTS_PER_CHANGE):
            end = start + ADOPT_EVENTS_PER_CHANGE
            count += await self._adopt_slice(session_id, events[start:end], closes and end >= len(events))
        return count

    # Views.

    async def snapshot(self, query: Callable[[Snapshot], T], searches: bool = False) -> T:
        if searches:
            await self._index_all()
        return await self._readers.read(snapshot.read, query)

    async def session(self, session_id: SessionId) -> SessionRow:
        return await self._readers.read(views.session, session_id)

    async def head(self, session_id: SessionId) -> Seq:
        return (await self._readers.read(views.locate, session_id))[1]

    async def sessions(
        self, cursor: str | None, limit: int, archived: bool = False, words: Sequence[str] = ()
    ) -> SessionPage:
        return await self._readers.read(views.sessions, cursor, limit, archived, words)

    async def messages(self, session_id: SessionId, before: str | None, limit: int) -> MessagePage:
        return await self._readers.read(views.messages, session_id, before, limit)

    async def prepared(
        self, session_id: SessionId, from_turn: int, before: Seq | None = None
    ) -> Sequence[Event]:
        return await self._readers.read(views.prepared, session_id, from_turn, before)

    async def summary(self, session_id: SessionId) -> tuple[Event | None, Seq]:
        return await self._readers.read(views.summary, session_id)

    async def successor(self, session_id: SessionId) -> SessionId | None:
        return await self._readers.read(views.successor, session_id)

    async def buried(self, session_id: SessionId) -> int:
        return await self._readers.read(views.buried, session_id)

    async def run(self, run_id: RunId) -> tuple[SessionId, RunRow]:
        return await self._readers.read(views.find_run, run_id)

    async def active_runs(self) -> Sequence[tuple[SessionId, RunRow]]:
        return await self._readers.read(views.active_runs)

    async def open_runs(self) -> Sequence[tuple[SessionId, RunRow]]:
        return await self._readers.read(views.open_runs)

    async def pending_runs(self) -> Sequence[tuple[SessionId, RunRow]]:
        return await self._readers.read(views.pending_runs)

    async def runs(self, session_id: SessionId, first: int, last: int) -> Sequence[RunRow]:
        return await self._readers.read(views.runs_of_turns, session_id, first, last)

    async def tools(self, session_id: SessionId, run_id: RunId) -> Sequence[ToolRow]:
        return await self._readers.read(views.open_tools, session_id, run_id)

    async def search(self, query: str, limit: int, session_id: SessionId | None = None) -> Sequence[Hit]:
        return await self.snapshot(lambda seen: seen.search(query, limit, session_id), searches=True)

    async def totals(self) -> Totals:
        return await self._readers.read(views.totals, self._place.file)

    # Attention.

    async def survey(self) -> Survey:
        return await self._readers.read(session_status.survey)

    async def standings(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, Standing]:
        return await self._readers.read(session_status.standings, session_ids)

    async def questions(self, limit: int) -> Sequence[Question]:
        return await self._readers.read(session_status.questions, limit)

    async def unread(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        return await self._readers.read(session_status.unread, session_ids)

    async def see(self, session_id: SessionId, seq: Seq) -> None:
        if await self._do(lambda tx: session_status.see(tx, session_id, seq)):
            self._hub.touch(frozenset({session_id}))

    async def pin(self, session_id: SessionId, pinned: bool) -> None:
        if await self._do(lambda tx: session_status.pin(tx, session_id, pinned)):
            self._hub.touch(frozenset({session_id}))

    async def pinned(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        return await self._readers.read(session_status.pinned, session_ids)

    async def seen_since(self, number: int) -> tuple[int, frozenset[SessionId] | None]:
        return await self._readers.read(session_status.seen_since, number)

    def watch(self, ring: Callable[[], None]) -> AbstractContextManager[Watch]:
        return self._hub.watch(ring)

    # Debts.

    async def debts(self, session_id: SessionId, buried: bool = False) -> Sequence[DebtRow]:
        return await self._readers.read(memory_queue.debts, session_id, buried)

    async def owing(self, session_id: SessionId) -> Sequence[Debt]:
        return await self._readers.read(memory_queue.owing, session_id)

    async def open_debts(self, limit: int) -> Sequence[Debt]:
        return await self._readers.read(memory_queue.open_debts, limit)

    async def due_debts(
        self, quiet_since: Instant, now: Instant, limit: int, resting: Sequence[str] = ()
    ) -> Sequence[Debt]:
        return await self._readers.read(memory_queue.due_debts, quiet_since, now, limit, resting)

    async def debt_totals(self) -> tuple[int, Instant]:
        return await self._readers.read(memory_queue.totals)

    async def told(self, session_id: SessionId, turns: Ranges, number: int = 0) -> Sequence[Message]:
        return await self._readers.read(memory_queue.told, session_id, turns, number)

    # Leases.

    async def claim(self, run_id: RunId, lease_ms: int) -> Lease:
        lock, grace = self._lock, self._lease_grace
        return await self._do(
            lambda tx: leases.claim(tx, run_id, lock.process_id, lease_ms, lock.is_alive, grace)
        )

    async def renew(self, lease: Lease, lease_ms: int) -> Lease:
        return await self._do(lambda tx: leases.renew(tx, lease, lease_ms))

    def is_alive(self, process_id: ProcessId) -> bool:
        return self._lock.is_alive(process_id)

    @property
    def own_process(self) -> ProcessId:
        return self._lock.process_id

    async def release(self, lease: Lease) -> None:
        await self._do(lambda tx: leases.release(tx, lease))

    async def claim_name(self, name: str, lease_ms: int) -> Lease:
        lock, grace = self._lock, self._lease_grace
        return await self._do(
            lambda tx: leases.claim_name(tx, name, lock.process_id, lease_ms, lock.is_alive, grace)
        )

    # Blobs.

    async def put_blob(self, content: bytes) -> str:
        if len(content) > BLOB_BYTES_MAX:
            raise TooLarge(what="A file", size=len(content), limit=BLOB_BYTES_MAX)
        digest = await asyncio.to_thread(blobs.digest_of, content)
        number, complete = await self._do(lambda tx: blobs.begin(tx, digest))
        pieces = [] if complete else blobs.chunks(content)
        for n, piece in enumerate(pieces):
            await self._put_chunk(number, n, piece, last=n == len(pieces) - 1)
        return digest

    async def get_blob(self, digest: str) -> bytes:
        return await self._readers.read(blobs.get, digest)

    # The shelf.

    async def put_item(self, kind: str, item_id: str, body: bytes) -> None:
        if len(body) > ITEM_BYTES_MAX:
            raise TooLarge(what="An item", size=len(body), limit=ITEM_BYTES_MAX)
        await self._do(lambda tx: key_value.put(tx, kind, item_id, body))

    async def take_item(self, kind: str, item_id: str) -> bytes | None:
        return await self._do(lambda tx: key_value.take(tx, kind, item_id))

    async def swap_item(self, kind: str, item_id: str, before: bytes, after: bytes | None) -> bool:
        if after is not None and len(after) > ITEM_BYTES_MAX:
            raise TooLarge(what="An item", size=len(after), limit=ITEM_BYTES_MAX)
        return await self._do(lambda tx: key_value.swap(tx, kind, item_id, before, after))

    async def item(self, kind: str, item_id: str) -> bytes | None:
        return await self._readers.read(key_value.item, kind, item_id)

    async def items(self, kind: str) -> Mapping[str, bytes]:
        return await self._readers.read(key_value.items, kind)

    # Upkeep.

    @property
    def copy_before(self) -> Path | None:
        return self._copy_before

    @property
    def commits(self) -> CommitMeter:
        return self._writer.meter

    async def sweep(self) -> Swept:
        swept = Swept()
        while (slice_ := await self._do(sweeper.sweep_slice)) is not None:
            swept = sweeper.total(swept, slice_)
        while (freed := await self._do(sweeper.vacuum_slice)) > 0:
            swept = sweeper.total(swept, Swept(bytes_freed=freed))
        return swept

    async def check(self, mend: bool, progress: Progress) -> Sequence[Finding]:
        await self._index_all()
        found = await Checkup(self._place, self._readers, self._do).run(mend, progress)
        await self._index_all()
        return found

    async def backup(self, path: Path, progress: Progress) -> None:
        await self._readers.run(backup.copy, self._place, path, progress)

    async def _read_on(self, session_id: SessionId, after: Seq, limit: int) -> Sequence[Event]:
        """For those who follow: what they hold until it is taken is bounded in bytes too."""
        return await self._readers.read(views.events, session_id, after, limit, READ_BYTES_MAX)

    async def _put_chunk(self, number: int, n: int, piece: bytes, last: bool) -> None:
        await self._do(lambda tx: blobs.put_chunk(tx, number, n, piece, last))

    async def _index_all(self) -> None:
        newest = await self._readers.read(views.newest_event)
        while True:
            start, end, words = await self._readers.read(search.next_slice)
            if start >= newest or end == start:
                return
            await self._add_words(start, end, words)

    async def _add_words(self, start: int, end: int, words: list[tuple[int, str]]) -> None:
        await self._do(lambda tx: search.add_slice(tx, start, end, words))

    async def _adopt_slice(self, session_id: SessionId, events: Sequence[Event], closes: bool) -> int:
        return await self._do(lambda tx: journal.adopt(tx, session_id, events, closes))

    async def _refuse_conflict(self, session_id: SessionId, events: Sequence[Event]) -> None:
        if await self._readers.read(views.find, session_id) is None:
            return
        theirs, after = {event.seq: event for event in events}, 0
        while here := await self.read(session_id, after, READ_EVENTS_MAX):
            for event in here:
                # Either copy may have pruned its deltas already: only a difference is a conflict.
                if theirs.get(event.seq, event) != event:
                    raise ImportConflict(session_id=session_id, seq=event.seq)
            after = here[-1].seq


def _move_in(place: Place, clock: Clock) -> ProcessLock:
    with translated(place.folder, place.wait_s):
        place.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_network(place.folder)
        # Others may enter the folder: it was there before, or somebody let them.
        for path in (place.file, place.log, place.index, place.stamp, place.folder / WORKSPACES):
            keep_own(path)
        with locked(place.folder, place.wait_s) as is_held:
            if not is_held:
                raise StoreInUse(path=place.folder)
            restore.clean_up(place.folder)
            lock = ProcessLock(place.folder, Ids(clock).process())
        lock.others()  # Whoever comes in clears away what the dead have left.
        return lock
