"""Summaries of conversations that have grown long: made in the background, never in anyone's way, or by hand.

One that fails changes nothing. It is tried again after a run that ends later, not before a while has passed;
that is remembered in this process alone.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from holdfast.domain.clock import Clock, Instant
from holdfast.domain.decisions.compaction import KEPT_RECENT_TURNS, KEPT_TURNS, Drafted
from holdfast.domain.errors import HoldfastError, NoSuchSession, NothingToSummarise, StoreFault, SummaryFailed
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import SUMMARIES_AT_ONCE_MAX, SUMMARY_RETRY_MS, SUMMARY_RETRY_MS_MAX
from holdfast.domain.transcript.transcript import Transcript
from holdfast.engine.load_context import read_back
from holdfast.engine.ports import Contexts, Workers
from holdfast.engine.recorder import Context
from holdfast.engine.session_commands import Verbs
from holdfast.store.ports import Store

_RESTING_MAX = 1_000


class _Rest(msgspec.Struct, frozen=True):
    """A conversation that could not be summarised so often, and when it may be tried again."""

    failures: int
    until: Instant


class Summaries:
    """`above` is the share of the window from which on it is done by itself; 0: never. One event loop's."""

    def __init__(
        self, store: Store, verbs: Verbs, workers: Workers, contexts: Contexts, clock: Clock, above: float
    ) -> None:
        self._store = store
        self._verbs = verbs
        self._workers = workers
        self._contexts = contexts
        self._clock = clock
        self.above = above
        self._tasks: dict[SessionId, asyncio.Task[None]] = {}
        self._resting: OrderedDict[SessionId, _Rest] = OrderedDict()
        self._slots = asyncio.Semaphore(SUMMARIES_AT_ONCE_MAX)

    def consider(self, session_id: SessionId) -> None:
        """A run has ended there: summarise it in the background, if it has grown long."""
        rest = self._resting.get(session_id)
        if not self.above or session_id in self._tasks or (rest and rest.until > self._clock.now_ms()):
            return
        task = asyncio.create_task(self._in_background(session_id), name=f"summarising {session_id}")
        self._tasks[session_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(session_id, None))

    async def settled(self, session_id: SessionId) -> None:
        """Return once nothing is made of that conversation in the background."""
        task = self._tasks.get(session_id)
        if task is not None:
            await asyncio.wait([task])

    async def make(self, session_id: SessionId) -> None:
        """Summarise all but the newest turns now.

        Raises NoSuchSession, NothingToSummarise, SessionMoved, SummaryRefused, SummaryFailed.
        """
        await self.settled(session_id)
        await self._verbs.compact(session_id, await self.draft(session_id, KEPT_TURNS))

    async def draft(self, session_id: SessionId, kept_turns: int) -> Drafted:
        """A summary of all but so many turns, which is not kept yet. Raises as `make`."""
        drafted = await self._drafted(session_id, 0.0, kept_turns)
        if drafted is None:
            raise NothingToSummarise(session_id=session_id)
        return drafted

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _in_background(self, session_id: SessionId) -> None:
        is_tried = False
        # Whatever keeps it from being made: the next run that ends may try again.
        with suppress(HoldfastError):
            async with self._slots:
                is_tried = True
                drafted = await self._drafted(session_id, self.above, KEPT_RECENT_TURNS)
                if drafted is not None:
                    await self._verbs.compact(session_id, drafted)
            self._resting.pop(session_id, None)
            is_tried = False
        if is_tried:
            self._rest(session_id)

    async def _drafted(self, session_id: SessionId, above: float, kept_turns: int) -> Drafted | None:
        session = await self._store.session(session_id)
        # A change that changes nothing: by it is noticed what other processes have said.
        first_open = await self._verbs.first_open(session_id)
        context = self._contexts.hold(session_id, is_run=False)
        try:
            if above and context.is_overtaken:
                return None  # Whoever goes on with it sees to it at the end of that.
            read = partial(self._transcript, context, session_id, first_open)
            return await self._workers(session).summarise(read, above, kept_turns)
        except (NoSuchSession, StoreFault):
            raise
        except HoldfastError as error:
            # Whatever it is that a model or its provider refuses.
            raise SummaryFailed(session_id=session_id, why=str(error)) from error
        finally:
            context.release()

    async def _transcript(
        self, context: Context, session_id: SessionId, first_open: int | None, chars: int
    ) -> Transcript:
        """The conversation without what is still worked on, or waits."""
        fold = await context.fold(chars, lambda: read_back(self._store, session_id, None, chars))
        transcript = fold.transcript()
        over = (turn for turn in transcript.turns if first_open is None or turn.turn < first_open)
        return replace(transcript, turns=tuple(over))

    def _rest(self, session_id: SessionId) -> None:
        known = self._resting.pop(session_id, None)
        failures = known.failures + 1 if known is not None else 1
        wait_ms = min(SUMMARY_RETRY_MS << min(failures - 1, 20), SUMMARY_RETRY_MS_MAX)
        self._resting[session_id] = _Rest(failures, self._clock.now_ms() + wait_ms)
        while len(self._resting) > _RESTING_MAX:
            self._resting.popitem(last=False)
