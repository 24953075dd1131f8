"""Moving a conversation on to a new session, and following those that have moved.

The move is one change to both sessions. Whoever sends to the old id comes before it, and is part of what is
moved, or after it, and is carried over: there is nothing in between.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from holdfast.domain.decisions.compaction import DraftSummary
from holdfast.domain.decisions.continuation import Continuation, continue_in, link_successor, opening_facts
from holdfast.domain.errors import (
    NoSuchSession,
    SessionMoved,
    StoreFault,
    SuccessorDeleted,
    SummaryRefused,
)
from holdfast.domain.ids import IdGenerator, RunId, SessionId
from holdfast.domain.limits import SUCCESSORS_MAX
from holdfast.domain.secrets import MaskFunction
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.state.session_state import Facts, SessionStateView
from holdfast.engine.compaction import Summaries
from holdfast.engine.workspaces import move_workspace
from holdfast.store.ports import Append, Store

_ATTEMPTS_MAX = 3
"""Of a conversation that goes on while it is summarised."""
_CACHED_SUCCESSORS_MAX = 1_000


class SessionContinuation:
    """`begin` sets a run going; `ended` is told of the session that is over for now.

    `carry` takes along what people have allowed in the old one. One event loop's.
    """

    def __init__(
        self,
        store: Store,
        ids: IdGenerator,
        mask: MaskFunction,
        summaries: Summaries,
        folder: Path,
        start_run: Callable[[SessionId, RunId], None],
        on_session_end: Callable[[SessionId], None],
        move_rules: Callable[[SessionId, SessionId], Awaitable[None]],
    ) -> None:
        self._store = store
        self._ids = ids
        self._mask = mask
        self._summaries = summaries
        self._folder = folder
        self._start_run = start_run
        self._on_session_end = on_session_end
        self._move_rules = move_rules
        self._deleted_lock = asyncio.Lock()
        self._cached_successors: OrderedDict[SessionId, SessionId] = OrderedDict()

    async def continue_session(self, session_id: SessionId) -> SessionId:
        """Go on in a new session that begins with a summary; returns it, or where it is by now if it went on
        before.

        If the old one is deleted while it is summarised, the new one begins all the same. Raises
        NoSuchSession, SuccessorDeleted, Busy while it is worked on or waits for a person, NothingToSummarise,
        SummaryRefused and SummaryFailed.
        """
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                row = await self._store.session(session_id)
                drafted = await self._summaries.draft(session_id, 0)
                return await self._start_successor(row, drafted)
            except SessionMoved as moved:
                return await self._follow(session_id, SessionId(str(moved.fields["successor"])))
            except NoSuchSession:
                return await self.current_session(session_id)
            except SummaryRefused:
                if attempt == _ATTEMPTS_MAX:
                    raise
        raise AssertionError("the last try returns or raises")

    async def current_session(self, session_id: SessionId) -> SessionId:
        """Where a conversation is now: itself, or the last of those that it went on in.

        Raises NoSuchSession for one that was deleted and did not go on, SuccessorDeleted.
        """
        return await self._follow(session_id, session_id)

    async def missing_error(self, session_id: SessionId, last: SessionId) -> NoSuchSession:
        """What is to be said of a conversation that went on as far as `last`, which is not there."""
        with suppress(NoSuchSession):
            if session_id != last:
                await self._store.head(session_id)
                return SuccessorDeleted(session_id=session_id, successor=last)
        return NoSuchSession(session_id=session_id)

    async def _follow(self, session_id: SessionId, current: SessionId) -> SessionId:
        for _ in range(SUCCESSORS_MAX):
            successor = await self._store.successor(current)
            if successor is None:
                break
            current = successor
        try:
            await self._store.head(current)
        except NoSuchSession:
            raise await self.missing_error(session_id, current) from None
        return current

    async def _start_successor(self, row: SessionRow, drafted: DraftSummary) -> SessionId:
        successor, moves = self._ids.session(), list[Continuation]()
        drafted = DraftSummary(drafted.through_turn, drafted.before, self._mask(drafted.summary))
        was_pinned = row.id in await self._store.pinned((row.id,))

        def decide_old(view: SessionStateView) -> Facts:
            # Decided first, and for both: whoever begins sees what the other one left.
            moves[:] = [continue_in(view, row.id, successor, drafted, row.workspace, self._ids)]
            return moves[0].old_facts

        def decide_new(view: SessionStateView) -> Facts:
            return moves[0].new_facts

        try:
            await self._store.append(Append(row.id, decide_old), Append(successor, decide_new, expect=0))
        except NoSuchSession:
            async with self._deleted_lock:
                return await self._start_after_deletion(row, successor, drafted)
        self._cache_successor(row.id, successor)
        if not row.workspace:
            await move_workspace(self._folder, row.id, successor)
        with suppress(StoreFault):  # What is not taken along is asked again.
            await self._move_rules(row.id, successor)
        if was_pinned:
            await self._store.pin(successor, True)
        self._on_session_end(row.id)
        run_to_start = moves[0].first_run
        if run_to_start is not None:
            self._start_run(successor, run_to_start)
        return successor

    async def _start_after_deletion(
        self, row: SessionRow, successor: SessionId, drafted: DraftSummary
    ) -> SessionId:
        """The old one was deleted meanwhile: what was said there is summed up all the same.

        As long as anything is left of it, it leads to the first that went on from it; after that, as long as
        this process knows of that. What was allowed in it is not taken along. Raises SessionMoved.
        """
        creation = Append(successor, opening_facts(row, drafted, row.workspace, self._ids), expect=0)
        number = await self._store.deleted_session_number(row.id)
        if not number and row.id in self._cached_successors:
            raise SessionMoved(session_id=row.id, successor=self._cached_successors[row.id])
        forwarding = Append(row.id, lambda view: link_successor(view, row.id, successor), number=number)
        try:
            await self._store.append(*([forwarding] if number else []), creation)
        except NoSuchSession:
            await self._store.append(creation)  # Nothing is left of it by now.
        self._cache_successor(row.id, successor)
        if not row.workspace:
            await move_workspace(self._folder, row.id, successor)
        return successor

    def _cache_successor(self, session_id: SessionId, successor: SessionId) -> None:
        self._cached_successors[session_id] = successor
        if len(self._cached_successors) > _CACHED_SUCCESSORS_MAX:
            self._cached_successors.popitem(last=False)
