"""The ports of a store. Everything above this package depends on them; nothing here knows SQL.

A store keeps one journal of events per session. It writes the rows projected from an event in the transaction
that appends the event. `tests/conformance` defines these ports: a store is valid when it passes that suite.
`session_status`, `chats` and `maintenance` hold the ports for the session list, for chat apps and for doctor,
backup and sweeper; `domain.memories` holds the port for the built-in memory.
"""

from asyncio import Future
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
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
from holdfast.store.maintenance import Maintenance
from holdfast.store.session_status import SessionStatus, SessionStatusStore

Durability = Literal["full", "normal"]
"""`full` survives power loss; `normal` survives a kill of the process."""
T = TypeVar("T")


class Fence(msgspec.Struct, frozen=True):
    """Proof of a claim. A store refuses an append with it once another process has claimed the run."""

    run_id: RunId
    epoch: int


class Lease(msgspec.Struct, frozen=True):
    run_id: RunId
    epoch: int
    process_id: ProcessId
    expires_at: Instant
    fenced_process: ProcessId | None = None
    """The previous holder, if that process is still alive: it may still have output to append."""
    was_free: bool = False
    """True if no process held the run: its holder had released it, or no process had ever claimed it."""

    @property
    def fence(self) -> Fence:
        return Fence(self.run_id, self.epoch)


class Append(msgspec.Struct, frozen=True):
    """Append facts, or a decision that yields them inside the transaction, to one session.

    `expect` is the seq the session must be at; 0 means it must not exist yet. A store does not store a
    `TurnAccepted` whose key the session already has; the receipt then names that turn. `number` selects the
    session by the store's own number, even if it was deleted: the session stays until memory has committed
    everything of it.
    """

    session_id: SessionId
    facts: Facts | Decide
    expect: Seq | None = None
    fence: Fence | None = None
    number: int = 0


class AppendReceipt(msgspec.Struct, frozen=True):
    """Proof that an append is durable: its first and last seq, and the context version before and after.

    `repeated_turn` is the turn that an earlier send with the same key created; the store stored nothing then.
    `incarnation` tells a session from a later one that reuses its id after a deletion.
    """

    session_id: SessionId
    first_seq: Seq
    last_seq: Seq
    context_before: Seq
    context_after: Seq
    repeated_turn: TurnRow | None = None
    incarnation: int = 0


class StoredMessage(msgspec.Struct, frozen=True):
    """A transcript row with its events: the body event, or the deltas so far of a streaming message."""

    row: MessageRow
    live: bool
    events: tuple[Event, ...]


class MessagePage(msgspec.Struct, frozen=True):
    """A page of messages, oldest first; the first page is the newest. `before` gets the page before it."""

    messages: tuple[StoredMessage, ...]
    head: Seq
    before: str | None


class SessionPage(msgspec.Struct, frozen=True):
    sessions: tuple[SessionRow, ...]
    cursor: str | None


class SearchHit(msgspec.Struct, frozen=True):
    """A message that matches a search. `marks` are [start, end) spans of its words in `snippet`."""

    session_id: SessionId
    title: str
    turn: int
    place: int
    message_id: str
    role: str
    at: Instant
    snippet: str
    marks: tuple[tuple[int, int], ...]


class StoreTotals(msgspec.Struct, frozen=True):
    """Totals of a store. `events` counts every event ever stored.

    `sessions` includes the `archived` ones, but no deleted session, even if rows of it are left.
    """

    sessions: int
    events: int
    store_bytes: int
    format: int
    archived: int = 0


class SessionFollower(Protocol):
    """A cursor that follows one session."""

    session_id: SessionId
    after: Seq

    async def next_events(self) -> Sequence[Event]:
        """Return the next new events in order and move past them; return nothing if there are none.

        Raises NoSuchSession or a StoreFault. The cursor does not move then, so a retry returns the same
        events.
        """

    def resync(self) -> None:
        """Make the next `next_events` read the store: a notification may be lost, a poll may not."""


class Journal(Protocol):
    """Append to sessions and read them back."""

    async def append(self, *appends: Append) -> tuple[AppendReceipt, ...]:
        """Store all of `appends` in one transaction, or none; return once they are durable.

        Raises the reason why the store refused the first refused append (SeqMismatch, LeaseLost, KeyReused,
        NoSuchSession, SessionExists, or what its decision raised), or a StoreFault. The caller may retry
        after a StoreFault; an append that must not happen twice needs a key.
        """

    def submit(self, append: Append) -> "Future[tuple[AppendReceipt, ...]]":
        """Submit one append without waiting. Streams use this; the store keeps the order.

        The store merges consecutive deltas of one message into one event. Await `wait_for_capacity` between
        submits.
        """

    @property
    def has_capacity(self) -> bool:
        """True if fewer than PENDING_APPENDS_MAX appends are waiting."""

    async def wait_for_capacity(self) -> None:
        """Return once fewer than PENDING_APPENDS_MAX appends are waiting."""

    def add_change_listener(self, listener: Callable[[CommittedChange], None]) -> None:
        """Call `listener` with every change that this process makes through this store, in order.

        The store calls it once the change is durable, before the caller that made the change continues. It
        must be quick.
        """

    async def read(self, session_id: SessionId, after: Seq, limit: int) -> Sequence[Event]: ...

    def tail(self, session_id: SessionId, after: Seq) -> AsyncIterator[Event]:
        """Yield every event after `after`, then each new one as any process commits it.

        Never ends by itself; close the iterator when the reader has gone.
        """

    def follow(
        self, session_id: SessionId, after: Seq, notify: Callable[[], None]
    ) -> AbstractContextManager[SessionFollower]:
        """Follow a session in batches, for a reader that waits for several things at once.

        `notify` tells the reader to call `next_events`. The store may call it before the first read, and more
        often than there are new events.
        """

    async def import_session(
        self, session_id: SessionId, events: Sequence[Event], cancel_open_runs: bool = False
    ) -> int:
        """Import another store's events unchanged; return how many were new.

        With `cancel_open_runs`, the import cancels runs that are open in the events: their work belongs to
        the other store.

        Raises ImportConflict when the session is here and differs.
        """


class Snapshot(Protocol):
    """Reads inside one read transaction: all of them see the store as of the same moment.

    Each method means the same as the store's method of that name, and raises the same errors.
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
        """Return undone turns that memory has committed and cannot forget, newest first."""

    def turn_messages(self, session_id: SessionId, turns: Ranges) -> Sequence[StoredMessage]: ...

    def count_notes(self, session_id: SessionId) -> int:
        """Return how many current notes were saved from a session, in every scope."""

    def item(self, kind: str, item_id: str) -> bytes | None: ...


class SessionQueries(Protocol):
    """Read sessions, runs and messages. Raises NoSuchSession, NoSuchRun, BadCursor, BadQuery."""

    async def snapshot(self, query: Callable[[Snapshot], T], needs_search: bool = False) -> T:
        """Return `query(snapshot)`, run on a reader's thread. Use it wherever an answer combines reads.

        With `needs_search`, the query finds everything committed before this call.

        `query` must be short and must not keep the snapshot. Raises what `query` raises, or a StoreFault.
        """

    async def session(self, session_id: SessionId) -> SessionRow: ...

    async def head(self, session_id: SessionId) -> Seq: ...

    async def sessions(
        self, cursor: str | None, limit: int, archived: bool = False, title_words: Sequence[str] = ()
    ) -> SessionPage:
        """Return sessions by latest activity; `title_words` selects titles that contain all of them."""

    async def messages(self, session_id: SessionId, before: str | None, limit: int) -> MessagePage: ...

    async def prepared_contexts(
        self, session_id: SessionId, from_turn: int, before: Seq | None = None
    ) -> Sequence[Event]:
        """Return the `context_prepared` events of the runs since turn `from_turn`, in order.

        With `before`, return only the events before that seq.
        """

    async def summary(self, session_id: SessionId) -> tuple[Event | None, Seq]:
        """Return the newest summary whose covered turns are all live, if any, and the head it was read at."""

    async def successor(self, session_id: SessionId) -> SessionId | None:
        """Return the session that continues this one, even if this one is deleted; None if there is none."""

    async def deleted_session_number(self, session_id: SessionId) -> int:
        """Return the number of the last deleted session with this id while the store still has it, or 0."""

    async def run(self, run_id: RunId) -> tuple[SessionId, RunRow]: ...

    async def open_runs(self) -> Sequence[tuple[SessionId, RunRow]]:
        """Return every unfinished run of all sessions."""

    async def active_runs(self) -> Sequence[tuple[SessionId, RunRow]]:
        """Return every unfinished run that does not wait for a person.

        Recovery reads these only, so runs that wait cost nothing.
        """

    async def pending_runs(self) -> Sequence[tuple[SessionId, RunRow]]:
        """Return every run whose late output is still awaited after an interruption."""

    async def runs(self, session_id: SessionId, first: int, last: int) -> Sequence[RunRow]:
        """Return the runs of the turns from `first` to `last`, in order."""

    async def tools(self, session_id: SessionId, run_id: RunId) -> Sequence[ToolRow]:
        """Return the unsettled tool calls of a run."""

    async def search(
        self, query: str, limit: int, session_id: SessionId | None = None
    ) -> Sequence[SearchHit]:
        """Return live messages that contain every word of `query`, newest first.

        The search covers everything that is committed. With `session_id`, it covers one session and raises
        NoSuchSession.
        """

    async def totals(self) -> StoreTotals: ...


class MemoryQueueStore(Protocol):
    """Read the memory queue. Only facts change it, decided in `domain.decisions.memory_queue`."""

    async def queued_commits(self, session_id: SessionId, deleted: bool = False) -> Sequence[QueuedCommitRow]:
        """Return the queued commits of a session in any state, oldest first; none for an unknown id."""

    async def pending_commits_of(self, session_id: SessionId) -> Sequence[QueuedCommit]:
        """Return the pending commits of the session with this id, then of deleted ones with this id."""

    async def pending_commits(self, limit: int) -> Sequence[QueuedCommit]:
        """Return the pending commits and retractions of all sessions, oldest first."""

    async def due_commits(
        self, quiet_since: Instant, now: Instant, limit: int, owners_in_backoff: Sequence[str] = ()
    ) -> Sequence[QueuedCommit]:
        """Return the entries that can be worked on now: untouched since `quiet_since`, or already begun.

        Entries that wait for a retry stay out, and so do the later entries of their session. Entries in doubt
        stay out until a person answers, and entries of `owners_in_backoff` stay out too.
        """

    async def pending_commit_totals(self) -> tuple[int, Instant]:
        """Return how many entries are pending, and since when the oldest one is; 0 if there is none."""

    async def turn_messages(
        self, session_id: SessionId, turns: Ranges, number: int = 0
    ) -> Sequence[StoredMessage]:
        """Return the messages of these turns of the session with this store number, in order.

        Without a number, return those of the session that has the id now.
        """


class Leases(Protocol):
    """Leases on runs. A claim is one compare-and-set; its epoch fences every earlier one."""

    async def claim(self, run_id: RunId, lease_ms: int) -> Lease:
        """Claim a run. Raises LeaseHeld unless it is free, its holder is dead, or its lease has expired.

        A living holder still has LEASE_GRACE_MS to renew, from the first claim that finds the lease expired.
        """

    async def renew(self, lease: Lease, lease_ms: int) -> Lease:
        """Extend a lease. Raises LeaseLost."""

    def is_alive(self, process_id: ProcessId) -> bool:
        """Return whether that process still runs."""

    @property
    def own_process(self) -> ProcessId:
        """The id of this process in its leases and spool file names."""

    async def release(self, lease: Lease) -> None:
        """Release a lease. Does nothing if it was lost already."""

    async def claim_name(self, name: str, lease_ms: int) -> Lease:
        """Claim a task that only one process at a time may do. Raises LeaseHeld as `claim` does."""


class BlobStore(Protocol):
    """Large output and attachments, addressed by the hash of their content."""

    async def put_blob(self, content: bytes) -> str:
        """Store `content` durably and return its digest. The store keeps equal content once."""

    async def get_blob(self, digest: str) -> bytes:
        """Return the content of a blob. Raises NoSuchBlob."""


DELETED = "deleted"
"""The kind of the items that record deletions; see `KeyValueStore`."""


class KeyValueStore(Protocol):
    """Small records outside any session, such as tokens and rules, by kind and id.

    A purge deletes the items of kind `draft` with the purged session's id. A deletion puts an item of kind
    `DELETED` under the session's id. That item outlives the purge: it stays until a caller takes it, or until
    a session with that id is created again.
    """

    async def put_item(self, kind: str, item_id: str, body: bytes) -> None:
        """Store `body` in place of any earlier value. Raises TooLarge."""

    async def take_item(self, kind: str, item_id: str) -> bytes | None:
        """Remove an item and return it; of several callers that take the same item, one gets it."""

    async def compare_and_swap_item(
        self, kind: str, item_id: str, expected: bytes, replacement: bytes | None
    ) -> bool:
        """Replace `expected` by `replacement`, or delete the item if that is None; return whether it changed.

        Nothing changes unless the item equals `expected`. Raises TooLarge.
        """

    async def item(self, kind: str, item_id: str) -> bytes | None: ...

    async def items(self, kind: str) -> Mapping[str, bytes]:
        """Return all committed items of a kind by id, from any process."""


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
    """The complete port of a store."""
