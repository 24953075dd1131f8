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

from holdfast.agent.agent import Agent, RunOutcome
from holdfast.agent.instructions import TitleGenerator
from holdfast.agent.model_pool import ModelNames, ModelPool, OpenModel, PooledModel
from holdfast.agent.ports import Recorder
from holdfast.domain.agents import AgentSpec, BadAgent, NoSuchAgent
from holdfast.domain.decisions.compaction import DraftSummary
from holdfast.domain.decisions.run_limits import RunLimits
from holdfast.domain.errors import HoldfastError
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.files import NO_FILES, SupportedFiles
from holdfast.domain.ids import CallId
from holdfast.domain.limits import AGENT_CACHE_ROUTES_MAX
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.transcript import Transcript
from holdfast.models.completion import COMPLETION_INPUT_CHARS_MAX, COMPLETION_TIMEOUT_S_MAX, complete
from holdfast.models.ports import Model, NoSuchModel, ToolSpec
from holdfast.tools.ports import Tool

LoadAgentSpec = Callable[[str], AgentSpec]
"""The agent of that name as it is written now. Raises NoSuchAgent, BadAgent."""
C = TypeVar("C")
A = TypeVar("A")


def default_spec(name: str) -> AgentSpec:
    """The crew of a server where nobody has written any."""
    return AgentSpec()


async def no_other_models(name: str, fallbacks: ModelNames) -> Model:
    raise NoSuchModel(name=name)


class PromptPreview(msgspec.Struct, frozen=True):
    """What a model would be sent beside the conversation."""

    model: str
    instructions: str
    tools: tuple[ToolSpec, ...]
    window_tokens: int


class AgentHandle:
    """A place at the switchboard: stands where the agent of some conversations does.

    `agent` and `model` are names; with no model it is the agent's own, or else the server's.
    """

    def __init__(self, registry: "AgentRegistry", agent: str, model: str) -> None:
        self._registry = registry
        self._agent = agent
        self._model = model

    async def check_files(self, parts: Sequence[AnyPart]) -> None:
        """Raises FileNotSupported, and as `Crew` and `OpenModel` do."""
        async with self.acquire() as (agent, _):
            await agent.check_files(parts)

    async def is_finished(self, tool: str, call_id: CallId) -> bool:
        """Whether nothing of an earlier try at a call is still at work, whoever has that tool now."""
        known = self._registry.tools.get(tool)
        return known is None or await known.is_finished(call_id)

    async def run(self, recorder: Recorder) -> RunOutcome:
        """As the agent's own. Raises as `Crew` and `OpenModel` do, too."""
        async with self.acquire() as (agent, _):
            return await agent.run(recorder)

    async def generate_title(self, text: str) -> str:
        """A few words for the beginning of a conversation; empty if this model is not to be asked."""
        async with self.acquire() as (_, pooled):
            return await TitleGenerator(pooled.model)(text) if pooled.can_title else ""

    async def summarise(
        self, transcript: Callable[[int], Awaitable[Transcript]], threshold: float, keep_turns: int
    ) -> DraftSummary | None:
        """As the agent's own; None if this model is not to be asked."""
        async with self.acquire() as (agent, pooled):
            return await agent.summarise(transcript, threshold, keep_turns) if pooled.can_title else None

    async def complete(self, system: str, text: str) -> str:
        """What the model says to `text`. Raises ModelFailure."""
        async with self.acquire() as (_, pooled):
            return await complete(
                pooled.model, system, text, COMPLETION_TIMEOUT_S_MAX, COMPLETION_INPUT_CHARS_MAX
            )

    async def preview(self, workspace: Path) -> PromptPreview:
        """What the model would be sent beside what is said, by a run that begins now."""
        async with self.acquire() as (agent, pooled):
            instructions, window = (
                await agent.build_instructions(workspace),
                pooled.model.profile.window_tokens,
            )
            return PromptPreview(pooled.model.name, instructions, tuple(agent.specs), window)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[tuple[Agent, PooledModel]]:
        """Who answers here now, with the model kept open."""
        async with self._registry.acquire_agent(self._agent, self._model) as acquired:
            yield acquired


class AgentRegistry(AgentHandle):
    """Stands where the agent of every server does. `build` makes an agent for what is written and a model.

    All conversations with the same agent and model share one; `rebuilt` is called for each that is made anew
    because what it is made from has changed. Belongs to one event loop.
    """

    def __init__(
        self,
        build: Callable[[AgentSpec, Model], Agent],
        model: Model,
        why: str,
        can_title: bool,
        on_rebuild: Callable[[], None] = lambda: None,
        load_spec: LoadAgentSpec = default_spec,
        open_model: OpenModel = no_other_models,
        tools: Mapping[str, Tool] = MappingProxyType({}),
    ) -> None:
        super().__init__(self, "", "")
        self._agents: AgentCache[tuple[AgentSpec, PooledModel], Agent] = AgentCache(
            lambda made_of: build(made_of[0], made_of[1].model), on_rebuild
        )
        self._load_spec = load_spec
        self.tools = tools
        self._pool = ModelPool(PooledModel(model, why, can_title), open_model)

    def get_handle(self, agent: str, model: str) -> AgentHandle:
        """The place of conversations with this agent and model."""
        return AgentHandle(self, agent, model)

    def handle_for(self, session: SessionRow) -> AgentHandle:
        """The place of a conversation, as it is."""
        return self.get_handle(session.agent, session.model)

    @asynccontextmanager
    async def acquire_agent(self, agent: str, model: str) -> AsyncIterator[tuple[Agent, PooledModel]]:
        """The agent as it is now, with its model kept open. Raises as `Crew` and `OpenModel`."""
        spec = self._load_spec(agent)
        async with self._pool.acquire(model or spec.model, spec.fallbacks) as pooled:
            yield self._agents.get(spec.name, model, (spec, pooled)), pooled

    @property
    def name(self) -> str:
        """Of the server's own model, as people choose it."""
        return self._pool.default.model.name

    @property
    def why(self) -> str:
        """Why it is that one, in a sentence."""
        return self._pool.default.why

    @property
    def address(self) -> str:
        """Where it is asked, with nothing secret in it; empty for the demo."""
        return self._pool.default.model.profile.address

    async def takes(self) -> SupportedFiles:
        return await self._pool.default.model.takes()

    async def complete(self, system: str, text: str) -> str:
        """What the server's own model says to `text`, whichever the agent `main` has. Raises ModelFailure."""
        async with self._pool.acquire("") as pooled:
            return await complete(
                pooled.model, system, text, COMPLETION_TIMEOUT_S_MAX, COMPLETION_INPUT_CHARS_MAX
            )

    async def check_model(self, name: str) -> None:
        """Be sure that there can be such a model. Raises as `OpenModel` does."""
        async with self._pool.acquire(name):
            pass

    def model_for(self, agent: str) -> str:
        """The name of the model that an agent has; the server's own where it says none."""
        try:
            return self._load_spec(agent).model or self.name
        except (NoSuchAgent, BadAgent):
            return self.name

    async def main_agent_model(self) -> tuple[str, SupportedFiles]:
        """The model of the agent that every server has, and what it takes; nothing if it is the server's."""
        name = self.model_for("")
        if name == self.name:
            return "", NO_FILES
        try:
            async with self.acquire() as (_, pooled):
                return name, await pooled.model.takes()
        except HoldfastError:
            return name, NO_FILES

    def switch(self, model: Model, why: str, can_title: bool) -> None:
        """Have another model answer from the next run on; `names`: it can be asked for titles."""
        self._pool.set_default(PooledModel(model, why, can_title))

    def reset_models(self) -> None:
        """Models that agents or conversations have chosen are made anew: how they are reached has changed."""
        self._pool.reset()

    def set_allowance(self, allowance: RunLimits) -> None:
        """How much a run may use, from the next one on."""
        for agent in self._agents.cached:
            agent.set_allowance(allowance)

    def is_model(self, name: str, address: str) -> bool:
        """Whether the server's own model is that one."""
        return self.name == name and self.address == address

    async def close(self) -> None:
        """Let go of every model. Nothing is asked after that."""
        await self._pool.close()


class AgentCache(Generic[C, A]):
    """Agents by name and model. `build` makes one from its configuration, which owns what must be closed.

    `rebuilt` is told of each that was made anew because its configuration had changed. Past `most` of them
    the longest unused goes; it is built again when it is asked for.
    """

    def __init__(
        self, build: Callable[[C], A], on_rebuild: Callable[[], None], size_max: int = AGENT_CACHE_ROUTES_MAX
    ) -> None:
        self._build = build
        self._on_rebuild = on_rebuild
        self._size_max = size_max
        self._agents: OrderedDict[tuple[str, str], tuple[C, A]] = OrderedDict()

    def get(self, name: str, model: str, configuration: C) -> A:
        """Return the agent of that name and model, as `configuration` has it now."""
        key = name, model
        known = self._agents.get(key)
        if known is not None and known[0] == configuration:
            self._agents.move_to_end(key)
            return known[1]
        agent = self._build(configuration)
        if known is not None:
            self._on_rebuild()
        self._agents[key] = configuration, agent
        self._agents.move_to_end(key)
        while len(self._agents) > self._size_max:
            self._agents.popitem(last=False)
        return agent

    @property
    def cached(self) -> list[A]:
        """All there are, the longest unused first."""
        return [agent for _, agent in self._agents.values()]
