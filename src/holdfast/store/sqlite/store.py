"""The `Store` port over SQLite: connects the parts of this package.

`note_store` and `chat_store` implement the ports for notes and chats.
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
from holdfast.domain.ids import IdGenerator, ProcessId, RunId, Seq, SessionId
from holdfast.domain.limits import BLOB_BYTES_MAX, KV_ITEM_BYTES_MAX, READ_BYTES_MAX, READ_EVENTS_MAX
from holdfast.domain.state.changes import CommittedChange
from holdfast.domain.state.rows import QueuedCommit, QueuedCommitRow, RunRow, SessionRow, ToolRow
from holdfast.store.archive import WORKSPACES
from holdfast.store.commit_metrics import CommitMetrics
from holdfast.store.hub import CommittedEvents, Hub, HubFollower, HubWatch, open_follower, tail
from holdfast.store.maintenance import Progress, StoreFinding, SweepResult
from holdfast.store.plain_files import folder_lock, make_private
from holdfast.store.ports import (
    Append,
    AppendReceipt,
    Durability,
    Lease,
    MessagePage,
    SearchHit,
    SessionPage,
    Snapshot,
    StoredMessage,
    StoreTotals,
)
from holdfast.store.session_status import OpenQuestion, SessionOverview, SessionStatus
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
from holdfast.store.sqlite.chat_store import SqliteChatStore
from holdfast.store.sqlite.checkpoints import WAL_BYTES_MAX
from holdfast.store.sqlite.committer import SqliteCommitter
from holdfast.store.sqlite.connection import (
    WRITE_WAIT_S,
    StoreLocation,
    check_library,
    open_in_thread,
    translate_errors,
)
from holdfast.store.sqlite.doctor import StoreCheck
from holdfast.store.sqlite.filesystem import refuse_network
from holdfast.store.sqlite.note_store import SqliteNoteStore
from holdfast.store.sqlite.processes import ProcessLock
from holdfast.store.sqlite.readers import ReaderPool
from holdfast.store.writer import Writer

T = TypeVar("T")
IMPORT_EVENTS_PER_CHANGE = 20_000
"""An import of up to this many events is one change, so no server sees it half and resumes work in it."""


class SqliteStore(SqliteNoteStore, SqliteChatStore):
    """A store in one file that many processes can share. Open it with `open`; use it on one event loop."""

    def __init__(
        self,
        location: StoreLocation,
        clock: Clock,
        lock: ProcessLock,
        readers: ReaderPool,
        writer: Writer,
        hub: Hub,
        pre_migration_copy: Path | None = None,
    ) -> None:
        super().__init__(clock, lock, readers, writer)
        self._location = location
        self._hub = hub
        self._pre_migration_copy = pre_migration_copy
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
        """Open the store in `folder`, or create it. Raises a StoreFault that says what to do."""
        clock = clock or SystemClock()
        check_library()
        location = StoreLocation(folder, durability, vfs, wait_s)
        lock = await open_in_thread(lambda: _prepare_folder(location, clock), ProcessLock.release)
        loop, hub = asyncio.get_running_loop(), Hub()

        def publish(events: CommittedEvents) -> None:
            loop.call_soon_threadsafe(hub.publish, events)

        try:
            committer = await open_in_thread(
                lambda: SqliteCommitter(location, clock, publish, wal_bytes_max), SqliteCommitter.close
            )
        except BaseException:
            lock.release()
            raise
        writer = Writer(committer, hub.publish)
        return cls(location, clock, lock, ReaderPool(location), writer, hub, committer.pre_migration_copy)

    async def close(self) -> None:
        await self._writer.close()
        await asyncio.to_thread(self._readers.close)
        self._lock.release()
        # Wake waiting tails, so that they find the store closed.
        self._hub.resync_all()

    # The journal.

    async def append(self, *appends: Append) -> tuple[AppendReceipt, ...]:
        await self._writer.wait_for_capacity()
        return await asyncio.shield(self._writer.submit(*appends))

    def submit(self, append: Append) -> "asyncio.Future[tuple[AppendReceipt, ...]]":
        return self._writer.submit(append)

    @property
    def has_capacity(self) -> bool:
        return self._writer.has_capacity

    async def wait_for_capacity(self) -> None:
        await self._writer.wait_for_capacity()

    def add_change_listener(self, listener: Callable[[CommittedChange], None]) -> None:
        self._writer.change_listeners.append(listener)

    async def read(self, session_id: SessionId, after: Seq, limit: int) -> Sequence[Event]:
        return await self._readers.read(views.events, session_id, after, limit)

    def tail(self, session_id: SessionId, after: Seq) -> AsyncIterator[Event]:
        return tail(self._hub, self._read_for_follower, session_id, after)

    def follow(
        self, session_id: SessionId, after: Seq, notify: Callable[[], None]
    ) -> AbstractContextManager[HubFollower]:
        return open_follower(self._hub, self._read_for_follower, session_id, after, notify)

    async def import_session(
        self, session_id: SessionId, events: Sequence[Event], cancel_open_runs: bool = False
    ) -> int:
        await self._refuse_conflict(session_id, events)
        count = 0
        for start in range(0, len(events), IMPORT_EVENTS_PER_CHANGE):
            end = start + IMPORT_EVENTS_PER_CHANGE
            count += await self._import_slice(
                session_id, events[start:end], cancel_open_runs and end >= len(events)
            )
        return count

    # Views.

    async def snapshot(self, query: Callable[[Snapshot], T], needs_search: bool = False) -> T:
        if needs_search:
            await self._index_all()
        return await self._readers.read(snapshot.read, query)

    async def session(self, session_id: SessionId) -> SessionRow:
        return await self._readers.read(views.session, session_id)

    async def head(self, session_id: SessionId) -> Seq:
        return (await self._readers.read(views.get_number_and_head, session_id))[1]

    async def sessions(
        self, cursor: str | None, limit: int, archived: bool = False, title_words: Sequence[str] = ()
    ) -> SessionPage:
        return await self._readers.read(views.sessions, cursor, limit, archived, title_words)

    async def messages(self, session_id: SessionId, before: str | None, limit: int) -> MessagePage:
        return await self._readers.read(views.messages, session_id, before, limit)

    async def prepared_contexts(
        self, session_id: SessionId, from_turn: int, before: Seq | None = None
    ) -> Sequence[Event]:
        return await self._readers.read(views.prepared_contexts, session_id, from_turn, before)

    async def summary(self, session_id: SessionId) -> tuple[Event | None, Seq]:
        return await self._readers.read(views.summary, session_id)

    async def successor(self, session_id: SessionId) -> SessionId | None:
        return await self._readers.read(views.successor, session_id)

    async def deleted_session_number(self, session_id: SessionId) -> int:
        return await self._readers.read(views.deleted_session_number, session_id)

    async def run(self, run_id: RunId) -> tuple[SessionId, RunRow]:
        return await self._readers.read(views.get_run, run_id)

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

    async def search(
        self, query: str, limit: int, session_id: SessionId | None = None
    ) -> Sequence[SearchHit]:
        return await self.snapshot(lambda seen: seen.search(query, limit, session_id), needs_search=True)

    async def totals(self) -> StoreTotals:
        return await self._readers.read(views.totals, self._location.file)

    # Session status.

    async def overview(self) -> SessionOverview:
        return await self._readers.read(session_status.overview)

    async def session_statuses(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, SessionStatus]:
        return await self._readers.read(session_status.session_statuses, session_ids)

    async def questions(self, limit: int) -> Sequence[OpenQuestion]:
        return await self._readers.read(session_status.questions, limit)

    async def unread(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        return await self._readers.read(session_status.unread, session_ids)

    async def mark_read(self, session_id: SessionId, seq: Seq) -> None:
        if await self._transact(lambda tx: session_status.mark_read(tx, session_id, seq)):
            self._hub.notify_changed(frozenset({session_id}))

    async def pin(self, session_id: SessionId, pinned: bool) -> None:
        if await self._transact(lambda tx: session_status.pin(tx, session_id, pinned)):
            self._hub.notify_changed(frozenset({session_id}))

    async def pinned(self, session_ids: Sequence[SessionId]) -> frozenset[SessionId]:
        return await self._readers.read(session_status.pinned, session_ids)

    async def mark_changes_since(self, number: int) -> tuple[int, frozenset[SessionId] | None]:
        return await self._readers.read(session_status.mark_changes_since, number)

    def watch(self, notify: Callable[[], None]) -> AbstractContextManager[HubWatch]:
        return self._hub.watch(notify)

    # The memory queue.

    async def queued_commits(self, session_id: SessionId, deleted: bool = False) -> Sequence[QueuedCommitRow]:
        return await self._readers.read(memory_queue.queued_commits, session_id, deleted)

    async def pending_commits_of(self, session_id: SessionId) -> Sequence[QueuedCommit]:
        return await self._readers.read(memory_queue.pending_commits_of, session_id)

    async def pending_commits(self, limit: int) -> Sequence[QueuedCommit]:
        return await self._readers.read(memory_queue.pending_commits, limit)

    async def due_commits(
        self, quiet_since: Instant, now: Instant, limit: int, owners_in_backoff: Sequence[str] = ()
    ) -> Sequence[QueuedCommit]:
        return await self._readers.read(memory_queue.due_commits, quiet_since, now, limit, owners_in_backoff)

    async def pending_commit_totals(self) -> tuple[int, Instant]:
        return await self._readers.read(memory_queue.totals)

    async def turn_messages(
        self, session_id: SessionId, turns: Ranges, number: int = 0
    ) -> Sequence[StoredMessage]:
        return await self._readers.read(memory_queue.turn_messages, session_id, turns, number)

    # Leases.

    async def claim(self, run_id: RunId, lease_ms: int) -> Lease:
        lock, grace = self._lock, self._lease_grace
        return await self._transact(
            lambda tx: leases.claim(tx, run_id, lock.process_id, lease_ms, lock.is_alive, grace)
        )

    async def renew(self, lease: Lease, lease_ms: int) -> Lease:
        return await self._transact(lambda tx: leases.renew(tx, lease, lease_ms))

    def is_alive(self, process_id: ProcessId) -> bool:
        return self._lock.is_alive(process_id)

    @property
    def own_process(self) -> ProcessId:
        return self._lock.process_id

    async def release(self, lease: Lease) -> None:
        await self._transact(lambda tx: leases.release(tx, lease))

    async def claim_name(self, name: str, lease_ms: int) -> Lease:
        lock, grace = self._lock, self._lease_grace
        return await self._transact(
            lambda tx: leases.claim_name(tx, name, lock.process_id, lease_ms, lock.is_alive, grace)
        )

    # Blobs.

    async def put_blob(self, content: bytes) -> str:
        if len(content) > BLOB_BYTES_MAX:
            raise TooLarge(what="A file", size=len(content), limit=BLOB_BYTES_MAX)
        digest = await asyncio.to_thread(blobs.digest_of, content)
        number, complete = await self._transact(lambda tx: blobs.begin(tx, digest))
        pieces = [] if complete else blobs.chunks(content)
        for n, piece in enumerate(pieces):
            await self._put_chunk(number, n, piece, last=n == len(pieces) - 1)
        return digest

    async def get_blob(self, digest: str) -> bytes:
        return await self._readers.read(blobs.get, digest)

    # Key-value items.

    async def put_item(self, kind: str, item_id: str, body: bytes) -> None:
        if len(body) > KV_ITEM_BYTES_MAX:
            raise TooLarge(what="An item", size=len(body), limit=KV_ITEM_BYTES_MAX)
        await self._transact(lambda tx: key_value.put(tx, kind, item_id, body))

    async def take_item(self, kind: str, item_id: str) -> bytes | None:
        return await self._transact(lambda tx: key_value.take(tx, kind, item_id))

    async def compare_and_swap_item(
        self, kind: str, item_id: str, expected: bytes, replacement: bytes | None
    ) -> bool:
        if replacement is not None and len(replacement) > KV_ITEM_BYTES_MAX:
            raise TooLarge(what="An item", size=len(replacement), limit=KV_ITEM_BYTES_MAX)
        return await self._transact(
            lambda tx: key_value.compare_and_swap(tx, kind, item_id, expected, replacement)
        )

    async def item(self, kind: str, item_id: str) -> bytes | None:
        return await self._readers.read(key_value.item, kind, item_id)

    async def items(self, kind: str) -> Mapping[str, bytes]:
        return await self._readers.read(key_value.items, kind)

    # Maintenance.

    @property
    def pre_migration_copy(self) -> Path | None:
        return self._pre_migration_copy

    @property
    def commit_metrics(self) -> CommitMetrics:
        return self._writer.metrics

    async def sweep(self) -> SweepResult:
        swept = SweepResult()
        while (slice_ := await self._transact(sweeper.sweep_slice)) is not None:
            swept = sweeper.add_results(swept, slice_)
        while (freed := await self._transact(sweeper.vacuum_slice)) > 0:
            swept = sweeper.add_results(swept, SweepResult(bytes_freed=freed))
        return swept

    async def check(self, repair: bool, progress: Progress) -> Sequence[StoreFinding]:
        await self._index_all()
        findings = await StoreCheck(self._location, self._readers, self._transact).run(repair, progress)
        await self._index_all()
        return findings

    async def backup(self, path: Path, progress: Progress) -> None:
        await self._readers.run(backup.copy_store, self._location, path, progress)

    async def _read_for_follower(self, session_id: SessionId, after: Seq, limit: int) -> Sequence[Event]:
        """Read events for a follower, limited in bytes too: it holds them until its reader takes them."""
        return await self._readers.read(views.events, session_id, after, limit, READ_BYTES_MAX)

    async def _put_chunk(self, number: int, n: int, piece: bytes, last: bool) -> None:
        await self._transact(lambda tx: blobs.put_chunk(tx, number, n, piece, last))

    async def _index_all(self) -> None:
        newest = await self._readers.read(views.newest_indexable)
        while True:
            start, end, words = await self._readers.read(search.next_slice)
            if start >= newest or end == start:
                return
            await self._add_words(start, end, words)

    async def _add_words(self, start: int, end: int, words: list[tuple[int, str]]) -> None:
        await self._transact(lambda tx: search.add_slice(tx, start, end, words))

    async def _import_slice(
        self, session_id: SessionId, events: Sequence[Event], cancel_open_runs: bool
    ) -> int:
        return await self._transact(lambda tx: journal.import_slice(tx, session_id, events, cancel_open_runs))

    async def _refuse_conflict(self, session_id: SessionId, events: Sequence[Event]) -> None:
        if await self._readers.read(views.find_number_and_head, session_id) is None:
            return
        theirs, after = {event.seq: event for event in events}, 0
        while here := await self.read(session_id, after, READ_EVENTS_MAX):
            for event in here:
                # Either copy may have pruned its deltas already, so only a difference is a conflict.
                if theirs.get(event.seq, event) != event:
                    raise ImportConflict(session_id=session_id, seq=event.seq)
            after = here[-1].seq


def _prepare_folder(location: StoreLocation, clock: Clock) -> ProcessLock:
    with translate_errors(location.folder, location.wait_s):
        location.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        refuse_network(location.folder)
        # Other users may enter the folder: it existed before, or someone opened it to them.
        for path in (
            location.file,
            location.wal,
            location.shm,
            location.marker,
            location.folder / WORKSPACES,
        ):
            make_private(path)
        with folder_lock(location.folder, location.wait_s) as is_held:
            if not is_held:
                raise StoreInUse(path=location.folder)
            restore.clean_up(location.folder)
            lock = ProcessLock(location.folder, IdGenerator(clock).process())
        lock.living_others()  # Removes the files of dead processes.
        return lock
