"""Implement the memory's queue port on the store."""

from collections.abc import Mapping, Sequence

from holdfast.domain.clock import Instant
from holdfast.domain.events.facts import Ranges
from holdfast.domain.ids import ProcessId, SessionId
from holdfast.domain.state.rows import QueuedCommit, QueuedCommitRow
from holdfast.domain.state.session_state import Decide, Facts, SessionStateView
from holdfast.store.ports import Append, Store, StoredMessage


class StoreMemoryQueue:
    """Read queued commits from the store, and record their results."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def own_process(self) -> ProcessId:
        return self._store.own_process

    def is_alive(self, process_id: ProcessId) -> bool:
        return self._store.is_alive(process_id)

    async def change(self, session_id: SessionId, decide: Decide, number: int = 0) -> Facts:
        decided: list[Facts] = []

        def record_decision(view: SessionStateView) -> Facts:
            decided[:] = [decide(view)]
            return decided[0]

        await self._store.append(Append(session_id, record_decision, number=number))
        return decided[0]

    async def entries(self, session_id: SessionId, deleted: bool = False) -> Sequence[QueuedCommitRow]:
        return await self._store.queued_commits(session_id, deleted)

    async def pending_for(self, session_id: SessionId) -> Sequence[QueuedCommit]:
        return await self._store.pending_commits_of(session_id)

    async def pending_entries(self, limit: int) -> Sequence[QueuedCommit]:
        return await self._store.pending_commits(limit)

    async def entries_to_show(self, limit: int) -> tuple[Sequence[QueuedCommit], Sequence[QueuedCommit]]:
        return await self._store.snapshot(
            lambda snapshot: (snapshot.pending_commits(limit), snapshot.unretracted_commits(limit))
        )

    async def due_entries(
        self, quiet_since: Instant, now: Instant, limit: int, owners_in_backoff: Sequence[str] = ()
    ) -> Sequence[QueuedCommit]:
        return await self._store.due_commits(quiet_since, now, limit, owners_in_backoff)

    async def pending_totals(self) -> tuple[int, Instant]:
        return await self._store.pending_commit_totals()

    async def turn_messages(
        self, session_id: SessionId, turns: Ranges, number: int
    ) -> Sequence[StoredMessage]:
        return await self._store.turn_messages(session_id, turns, number)

    async def titles(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, str]:
        """Return the titles of the sessions that exist."""
        statuses = await self._store.session_statuses(session_ids) if session_ids else {}
        return {session_id: status.row.title for session_id, status in statuses.items()}

    async def put_item(self, kind: str, item_id: str, body: bytes) -> None:
        await self._store.put_item(kind, item_id, body)

    async def item(self, kind: str, item_id: str) -> bytes | None:
        return await self._store.item(kind, item_id)
