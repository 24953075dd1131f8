"""Cache the agents, one for each agent file and model, and find them by conversation.

Both can change while runs are under way. A run keeps what it began with, and the next one has the new. A
replaced model is closed when the last run that uses it has ended.
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
from holdfast.domain.limits import AGENT_CACHE_AGENTS_MAX
from holdfast.domain.state.rows import SessionRow
from holdfast.domain.transcript.transcript import Transcript
from holdfast.models.completion import COMPLETION_INPUT_CHARS_MAX, COMPLETION_TIMEOUT_S_MAX, complete
from holdfast.models.ports import Model, NoSuchModel, ToolSpec
from holdfast.tools.ports import Tool

LoadAgentSpec = Callable[[str], AgentSpec]
"""Return the agent of that name as its file is now. Raises NoSuchAgent, BadAgent."""
C = TypeVar("C")
A = TypeVar("A")


def default_spec(name: str) -> AgentSpec:
    """Return the same agent for every name, for a server without agent files."""
    return AgentSpec()


async def no_other_models(name: str, fallbacks: ModelNames) -> Model:
    raise NoSuchModel(name=name)


class PromptPreview(msgspec.Struct, frozen=True):
    """A request to a model without the conversation."""

    model: str
    instructions: str
    tools: tuple[ToolSpec, ...]
    window_tokens: int


class AgentHandle:
    """The agent of some conversations, looked up for each use.

    `agent` and `model` are names; without a model it is the agent's own, or else the server's.
    """

    def __init__(self, registry: "AgentRegistry", agent: str, model: str) -> None:
        self._registry = registry
        self._agent = agent
        self._model = model

    async def check_files(self, parts: Sequence[AnyPart]) -> None:
        """Raise FileNotSupported, or as `LoadAgentSpec` and `OpenModel` do."""
        async with self.acquire() as (agent, _):
            await agent.check_files(parts)

    async def is_finished(self, tool: str, call_id: CallId) -> bool:
        """Return whether nothing of an earlier attempt at a call is running, whatever the agent."""
        found = self._registry.tools.get(tool)
        return found is None or await found.is_finished(call_id)

    async def run(self, recorder: Recorder) -> RunOutcome:
        """Run the agent. Also raises as `LoadAgentSpec` and `OpenModel` do."""
        async with self.acquire() as (agent, _):
            return await agent.run(recorder)

    async def generate_title(self, text: str) -> str:
        """Return a title for the beginning of a conversation; empty if this model gives none."""
        async with self.acquire() as (_, pooled):
            return await TitleGenerator(pooled.model)(text) if pooled.can_complete else ""

    async def summarise(
        self, transcript: Callable[[int], Awaitable[Transcript]], threshold: float, keep_turns: int
    ) -> DraftSummary | None:
        """Have the agent summarise; None if this model may not be asked."""
        async with self.acquire() as (agent, pooled):
            return await agent.summarise(transcript, threshold, keep_turns) if pooled.can_complete else None

    async def complete(self, system: str, text: str) -> str:
        """Return the model's answer to `text`. Raises ModelFailure."""
        async with self.acquire() as (_, pooled):
            return await complete(
                pooled.model, system, text, COMPLETION_TIMEOUT_S_MAX, COMPLETION_INPUT_CHARS_MAX
            )

    async def preview(self, workspace: Path) -> PromptPreview:
        """Return what the model of a run that begins now gets beside the conversation."""
        async with self.acquire() as (agent, pooled):
            instructions, window = (
                await agent.build_instructions(workspace),
                pooled.model.profile.window_tokens,
            )
            return PromptPreview(pooled.model.name, instructions, tuple(agent.specs), window)

    @asynccontextmanager
    async def acquire(self) -> AsyncIterator[tuple[Agent, PooledModel]]:
        """Acquire the agent as it is now, and keep its model open."""
        async with self._registry.acquire_agent(self._agent, self._model) as acquired:
            yield acquired


class AgentRegistry(AgentHandle):
    """The agents of a server. `build` makes one from its spec and a model.

    All conversations with the same agent and model share one. Calls `on_rebuild` for each agent that is
    rebuilt because its spec or model has changed. Belongs to one event loop.
    """

    def __init__(
        self,
        build: Callable[[AgentSpec, Model], Agent],
        model: Model,
        why: str,
        can_complete: bool,
        on_rebuild: Callable[[], None] = lambda: None,
        load_spec: LoadAgentSpec = default_spec,
        open_model: OpenModel = no_other_models,
        tools: Mapping[str, Tool] = MappingProxyType({}),
    ) -> None:
        super().__init__(self, "", "")
        self._agents: AgentCache[tuple[AgentSpec, PooledModel], Agent] = AgentCache(
            lambda configuration: build(configuration[0], configuration[1].model), on_rebuild
        )
        self._load_spec = load_spec
        self.tools = tools
        self._pool = ModelPool(PooledModel(model, why, can_complete), open_model)

    def get_handle(self, agent: str, model: str) -> AgentHandle:
        """Return the handle of conversations with this agent and model."""
        return AgentHandle(self, agent, model)

    def handle_for(self, session: SessionRow) -> AgentHandle:
        """Return the handle of a conversation as it is now."""
        return self.get_handle(session.agent, session.model)

    @asynccontextmanager
    async def acquire_agent(self, agent: str, model: str) -> AsyncIterator[tuple[Agent, PooledModel]]:
        """Acquire the agent and its open model. Raises as `LoadAgentSpec` and `OpenModel` do."""
        spec = self._load_spec(agent)
        async with self._pool.acquire(model or spec.model, spec.fallbacks) as pooled:
            yield self._agents.get(spec.name, model, (spec, pooled)), pooled

    @property
    def name(self) -> str:
        """Return the name of the server's own model, as people choose it."""
        return self._pool.default.model.name

    @property
    def why(self) -> str:
        """Return why it is that model, in a sentence."""
        return self._pool.default.why

    @property
    def address(self) -> str:
        """Return its address, with nothing secret in it; empty for the demo."""
        return self._pool.default.model.profile.address

    async def supported_files(self) -> SupportedFiles:
        return await self._pool.default.model.supported_files()

    async def complete(self, system: str, text: str) -> str:
        """Return the answer of the server's own model, whatever the agent `main` has. Raises ModelFailure."""
        async with self._pool.acquire("") as pooled:
            return await complete(
                pooled.model, system, text, COMPLETION_TIMEOUT_S_MAX, COMPLETION_INPUT_CHARS_MAX
            )

    async def check_model(self, name: str) -> None:
        """Raise as `OpenModel` does if there can be no such model."""
        async with self._pool.acquire(name):
            pass

    def model_for(self, agent: str) -> str:
        """Return the name of an agent's model; the server's own if it has none."""
        try:
            return self._load_spec(agent).model or self.name
        except (NoSuchAgent, BadAgent):
            return self.name

    async def main_agent_model(self) -> tuple[str, SupportedFiles]:
        """Return the model of the agent `main` and its supported files.

        The name is empty if it is the server's own model.
        """
        name = self.model_for("")
        if name == self.name:
            return "", NO_FILES
        try:
            async with self.acquire() as (_, pooled):
                return name, await pooled.model.supported_files()
        except HoldfastError:
            return name, NO_FILES

    def set_default_model(self, model: Model, why: str, can_complete: bool) -> None:
        """Replace the server's own model from the next run on."""
        self._pool.set_default(PooledModel(model, why, can_complete))

    def reset_models(self) -> None:
        """Reopen the models that agents or conversations have chosen: connections have changed."""
        self._pool.reset()

    def set_run_limits(self, run_limits: RunLimits) -> None:
        """Set the limits of a run, from the next one on."""
        for agent in self._agents.cached:
            agent.set_run_limits(run_limits)

    def is_default_model(self, name: str, address: str) -> bool:
        """Return whether the server's own model has that name and address."""
        return self.name == name and self.address == address

    async def close(self) -> None:
        """Close every model. No caller may use one after that."""
        await self._pool.close()


class AgentCache(Generic[C, A]):
    """Agents by name and model. `build` makes one from its configuration, which owns what must be closed.

    Calls `on_rebuild` for each agent whose configuration had changed. Beyond `size_max`, the cache evicts the
    least recently used one, and builds it again on demand.
    """

    def __init__(
        self, build: Callable[[C], A], on_rebuild: Callable[[], None], size_max: int = AGENT_CACHE_AGENTS_MAX
    ) -> None:
        self._build = build
        self._on_rebuild = on_rebuild
        self._size_max = size_max
        self._agents: OrderedDict[tuple[str, str], tuple[C, A]] = OrderedDict()

    def get(self, name: str, model: str, configuration: C) -> A:
        """Return the agent of that name and model, with `configuration` as it is now."""
        key = name, model
        cached = self._agents.get(key)
        if cached is not None and cached[0] == configuration:
            self._agents.move_to_end(key)
            return cached[1]
        agent = self._build(configuration)
        if cached is not None:
            self._on_rebuild()
        self._agents[key] = configuration, agent
        self._agents.move_to_end(key)
        while len(self._agents) > self._size_max:
            self._agents.popitem(last=False)
        return agent

    @property
    def cached(self) -> list[A]:
        """Return all agents, the least recently used first."""
        return [agent for _, agent in self._agents.values()]
