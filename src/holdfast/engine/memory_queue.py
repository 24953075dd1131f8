"""The store, as whoever tells memory what happened needs it."""

from collections.abc import Mapping, Sequence

from holdfast.domain.clock import Instant
from holdfast.domain.events.facts import Ranges
from holdfast.domain.ids import ProcessId, SessionId
from holdfast.domain.state.rows import Debt, DebtRow
from holdfast.domain.state.session_state import Decide, Facts, View
from holdfast.store.ports import Append, Message, Store


class StoreLedger:
    """Reads what is owed and writes what became of it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    @property
    def own_process(self) -> ProcessId:
        return self._store.own_process

    def is_alive(self, process_id: ProcessId) -> bool:
        return self._store.is_alive(process_id)

    async def change(self, session_id: SessionId, decide: Decide, number: int = 0) -> Facts:
        decided: list[Facts] = []

        def keep(view: View) -> Facts:
            decided[:] = [decide(view)]
            return decided[0]

        await self._store.append(Append(session_id, keep, number=number))
        return decided[0]

    async def debts(self, session_id: SessionId, buried: bool = False) -> Sequence[DebtRow]:
        return await self._store.debts(session_id, buried)

    async def owing(self, session_id: SessionId) -> Sequence[Debt]:
        return await self._store.owing(session_id)

    async def open_debts(self, limit: int) -> Sequence[Debt]:
        return await self._store.open_debts(limit)

    async def shown_debts(self, limit: int) -> tuple[Sequence[Debt], Sequence[Debt]]:
        return await self._store.snapshot(
            lambda snapshot: (snapshot.open_debts(limit), snapshot.kept_debts(limit))
        )

    async def due_debts(
        self, quiet_since: Instant, now: Instant, limit: int, resting: Sequence[str] = ()
    ) -> Sequence[Debt]:
        return await self._store.due_debts(quiet_since, now, limit, resting)

    async def debt_totals(self) -> tuple[int, Instant]:
        return await self._store.debt_totals()

    async def told(self, session_id: SessionId, turns: Ranges, number: int) -> Sequence[Message]:
        return await self._store.told(session_id, turns, number)

    async def titles(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, str]:
        """Those of conversations that are there."""
        found = await self._store.standings(session_ids) if session_ids else {}
        return {session_id: standing.row.title for session_id, standing in found.items()}

    async def put_item(self, kind: str, item_id: str, body: bytes) -> None:
        await self._store.put_item(kind, item_id, body)

    async def item(self, kind: str, item_id: str) -> bytes | None:
        return await self._store.item(kind, item_id)
