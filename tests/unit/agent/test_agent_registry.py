"""Changing who answers while runs are under way: each run keeps its model, and no model is left open."""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any, cast

from holdfast.agent.agent import Agent
from holdfast.agent.registry import RouteAgents, Switchboard
from holdfast.domain.agents import AgentSpec
from holdfast.domain.context.context import Request, UserMessage
from holdfast.domain.events.parts import Text
from holdfast.models.demo import Demo
from holdfast.models.ports import ModelDelta, StepEnd, TextDelta, ToolSpec


class Open(Demo):
    """A model that says whether it was let go of."""

    def __init__(self) -> None:
        super().__init__()
        self.is_closed = asyncio.Event()

    async def close(self) -> None:
        self.is_closed.set()


class Slow:
    """An agent whose runs end when they are told to."""

    def __init__(self, model: Any, begun: asyncio.Event) -> None:
        self.model = model
        self.begun, self.may_end = begun, asyncio.Event()

    async def carry_out(self, recorder: object) -> str:
        self.begun.set()
        await self.may_end.wait()
        return "completed"


class Board:
    """A switchboard, and the agents that it has made."""

    def __init__(self, model: Open) -> None:
        self.agents: list[Slow] = []
        self.begins = [asyncio.Event(), asyncio.Event(), asyncio.Event()]
        self.board = Switchboard(self._build, model, "It was found.", names=False)

    def _build(self, spec: AgentSpec, model: Any) -> Agent:
        self.agents.append(Slow(model, self.begins[len(self.agents)]))
        return cast(Agent, self.agents[-1])

    def run(self) -> "asyncio.Task[Any]":
        return asyncio.create_task(self.board.carry_out(cast(Any, None)))

    async def begun(self, number: int) -> Slow:
        """That agent, once it is at work."""
        await asyncio.wait_for(self.begins[number].wait(), 30)
        return self.agents[number]


async def test_a_run_keeps_its_model_and_the_next_one_has_the_new_one() -> None:
    old, new = Open(), Open()
    here = Board(old)
    first = here.run()
    await here.begun(0)
    here.board.switch(new, "It was connected.", names=False)
    assert here.board.why == "It was connected."
    second = here.run()
    await here.begun(1)
    assert not old.is_closed.is_set()
    here.agents[0].may_end.set()
    assert await first == "completed"
    await asyncio.wait_for(old.is_closed.wait(), 30)
    here.agents[1].may_end.set()
    await second
    await asyncio.sleep(0)
    assert not new.is_closed.is_set()
    await here.board.close()
    assert new.is_closed.is_set()


async def test_a_model_that_nobody_uses_is_let_go_of_at_once() -> None:
    old, new = Open(), Open()
    here = Board(old)
    here.board.switch(new, "", names=False)
    await asyncio.wait_for(old.is_closed.wait(), 30)
    await here.board.close()


async def test_a_run_that_is_stopped_lets_go_of_its_model() -> None:
    old = Open()
    here = Board(old)
    run = here.run()
    await here.begun(0)
    here.board.switch(Open(), "", names=False)
    run.cancel()
    await asyncio.wait_for(old.is_closed.wait(), 30)
    await here.board.close()


async def test_the_demo_is_not_asked_for_titles() -> None:
    here = Board(Open())
    assert await here.board.ask_title("Hello") == ""
    await here.board.close()


class Answers(Open):
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


async def test_a_model_that_is_asked_on_the_side_is_not_closed_under_the_question() -> None:
    old, new = Answers(), Open()
    here = Board(old)
    asking = asyncio.create_task(here.board.ask("Be brief.", "Is it so?"))
    await old.begun.wait()
    here.board.switch(new, "It was connected.", names=False)
    await asyncio.sleep(0)
    assert not old.is_closed.is_set()
    old.may_end.set()
    assert await asking == "Yes."
    async with asyncio.timeout(30):
        await old.is_closed.wait()
    (request,) = old.asked
    assert request == Request("Be brief.", (UserMessage((Text("Is it so?"),)),))


async def test_the_agents_that_were_used_longest_ago_are_built_again_when_there_are_too_many() -> None:
    built: list[str] = []

    def build(configuration: str) -> str:
        built.append(configuration)
        return f"agent {len(built)}"

    routes: RouteAgents[str, str] = RouteAgents(build, lambda: None, most=2)
    model = "a model"
    assert [routes.at(name, "", model) for name in ("a", "b", "a", "c", "a", "b")] == [
        "agent 1", "agent 2", "agent 1", "agent 3", "agent 1", "agent 4",
    ]  # fmt: skip
    assert routes.built == ["agent 1", "agent 4"]
