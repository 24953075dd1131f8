"""What people ask of memory: answered in time whatever the provider does, and what is owed is told now."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import (
    CommitDecisionRefused,
    MemoryOff,
    NoSuchMemory,
    NoSuchQueuedCommit,
    NoSuchSession,
    ProviderCannot,
    ProviderFailure,
    TooLarge,
)
from holdfast.domain.events import facts as f
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import MEMORY_CHARS_MAX, QUEUED_COMMITS_SHOWN_MAX
from holdfast.domain.memories import Memory, MemoryPage, Origin
from holdfast.domain.state.rows import QueuedCommit
from holdfast.engine.memory_queue import StoreMemoryQueue
from holdfast.memory.ports import Health, Owner, Provider, Segment
from holdfast.memory.scheduler import CommitScheduler
from holdfast.memory.service import ProviderMemoryService
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from tests.support.api_client import wait_until
from tests.support.turn_events import IDS, TurnEvents

NOBODY = IDS.session()
OWNER = Owner("scripted")


class ScriptedProvider:
    """A provider that does what `act` does before it answers; `answer` is what it gives where that is set."""

    name = "scripted"
    takes_key = True

    def __init__(self) -> None:
        self.memories: list[Memory] = []
        self.committed: list[Segment] = []
        self.error: Exception | None = None
        self.hold: asyncio.Event | None = None
        self.answer: Any = None

    async def _answer_or_fail(self, usual: Any) -> Any:
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return usual if self.answer is None else self.answer

    async def recall(self, query: str, scope: str, limit: int) -> Sequence[Memory]:
        return ()

    async def commit(self, segment: Segment) -> str:
        await self._answer_or_fail("")
        self.committed.append(segment)
        return f"receipt of {segment.key}"

    async def retract(self, key: str, receipt: str) -> None:
        await self._answer_or_fail(None)

    async def remember(self, text: str, scope: str, origin: Origin, key: str) -> Memory:
        self.memories.append(Memory(f"n_{len(self.memories)}", text, origin, key=key))
        found: Memory = await self._answer_or_fail(self.memories[-1])
        return found

    async def list_(self, scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
        found: MemoryPage = await self._answer_or_fail(MemoryPage(tuple(self.memories)))
        return found

    async def edit(self, memory_id: str, text: str) -> Memory:
        raise NoSuchMemory(memory_id=memory_id)

    async def forget(self, memory_id: str) -> None:
        raise ProviderCannot(verb="forget")

    async def health(self) -> Health:
        if self.hold is not None:
            await self.hold.wait()
        return Health(self.error is None, str(self.error or ""))

    async def close(self) -> None:
        return


class ServiceHarness:
    """A desk over a real store."""

    def __init__(self, store: SqliteStore, ask_s: float, wait_s: float) -> None:
        self.store, self.queue = store, StoreMemoryQueue(store)
        self.provider: ScriptedProvider | None = ScriptedProvider()
        self.owner: Owner | None = OWNER
        self.scheduler = CommitScheduler(
            self.queue, self._build, SystemClock(), IdGenerator(SystemClock()), "ask", lambda: 0.5
        )
        self.service = ProviderMemoryService(
            self.scheduler, self.queue, lambda: self.provider, lambda: self.owner, self.queue.titles,
            lambda: {"found": 2}, IdGenerator(SystemClock()), lambda text: text.replace("hush", "[…]"),
            ask_s, wait_s,
        )  # fmt: skip

    async def _build(self, owner: Owner) -> Provider:
        assert self.provider is not None
        return self.provider

    async def add_pending(self, title: str = "", turns: int = 1) -> SessionId:
        """A conversation whose turns are owed by nobody in particular."""
        session_id = IDS.session()
        await self.store.append(Append(session_id, (f.SessionCreated(title),)))
        for turn in range(1, turns + 1):
            story = TurnEvents(turn)
            facts = (*story.opening(), story.text("Much."), story.message_settled(), story.step_settled())
            completed = f.RunCompleted(story.run_id, owed=True)
            await self.store.append(Append(session_id, (*facts, completed)))
        return session_id

    async def pending(self) -> Sequence[QueuedCommit]:
        return (await self.service.pending())[0]

    async def unretracted(self) -> Sequence[QueuedCommit]:
        return (await self.service.pending())[1]

    async def states(self, session_id: SessionId) -> list[str]:
        return [row.state for row in await self.queue.entries(session_id)]


@asynccontextmanager
async def service_harness(
    folder: Path, ask_s: float = 20, wait_s: float = 20
) -> AsyncIterator[ServiceHarness]:
    store = await SqliteStore.open(folder)
    harness = ServiceHarness(store, ask_s, wait_s)
    try:
        yield harness
    finally:
        if harness.provider is not None and harness.provider.hold is not None:
            harness.provider.hold.set()
        await harness.service.close()
        await harness.scheduler.stop(1)
        await store.close()


# What is remembered.


async def test_the_memory_list_shows_origins_and_the_pending_count(tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        session_id = await here.add_pending("Dogs")
        assert here.provider is not None
        gone = IDS.session()
        here.provider.memories = [
            Memory("n_1", "Rex", Origin("model", session_id, 1, 1)),
            Memory("n_2", "Tea", Origin("model", gone, 1, 1)),
        ]
        added = await here.service.add("hush: I like jam")
        assert (added.text, added.origin) == ("[…]: I like jam", Origin("user"))
        known = await here.service.list_memories("", None, 50)
        assert (known.provider, known.is_healthy, known.detail) == ("scripted", True, "")
        assert known.can_list
        assert [each.text for each in known.page.memories] == ["Rex", "Tea", "[…]: I like jam"]
        assert known.titles == {session_id: "Dogs"}
        (row,) = await here.queue.entries(session_id)
        assert (known.pending, known.pending_since) == (1, row.queued_at)


async def test_without_memory_nothing_is_known_and_nothing_can_be_changed(tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        await here.add_pending()
        here.provider = here.owner = None
        known = await here.service.list_memories("", None, 50)
        assert (known.provider, known.is_healthy, known.page.memories, known.pending) == ("off", True, (), 1)
        for refused in (here.service.add("x"), here.service.edit("n", "x"), here.service.forget("n")):
            with pytest.raises(MemoryOff):
                await refused
        result = await here.service.commit(None)
        assert (result.outcome, result.committed) == ("no_owner", 0)


async def test_what_a_provider_is_meant_to_refuse_is_passed_on(tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        with pytest.raises(NoSuchMemory):
            await here.service.edit("n_0", "x")
        with pytest.raises(ProviderCannot):
            await here.service.forget("n_0")
        with pytest.raises(TooLarge):
            await here.service.add("x" * (MEMORY_CHARS_MAX + 1))


async def test_a_provider_that_cannot_show_what_it_knows_is_no_failure(tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        assert here.provider is not None
        here.provider.error = ProviderCannot(verb="list what it knows")
        here.provider.memories = [Memory("n_1", "Rex", Origin("user"))]
        known = await here.service.list_memories("", None, 50)
        assert known.page.memories == ()
        assert "no way to list what it knows" in known.detail
        assert not known.can_list


@pytest.mark.parametrize(
    "error",
    [RuntimeError("broken"), ProviderFailure(detail="away"), TimeoutError(), asyncio.CancelledError()],
)
async def test_whatever_a_provider_raises_is_its_failure(error: Exception, tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        assert here.provider is not None
        here.provider.error = error
        for asked in (here.service.list_memories("", None, 50), here.service.add("x")):
            with pytest.raises(ProviderFailure):
                await asked


@pytest.mark.parametrize("rubbish", [5, "x", object(), MemoryPage((None,)), {"memories": 3}])  # type: ignore[arg-type]
async def test_rubbish_from_a_provider_is_its_failure(rubbish: object, tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        assert here.provider is not None
        here.provider.answer = rubbish
        for asked in (here.service.list_memories("", None, 50), here.service.add("x")):
            with pytest.raises(ProviderFailure):
                await asked


async def test_a_hanging_provider_times_out(tmp_path: Path) -> None:
    async with service_harness(tmp_path, ask_s=0.5) as here:
        assert here.provider is not None
        here.provider.hold = asyncio.Event()
        for asked in (here.service.list_memories("", None, 50), here.service.add("x")):
            async with asyncio.timeout(30):
                with pytest.raises(ProviderFailure):
                    await asked


async def test_a_provider_that_does_not_say_how_it_is_is_not_well(tmp_path: Path) -> None:
    async with service_harness(tmp_path, ask_s=0.5) as here:
        provider = here.provider
        assert provider is not None

        async def list_(scope: str, words: str, cursor: str | None, limit: int) -> MemoryPage:
            return MemoryPage(())

        provider.list_ = list_  # type: ignore[method-assign]
        provider.hold = asyncio.Event()
        known = await here.service.list_memories("", None, 50)
        assert not known.is_healthy and known.detail


# What is owed.


async def test_the_current_agent_commits_entries_without_an_owner(tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        assert here.provider is not None
        one, two = await here.add_pending("One", turns=2), await here.add_pending("Two")
        result = await here.service.commit(two)
        assert (result.outcome, result.committed) == ("committed", 1)
        assert await here.states(one) == ["pending"]
        result = await here.service.commit(None)
        assert (result.outcome, result.committed) == ("committed", 1)
        assert [each.title for each in here.provider.committed] == ["Two", "One"]
        assert (
            (await here.service.commit(None)).outcome == (await here.service.commit(one)).outcome == "nothing"
        )
        assert here.service.counts() == {"commits": {"committed": 2}, "recalls": {"found": 2}}


async def test_commit_all_covers_more_sessions_than_one_page(tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        assert here.provider is not None
        sessions = [await here.add_pending() for _ in range(QUEUED_COMMITS_SHOWN_MAX + 2)]
        assert len(await here.pending()) == QUEUED_COMMITS_SHOWN_MAX
        result = await here.service.commit(None)
        assert (result.outcome, result.committed) == ("committed", len(sessions))


async def test_a_failed_commit_is_reported_and_stays_pending(tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        assert here.provider is not None
        here.provider.error = RuntimeError("out of order")
        session_id = await here.add_pending()
        result = await here.service.commit(None)
        assert (result.outcome, result.committed) == ("failed", 0)
        assert "out of order" in result.detail
        (waiting,) = await here.pending()
        assert (waiting.session_id, waiting.row.state) == (session_id, "failed")
        here.provider.error = None
        # A person does not wait for its time to come.
        assert (await here.service.commit(session_id)).outcome == "committed"


async def test_a_slow_commit_continues_in_the_background(tmp_path: Path) -> None:
    async with service_harness(tmp_path, wait_s=0.05) as here:
        assert here.provider is not None
        here.provider.hold = asyncio.Event()
        session_id = await here.add_pending()
        assert (await here.service.commit(session_id)).outcome == "working"
        assert (await here.service.commit(session_id)).outcome == "working"
        here.provider.hold.set()

        async def is_paid() -> bool:
            return await here.states(session_id) == ["committed"]

        await wait_until(is_paid)
        assert len(here.provider.committed) == 1


async def test_a_user_resolves_a_pending_entry(tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        session_id = await here.add_pending()
        for segment in (0, -1, 2, 2**63, 10**30):
            with pytest.raises(NoSuchQueuedCommit):
                await here.service.resolve(session_id, segment, "drop")
        with pytest.raises(NoSuchSession):
            await here.service.resolve(NOBODY, 1, "drop")
        with pytest.raises(CommitDecisionRefused):
            await here.service.resolve(session_id, 1, "done")
        assert await here.states(session_id) == ["pending"]
        await here.service.resolve(session_id, 1, "drop")
        assert await here.states(session_id) == ["dropped"]
        with pytest.raises(CommitDecisionRefused):
            await here.service.resolve(session_id, 1, "drop")


async def test_what_memory_is_to_forget_of_a_deleted_conversation_is_shown_and_can_be_dropped(
    tmp_path: Path,
) -> None:
    async with service_harness(tmp_path) as here:
        one, two = await here.add_pending("One"), await here.add_pending("Two")
        assert (await here.service.commit(None)).committed == 2
        for session_id in (one, two):
            await here.store.append(Append(session_id, (f.SessionDeleted(notes=True),)))
        assert [each.is_deleted for each in await here.pending()] == [True, True]
        await here.service.resolve(one, 1, "drop")
        assert [each.session_id for each in await here.pending()] == [two]
        assert (await here.service.commit(two)).outcome == "nothing"
        assert await here.pending() == []


async def test_committing_an_unknown_session_is_refused(tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        for nobody in (NOBODY, SessionId(""), SessionId("\0'")):
            with pytest.raises(NoSuchSession):
                await here.service.commit(nobody)


async def test_what_a_provider_answers_is_shown_without_secrets_and_at_a_time_that_there_is(
    tmp_path: Path,
) -> None:
    async with service_harness(tmp_path) as here:
        assert here.provider is not None
        odd = Memory("n_1", "hush: the code is 1234", Origin("user"), -5, 10**30)
        here.provider.answer = odd
        assert (await here.service.add("the code")).text == "[…]: the code is 1234"
        here.provider.answer = MemoryPage((odd,) * 9)
        listed = (await here.service.list_memories("", None, 2)).page.memories
        assert [(each.text, each.made_at, each.changed_at) for each in listed] == [
            ("[…]: the code is 1234", 0, 0)
        ] * 2


async def test_a_person_says_whether_the_deleted_one_is_meant(tmp_path: Path) -> None:
    async with service_harness(tmp_path) as here:
        session_id = await here.add_pending("One", turns=1)
        events = list(await here.store.read(session_id, 0, 100))
        assert (await here.service.commit(session_id)).outcome == "committed"
        await here.store.append(Append(session_id, (f.SessionDeleted(notes=True),)))
        await here.store.import_session(session_id, events)
        assert [each.is_deleted for each in await here.pending()] == [True, False]
        await here.service.resolve(session_id, 1, "drop", deleted=True)
        assert [each.is_deleted for each in await here.pending()] == [False]
        with pytest.raises(NoSuchQueuedCommit):
            await here.service.resolve(session_id, 1, "drop", deleted=True)
        await here.service.resolve(session_id, 1, "drop")
        assert await here.pending() == []


async def test_an_unretractable_entry_is_shown_until_acknowledged(tmp_path: Path) -> None:
    class Stubborn(ScriptedProvider):
        async def retract(self, key: str, receipt: str) -> None:
            raise ProviderCannot(verb="forget")

    async with service_harness(tmp_path) as here:
        here.provider = Stubborn()
        session_id = await here.add_pending("Dogs", turns=2)
        assert (await here.service.commit(session_id)).outcome == "committed"
        assert not await here.unretracted()
        await here.store.append(Append(session_id, (f.TurnsUndone(2),)))
        await here.service.commit(session_id)
        (kept,) = await here.unretracted()
        assert (kept.session_id, kept.title, kept.row.retraction) == (session_id, "Dogs", "cannot")
        assert kept.row.failure is not None and "no way to forget" in kept.row.failure.detail
        await here.service.resolve(session_id, kept.row.n, "drop")
        assert not await here.unretracted() and not await here.pending()
