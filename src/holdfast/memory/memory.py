"""Memory in a running server: who remembers, who tells it and when, and everyone who needs either."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.secrets import MaskFunction
from holdfast.domain.state.rows import SessionRow
from holdfast.memory.client import AgentMemoryClient, MemoryClient, Titles
from holdfast.memory.committer import InDoubtPolicy
from holdfast.memory.ports import MemoryQueue
from holdfast.memory.provider_selection import MemoryProviders
from holdfast.memory.scheduler import CommitScheduler
from holdfast.memory.service import ProviderMemoryService

LISTED_MAX = 20
"""Memories that are told in a chat at once."""


class MemoryRuntime:
    """Puts memory's parts together. Start it after the engine, stop it after the engine, then close it.

    An answer waits `recall_s` for what is remembered. `chance` gives a number from 0 to 1.
    """

    def __init__(
        self,
        providers: MemoryProviders,
        queue: MemoryQueue,
        session: Callable[[SessionId], Awaitable[SessionRow]],
        titles: Titles,
        clock: Clock,
        ids: IdGenerator,
        in_doubt: InDoubtPolicy,
        idle_s: float,
        recall_s: float,
        rng: Callable[[], float],
        mask: MaskFunction,
    ) -> None:
        self._providers = providers
        self._idle_s = idle_s
        self._is_stopped = False
        self._health_report: asyncio.Task[None] | None = None
        self._scheduler = CommitScheduler(queue, providers.build, clock, ids, in_doubt, rng, mask)
        self.client = MemoryClient(
            lambda: providers.current, providers.owner, self._scheduler.register_owner, session, titles, clock,
            recall_s, mask,
        )  # fmt: skip
        self.service = ProviderMemoryService(
            self._scheduler, queue, lambda: providers.current, providers.owner, titles,
            lambda: self.client.recalls, ids, mask,
        )  # fmt: skip

    @property
    def is_on(self) -> bool:
        return self._providers.is_on

    @property
    def description(self) -> str:
        return self._providers.description

    def schedule_commit(self, session_id: SessionId) -> None:
        """A conversation is over for now."""
        if self.is_on:
            self._scheduler.schedule_commit(session_id)

    def client_for(self, agent: str, model: str, address: str) -> AgentMemoryClient:
        """Memory as an agent meets it whose model is that one."""
        return AgentMemoryClient(self.client, lambda: self._providers.owner_for(agent, model, address))

    async def evict(self, session_id: SessionId) -> None:
        """Tell memory of a conversation that is no longer held ready."""
        if self.is_on:
            await self._scheduler.evict(session_id)

    async def memories_text(self, words: str) -> str:
        """What is remembered, or what of it has those words, as a list for people to read."""
        try:
            listing = await self.service.list_memories(words, None, LISTED_MAX)
        except HoldfastError as error:
            return str(error)
        return "\n".join(f"- {memory.text}" for memory in listing.page.memories)

    async def start(self) -> None:
        """Tell what is owed from before, and from now on whatever becomes due."""
        if self.is_on:
            self.client.probe()
            self._health_report = asyncio.create_task(self._providers.report_health())
            await self._scheduler.start(self._idle_s)

    async def stop(self, within_s: float) -> None:
        """Tell what is still owed, at most so long; the rest stays owed. Once, unless it is cut short."""
        if self.is_on and not self._is_stopped:
            await self.client.close()
            await self.service.close()
            await self._scheduler.stop(within_s)
            self._is_stopped = True

    async def open(self) -> None:
        """Raises as `Providers.open`."""
        await self._providers.open()

    async def close(self) -> None:
        if self._health_report is not None:
            self._health_report.cancel()
            await asyncio.wait({self._health_report})
        await self._providers.close()
