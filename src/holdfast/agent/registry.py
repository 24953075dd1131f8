"""The agents that are ready to answer: one for each agent file and model, found by conversation.

Both can be changed while runs are under way. A run keeps what it began with, and the next one has the new. A
model that was changed for another is let go of when the last run that uses it has ended.
"""

from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Generic, TypeVar

import msgspec

from holdfast.agent.agent import Agent, Outcome
from holdfast.agent.instructions import TitleAsker
from holdfast.agent.model_pool import Names, OpenModel, Seat, Seats
from holdfast.agent.ports import Recorder
from holdfast.domain.agents import AgentSpec, BadAgent, NoSuchAgent
from holdfast.domain.decisions.allowance import Allowance
from holdfast.domain.decisions.compaction import Drafted
from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.files import NO_FILES, Takes
from holdfast.domain.ids import CallId
from holdfast.domain.limits import AGENT_CACHE_ROUTES_MAX
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.transcript import Transcript
from holdfast.models.completion import ASKED_CHARS_MAX, ASKED_S_MAX, answer_of
from holdfast.models.ports import Model, NoSuchModel, ToolSpec
from holdfast.tools.ports import Tool

Crew = Callable[[str], AgentSpec]
"""The agent of that name as it is written now. Raises NoSuchAgent, BadAgent."""
C = TypeVar("C")
A = TypeVar("A")


def only_main(name: str) -> AgentSpec:
    """The crew of a server where nobody has written any."""
    return AgentSpec()


async def only_own(name: str, fallbacks: Names) -> Model:
    raise NoSuchModel(name=name)


class Shown(msgspec.Struct, frozen=True):
    """What a model would be sent beside the conversation."""

    model: str
    instructions: str
    tools: tuple[ToolSpec, ...]
    window_tokens: int


class Place:
    """A place at the switchboard: stands where the agent of some conversations does.

    `agent` and `model` are names; with no model it is the agent's own, or else the server's.
    """

    def __init__(self, board: "Switchboard", agent: str, model: str) -> None:
        self._board = board
        self._named = agent
        self._chosen = model

    async def check_files(self, parts: Sequence[AnyPart]) -> None:
        """Raises ModelCannotTake, and as `Crew` and `OpenModel` do."""
        async with self.in_use() as (agent, _):
            await agent.check_files(parts)

    async def is_gone(self, tool: str, call_id: CallId) -> bool:
        """Whether nothing of an earlier try at a call is still at work, whoever has that tool now."""
        known = self._board.tools.get(tool)
        return known is None or await known.is_gone(call_id)

    async def carry_out(self, recorder: Recorder) -> Outcome:
        """As the agent's own. Raises as `Crew` and `OpenModel` do, too."""
        async with self.in_use() as (agent, _):
            return await agent.carry_out(recorder)

    async def ask_title(self, said: str) -> str:
        """A few words for the beginning of a conversation; empty if this model is not to be asked."""
        async with self.in_use() as (_, seat):
            return await TitleAsker(seat.model)(said) if seat.names else ""

    async def summarise(
        self, transcript: Callable[[int], Awaitable[Transcript]], above: float, kept_turns: int
    ) -> Drafted | None:
        """As the agent's own; None if this model is not to be asked."""
        async with self.in_use() as (agent, seat):
            return await agent.summarise(transcript, above, kept_turns) if seat.names else None

    async def ask(self, system: str, text: str) -> str:
        """What the model says to `text`. Raises ModelFailure."""
        async with self.in_use() as (_, seat):
            return await answer_of(seat.model, system, text, ASKED_S_MAX, ASKED_CHARS_MAX)

    async def shown(self, workspace: Path) -> Shown:
        """What the model would be sent beside what is said, by a run that begins now."""
        async with self.in_use() as (agent, seat):
            told, window = await agent.told(workspace), seat.model.profile.window_tokens
            return Shown(seat.model.name, told, tuple(agent.specs), window)

    @asynccontextmanager
    async def in_use(self) -> AsyncIterator[tuple[Agent, Seat]]:
        """Who answers here now, with the model kept open."""
        async with self._board.used(self._named, self._chosen) as used:
            yield used


class Switchboard(Place):
    """Stands where the agent of every server does. `build` makes an agent for what is written and a model.

    All conversations with the same agent and model share one; `rebuilt` is called for each that is made anew
    because what it is made from has changed. Belongs to one event loop.
    """

    def __init__(
        self,
        build: Callable[[AgentSpec, Model], Agent],
        model: Model,
        why: str,
        names: bool,
        rebuilt: Callable[[], None] = lambda: None,
        crew: Crew = only_main,
        open_model: OpenModel = only_own,
        tools: Mapping[str, Tool] = MappingProxyType({}),
    ) -> None:
        super().__init__(self, "", "")
        self._agents: RouteAgents[tuple[AgentSpec, Seat], Agent] = RouteAgents(
            lambda made_of: build(made_of[0], made_of[1].model), rebuilt
        )
        self._crew = crew
        self.tools = tools
        self._seats = Seats(Seat(model, why, names), open_model)

    def at(self, agent: str, model: str) -> Place:
        """The place of conversations with this agent and model."""
        return Place(self, agent, model)

    def of(self, session: SessionRow) -> Place:
        """The place of a conversation, as it is."""
        return self.at(session.agent, session.model)

    @asynccontextmanager
    async def used(self, agent: str, model: str) -> AsyncIterator[tuple[Agent, Seat]]:
        """The agent as it is now, with its model kept open. Raises as `Crew` and `OpenModel`."""
        spec = self._crew(agent)
        async with self._seats.used(model or spec.model, spec.fallbacks) as seat:
            yield self._agents.at(spec.name, model, (spec, seat)), seat

    @property
    def name(self) -> str:
        """Of the server's own model, as people choose it."""
        return self._seats.first.model.name

    @property
    def why(self) -> str:
        """Why it is that one, in a sentence."""
        return self._seats.first.why

    @property
    def address(self) -> str:
        """Where it is asked, with nothing secret in it; empty for the demo."""
        return self._seats.first.model.profile.address

    async def takes(self) -> Takes:
        return await self._seats.first.model.takes()

    async def ask(self, system: str, text: str) -> str:
        """What the server's own model says to `text`, whichever the agent `main` has. Raises ModelFailure."""
        async with self._seats.used("") as seat:
            return await answer_of(seat.model, system, text, ASKED_S_MAX, ASKED_CHARS_MAX)

    async def check_model(self, name: str) -> None:
        """Be sure that there can be such a model. Raises as `OpenModel` does."""
        async with self._seats.used(name):
            pass

    def model_of(self, agent: str) -> str:
        """The name of the model that an agent has; the server's own where it says none."""
        try:
            return self._crew(agent).model or self.name
        except (NoSuchAgent, BadAgent):
            return self.name

    async def mains_own(self) -> tuple[str, Takes]:
        """The model of the agent that every server has, and what it takes; nothing if it is the server's."""
        name = self.model_of("")
        if name == self.name:
            return "", NO_FILES
        try:
            async with self.in_use() as (_, seat):
                return name, await seat.model.takes()
        except HoldfastError:
            return name, NO_FILES

    def switch(self, model: Model, why: str, names: bool) -> None:
        """Have another model answer from the next run on; `names`: it can be asked for titles."""
        self._seats.put_first(Seat(model, why, names))

    def renew(self) -> None:
        """Models that agents or conversations have chosen are made anew: how they are reached has changed."""
        self._seats.renew()

    def allow(self, allowance: Allowance) -> None:
        """How much a run may use, from the next one on."""
        for agent in self._agents.built:
            agent.allow(allowance)

    def is_at(self, name: str, address: str) -> bool:
        """Whether the server's own model is that one."""
        return self.name == name and self.address == address

    async def close(self) -> None:
        """Let go of every model. Nothing is asked after that."""
        await self._seats.close()


class RouteAgents(Generic[C, A]):
    """Agents by name and model. `build` makes one from its configuration, which owns what must be closed.

    `rebuilt` is told of each that was made anew because its configuration had changed. Past `most` of them
    the longest unused goes; it is built again when it is asked for.
    """

    def __init__(
        self, build: Callable[[C], A], rebuilt: Callable[[], None], most: int = AGENT_CACHE_ROUTES_MAX
    ) -> None:
        self._build = build
        self._rebuilt = rebuilt
        self._most = most
        self._agents: OrderedDict[tuple[str, str], tuple[C, A]] = OrderedDict()

    def at(self, name: str, model: str, configuration: C) -> A:
        """Return the agent of that name and model, as `configuration` has it now."""
        key = name, model
        known = self._agents.get(key)
        if known is not None and known[0] == configuration:
            self._agents.move_to_end(key)
            return known[1]
        agent = self._build(configuration)
        if known is not None:
            self._rebuilt()
        self._agents[key] = configuration, agent
        self._agents.move_to_end(key)
        while len(self._agents) > self._most:
            self._agents.popitem(last=False)
        return agent

    @property
    def built(self) -> list[A]:
        """All there are, the longest unused first."""
        return [agent for _, agent in self._agents.values()]
