"""Summarise conversations that have grown long, in the background or on request.

A failed summary changes nothing. A later run's end tries it again after a backoff, which only this process
remembers.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from functools import partial

import msgspec
from msgspec.structs import replace

from holdfast.domain.clock import Clock, Instant
from holdfast.domain.decisions.compaction import KEPT_RECENT_TURNS, KEPT_TURNS, DraftSummary
from holdfast.domain.errors import HoldfastError, NoSuchSession, NothingToSummarise, StoreFault, SummaryFailed
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import SUMMARIES_AT_ONCE_MAX, SUMMARY_RETRY_MS, SUMMARY_RETRY_MS_MAX
from holdfast.domain.transcript.transcript import Transcript
from holdfast.engine.load_context import load_context
from holdfast.engine.ports import AgentForSession, ConversationContexts
from holdfast.engine.recorder import ConversationContext
from holdfast.engine.session_commands import SessionCommands
from holdfast.store.ports import Store

_BACKOFFS_MAX = 1_000


class _Backoff(msgspec.Struct, frozen=True):
    """The number of failures of a conversation's summary, and the time of the next attempt."""

    failures: int
    retry_at: Instant


class ConversationSummariser:
    """Summarise conversations. Belongs to one event loop.

    `threshold` is the share of the window above which the end of a run starts a summary; 0 disables that.
    """

    def __init__(
        self,
        store: Store,
        commands: SessionCommands,
        agent_for_session: AgentForSession,
        contexts: ConversationContexts,
        clock: Clock,
        threshold: float,
    ) -> None:
        self._store = store
        self._commands = commands
        self._agent_for_session = agent_for_session
        self._contexts = contexts
        self._clock = clock
        self.threshold = threshold
        self._tasks: dict[SessionId, asyncio.Task[None]] = {}
        self._backoffs: OrderedDict[SessionId, _Backoff] = OrderedDict()
        self._slots = asyncio.Semaphore(SUMMARIES_AT_ONCE_MAX)

    def schedule(self, session_id: SessionId) -> None:
        """Summarise a conversation in the background, if it has grown long and no backoff applies."""
        backoff = self._backoffs.get(session_id)
        if (
            not self.threshold
            or session_id in self._tasks
            or (backoff and backoff.retry_at > self._clock.now_ms())
        ):
            return
        task = asyncio.create_task(self._summarise_if_due(session_id), name=f"summarising {session_id}")
        self._tasks[session_id] = task
        task.add_done_callback(lambda _: self._tasks.pop(session_id, None))

    async def wait_idle(self, session_id: SessionId) -> None:
        """Return once no background summary of that conversation is under way."""
        task = self._tasks.get(session_id)
        if task is not None:
            await asyncio.wait([task])

    async def summarise(self, session_id: SessionId) -> None:
        """Summarise all but the newest turns now.

        Raises NoSuchSession, NothingToSummarise, SessionMoved, SummaryRefused, SummaryFailed.
        """
        await self.wait_idle(session_id)
        await self._commands.compact(session_id, await self.draft(session_id, KEPT_TURNS))

    async def draft(self, session_id: SessionId, keep_turns: int) -> DraftSummary:
        """Summarise all but `keep_turns` turns without saving it. Raises as `summarise` does."""
        drafted = await self._draft(session_id, 0.0, keep_turns)
        if drafted is None:
            raise NothingToSummarise(session_id=session_id)
        return drafted

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _summarise_if_due(self, session_id: SessionId) -> None:
        has_started = False
        # A summary is optional: the next run that ends may try again.
        with suppress(HoldfastError):
            async with self._slots:
                has_started = True
                drafted = await self._draft(session_id, self.threshold, KEPT_RECENT_TURNS)
                if drafted is not None:
                    await self._commands.compact(session_id, drafted)
            self._backoffs.pop(session_id, None)
            has_started = False
        if has_started:
            self._back_off(session_id)

    async def _draft(self, session_id: SessionId, threshold: float, keep_turns: int) -> DraftSummary | None:
        session = await self._store.session(session_id)
        # An empty change: it makes the context notice changes of other processes.
        first_open = await self._commands.first_open_turn(session_id)
        context = self._contexts.acquire(session_id, is_run=False)
        try:
            if threshold and context.is_changed_elsewhere:
                return None  # The process that continues it summarises it at the end of its run.
            read = partial(self._transcript, context, session_id, first_open)
            return await self._agent_for_session(session).summarise(read, threshold, keep_turns)
        except (NoSuchSession, StoreFault):
            raise
        except HoldfastError as error:
            # A model or its provider may fail with any of our errors.
            raise SummaryFailed(session_id=session_id, why=str(error)) from error
        finally:
            context.release()

    async def _transcript(
        self, context: ConversationContext, session_id: SessionId, first_open: int | None, chars: int
    ) -> Transcript:
        """Return the conversation without turns whose runs are open."""
        fold = await context.fold(chars, lambda: load_context(self._store, session_id, None, chars))
        transcript = fold.transcript()
        finished = (turn for turn in transcript.turns if first_open is None or turn.turn < first_open)
        return replace(transcript, turns=tuple(finished))

    def _back_off(self, session_id: SessionId) -> None:
        previous = self._backoffs.pop(session_id, None)
        failures = previous.failures + 1 if previous is not None else 1
        wait_ms = min(SUMMARY_RETRY_MS << min(failures - 1, 20), SUMMARY_RETRY_MS_MAX)
        self._backoffs[session_id] = _Backoff(failures, self._clock.now_ms() + wait_ms)
        while len(self._backoffs) > _BACKOFFS_MAX:
            self._backoffs.popitem(last=False)
