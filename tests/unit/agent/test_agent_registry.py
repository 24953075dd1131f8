"""Changing who answers while runs are under way: each run keeps its model, and no model is left open."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

from holdfast.agent.agent import Agent
from holdfast.agent.registry import AgentCache, AgentRegistry
from holdfast.domain.agents import AgentSpec
from holdfast.domain.context.context import Request, UserMessage
from holdfast.domain.events.parts import Text
from holdfast.models.demo import DemoModel
from holdfast.models.ports import ModelDelta, StepEnd, TextDelta, ToolSpec


class ClosableModel(DemoModel):
    """A model that says whether it was let go of."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = asyncio.Event()

    async def close(self) -> None:
        self.is_closed.set()


class SlowAgent:
    """An agent whose runs end when they are told to."""

    def __init__(self, model: Any, has_started: asyncio.Event) -> None:
        self.model = model
        self.has_started, self.may_finish = has_started, asyncio.Event()

    async def run(self, recorder: object) -> str:
        self.has_started.set()
        await self.may_finish.wait()
        return "completed"


class RegistryFixture:
    """A switchboard, and the agents that it has made."""

    def __init__(self, model: ClosableModel) -> None:
        self.agents: list[SlowAgent] = []
        self.starts = [asyncio.Event(), asyncio.Event(), asyncio.Event()]
        self.registry = AgentRegistry(self._build, model, "It was found.", can_complete=False)

    def _build(self, spec: AgentSpec, model: Any) -> Agent:
        self.agents.append(SlowAgent(model, self.starts[len(self.agents)]))
        return cast(Agent, self.agents[-1])

    def run(self) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.registry.run(cast(Any, None)))

    async def started_agent(self, number: int) -> SlowAgent:
        """That agent, once it is at work."""
        await asyncio.wait_for(self.starts[number].wait(), 30)
        return self.agents[number]


async def test_a_run_keeps_its_model_and_the_next_one_has_the_new_one() -> None:
    old, new = ClosableModel(), ClosableModel()
    here = RegistryFixture(old)
    first = here.run()
    await here.started_agent(0)
    here.registry.set_default_model(new, "It was connected.", can_complete=False)
    assert here.registry.why == "It was connected."
    second = here.run()
    await here.started_agent(1)
    assert not old.is_closed.is_set()
    here.agents[0].may_finish.set()
    assert await first == "completed"
    await asyncio.wait_for(old.is_closed.wait(), 30)
    here.agents[1].may_finish.set()
    await second
    await asyncio.sleep(0)
    assert not new.is_closed.is_set()
    await here.registry.close()
    assert new.is_closed.is_set()


async def test_an_unused_replaced_model_is_closed_at_once() -> None:
    old, new = ClosableModel(), ClosableModel()
    here = RegistryFixture(old)
    here.registry.set_default_model(new, "", can_complete=False)
    await asyncio.wait_for(old.is_closed.wait(), 30)
    await here.registry.close()


async def test_a_stopped_run_releases_its_model() -> None:
    old = ClosableModel()
    here = RegistryFixture(old)
    run = here.run()
    await here.started_agent(0)
    here.registry.set_default_model(ClosableModel(), "", can_complete=False)
    run.cancel()
    await asyncio.wait_for(old.is_closed.wait(), 30)
    await here.registry.close()


async def test_the_demo_generates_no_titles() -> None:
    here = RegistryFixture(ClosableModel())
    assert await here.registry.generate_title("Hello") == ""
    await here.registry.close()


class AnsweringModel(ClosableModel):
    """A model that says one thing, and waits before it does."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.may_end = asyncio.Event(), asyncio.Event()
        self.asked: list[Request] = []

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        self.asked.append(request)
        self.begun.set()
        await self.may_end.wait()
        yield TextDelta("Yes.")
        yield StepEnd("stop")


async def test_a_model_completing_a_side_request_is_not_closed() -> None:
    old, new = AnsweringModel(), ClosableModel()
    here = RegistryFixture(old)
    asking = asyncio.create_task(here.registry.complete("Be brief.", "Is it so?"))
    await old.begun.wait()
    here.registry.set_default_model(new, "It was connected.", can_complete=False)
    await asyncio.sleep(0)
    assert not old.is_closed.is_set()
    old.may_end.set()
    assert await asking == "Yes."
    async with asyncio.timeout(30):
        await old.is_closed.wait()
    (request,) = old.asked
    assert request == Request("Be brief.", (UserMessage((Text("Is it so?"),)),))


async def test_the_least_recently_used_agents_are_rebuilt_above_the_limit() -> None:
    built: list[str] = []

    def build(configuration: str) -> str:
        built.append(configuration)
        return f"agent {len(built)}"

    routes: AgentCache[str, str] = AgentCache(build, lambda: None, size_max=2)
    model = "a model"
    assert [routes.get(name, "", model) for name in ("a", "b", "a", "c", "a", "b")] == [
        "agent 1", "agent 2", "agent 1", "agent 3", "agent 1", "agent 4",
    ]  # fmt: skip
    assert routes.cached == ["agent 1", "agent 4"]
