"""Memory in a running server: who remembers, who tells it and when, and everyone who needs either."""

import asyncio
from collections.abc import Awaitable, Callable

from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError
from holdfast.domain.ids import Ids, SessionId
from holdfast.domain.secrets import Masking
from holdfast.domain.state.rows import SessionRow
from holdfast.memory.client import AgentPresence, Presence, Titles
from holdfast.memory.committer import InDoubt
from holdfast.memory.ports import Ledger
from holdfast.memory.provider_selection import Providers
from holdfast.memory.scheduler import Lifecycle
from holdfast.memory.service import Desk

TOLD_MAX = 20
"""Memories that are told in a chat at once."""


class MemoryOffice:
    """Puts memory's parts together. Start it after the engine, stop it after the engine, then close it.

    An answer waits `recall_s` for what is remembered. `chance` gives a number from 0 to 1.
    """

    def __init__(
        self,
        providers: Providers,
        ledger: Ledger,
        session: Callable[[SessionId], Awaitable[SessionRow]],
        titles: Titles,
        clock: Clock,
        ids: Ids,
        in_doubt: InDoubt,
        idle_s: float,
        recall_s: float,
        chance: Callable[[], float],
        mask: Masking,
    ) -> None:
        self._providers = providers
        self._idle_s = idle_s
        self._is_stopped = False
        self._reporting: asyncio.Task[None] | None = None
        self._lifecycle = Lifecycle(ledger, providers.build, clock, ids, in_doubt, chance, mask)
        self.presence = Presence(
            lambda: providers.present, providers.owner, self._lifecycle.enrol, session, titles, clock,
            recall_s, mask,
        )  # fmt: skip
        self.desk = Desk(
            self._lifecycle, ledger, lambda: providers.present, providers.owner, titles,
            lambda: self.presence.recalls, ids, mask,
        )  # fmt: skip

    @property
    def is_on(self) -> bool:
        return self._providers.is_on

    @property
    def described(self) -> str:
        return self._providers.described

    def boundary(self, session_id: SessionId) -> None:
        """A conversation is over for now."""
        if self.is_on:
            self._lifecycle.boundary(session_id)

    def of_agent(self, agent: str, model: str, address: str) -> AgentPresence:
        """Memory as an agent meets it whose model is that one."""
        return AgentPresence(self.presence, lambda: self._providers.owner_of(agent, model, address))

    async def evict(self, session_id: SessionId) -> None:
        """Tell memory of a conversation that is no longer held ready."""
        if self.is_on:
            await self._lifecycle.evict(session_id)

    async def told_of(self, words: str) -> str:
        """What is remembered, or what of it has those words, as a list for people to read."""
        try:
            known = await self.desk.known(words, None, TOLD_MAX)
        except HoldfastError as error:
            return str(error)
        return "\n".join(f"- {memory.text}" for memory in known.page.memories)

    async def start(self) -> None:
        """Tell what is owed from before, and from now on whatever becomes due."""
        if self.is_on:
            self.presence.try_out()
            self._reporting = asyncio.create_task(self._providers.report())
            await self._lifecycle.start(self._idle_s)

    async def stop(self, within_s: float) -> None:
        """Tell what is still owed, at most so long; the rest stays owed. Once, unless it is cut short."""
        if self.is_on and not self._is_stopped:
            await self.presence.close()
            await self.desk.close()
            await self._lifecycle.stop(within_s)
            self._is_stopped = True

    async def open(self) -> None:
        """Raises as `Providers.open`."""
        await self._providers.open()

    async def close(self) -> None:
        if self._reporting is not None:
            self._reporting.cancel()
            await asyncio.wait({self._reporting})
        await self._providers.close()
