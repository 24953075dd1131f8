"""Several agents in one server: each with its own model, words and tools, and none with another's."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from holdfast.agent.agent import Agent
from holdfast.agent.context_cache import ContextCache
from holdfast.agent.factory import AllowedTools, build_instructions
from holdfast.agent.instructions import GUIDE_HEADING, TRUNCATED_NOTE, WorkspaceGuide
from holdfast.agent.model_pool import ModelPool, PooledModel
from holdfast.agent.model_step import ModelStep
from holdfast.agent.registry import AgentRegistry
from holdfast.agent.tool_execution import ToolExecutor
from holdfast.domain.agents import AgentSpec, NoSuchAgent
from holdfast.domain.clock import SystemClock
from holdfast.domain.context.context import instructions_digest
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import GUIDE_BYTES_MAX
from holdfast.engine.engine import Engine
from holdfast.engine.resume_policy import AgentDefaults
from holdfast.models.ports import Model, NoSuchModel
from holdfast.tools.files.pdf_text import PdfTextExtractor
from holdfast.tools.ports import Tool
from holdfast.tools.sandbox.protected_paths import ProtectedPaths
from holdfast.tools.sandbox.sandbox import NO_SANDBOX
from tests.support.in_process_app import (
    UNLIMITED_ALLOWANCE,
    AppHarness,
    FakeTool,
    ScriptedModel,
    running_app,
    text_step,
    tool_call_step,
)


class AgentFixture:
    """Agents that a test writes, and models by their names."""

    def __init__(self, app: AppHarness, folder: Path, *tools: FakeTool) -> None:
        self.here = app
        self.folder = folder
        self.specs = {"": AgentSpec(instructions="Be brief.")}
        self.models: dict[str, ScriptedModel] = {}
        self.opened: list[tuple[str, ...]] = []
        self.tools: dict[str, Tool] = {tool.spec.name: tool for tool in tools}
        clock = SystemClock()
        asking, calls = (
            ModelStep(clock, app.ids, self.tools, lambda: 0.0),
            ToolExecutor(self.tools, "ask", clock),
        )
        guide = WorkspaceGuide(ProtectedPaths(folder / "data"))

        def build(spec: AgentSpec, model: Model) -> Agent:
            own = AllowedTools(self.tools, spec)
            instructions = build_instructions(spec, "Be useful.", "")
            return Agent(
                instructions, model, own, asking.for_tools(own), calls.for_agent(own, spec.approvals),
                UNLIMITED_ALLOWANCE, clock, None,
                guide, pdfs=PdfTextExtractor(NO_SANDBOX),
            )  # fmt: skip

        self.own = ScriptedModel()
        self.board = AgentRegistry(
            build, self.own, "", False, load_spec=self.spec, open_model=self.open, tools=self.tools
        )
        self.engine = Engine(
            app.store, clock, IdGenerator(clock), self.board.handle_for, folder, "auto",
            None, 10, ContextCache(clock),
            agent_defaults=AgentDefaults(lambda name: self.known(name).resume,
                lambda name: self.known(name).workspace),
        )  # fmt: skip

    def spec(self, name: str) -> AgentSpec:
        if name not in self.specs:
            raise NoSuchAgent(name=name, known="main")
        return self.specs[name]

    def known(self, name: str) -> AgentSpec:
        return self.specs.get(name, AgentSpec())

    async def open(self, name: str, fallbacks: tuple[str, ...]) -> Model:
        self.opened.append((name, *fallbacks))
        if name not in self.models:
            raise NoSuchModel(name=name)
        return self.models[name]

    def write(self, name: str, **said: object) -> None:
        self.specs[name] = AgentSpec(name=name or "main", **said)  # type: ignore[arg-type]

    async def begin(self, agent: str = "", model: str = "", workspace: str = "") -> SessionId:
        return await self.engine.create(f.SessionCreated(agent=agent, model=model, workspace=workspace))

    async def answered(self, session_id: SessionId, text: str, *statuses: str) -> str:
        sent = await self.engine.send(session_id, (Text(text),))
        run = await self.here.wait_for_run(sent.run_id, *(statuses or ("completed",)))
        return run.id


@asynccontextmanager
async def agent_fixture(folder: Path, *tools: FakeTool) -> AsyncIterator[AgentFixture]:
    async with running_app(folder, started=False) as app:
        made = AgentFixture(app, folder, *tools)
        try:
            yield made
        finally:
            await made.engine.stop(0)
            await made.board.close()


async def test_each_agent_uses_its_own_model_and_instructions(tmp_path: Path) -> None:
    async with agent_fixture(tmp_path) as here:
        small, large = ScriptedModel(), ScriptedModel()
        here.models = {"a:small": small, "a:large": large}
        here.write("reader", instructions="You only look.", model="a:small")
        here.write("writer", more_instructions="Write well.", model="a:large", fallbacks=("a:small",))
        for agent in ("", "reader", "writer", "reader"):
            await here.answered(await here.begin(agent), "Hello")
        assert [each.system for each in here.own.requests] == ["Be brief."]
        assert [each.system for each in small.requests] == ["You only look."] * 2
        assert [each.system for each in large.requests] == ["Be useful.\n\nWrite well."]
        assert here.opened == [("a:small",), ("a:large", "a:small")], "one client for all that share it"


async def test_the_model_of_a_conversation_overrides_that_of_its_agent(tmp_path: Path) -> None:
    async with agent_fixture(tmp_path) as here:
        here.models = {"a:small": ScriptedModel(), "a:large": ScriptedModel()}
        here.write("reader", model="a:small")
        await here.answered(await here.begin("reader", "a:large"), "Hello")
        assert len(here.models["a:large"].requests) == 1 and not here.models["a:small"].requests


@pytest.mark.parametrize("becomes", [None, AgentSpec(name="reader", model="a:none")])
async def test_a_conversation_whose_agent_or_model_is_gone_fails_and_nobody_else_answers(
    tmp_path: Path, becomes: AgentSpec | None
) -> None:
    async with agent_fixture(tmp_path) as here:
        here.write("reader")
        session_id = await here.begin("reader")
        await here.answered(session_id, "Hello")
        del here.specs["reader"]
        if becomes is not None:
            here.specs["reader"] = becomes
        await here.answered(session_id, "And now?", "failed")
        (failed,) = [
            event.fact
            for event in await here.here.store.read(session_id, 0, 1000)
            if isinstance(event.fact, f.RunFailed)
        ]
        assert failed.failure.code == ("no_such_agent" if becomes is None else "no_such_model")
        assert len(here.own.requests) == 1


async def test_an_agent_without_a_tool_cannot_call_it_even_if_its_model_tries(tmp_path: Path) -> None:
    tool, look = FakeTool("lever", "unsafe"), FakeTool("look", "pure")
    async with agent_fixture(tmp_path, tool, look) as here:
        here.write("reader", tools=("look",), approvals="allow")
        here.own.steps = [
            tool_call_step("lever"),
            text_step("I cannot."),
            tool_call_step("look"),
            text_step("I see."),
        ]
        session_id = await here.begin("reader")
        await here.answered(session_id, "Pull it")
        await here.answered(session_id, "Look then")
        assert tool.run_arguments == [] and len(look.run_arguments) == 1
        results = [part.text for m in here.own.requests[1].messages if m.__struct_config__.tag == "tool"
                   for part in m.parts if isinstance(part, Text)]  # fmt: skip
        assert results == ["There is no tool lever. There are: look."]


async def test_an_approved_call_of_a_removed_tool_does_not_run(
    tmp_path: Path,
) -> None:
    fake_tool = FakeTool("lever", "unsafe")
    async with agent_fixture(tmp_path, fake_tool) as here:
        here.write("worker")
        here.own.steps = [tool_call_step("lever"), text_step("Not then.")]
        session_id = await here.begin("worker")
        run_id = await here.answered(session_id, "Pull it", "waiting")
        here.write("worker", tools=())
        (tool,) = await here.here.store.tools(session_id, run_id)  # type: ignore[arg-type]
        await here.engine.resolve(run_id, tool.id, "approve")  # type: ignore[arg-type]
        await here.here.wait_for_run(run_id, "completed")  # type: ignore[arg-type]
        assert fake_tool.run_arguments == []


async def test_each_agent_has_its_own_approvals_setting(tmp_path: Path) -> None:
    tool = FakeTool("lever", "unsafe")
    async with agent_fixture(tmp_path, tool) as here:
        here.write("careful")
        here.write("quick", approvals="allow")
        here.own.steps = [tool_call_step("lever")]
        await here.answered(await here.begin("careful"), "Pull it", "waiting")
        assert tool.run_arguments == []
        here.own.steps = [tool_call_step("lever"), text_step("Done.")]
        await here.answered(await here.begin("quick"), "Pull it")
        assert len(tool.run_arguments) == 1


async def test_tools_that_come_and_go_are_seen_at_the_next_step(tmp_path: Path) -> None:
    here_and_gone, look = FakeTool("files__read", "pure"), FakeTool("look", "pure")
    async with agent_fixture(tmp_path, look) as here:
        here.write("reader", tools=("look", "files__*"))
        held = asyncio.Event()
        look.hold = held
        here.own.steps = [
            tool_call_step("look"),
            tool_call_step("files__read"),
            tool_call_step("files__read"),
            text_step("Done."),
        ]
        session_id = await here.begin("reader")
        sent = await here.engine.send(session_id, (Text("Look"),))
        await asyncio.wait_for(look.started.wait(), 30)
        here.tools["files__read"] = here_and_gone
        held.set()
        await here.here.wait_for_run(sent.run_id, "completed")
        assert len(here_and_gone.run_arguments) == 2


async def test_a_changed_agent_answers_from_the_next_run_on(tmp_path: Path) -> None:
    async with agent_fixture(tmp_path) as here:
        here.write("reader", instructions="First.")
        session_id = await here.begin("reader")
        await here.answered(session_id, "One")
        here.write("reader", instructions="Second.")
        await here.answered(session_id, "Two")
        assert [each.system for each in here.own.requests] == ["First.", "Second."]


async def test_a_resumed_run_gets_its_earlier_instructions(tmp_path: Path) -> None:
    fake_tool = FakeTool("lever", "unsafe")
    async with agent_fixture(tmp_path, fake_tool) as here:
        here.write("worker", instructions="First.")
        here.own.steps = [tool_call_step("lever")]
        session_id = await here.begin("worker")
        run_id = await here.answered(session_id, "Pull it", "waiting")
        here.write("worker", instructions="Second.")
        (tool,) = await here.here.store.tools(session_id, run_id)  # type: ignore[arg-type]
        here.own.steps = [text_step("Done.")]
        await here.engine.resolve(run_id, tool.id, "approve")  # type: ignore[arg-type]
        await here.here.wait_for_run(run_id, "completed")  # type: ignore[arg-type]
        assert [each.system for each in here.own.requests] == ["First.", "First."]
        await here.answered(session_id, "Again")
        assert here.own.requests[-1].system == "Second."
        prepared = await here.here.store.prepared_contexts(session_id, 1)
        digests = [e.fact.instructions_digest for e in prepared if isinstance(e.fact, f.ContextPrepared)]
        assert digests == [instructions_digest("First."), instructions_digest("Second.")]


async def test_a_conversation_keeps_the_workspace_its_agent_had_at_the_start(tmp_path: Path) -> None:
    async with agent_fixture(tmp_path) as here:
        here.write("worker", workspace="/anywhere/one")
        session_id, other = await here.begin("worker"), await here.begin("worker", workspace="/anywhere/own")
        here.write("worker", workspace="/anywhere/two")
        store = here.here.store
        assert (await store.session(session_id)).workspace == "/anywhere/one"
        assert (await store.session(other)).workspace == "/anywhere/own"


# AGENTS.md.


async def test_the_agents_md_of_a_workspace_is_part_of_the_instructions(tmp_path: Path) -> None:
    (work := tmp_path / "work").mkdir()
    async with agent_fixture(tmp_path / "data") as here:
        session_id = await here.begin(workspace=str(work))
        await here.answered(session_id, "One")
        (work / "AGENTS.md").write_text("Use tabs.\n")
        await here.answered(session_id, "Two")
        (work / "AGENTS.md").write_text("Use spaces.\n")
        await here.answered(session_id, "Three")
        instructions = [each.system for each in here.own.requests]
        head = "Be brief." + GUIDE_HEADING
        assert instructions == ["Be brief.", f"{head}Use tabs.", f"{head}Use spaces."]


async def test_only_a_regular_file_inside_the_workspace_is_read(tmp_path: Path) -> None:
    (work := tmp_path / "work").mkdir()
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "data").mkdir()
    guide, path = WorkspaceGuide(ProtectedPaths(tmp_path / "data")), work / "AGENTS.md"
    assert await guide(work) == "" and await guide(tmp_path / "none") == ""
    assert not (tmp_path / "none").exists(), "looking makes nothing"
    path.symlink_to(tmp_path / "secret")
    assert await guide(work) == ""
    path.unlink()
    path.symlink_to("../secret")
    assert await guide(work) == ""
    path.unlink()
    os.mkfifo(path)
    assert await guide(work) == ""
    path.unlink()
    path.mkdir()
    assert await guide(work) == ""
    path.rmdir()
    path.symlink_to("deep/own.md")
    (work / "deep").mkdir()
    (work / "deep" / "own.md").write_text("\ufeffInside.")
    assert await guide(work) == "Inside.", "a link that stays inside is one's own affair"
    path.unlink()
    path.write_bytes(b"a" * (GUIDE_BYTES_MAX + 10))
    assert await guide(work) == "a" * GUIDE_BYTES_MAX + TRUNCATED_NOTE
    path.write_bytes(b"ok \xff")
    assert await guide(work) == "ok \ufffd"
    path.write_bytes(b"\x7fELF\0\0")
    assert await guide(work) == ""


async def test_agents_md_in_the_data_folder_is_ignored(tmp_path: Path) -> None:
    (data := tmp_path / "data").mkdir()
    (data / "AGENTS.md").write_text("Inside the data folder.")
    assert await WorkspaceGuide(ProtectedPaths(data))(data) == ""


# Models that are open.


class ClosableModel(ScriptedModel):
    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.is_closed = asyncio.Event()

    async def close(self) -> None:
        self.is_closed.set()


async def test_the_number_of_open_unused_models_is_limited() -> None:
    made: dict[str, ClosableModel] = {}

    async def open_model(name: str, fallbacks: tuple[str, ...]) -> Model:
        made[name] = ClosableModel(name)
        return made[name]

    own = ClosableModel("own")
    pool = ModelPool(PooledModel(own, "", False), open_model, open_max=2)
    async with pool.acquire("a:1") as first:
        for name in ("a:2", "a:3", "a:4"):
            async with pool.acquire(name):
                pass
        await asyncio.wait_for(made["a:2"].is_closed.wait(), 30)
        assert not made["a:1"].is_closed.is_set(), "somebody is at it"
        async with pool.acquire("a:1") as again:
            assert again is first
        async with pool.acquire("own") as ours:
            assert ours.model is own, "the server's own by its name is the server's own"
        pool.set_default(PooledModel(ClosableModel("new"), "", False))
        await asyncio.wait_for(own.is_closed.wait(), 30)
        assert not made["a:1"].is_closed.is_set()
    await asyncio.wait_for(made["a:1"].is_closed.wait(), 30)
    await pool.close()
    assert all(model.is_closed.is_set() for model in made.values())


async def test_a_model_that_failed_to_open_is_retried() -> None:
    tries: list[str] = []

    async def open_model(name: str, fallbacks: tuple[str, ...]) -> Model:
        tries.append(name)
        if len(tries) == 1:
            raise NoSuchModel(name=name)
        return ClosableModel(name)

    pool = ModelPool(PooledModel(ClosableModel("own"), "", False), open_model)
    with pytest.raises(NoSuchModel):
        async with pool.acquire("a:1"):
            pass
    async with pool.acquire("a:1") as pooled:
        assert pooled.model.name == "a:1"
    await pool.close()


async def test_a_model_whose_key_changes_while_opening_is_opened_again() -> None:
    made: list[ClosableModel] = []
    opening, may_open = asyncio.Event(), asyncio.Event()

    async def open_model(name: str, fallbacks: tuple[str, ...]) -> Model:
        made.append(ClosableModel(name))
        opening.set()
        await may_open.wait()
        return made[-1]

    pool = ModelPool(PooledModel(ClosableModel("own"), "", False), open_model)

    async def use() -> Model:
        async with pool.acquire("a:1") as pooled:
            return pooled.model

    using = asyncio.create_task(use())
    await asyncio.wait_for(opening.wait(), 30)
    pool.reset()
    may_open.set()
    assert await asyncio.wait_for(using, 30) is made[1]
    await asyncio.wait_for(made[0].is_closed.wait(), 30)
    assert not made[1].is_closed.is_set()
    await pool.close()
