"""A whole engine in one process, with a model that says what the test tells it to."""

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from holdfast.agent.agent import Agent
from holdfast.agent.context_cache import ContextCache, Evict, tell_nobody
from holdfast.agent.model_step import Asking
from holdfast.agent.ports import Remembering
from holdfast.agent.tool_execution import Approvals, Calls
from holdfast.domain.clock import Clock, SystemClock
from holdfast.domain.context.context import Profile, Request
from holdfast.domain.decisions.allowance import Allowance
from holdfast.domain.decisions.turns import IfBusy
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.files import Takes
from holdfast.domain.ids import CallId, Ids, RunId, SessionId
from holdfast.domain.state.rows import RunRow
from holdfast.domain.transcript.transcript import Entry, TranscriptFold
from holdfast.domain.usage import Usage
from holdfast.engine.engine import Engine
from holdfast.engine.permissions import Permissions
from holdfast.engine.ports import Workers
from holdfast.engine.session_commands import Accepted
from holdfast.engine.titles import Ask
from holdfast.models.fallback import Fallback
from holdfast.models.ports import CallDelta, Model, ModelDelta, ReasoningDelta, StepEnd, TextDelta, ToolSpec
from holdfast.store.ports import Durability, Store
from holdfast.store.sqlite.store import SqliteStore
from holdfast.tools.files.file_changer import Restorer
from holdfast.tools.files.pdf_text import PdfTexts
from holdfast.tools.ports import Tool, ToolResult, ToolRun
from holdfast.tools.sandbox.protected_paths import Vault
from holdfast.tools.sandbox.sandbox import NO_WALLS
from tests.support.repeating_store import repeating

UNLIMITED = Allowance()
Boundary = Callable[[SessionId], None]
WAIT_S = 30.0
"""How long something that must come about may take, on a machine that is slow or held up."""
Line = ModelDelta | asyncio.Event | Exception
"""What a step does next: says something, waits until told, or fails."""


def says(*words: str) -> list[Line]:
    return [*(TextDelta(word) for word in words), StepEnd("stop", Usage(10, len(words)))]


def thinks(thought: str, *words: str) -> list[Line]:
    return [ReasoningDelta(thought), *says(*words)]


def calls(name: str, arguments: str = "{}") -> list[Line]:
    return [CallDelta(0, name, arguments), StepEnd("tool_calls", Usage(10, 5))]


class Puppet:
    """A model whose steps the test has written; past the last of them it says that it has nothing."""

    name = "puppet"
    profile = Profile("puppet", 100_000)

    def __init__(self) -> None:
        self.abilities = Takes(frozenset({"text", "image"}))
        self.steps: list[list[Line]] = []
        self.requests: list[Request] = []

    async def takes(self) -> Takes:
        return self.abilities

    async def stream(self, request: Request, tools: Sequence[ToolSpec]) -> AsyncGenerator[ModelDelta, None]:
        self.requests.append(request)
        for line in self.steps.pop(0) if self.steps else says("(nothing)"):
            if isinstance(line, asyncio.Event):
                await line.wait()
            elif isinstance(line, Exception):
                raise line
            else:
                yield line
                await asyncio.sleep(0)

    async def close(self) -> None:
        return


class Lever:
    """A tool that the test pulls: counts its runs, and may be held up or told to fail."""

    def __init__(self, name: str, effect: f.Effect) -> None:
        self.spec = ToolSpec(name, "A lever.", {"type": "object"})
        self.effect = effect
        self.asks = effect != "pure"
        self.pulled: list[str] = []
        self.hold: asyncio.Event | None = None
        self.started = asyncio.Event()
        self.error: Exception | None = None

    def flaw(self, arguments: str) -> str:
        return ""

    async def run(self, call: ToolRun) -> ToolResult:
        self.pulled.append(call.arguments)
        self.started.set()
        call.emit("pulled ", "stdout")
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        call.emit("down", "stdout")
        return ToolResult("done")

    async def is_gone(self, call_id: CallId) -> bool:
        return True


class House:
    """An engine over a store, and what a test asks of it."""

    def __init__(
        self,
        store: Store,
        folder: Path,
        clock: Clock,
        levers: Sequence[Lever],
        approvals: Approvals,
        resume: f.Resume,
        title: Ask | None,
        allowance: Allowance,
        at_once: int,
        never_run: tuple[str, ...] = (),
        cautions: tuple[str, ...] = (),
        memory: Remembering | None = None,
        others: Sequence[Tool] = (),
        boundary: Boundary = lambda session_id: None,
        summarise_above: float = 0.0,
        instead: Sequence[Model] = (),
        evict: Evict = tell_nobody,
    ) -> None:
        self.store = store
        self.ids = Ids(clock)
        self.model = Puppet()
        self.levers = {lever.spec.name: lever for lever in levers}
        tools: dict[str, Tool] = {**self.levers, **{tool.spec.name: tool for tool in others}}
        asking = Asking(clock, self.ids, tools, lambda: 0.0, _no_sleep)
        permissions = Permissions(store, clock, self.ids, never_run)
        calls = Calls(tools, approvals, clock, permissions.rules, never_run, cautions)
        model = Fallback([self.model, *instead]) if instead else self.model
        self.pdfs = PdfTexts(NO_WALLS)
        agent = Agent("Be brief.", model, tools, asking, calls, allowance, clock, memory, pdfs=self.pdfs)
        self.workers: Workers = lambda session: agent
        self.contexts = ContextCache(clock, evict)
        self.engine = Engine(
            store, clock, self.ids, lambda session: self.workers(session), folder, resume, title, at_once,
            self.contexts, permissions=permissions, boundary=boundary, files=Restorer(Vault(folder)),
            summarise_above=summarise_above,
        )  # fmt: skip

    async def begin(self) -> SessionId:
        return await self.engine.verbs.create(f.SessionCreated())

    async def say(
        self, session_id: SessionId, text: str, key: str | None = None, if_busy: IfBusy = "queue"
    ) -> Accepted:
        return await self.engine.send(session_id, (Text(text),), key, if_busy)

    async def run(self, run_id: RunId | None) -> RunRow:
        assert run_id is not None
        return (await self.store.run(run_id))[1]

    async def until(self, is_so: Callable[[], Any], what: str = "it") -> None:
        """Wait until `is_so` (a coroutine function) says yes."""
        until = time.monotonic() + WAIT_S
        while not await is_so():
            assert time.monotonic() < until, f"{what} did not come about"
            await asyncio.sleep(0.005)

    async def until_run(self, run_id: RunId | None, *statuses: str) -> RunRow:
        async def is_so() -> bool:
            return (await self.run(run_id)).status in statuses

        await self.until(is_so, f"a run that is {statuses}")
        return await self.run(run_id)

    async def until_at_rest(self) -> None:
        """Wait until this engine works on no run."""

        async def is_so() -> bool:
            return self.engine.runner.at_work == self.engine.runner.in_line == 0

        await self.until(is_so, "rest")

    async def entries(self, session_id: SessionId) -> list[Entry]:
        page = await self.engine.messages(session_id, None, 200)
        fold = TranscriptFold()
        fold.add_page(page.messages)
        return [entry for turn in fold.transcript().turns for entry in turn.entries]

    async def text(self, session_id: SessionId) -> list[tuple[str, str, str]]:
        """(role, status, words) of every entry, in order."""
        return [
            (entry.role, entry.status, "".join(part.text for part in entry.parts if isinstance(part, Text)))
            for entry in await self.entries(session_id)
        ]

    async def events(self, session_id: SessionId) -> list[str]:
        return [event.kind for event in await self.store.read(session_id, 0, 1000)]


@asynccontextmanager
async def house(
    folder: Path,
    *levers: Lever,
    approvals: Approvals = "allow",
    resume: f.Resume = "auto",
    clock: Clock | None = None,
    title: Ask | None = None,
    started: bool = True,
    allowance: Allowance = UNLIMITED,
    at_once: int = 100,
    never_run: tuple[str, ...] = (),
    cautions: tuple[str, ...] = (),
    memory: Remembering | None = None,
    others: Sequence[Tool] = (),
    boundary: Boundary = lambda session_id: None,
    summarise_above: float = 0.0,
    durability: Durability = "full",
    instead: Sequence[Model] = (),
    evict: Evict = tell_nobody,
) -> AsyncIterator[House]:
    """A house in `folder` that is checked by doctor when it is left.

    Where a run goes on by itself as soon as the engine starts, ask for one that is not `started`, write down
    what the model is to say, and start it. The same where two engines share the folder: one that is started
    takes up any run that the other has accepted and not begun yet, and asks its own model.

    `instead` are asked where its model fails.
    """
    clock = clock or SystemClock()
    store = await SqliteStore.open(folder, durability, clock=clock)
    here = House(
        repeating(store), folder, clock, levers, approvals, resume, title, allowance, at_once, never_run,
        cautions, memory, others, boundary, summarise_above, instead, evict,
    )  # fmt: skip
    if started:
        await here.engine.start()
    try:
        yield here
    finally:
        await here.engine.stop(0.0)
        found = await store.check(False, lambda done, total: None)
        await store.close()
    assert not found, found


async def _no_sleep(seconds: float) -> None:
    await asyncio.sleep(0)
