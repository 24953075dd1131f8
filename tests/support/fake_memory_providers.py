"""Scripted memory providers, and an engine that commits its conversations to them."""

import asyncio
import json
import os
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.domain.clock import Clock, SystemClock
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import COMMIT_S_MAX, EVICT_S_MAX
from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.domain.state.rows import QueuedCommitRow
from holdfast.engine.memory_queue import StoreMemoryQueue
from holdfast.memory.committer import InDoubtPolicy
from holdfast.memory.ports import Health, Owner, OwnerGone, Provider, ProviderCannot, Segment
from holdfast.memory.provider_resolver import OwnerStore
from holdfast.memory.scheduler import CommitScheduler
from tests.support.in_process_app import AppHarness, FakeTool, running_app, text_step


class FakeProvider:
    """Store commits by key. A test may block it, let it fail, or let it answer nonsense."""

    def __init__(self, name: str = "keeper", takes_key: bool = True) -> None:
        self.name = name
        self.takes_key = takes_key
        self.calls: list[Segment] = []
        self.stored: dict[str, Segment] = {}
        self.retracted: list[tuple[str, str]] = []
        self.answers: list[object] = []
        self.retract_errors: list[Exception] = []
        self.hold: asyncio.Event | None = None
        self.called = asyncio.Event()
        self.running = self.max_running = 0

    async def commit(self, segment: Segment) -> str:
        self.calls.append(segment)
        self.called.set()
        self.running += 1
        self.max_running = max(self.running, self.max_running)
        try:
            if self.hold is not None:
                await self.hold.wait()
            answer = self.answers.pop(0) if self.answers else f"receipt {segment.key}"
            if isinstance(answer, BaseException):
                raise answer
            self.stored[segment.key] = segment
            return answer  # type: ignore[return-value]
        finally:
            self.running -= 1

    async def retract(self, key: str, receipt: str) -> None:
        self.retracted.append((key, receipt))
        if self.retract_errors:
            raise self.retract_errors.pop(0)
        self.stored.pop(key, None)

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        return ()

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        raise ProviderCannot(verb="remember")

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        return MemoryPage(())

    async def edit(self, memory_id: str, text: str) -> Memory:
        raise ProviderCannot(verb="edit")

    async def forget(self, memory_id: str) -> None:
        raise ProviderCannot(verb="forget")

    async def health(self) -> Health:
        return Health(True)

    async def close(self) -> None:
        return


class UncancellableProvider(FakeProvider):
    """Never answer, and ignore cancellation until the test releases it."""

    async def commit(self, segment: Segment) -> str:
        self.calls.append(segment)
        self.called.set()
        assert self.hold is not None
        while not self.hold.is_set():
            try:
                await self.hold.wait()
            except asyncio.CancelledError:
                continue
        return "at last"


class FileProvider(FakeProvider):
    """Append commits to a file that outlives the process; with keys, each of them once.

    It prints what it is doing and hangs there, `before` or `after` writing, if the test asks for it.
    """

    def __init__(self, path: Path, takes_key: bool, hang_at: str = "") -> None:
        super().__init__("diary", takes_key)
        self._path = path
        self._hang_at = hang_at

    async def commit(self, segment: Segment) -> str:
        self.calls.append(segment)
        await self._reach("before")
        if not (self.takes_key and any(line["key"] == segment.key for line in read_commits(self._path))):
            line = {"key": segment.key, "said": [message.text for message in segment.messages]}
            with self._path.open("ab") as file:
                file.write(json.dumps(line).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())
        await self._reach("after")
        return "written"

    async def _reach(self, name: str) -> None:
        if self._hang_at == name:
            print(name, flush=True)
            await asyncio.Event().wait()


def read_commits(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


class FakeAgentMemory:
    """Memory as an agent sees it: `present` commits completed turns; with None, nobody does.

    With `is_on` False nothing is queued.
    """

    def __init__(self) -> None:
        self.current_owner: Owner | None = None
        self.is_enabled = True
        self.scheduler: CommitScheduler | None = None

    async def register_session(self, session_id: SessionId) -> str | None:
        assert self.scheduler is not None
        if not self.is_enabled:
            return None
        if self.current_owner is None:
            return self.scheduler.active_owner(session_id)
        return await self.scheduler.register_owner(session_id, self.current_owner)

    async def recall(
        self, session_id: SessionId, text: str, already_given: Collection[str]
    ) -> tuple[str, ...]:
        return ()

    def boundary(self, session_id: SessionId) -> None:
        assert self.scheduler is not None
        self.scheduler.schedule_commit(session_id)

    async def evict(self, session_id: SessionId) -> None:
        assert self.scheduler is not None
        await self.scheduler.evict(session_id)


class MemoryHarness:
    """An engine with memory, and helpers for tests. The first provider commits completed turns."""

    def __init__(
        self,
        app: AppHarness,
        agent_memory: FakeAgentMemory,
        providers: Sequence[FakeProvider],
        clock: Clock,
        in_doubt: InDoubtPolicy,
        handles_max: int,
        commit_s: float,
        evict_s: float,
    ) -> None:
        self.app = app
        self.agent_memory = agent_memory
        self.providers = {provider.name: provider for provider in providers}
        self.queue = StoreMemoryQueue(app.store)
        self.scheduler = agent_memory.scheduler = CommitScheduler(
            self.queue, self._build, clock, app.ids, in_doubt, lambda: 0.5,
            owners_max=handles_max, commit_s=commit_s, evict_s=evict_s,
        )  # fmt: skip
        agent_memory.current_owner = Owner(providers[0].name)

    async def _build(self, owner: Owner) -> Provider:
        if owner.provider not in self.providers:
            raise OwnerGone(detail=f"{owner.provider} is not installed")
        return self.providers[owner.provider]

    async def save_owner(self, provider: str) -> str:
        """Save the owner for that provider, and return its digest."""
        return await OwnerStore(self.queue).save(Owner(provider))

    async def run_turn(self, session_id: SessionId, text: str, answer: str = "Noted.") -> None:
        self.app.model.steps = [text_step(answer)]
        sent = await self.app.send(session_id, text)
        await self.app.wait_for_run(sent.run_id, "completed")

    async def queue_entries(self, session_id: SessionId, deleted: bool = False) -> list[QueuedCommitRow]:
        return list(await self.queue.entries(session_id, deleted))

    async def states(self, session_id: SessionId, deleted: bool = False) -> list[str]:
        return [row.state for row in await self.queue_entries(session_id, deleted)]

    async def wait_for_states(self, session_id: SessionId, *states: str, deleted: bool = False) -> None:
        async def has_states() -> bool:
            return await self.states(session_id, deleted) == list(states)

        await self.app.wait_until(has_states, f"debts that are {states}")


@asynccontextmanager
async def memory_harness(
    folder: Path,
    *providers: FakeProvider,
    clock: Clock | None = None,
    in_doubt: InDoubtPolicy = "ask",
    handles_max: int = 100,
    fake_tools: Sequence[FakeTool] = (),
    stop_s: float = 5.0,
    commit_s: float = COMMIT_S_MAX,
    evict_s: float = EVICT_S_MAX,
) -> AsyncIterator[MemoryHarness]:
    clock, agent_memory = clock or SystemClock(), FakeAgentMemory()
    async with running_app(
        folder,
        *fake_tools,
        clock=clock,
        memory=agent_memory,
        on_session_end=agent_memory.boundary,
        evict=agent_memory.evict,
    ) as app:
        harness = MemoryHarness(
            app, agent_memory, providers or (FakeProvider(),), clock, in_doubt, handles_max, commit_s, evict_s
        )
        try:
            yield harness
        finally:
            await harness.scheduler.stop(stop_s)
