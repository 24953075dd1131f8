"""Assemble the parts of memory for a running server."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.secrets import MaskFunction
from holdfast.domain.state.rows import SessionRow
from holdfast.memory.client import AgentMemoryClient, LoadTitles, MemoryClient
from holdfast.memory.committer import InDoubtPolicy
from holdfast.memory.ports import MemoryQueue
from holdfast.memory.provider_selection import MemoryProviders
from holdfast.memory.scheduler import CommitScheduler
from holdfast.memory.service import ProviderMemoryService

LISTED_MAX = 20
"""Memories that one chat reply lists."""


class MemoryRuntime:
    """The parts of memory. Start it after the engine, stop it after the engine, then close it.

    A turn waits at most `recall_s` for memories. `rng` returns a number from 0 to 1.
    """

    def __init__(
        self,
        providers: MemoryProviders,
        queue: MemoryQueue,
        session: Callable[[SessionId], Awaitable[SessionRow]],
        titles: LoadTitles,
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
            lambda: providers.current, providers.owner, self._scheduler.register_owner, session, titles,
            clock, recall_s, mask,
        )  # fmt: skip
        self.service = ProviderMemoryService(
            self._scheduler, queue, lambda: providers.current, providers.owner, titles,
            lambda: self.client.recall_counts, ids, mask,
        )  # fmt: skip

    @property
    def is_on(self) -> bool:
        return self._providers.is_on

    @property
    def description(self) -> str:
        return self._providers.description

    def schedule_commit(self, session_id: SessionId) -> None:
        """Commit a conversation's pending turns in the background."""
        if self.is_on:
            self._scheduler.schedule_commit(session_id)

    def client_for(self, agent: str, model: str, address: str) -> AgentMemoryClient:
        """Return the memory client of an agent with this model."""
        return AgentMemoryClient(self.client, lambda: self._providers.owner_for(agent, model, address))

    async def evict(self, session_id: SessionId) -> None:
        """Commit a conversation that the engine evicts from its cache."""
        if self.is_on:
            await self._scheduler.evict(session_id)

    async def memories_text(self, words: str) -> str:
        """Return memories as a list for people; with `words`, only those that contain them."""
        try:
            listing = await self.service.list_memories(words, None, LISTED_MAX)
        except HoldfastError as error:
            return str(error)
        return "\n".join(f"- {memory.text}" for memory in listing.page.memories)

    async def start(self) -> None:
        """Commit what is pending from before, then poll for what becomes due."""
        if self.is_on:
            self.client.probe()
            self._health_report = asyncio.create_task(self._providers.report_health())
            await self._scheduler.start(self._idle_s)

    async def stop(self, within_s: float) -> None:
        """Commit what is pending for at most `within_s`; the rest stays pending.

        A second call does nothing, unless the first was cancelled.
        """
        if self.is_on and not self._is_stopped:
            await self.client.close()
            await self.service.close()
            await self._scheduler.stop(within_s)
            self._is_stopped = True

    async def open(self) -> None:
        """Open the current provider. Raises as `MemoryProviders.open`."""
        await self._providers.open()

    async def close(self) -> None:
        if self._health_report is not None:
            self._health_report.cancel()
            await asyncio.wait({self._health_report})
        await self._providers.close()
