"""What any store can do. Everything above this package is written against these; nothing here knows SQL.

A store keeps one journal of events per session and the rows projected from it, in one transaction each.
`tests/conformance` is the meaning of these ports: a store is one when that suite passes.
What it does for people's attention and for chat apps is in `session_status` and `chats`, what it does for the
built-in memory in `domain.memories`.
"""

from asyncio import Future
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Literal, Protocol, TypeVar

import msgspec

from holdfast.domain.clock import Instant
from holdfast.domain.events.codec import Event
from holdfast.domain.events.facts import Ranges
from holdfast.domain.ids import ProcessId, RunId, Seq, SessionId
from holdfast.domain.memories import NoteRepository
from holdfast.domain.state.changes import CommittedChange
from holdfast.domain.state.rows import (
    MessageRow,
    QueuedCommit,
    QueuedCommitRow,
    RunRow,
    SessionRow,
    ToolRow,
    TurnRow,
)
from holdfast.domain.state.session_state import Decide, Facts
from holdfast.store.chats import ChatStore
from holdfast.store.commit_metrics import CommitMetrics
from holdfast.store.session_status import SessionStatus, SessionStatusStore

Durability = Literal["full", "normal"]
"""`full` survives power loss; `normal` survives a kill of the process."""
Progress = Callable[[int, int], None]
"""Called with what is done and what there is to do."""
T = TypeVar("T")


class Fence(msgspec.Struct, frozen=True):
    """Proof of a claim: an append that carries it is refused once another process has claimed the run."""

    run_id: RunId
    epoch: int


class Lease(msgspec.Struct, frozen=True):
    run_id: RunId
    epoch: int
    process_id: ProcessId
    expires_at: Instant
    fenced_process: ProcessId | None = None
    """The process it was taken from, if that one is still alive: it may have more to tell."""
    was_free: bool = False
    """Nobody held it: it was let go of, or never claimed."""

    @property
    def fence(self) -> Fence:
        return Fence(self.run_id, self.epoch)


class Append(msgspec.Struct, frozen=True):
    """Facts for one session, or a decision that yields them inside the transaction.

    `expect` is the seq the session must be at (0: it must not exist). A `TurnAccepted` whose key the
    session has already is not stored again: the receipt then says which turn it was. `number`: the one that
    the store has this number for is meant, also if it was deleted: it stays until it owes memory nothing.
    """

    session_id: SessionId
    facts: Facts | Decide
    expect: Seq | None = None
    fence: Fence | None = None
    number: int = 0


class AppendReceipt(msgspec.Struct, frozen=True):
    """Proof that an append is durable: its first and last seq, and the context version before and after.

    `repeated` is the turn that an earlier send with the same key made; nothing was stored then.
    `incarnation` differs between a session and one that has its id after it was deleted.
    """

    session_id: SessionId
    first_seq: Seq
    last_seq: Seq
    context_before: Seq
    context_after: Seq
    repeated_turn: TurnRow | None = None
    incarnation: int = 0


class StoredMessage(msgspec.Struct, frozen=True):
    """A transcript row with what it says: its body event, or the deltas so far of one being written."""

    row: MessageRow
    live: bool
    events: tuple[Event, ...]


class MessagePage(msgspec.Struct, frozen=True):
    """Newest page first, oldest message first within it. `before` asks for the page before this one."""

    messages: tuple[StoredMessage, ...]
    head: Seq
    before: str | None


class SessionPage(msgspec.Struct, frozen=True):
    sessions: tuple[SessionRow, ...]
    cursor: str | None


class SearchHit(msgspec.Struct, frozen=True):
    """A message that matches; `marks` are the [start, end) of the words found within `snippet`."""

    session_id: SessionId
    title: str
    turn: int
    place: int
    message_id: str
    role: str
    at: Instant
    snippet: str
    marks: tuple[tuple[int, int], ...]


class SweepResult(msgspec.Struct, frozen=True):
    """What a sweep did; `mismatched` counts bodies whose deltas did not add up and were left alone.

    With `deltas` is counted whatever else is a small row: events of deleted sessions, chats' and notes' rows.
    """

    deltas: int = 0
    mismatched: int = 0
    sessions: int = 0
    blobs: int = 0
    bytes_freed: int = 0


class BackupRestoreResult(msgspec.Struct, frozen=True):
    """The paths under which a restore keeps what it replaced; None if there was nothing.

    `left_out` says which files of the backup it did not bring back.
    """

    store: Path | None
    workspaces: Path | None
    left_out: tuple[str, ...]


class StoreFinding(msgspec.Struct, frozen=True):
    """Something doctor found wrong, and whether it was mended."""

    where: str
    what: str
    repaired: bool = False


class StoreTotals(msgspec.Struct, frozen=True):
    """What a store holds, in one look; `events` counts all that were ever stored.

    Of the `sessions`, so many are `archived`; one that was deleted is not counted, though rows of it be left.
    """

    sessions: int
    events: int
    store_bytes: int
    format: int
    archived: int = 0


class SessionFollower(Protocol):
    """One reader's place in one session."""

    session_id: SessionId
    after: Seq

    async def next_events(self) -> Sequence[Event]:
        """What is new, in order, and moves past it; nothing when there is nothing yet.

        Raises NoSuchSession, or a StoreFault: the same events are there to be taken again then.
        """

    def resync(self) -> None:
        """Have the next `take` ask the store itself: a hint may be lost, a look may not."""


class Journal(Protocol):
    """Appending to sessions and reading them back."""

    async def append(self, *appends: Append) -> tuple[AppendReceipt, ...]:
        """Store all of `appends` in one transaction, or none; returns once they are durable.

        Raises what the first refused append was refused for (SeqMismatch, LeaseLost, KeyReused,
        NoSuchSession, SessionExists, whatever its decision raised) or a StoreFault: the caller may
        retry after a StoreFault, with a key where the append must not happen twice.
        """

    def submit(self, append: Append) -> "Future[tuple[AppendReceipt, ...]]":
        """Hand over one append without waiting: for streams, whose order this keeps.

        Consecutive deltas of one message become one event. Await `room` between submits.
        """

    @property
    def has_capacity(self) -> bool:
        """Whether fewer than PENDING_APPENDS_MAX appends are waiting."""

    async def wait_for_capacity(self) -> None:
        """Return once fewer than PENDING_APPENDS_MAX appends are waiting."""

    def add_change_listener(self, listener: Callable[[CommittedChange], None]) -> None:
        """Have `note` told of every change that this process makes through this store, in order.

        It is called once the change is durable and before whoever made it goes on; it must be quick.
        """

    async def read(self, session_id: SessionId, after: Seq, limit: int) -> Sequence[Event]: ...

    def tail(self, session_id: SessionId, after: Seq) -> AsyncIterator[Event]:
        """Yield every event after `after`, then each new one as it is committed, by any process.

        Never ends by itself; close the iterator when the reader has gone.
        """

    def follow(
        self, session_id: SessionId, after: Seq, notify: Callable[[], None]
    ) -> AbstractContextManager[SessionFollower]:
        """The same in batches, for a reader who waits for several things at once: `ring` says when to take.

        `ring` may be called before anything is taken, and more often than there is something.
        """

    async def import_session(
        self, session_id: SessionId, events: Sequence[Event], cancel_open_runs: bool = False
    ) -> int:
        """Store another store's events as they are; returns how many were new. For imports.

        With `closes`, runs that are open in them are cancelled: their work is the other store's to do.

        Raises ImportConflict when the session is here and differs.
        """


class Snapshot(Protocol):
    """Reads inside one read transaction: all of them see the store as of the same moment.

    Each method means the same as the store's method of that name, and raises the same.
    """

    def session(self, session_id: SessionId) -> SessionRow: ...

    def head(self, session_id: SessionId) -> Seq: ...

    def sessions(
        self, cursor: str | None, limit: int, archived: bool = False, title_words: Sequence[str] = ()
    ) -> SessionPage: ...

    def messages(self, session_id: SessionId, before: str | None, limit: int) -> MessagePage: ...

    def search(self, query: str, limit: int, session_id: SessionId | None = None) -> Sequence[SearchHit]: ...

    def prepared_contexts(
        self, session_id: SessionId, from_turn: int, before: Seq | None = None
    ) -> Sequence[Event]: ...

    def turns(self, session_id: SessionId) -> Sequence[TurnRow]:
        """Return every turn, whatever its status, in order."""

    def removals(self, session_id: SessionId) -> Sequence[Event]:
        """Return the events that undid, restored or cleared turns, in order."""

    def summary(self, session_id: SessionId) -> tuple[Event | None, Seq]: ...

    def run(self, run_id: RunId) -> tuple[SessionId, RunRow]: ...

    def runs(self, session_id: SessionId, first: int, last: int) -> Sequence[RunRow]: ...

    def tools(self, session_id: SessionId, run_id: RunId) -> Sequence[ToolRow]: ...

    def session_statuses(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, SessionStatus]: ...

    def queued_commits(self, session_id: SessionId) -> Sequence[QueuedCommitRow]: ...

    def pending_commits(self, limit: int) -> Sequence[QueuedCommit]: ...

    def unretracted_commits(self, limit: int) -> Sequence[QueuedCommit]:
        """Return what memory has and cannot forget although it was undone, the newest first."""

    def turn_messages(self, session_id: SessionId, turns: Ranges) -> Sequence[StoredMessage]: ...

    def count_notes(self, session_id: SessionId) -> int:
        """Return how many notes were saved from a session and hold, in every scope."""

    def item(self, kind: str, item_id: str) -> bytes | None: ...


class SessionQueries(Protocol):
    """Reading what the journal says. Raises NoSuchSession, NoSuchRun, BadCursor, BadQuery."""

    async def snapshot(self, query: Callable[[Snapshot], T], needs_search: bool = False) -> T:
        """Return `query(snapshot)`, run on a reader's thread. Use it wherever an answer combines reads.

        A query that `searches` finds all that was committed before this call.

        `query` must be short and must not keep the snapshot. Raises what `query` raises, or a StoreFault.
        """

    async def session(self, session_id: SessionId) -> SessionRow: ...

    async def head(self, session_id: SessionId) -> Seq: ...

    async def sessions(
        self, cursor: str | None, limit: int, archived: bool = False, title_words: Sequence[str] = ()
    ) -> SessionPage:
        """The most recently active first; with `words`, those whose titles hold all of them."""

    async def messages(self, session_id: SessionId, before: str | None, limit: int) -> MessagePage: ...

    async def prepared_contexts(
        self, session_id: SessionId, from_turn: int, before: Seq | None = None
    ) -> Sequence[Event]:
        """What the runs of the turns from `from_turn` on were given beside the transcript, in order; with
        `before`, only as far as the events before that one tell.
        """

    async def summary(self, session_id: SessionId) -> tuple[Event | None, Seq]:
        """The newest summary whose covered turns are all live, if there is one, as of the head returned."""

    async def successor(self, session_id: SessionId) -> SessionId | None:
        """Where a conversation went on, also of one that was deleted since; None if it did not."""

    async def deleted_session_number(self, session_id: SessionId) -> int:
        """The number of the session with this id that was deleted last, while it is still there; or 0."""

    async def run(self, run_id: RunId) -> tuple[SessionId, RunRow]: ...

    async def open_runs(self) -> Sequence[tuple[SessionId, RunRow]]:
        """Every run that is not over, of all sessions."""

    async def active_runs(self) -> Sequence[tuple[SessionId, RunRow]]:
        """Those of them that do not wait for a person: however many do, they cost nobody anything."""

    async def pending_runs(self) -> Sequence[tuple[SessionId, RunRow]]:
        """Every run whose output is still waited for after an interruption."""

    async def runs(self, session_id: SessionId, first: int, last: int) -> Sequence[RunRow]:
        """The runs of the turns from `first` to `last`, in their order."""

    async def tools(self, session_id: SessionId, run_id: RunId) -> Sequence[ToolRow]:
        """The calls of a run that are not settled."""

    async def search(
        self, query: str, limit: int, session_id: SessionId | None = None
    ) -> Sequence[SearchHit]:
        """Live messages that hold every word of `query`, the newest first. Sees all that is committed.

        With `session_id`, those of one session; raises NoSuchSession.
        """

    async def totals(self) -> StoreTotals: ...


class MemoryQueueStore(Protocol):
    """What memory is owed. It changes by facts alone, decided in `domain.decisions.memory_queue`."""

    async def queued_commits(self, session_id: SessionId, deleted: bool = False) -> Sequence[QueuedCommitRow]:
        """All of a session's, whatever became of them, the oldest first; none if there is no such session."""

    async def pending_commits_of(self, session_id: SessionId) -> Sequence[QueuedCommit]:
        """What is open of the session with that id and then of those that had it before and were deleted."""

    async def pending_commits(self, limit: int) -> Sequence[QueuedCommit]:
        """What any session owes, or memory is to forget, the oldest first."""

    async def due_commits(
        self, quiet_since: Instant, now: Instant, limit: int, owners_in_backoff: Sequence[str] = ()
    ) -> Sequence[QueuedCommit]:
        """Those that something can be done for now: untouched since `quiet_since`, or begun before.

        One that is to be tried again later is left out until then, with what comes after it in its session;
        one in doubt until somebody answers; and all that the owners `resting` are to tell.
        """

    async def pending_commit_totals(self) -> tuple[int, Instant]:
        """How many are open, and since when the oldest of them is; 0 when there is none."""

    async def turn_messages(
        self, session_id: SessionId, turns: Ranges, number: int = 0
    ) -> Sequence[StoredMessage]:
        """What was said in these turns of the session that the store has this number for, in order.

        Without a number, of the one that has the id now.
        """


class Leases(Protocol):
    """Who may work on a run. A claim is one compare-and-set; its epoch fences every earlier one."""

    async def claim(self, run_id: RunId, lease_ms: int) -> Lease:
        """Claim a run. Raises LeaseHeld unless it is free, its holder is dead, or its lease has run out.

        A living holder still has LEASE_GRACE_MS to renew, from the first claim that finds its lease run out.
        """

    async def renew(self, lease: Lease, lease_ms: int) -> Lease:
        """Raises LeaseLost."""

    def is_alive(self, process_id: ProcessId) -> bool:
        """Whether that process still runs."""

    @property
    def own_process(self) -> ProcessId:
        """This process, as its leases and its spool files name it."""

    async def release(self, lease: Lease) -> None:
        """Does nothing when the lease was lost already."""

    async def claim_name(self, name: str, lease_ms: int) -> Lease:
        """Claim what one process at a time may do. Raises LeaseHeld as `claim` does."""


class BlobStore(Protocol):
    """Large output and attachments, by the hash of their content."""

    async def put_blob(self, content: bytes) -> str:
        """Store `content` durably and return its digest; the same content twice is stored once."""

    async def get_blob(self, digest: str) -> bytes:
        """Raises NoSuchBlob."""


DELETED = "deleted"
"""The kind of the items that record deletions; see `Shelf`."""


class KeyValueStore(Protocol):
    """Things that are no facts of a session: who may come in, what is always allowed. By kind and id.

    What is kept of a kind `draft` under a session's id goes when that session is purged. The change that
    deletes a session puts an item of kind `DELETED` under its id, which outlives the purge: it stays until
    somebody takes it, or until a session with that id is created again.
    """

    async def put_item(self, kind: str, item_id: str, body: bytes) -> None:
        """Keep `body`, in place of what was there. Raises TooLarge."""

    async def take_item(self, kind: str, item_id: str) -> bytes | None:
        """Remove an item and return it; of several who take the same one, one gets it."""

    async def compare_and_swap_item(
        self, kind: str, item_id: str, expected: bytes, replacement: bytes | None
    ) -> bool:
        """Keep `after` in place of `before`, or nothing; False, and nothing changes, where that is not what
        is there.

        Raises TooLarge.
        """

    async def item(self, kind: str, item_id: str) -> bytes | None: ...

    async def items(self, kind: str) -> Mapping[str, bytes]:
        """All of a kind by their ids; committed, whichever process put them there."""


class Maintenance(Protocol):
    """Looking after the store. All of it goes in slices, beside normal work."""

    @property
    def pre_migration_copy(self) -> Path | None:
        """Where it is as it was before, if opening it brought it to a newer format."""

    @property
    def commit_metrics(self) -> CommitMetrics:
        """How long this process's commits have taken so far."""

    async def sweep(self) -> SweepResult:
        """Prune settled deltas, purge deleted sessions, drop unused blobs, give space back."""

    async def check(self, repair: bool, progress: Progress) -> Sequence[StoreFinding]:
        """Prove that the file is whole and that projections equal the fold; with `mend`, rebuild."""

    async def backup(self, path: Path, progress: Progress) -> None: ...

    async def close(self) -> None:
        """Store what was submitted, then let go of everything."""


class Store(
    Journal,
    SessionQueries,
    SessionStatusStore,
    MemoryQueueStore,
    Leases,
    BlobStore,
    KeyValueStore,
    NoteRepository,
    ChatStore,
    Maintenance,
    Protocol,
):
    """All of it."""
