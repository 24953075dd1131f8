"""A whole engine in one process, with a scripted model."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast.agent.agent import Agent
from holdfast.agent.context_cache import ContextCache, OnEvict, no_eviction_hook
from holdfast.agent.model_step import ModelStep
from holdfast.agent.ports import AgentMemory
from holdfast.agent.tool_execution import ApprovalMode, ToolExecutor
from holdfast.domain.clock import Clock, SystemClock
from holdfast.domain.context.context import ModelProfile, Request
from holdfast.domain.decisions.run_limits import RunLimits
from holdfast.domain.decisions.turns import BusyPolicy
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.files import SupportedFiles
from holdfast.domain.ids import CallId, IdGenerator, RunId, SessionId
from holdfast.domain.state.rows import RunRow
from holdfast.domain.transcript.transcript import Entry, TranscriptFold
from holdfast.domain.usage import Usage
from holdfast.engine.engine import Engine
from holdfast.engine.permissions import Permissions
from holdfast.engine.ports import AgentForSession
from holdfast.engine.session_commands import AcceptedMessage
from holdfast.engine.titles import GenerateTitle
from holdfast.models.fallback import FallbackModel
from holdfast.models.ports import CallDelta, Model, ModelDelta, ReasoningDelta, StepEnd, TextDelta, ToolSpec
from holdfast.store.ports import Durability, Store
from holdfast.store.sqlite.store import SqliteStore
from holdfast.tools.files.file_changer import WorkspaceFileRestorer
from holdfast.tools.files.pdf_text import PdfTextExtractor
from holdfast.tools.ports import Tool, ToolResult, ToolRun
from holdfast.tools.sandbox.protected_paths import ProtectedPaths
from holdfast.tools.sandbox.sandbox import NO_SANDBOX
from tests.support.repeating_store import repeat_decisions

UNLIMITED_ALLOWANCE = RunLimits()
OnSessionEnd = Callable[[SessionId], None]
WAIT_S = 30.0
"""A generous timeout for what must happen, on a slow or busy machine."""
StepAction = ModelDelta | asyncio.Event | Exception
"""One instruction of a model step: emit a delta, wait for an event, or raise an error."""


def text_step(*texts: str) -> list[StepAction]:
    return [*(TextDelta(text) for text in texts), StepEnd("stop", Usage(10, len(texts)))]


def reasoning_step(reasoning: str, *texts: str) -> list[StepAction]:
    return [ReasoningDelta(reasoning), *text_step(*texts)]


def tool_call_step(name: str, arguments: str = "{}") -> list[StepAction]:
    return [CallDelta(0, name, arguments), StepEnd("tool_calls", Usage(10, 5))]


class ScriptedModel:
    """A model with scripted steps; after the last one it answers that it has nothing."""

    name = "puppet"
    profile = ModelProfile("puppet", 100_000)

    def __init__(self) -> None:
        self.abilities = SupportedFiles(frozenset({"text", "image"}))
        self.steps: list[list[StepAction]] = []
        self.requests: list[Request] = []

    async def supported_files(self) -> SupportedFiles:
        return self.abilities

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        self.requests.append(request)
        for action in self.steps.pop(0) if self.steps else text_step("(nothing)"):
            if isinstance(action, asyncio.Event):
                await action.wait()
            elif isinstance(action, Exception):
                raise action
            else:
                yield action
                await asyncio.sleep(0)

    async def close(self) -> None:
        return


class FakeTool:
    """A tool that counts its runs, and may block or fail."""

    def __init__(self, name: str, effect: f.Effect) -> None:
        self.spec = ToolSpec(name, "A lever.", {"type": "object"})
        self.effect = effect
        self.needs_approval = effect != "pure"
        self.run_arguments: list[str] = []
        self.hold: asyncio.Event | None = None
        self.started = asyncio.Event()
        self.error: Exception | None = None

    def validate(self, arguments: str) -> str:
        return ""

    async def run(self, call: ToolRun) -> ToolResult:
        self.run_arguments.append(call.arguments)
        self.started.set()
        call.emit("pulled ", "stdout")
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        call.emit("down", "stdout")
        return ToolResult("done")

    async def is_finished(self, call_id: CallId) -> bool:
        return True


class AppHarness:
    """An engine over a store, with helpers for tests."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        clock: Clock,
        fake_tools: Sequence[FakeTool],
        approvals: ApprovalMode,
        resume: f.ResumeMode,
        generate_title: GenerateTitle | None,
        allowance: RunLimits,
        max_running: int,
        never_run: tuple[str, ...] = (),
        cautions: tuple[str, ...] = (),
        memory: AgentMemory | None = None,
        extra_tools: Sequence[Tool] = (),
        on_session_end: OnSessionEnd = lambda session_id: None,
        summarise_above: float = 0.0,
        fallbacks: Sequence[Model] = (),
        evict: OnEvict = no_eviction_hook,
    ) -> None:
        self.store = store
        self.ids = IdGenerator(clock)
        self.model = ScriptedModel()
        self.fake_tools = {fake_tool.spec.name: fake_tool for fake_tool in fake_tools}
        tools: dict[str, Tool] = {**self.fake_tools, **{tool.spec.name: tool for tool in extra_tools}}
        model_step = ModelStep(clock, self.ids, tools, lambda: 0.0, _no_sleep)
        permissions = Permissions(store, clock, self.ids, never_run)
        tool_executor = ToolExecutor(tools, approvals, clock, permissions.rules, never_run, cautions)
        model = FallbackModel([self.model, *fallbacks]) if fallbacks else self.model
        self.pdfs = PdfTextExtractor(NO_SANDBOX)
        agent = Agent(
            "Be brief.", model, tools, model_step, tool_executor, allowance, clock, memory, pdfs=self.pdfs
        )
        self.workers: AgentForSession = lambda session: agent
        self.contexts = ContextCache(clock, evict)
        self.engine = Engine(
            store, clock, self.ids, lambda session: self.workers(session), folder, resume, generate_title,
            max_running,
            self.contexts, permissions=permissions, on_session_end=on_session_end,
            files=WorkspaceFileRestorer(ProtectedPaths(folder)),
            summarise_above=summarise_above,
        )  # fmt: skip

    async def create_session(self) -> SessionId:
        return await self.engine.commands.create(f.SessionCreated())

    async def send(
        self, session_id: SessionId, text: str, key: str | None = None, if_busy: BusyPolicy = "queue"
    ) -> AcceptedMessage:
        return await self.engine.send(session_id, (Text(text),), key, if_busy)

    async def run(self, run_id: RunId | None) -> RunRow:
        assert run_id is not None
        return (await self.store.run(run_id))[1]

    async def wait_until(self, condition: Callable[[], Any], description: str = "it") -> None:
        """Wait until the coroutine function `is_so` returns True."""
        deadline = time.monotonic() + WAIT_S
        while not await condition():
            assert time.monotonic() < deadline, f"{description} did not come about"
            await asyncio.sleep(0.005)

    async def wait_for_run(self, run_id: RunId | None, *statuses: str) -> RunRow:
        async def has_status() -> bool:
            return (await self.run(run_id)).status in statuses

        await self.wait_until(has_status, f"a run that is {statuses}")
        return await self.run(run_id)

    async def wait_until_idle(self) -> None:
        """Wait until this engine works on no run."""

        async def is_idle() -> bool:
            return self.engine.runner.running == self.engine.runner.waiting == 0

        await self.wait_until(is_idle, "rest")

    async def entries(self, session_id: SessionId) -> list[Entry]:
        page = await self.engine.messages(session_id, None, 200)
        fold = TranscriptFold()
        fold.add_messages(page.messages)
        return [entry for turn in fold.transcript().turns for entry in turn.entries]

    async def entry_texts(self, session_id: SessionId) -> list[tuple[str, str, str]]:
        """Return (role, status, text) of every entry, in order."""
        return [
            (entry.role, entry.status, "".join(part.text for part in entry.parts if isinstance(part, Text)))
            for entry in await self.entries(session_id)
        ]

    async def event_kinds(self, session_id: SessionId) -> list[str]:
        return [event.kind for event in await self.store.read(session_id, 0, 1000)]


@asynccontextmanager
async def running_app(
    folder: Path,
    *fake_tools: FakeTool,
    approvals: ApprovalMode = "allow",
    resume: f.ResumeMode = "auto",
    clock: Clock | None = None,
    generate_title: GenerateTitle | None = None,
    started: bool = True,
    allowance: RunLimits = UNLIMITED_ALLOWANCE,
    max_running: int = 100,
    never_run: tuple[str, ...] = (),
    cautions: tuple[str, ...] = (),
    memory: AgentMemory | None = None,
    extra_tools: Sequence[Tool] = (),
    on_session_end: OnSessionEnd = lambda session_id: None,
    summarise_above: float = 0.0,
    durability: Durability = "full",
    fallbacks: Sequence[Model] = (),
    evict: OnEvict = no_eviction_hook,
) -> AsyncIterator[AppHarness]:
    """Run an app in `folder`, and check its store with doctor at the end.

    If a run continues by itself as soon as the engine starts, pass `started=False`, script the model, and
    start it. Do the same where two engines share the folder: a started engine takes up any run that the other
    has accepted and not begun, and asks its own model.

    `fallbacks` are asked where its model fails.
    """
    clock = clock or SystemClock()
    store = await SqliteStore.open(folder, durability, clock=clock)
    app = AppHarness(
        repeat_decisions(store), folder, clock, fake_tools, approvals, resume, generate_title, allowance,
        max_running, never_run,
        cautions, memory, extra_tools, on_session_end, summarise_above, fallbacks, evict,
    )  # fmt: skip
    if started:
        await app.engine.start()
    try:
        yield app
    finally:
        await app.engine.stop(0.0)
        findings = await store.check(False, lambda done, total: None)
        await store.close()
    assert not findings, findings


async def _no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)
