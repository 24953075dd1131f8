"""Who answers now: one agent at a time, which can be changed for another while runs are under way.

A run keeps the model that it began with, and the next one has the new one. A model that was changed for
another is let go of when the last run that uses it has ended.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from holdfast.agent.instructions import ASKED_CHARS_MAX, ASKED_S_MAX, TitleAsker, answer_of
from holdfast.agent.loop import Agent, Outcome
from holdfast.agent.ports import Model, Recorder
from holdfast.agent.routes import RouteAgents, door_key
from holdfast.domain.allowance import Allowance
from holdfast.domain.files import FileKind
from holdfast.domain.ids import CallId
from holdfast.domain.parts import AnyPart


class _Seat:
    """A model, and how many are at it just now."""

    def __init__(self, model: Model, why: str, names: bool) -> None:
        self.model = model
        self.why = why
        self.names = names
        self.users = 0


class Place:
    """One route's place at the switchboard: stands where that route's agent does."""

    def __init__(self, board: "Switchboard", key: str) -> None:
        self._board = board
        self._key = key

    @property
    def context_chars(self) -> int:
        return self._agent.context_chars

    async def check_files(self, parts: Sequence[AnyPart]) -> None:
        """Raises ModelCannotTake."""
        await self._agent.check_files(parts)

    async def is_gone(self, tool: str, call_id: CallId) -> bool:
        return await self._agent.is_gone(tool, call_id)

    async def carry_out(self, recorder: Recorder) -> Outcome:
        """As the agent's own."""
        async with self._board.agent_in_use(self._key) as agent:
            return await agent.carry_out(recorder)

    @property
    def _agent(self) -> Agent:
        return self._board.agent(self._key)


class Switchboard(Place):
    """Stands where an agent does. `build` makes the agent for a model. Belongs to one event loop.

    Each route has an agent of its own; `rebuilt` is told of each that is made anew for another model.
    """

    def __init__(
        self,
        build: Callable[[Model], Agent],
        model: Model,
        why: str,
        names: bool,
        rebuilt: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(self, door_key(""))
        self._agents: RouteAgents[_Seat, Agent] = RouteAgents(lambda seat: build(seat.model), rebuilt)
        self._seat = _Seat(model, why, names)
        self.agent(door_key(""))
        self._closing: set[asyncio.Task[None]] = set()

    def at(self, key: str) -> Place:
        """The place of the route `key`."""
        return Place(self, key)

    def agent(self, key: str) -> Agent:
        """Who answers on the route `key` now."""
        return self._agents.at(key, self._seat)

    @asynccontextmanager
    async def agent_in_use(self, key: str) -> AsyncIterator[Agent]:
        """The same, with its model kept open."""
        async with self._used() as seat:
            yield self._agents.at(key, seat)

    @property
    def name(self) -> str:
        """The model's, as people choose it."""
        return self._seat.model.name

    @property
    def why(self) -> str:
        """Why it is that one, in a sentence."""
        return self._seat.why

    @property
    def address(self) -> str:
        """Where it is asked, with nothing secret in it; empty for the demo."""
        return self._seat.model.profile.address

    async def takes(self) -> frozenset[FileKind]:
        return await self._seat.model.takes()

    def switch(self, model: Model, why: str, names: bool) -> None:
        """Have another model answer from the next run on; `names`: it can be asked for titles."""
        left, self._seat = self._seat, _Seat(model, why, names)
        self.agent(door_key(""))
        self._let_go(left)

    def allow(self, allowance: Allowance) -> None:
        """How much a run may use, from the next one on."""
        for agent in self._agents.built:
            agent.allow(allowance)

    async def close(self) -> None:
        """Let go of every model. Nothing is asked after that."""
        await self._seat.model.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def ask_title(self, said: str) -> str:
        """A few words for the beginning of a conversation; empty if this model is not to be asked."""
        async with self._used() as seat:
            return await TitleAsker(seat.model)(said) if seat.names else ""

    def is_at(self, name: str, address: str) -> bool:
        """Whether the model that answers now is that one."""
        return self.name == name and self.address == address

    async def ask(self, system: str, text: str) -> str:
        """What the model that answers now says to `text`. Raises ModelFailure."""
        async with self._used() as seat:
            return await answer_of(seat.model, system, text, ASKED_S_MAX, ASKED_CHARS_MAX)

    @asynccontextmanager
    async def _used(self) -> AsyncIterator[_Seat]:
        seat = self._seat
        seat.users += 1
        try:
            yield seat
        finally:
            seat.users -= 1
            self._let_go(seat)

    def _let_go(self, seat: _Seat) -> None:
        if seat is not self._seat and not seat.users:
            task = asyncio.create_task(seat.model.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
