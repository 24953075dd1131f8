"""Continue a conversation in a new session, and follow the sessions that have continued.

One transaction changes both sessions. A message to the old id comes before it and moves along, or after it
and is forwarded: there is nothing in between.
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
from holdfast.engine.compaction import ConversationSummariser
from holdfast.engine.workspaces import move_workspace
from holdfast.store.ports import Append, Store

_ATTEMPTS_MAX = 3
"""Attempts for a conversation that changes while the model summarises it."""
_CACHED_SUCCESSORS_MAX = 1_000


class SessionContinuation:
    """Continue sessions in new ones. Belongs to one event loop.

    Calls `start_run` for a run that moved along, `on_session_end` with the session that is over for now, and
    `move_rules` to take along what people have allowed in it.
    """

    def __init__(
        self,
        store: Store,
        ids: IdGenerator,
        mask: MaskFunction,
        summaries: ConversationSummariser,
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
        """Start a successor that begins with a summary, and return its id.

        If the session has continued before, return the id of its current session. If the session is deleted
        while the model summarises it, the successor begins all the same. Raises NoSuchSession,
        SuccessorDeleted, Busy while a run works or waits for a person, NothingToSummarise, SummaryRefused and
        SummaryFailed.
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
        """Return the id of a conversation's current session: itself, or its last successor.

        Raises NoSuchSession if it was deleted without a successor, and SuccessorDeleted.
        """
        return await self._follow(session_id, session_id)

    async def missing_error(self, session_id: SessionId, last: SessionId) -> NoSuchSession:
        """Return the error for a conversation whose successor `last` does not exist."""
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
        successor, continuations = self._ids.session(), list[Continuation]()
        drafted = DraftSummary(drafted.through_turn, drafted.before, self._mask(drafted.summary))
        was_pinned = row.id in await self._store.pinned((row.id,))

        def decide_old(view: SessionStateView) -> Facts:
            # Decides for both sessions: the store runs this before `decide_new`.
            continuations[:] = [continue_in(view, row.id, successor, drafted, row.workspace, self._ids)]
            return continuations[0].old_facts

        def decide_new(view: SessionStateView) -> Facts:
            return continuations[0].new_facts

        try:
            await self._store.append(Append(row.id, decide_old), Append(successor, decide_new, expect=0))
        except NoSuchSession:
            async with self._deleted_lock:
                return await self._start_after_deletion(row, successor, drafted)
        self._cache_successor(row.id, successor)
        if not row.workspace:
            await move_workspace(self._folder, row.id, successor)
        with suppress(StoreFault):  # The agent asks again for a rule that does not move.
            await self._move_rules(row.id, successor)
        if was_pinned:
            await self._store.pin(successor, True)
        self._on_session_end(row.id)
        run_to_start = continuations[0].first_run
        if run_to_start is not None:
            self._start_run(successor, run_to_start)
        return successor

    async def _start_after_deletion(
        self, row: SessionRow, successor: SessionId, drafted: DraftSummary
    ) -> SessionId:
        """Start the successor of a session that was deleted while the model summarised it.

        While anything is left of the old session, it leads to its first successor; after that, as long as
        this process remembers it. What people have allowed in the old session does not move. Raises
        SessionMoved.
        """
        creation = Append(successor, opening_facts(row, drafted, row.workspace, self._ids), expect=0)
        number = await self._store.deleted_session_number(row.id)
        if not number and row.id in self._cached_successors:
            raise SessionMoved(session_id=row.id, successor=self._cached_successors[row.id])
        forwarding = Append(row.id, lambda view: link_successor(view, row.id, successor), number=number)
        try:
            await self._store.append(*([forwarding] if number else []), creation)
        except NoSuchSession:
            await self._store.append(creation)  # Nothing is left of the old session by now.
        self._cache_successor(row.id, successor)
        if not row.workspace:
            await move_workspace(self._folder, row.id, successor)
        return successor

    def _cache_successor(self, session_id: SessionId, successor: SessionId) -> None:
        self._cached_successors[session_id] = successor
        if len(self._cached_successors) > _CACHED_SUCCESSORS_MAX:
            self._cached_successors.popitem(last=False)
