"""Moving a conversation on to a new session, and following those that have moved.

The move is one change to both sessions. Whoever sends to the old id comes before it, and is part of what is
moved, or after it, and is carried over: there is nothing in between.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from holdfast.domain.decisions.compaction import Drafted
from holdfast.domain.decisions.successor import Moving, beginning, lead_on, move_on
from holdfast.domain.errors import (
    NoSuchSession,
    SessionMoved,
    StoreFault,
    SuccessorDeleted,
    SummaryRefused,
)
from holdfast.domain.ids import Ids, RunId, SessionId
from holdfast.domain.limits import SUCCESSORS_MAX
from holdfast.domain.secrets import Masking
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.state.session_state import Facts, View
from holdfast.engine.compaction import Summaries
from holdfast.engine.workspaces import take_over
from holdfast.store.ports import Append, Store

_TRIES_MAX = 3
"""Of a conversation that goes on while it is summarised."""
_KNOWN_MAX = 1_000


class Moves:
    """`begin` sets a run going; `ended` is told of the session that is over for now.

    `carry` takes along what people have allowed in the old one. One event loop's.
    """

    def __init__(
        self,
        store: Store,
        ids: Ids,
        mask: Masking,
        summaries: Summaries,
        folder: Path,
        begin: Callable[[SessionId, RunId], None],
        ended: Callable[[SessionId], None],
        carry: Callable[[SessionId, SessionId], Awaitable[None]],
    ) -> None:
        self._store = store
        self._ids = ids
        self._mask = mask
        self._summaries = summaries
        self._folder = folder
        self._begin = begin
        self._ended = ended
        self._carry = carry
        self._alone = asyncio.Lock()
        self._known: OrderedDict[SessionId, SessionId] = OrderedDict()

    async def move_on(self, session_id: SessionId) -> SessionId:
        """Go on in a new session that begins with a summary; returns it, or where it is by now if it went on
        before.

        If the old one is deleted while it is summarised, the new one begins all the same. Raises
        NoSuchSession, SuccessorDeleted, Busy while it is worked on or waits for a person, NothingToSummarise,
        SummaryRefused and SummaryFailed.
        """
        for tried in range(1, _TRIES_MAX + 1):
            try:
                row = await self._store.session(session_id)
                drafted = await self._summaries.draft(session_id, 0)
                return await self._move(row, drafted)
            except SessionMoved as moved:
                return await self._followed(session_id, SessionId(str(moved.fields["successor"])))
            except NoSuchSession:
                return await self.where(session_id)
            except SummaryRefused:
                if tried == _TRIES_MAX:
                    raise
        raise AssertionError("the last try returns or raises")

    async def where(self, session_id: SessionId) -> SessionId:
        """Where a conversation is now: itself, or the last of those that it went on in.

        Raises NoSuchSession for one that was deleted and did not go on, SuccessorDeleted.
        """
        return await self._followed(session_id, session_id)

    async def lost(self, session_id: SessionId, last: SessionId) -> NoSuchSession:
        """What is to be said of a conversation that went on as far as `last`, which is not there."""
        with suppress(NoSuchSession):
            if session_id != last:
                await self._store.head(session_id)
                return SuccessorDeleted(session_id=session_id, successor=last)
        return NoSuchSession(session_id=session_id)

    async def _followed(self, session_id: SessionId, at: SessionId) -> SessionId:
        for _ in range(SUCCESSORS_MAX):
            successor = await self._store.successor(at)
            if successor is None:
                break
            at = successor
        try:
            await self._store.head(at)
        except NoSuchSession:
            raise await self.lost(session_id, at) from None
        return at

    async def _move(self, row: SessionRow, drafted: Drafted) -> SessionId:
        successor, moving = self._ids.session(), list[Moving]()
        drafted = Drafted(drafted.through_turn, drafted.before, self._mask(drafted.summary))
        was_pinned = row.id in await self._store.pinned((row.id,))

        def leave(view: View) -> Facts:
            # Decided first, and for both: whoever begins sees what the other one left.
            moving[:] = [move_on(view, row.id, successor, drafted, row.workspace, self._ids)]
            return moving[0].old

        def begin(view: View) -> Facts:
            return moving[0].new

        try:
            await self._store.append(Append(row.id, leave), Append(successor, begin, expect=0))
        except NoSuchSession:
            async with self._alone:
                return await self._begin_alone(row, successor, drafted)
        self._know(row.id, successor)
        if not row.workspace:
            await take_over(self._folder, row.id, successor)
        with suppress(StoreFault):  # What is not taken along is asked again.
            await self._carry(row.id, successor)
        if was_pinned:
            await self._store.pin(successor, True)
        self._ended(row.id)
        begins = moving[0].begins
        if begins is not None:
            self._begin(successor, begins)
        return successor

    async def _begin_alone(self, row: SessionRow, successor: SessionId, drafted: Drafted) -> SessionId:
        """The old one was deleted meanwhile: what was said there is summed up all the same.

        As long as anything is left of it, it leads to the first that went on from it; after that, as long as
        this process knows of that. What was allowed in it is not taken along. Raises SessionMoved.
        """
        begin = Append(successor, beginning(row, drafted, row.workspace, self._ids), expect=0)
        number = await self._store.buried(row.id)
        if not number and row.id in self._known:
            raise SessionMoved(session_id=row.id, successor=self._known[row.id])
        lead = Append(row.id, lambda view: lead_on(view, row.id, successor), number=number)
        try:
            await self._store.append(*([lead] if number else []), begin)
        except NoSuchSession:
            await self._store.append(begin)  # Nothing is left of it by now.
        self._know(row.id, successor)
        if not row.workspace:
            await take_over(self._folder, row.id, successor)
        return successor

    def _know(self, session_id: SessionId, successor: SessionId) -> None:
        self._known[session_id] = successor
        if len(self._known) > _KNOWN_MAX:
            self._known.popitem(last=False)
