"""M: a completed turn stays queued until it is committed. With a real store, and killed processes."""

import asyncio
import gc
import sys
import time
import weakref
from pathlib import Path

import pytest

from holdfast import app
from holdfast.domain.clock import FakeClock, SystemClock
from holdfast.domain.errors import ProviderFailure
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.domain.limits import CONTEXT_CACHE_IDLE_MS
from holdfast.domain.ranges import expand_ranges
from holdfast.domain.secrets import SecretMask
from holdfast.domain.state.changes import LoadedContext
from holdfast.domain.state.projections import fold
from holdfast.memory.ports import Owner
from holdfast.memory.provider_resolver import owner_digest
from holdfast.memory.scheduler import SegmentCommitResult
from holdfast.models.ports import ModelFailure
from holdfast.settings.settings import Settings
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_memory_providers import (
    FakeProvider,
    MemoryHarness,
    UncancellableProvider,
    memory_harness,
)
from tests.support.in_process_app import FakeTool, tool_call_step
from tests.witness_memory.watching import INSTALLED, WitnessMonitor

A, B = Owner("a"), Owner("b")
SOON_S = 30
"""A generous timeout for a busy machine."""


async def test_a_late_commit_leaves_a_turn_completed_meanwhile_pending(tmp_path: Path) -> None:
    """M1"""
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        provider.hold = asyncio.Event()
        commit = asyncio.create_task(harness.scheduler.commit_pending(session_id, requested=True))
        await provider.called.wait()
        await harness.run_turn(session_id, "two")
        provider.answers = ["late", ProviderFailure(detail="not now")]
        provider.hold.set()
        assert (await commit).committed == 1
        assert [(row.state, row.turns) for row in await harness.queue_entries(session_id)] == [
            ("committed", ((1, 1),)), ("failed", ((2, 2),))
        ]  # fmt: skip
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 1
        )
        assert [segment.messages[0].text for segment in provider.calls] == ["one", "two", "two"]


async def test_a_failed_commit_stays_pending_for_its_owner_and_is_retried(tmp_path: Path) -> None:
    """M2"""
    a, b = FakeProvider("a"), FakeProvider("b")
    async with memory_harness(tmp_path, a, b) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        a.answers = [ProviderFailure(detail="the disk is full")]
        failed = await harness.scheduler.commit_pending(session_id, requested=True)
        assert failed.status == "failed" and "the disk is full" in failed.detail
        (row,) = await harness.queue_entries(session_id)
        assert (row.state, row.owner) == ("failed", owner_digest(A))
        assert row.failure is not None and "the disk is full" in row.failure.detail
        await harness.scheduler.register_owner(session_id, B)
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 1
        )
        assert len(a.stored) == 1 and not b.calls
        first, again = a.calls
        assert (first.key, first.messages) == (again.key, again.messages)


async def test_work_without_an_owner_adopts_the_one_that_is_named_and_keeps_it(tmp_path: Path) -> None:
    """M3"""
    a, b = FakeProvider("a"), FakeProvider("b")
    async with memory_harness(tmp_path, a, b) as harness:
        harness.agent_memory.current_owner = None
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        assert [row.owner for row in await harness.queue_entries(session_id)] == [""]
        a.answers = [ProviderFailure(detail="not now")]
        assert (
            await harness.scheduler.commit_pending(session_id, await harness.save_owner("a"), requested=True)
        ).status == "failed"
        await harness.scheduler.register_owner(session_id, B)
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 1
        )
        assert len(a.stored) == 1 and not b.calls
        # And where none is named, the one at hand.
        await harness.scheduler.evict(session_id)
        await harness.run_turn(session_id, "two")
        await harness.scheduler.register_owner(session_id, B)
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 1
        )
        assert len(b.stored) == 1


async def test_a_replacement_owns_only_what_is_completed_from_then_on(tmp_path: Path) -> None:
    """M4"""
    a, b = FakeProvider("a"), FakeProvider("b")
    async with memory_harness(tmp_path, a, b) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        harness.agent_memory.current_owner = B
        assert await harness.scheduler.register_owner(session_id, B) == harness.scheduler.active_owner(
            session_id
        )
        await harness.run_turn(session_id, "two")
        owed = [(row.turns, row.owner) for row in await harness.queue_entries(session_id)]
        assert owed == [(((1, 1),), owner_digest(A)), (((2, 2),), owner_digest(B))]
        a.answers = [ProviderFailure(detail="not now")]
        await harness.scheduler.commit_pending(session_id)
        assert len(a.calls) == 1 and not b.calls, "the older owner comes first"
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 2
        )
        assert [[said.messages[0].text for said in each.stored.values()] for each in (a, b)] == [
            ["one"],
            ["two"],
        ]


async def test_a_commit_handles_the_oldest_entry_with_its_own_owner(tmp_path: Path) -> None:
    """M5"""
    a, b = FakeProvider("a"), FakeProvider("b")
    async with memory_harness(tmp_path, a, b) as harness:
        session_id = await harness.app.create_session()
        for owner, text in ((A, "one"), (B, "two"), (A, "three")):
            harness.agent_memory.current_owner = owner
            await harness.run_turn(session_id, text)
        b.answers = [ProviderFailure(detail="no")]
        stopped = await harness.scheduler.commit_pending(
            session_id, owner_digest(B)
        )  # A boundary goes on until one fails …
        assert (stopped.status, stopped.committed) == ("failed", 1)
        assert await harness.states(session_id) == ["committed", "failed", "pending"]
        assert [[said.turns for said in each.calls] for each in (a, b)] == [[((1, 1),)], [((2, 2),)]]
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 2
        )  # … or all is paid.
        assert await harness.states(session_id) == ["committed"] * 3
        assert [len(provider.stored) for provider in (a, b)] == [2, 1]


async def test_an_owner_without_a_completed_turn_commits_nothing_and_says_so(tmp_path: Path) -> None:
    """M6"""
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        await harness.scheduler.register_owner(session_id, Owner("keeper"))
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "nothing"
        )
        assert await harness.scheduler.commit_pending(session_id) == SegmentCommitResult("nothing")
        assert not provider.calls


async def test_pending_entries_of_a_lost_owner_are_committed_by_a_new_owner(tmp_path: Path) -> None:
    """M7"""
    a, b = FakeProvider("a"), FakeProvider("b")
    async with memory_harness(tmp_path, a, b, stop_s=0.0) as harness:
        first, second = await harness.app.create_session(), await harness.app.create_session()
        for session_id in (first, second):
            await harness.run_turn(session_id, "one")
    async with memory_harness(tmp_path, a, b) as harness:
        assert harness.scheduler.active_owner(first) == "" and not a.calls
        assert [row.owner for row in await harness.queue_entries(first)] == [owner_digest(A)]
        assert [debt.session_id for debt in await harness.queue.pending_entries(10)] == [first, second]
        # Made again from its snapshot.
        assert await harness.scheduler.commit_pending(first, requested=True) == SegmentCommitResult(
            "committed", 1
        )
        del harness.providers["a"]
        refused = await harness.scheduler.commit_pending(second, requested=True)
        assert (refused.status, refused.committed) == (
            "no_owner",
            0,
        ) and "a is not installed" in refused.detail
        assert await harness.states(second) == ["pending"] and not b.calls
        assert await harness.scheduler.commit_pending(
            second, await harness.save_owner("b"), requested=True
        ) == SegmentCommitResult("committed", 1)
        assert len(b.stored) == 1


async def test_shutdown_waits_for_a_commit_in_flight_and_commits_turns_completed_meanwhile(
    tmp_path: Path,
) -> None:
    """M8"""
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        session_id, other = await harness.app.create_session(), await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        provider.hold = asyncio.Event()
        harness.scheduler.schedule_commit(session_id)
        await provider.called.wait()
        await harness.run_turn(session_id, "two")
        await harness.run_turn(other, "three")
        stop = asyncio.create_task(harness.scheduler.stop(SOON_S))
        await asyncio.sleep(0.05)
        assert not stop.done()
        provider.hold.set()
        await stop
        assert await harness.states(session_id) == ["committed", "committed"] and await harness.states(
            other
        ) == ["committed"]
        harness.scheduler.schedule_commit(session_id)  # After the stop: nothing happens.
        assert len(provider.calls) == 3


async def test_shutdown_keeps_its_deadline_and_the_next_start_commits_the_rest(tmp_path: Path) -> None:
    """M8"""
    provider = UncancellableProvider()
    provider.hold = asyncio.Event()
    async with memory_harness(tmp_path, provider, stop_s=0.1) as harness:
        session_id, other = await harness.app.create_session(), await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        await harness.run_turn(other, "two")
        harness.scheduler.schedule_commit(session_id)
        await provider.called.wait()
        before = time.monotonic()
        await harness.scheduler.stop(0.1)
        assert time.monotonic() - before < SOON_S  # The provider would never have ended.
        assert await harness.states(session_id) == ["failed"]  # It takes the key: it is told again.
        (key,) = {row.key for row in await harness.queue_entries(session_id)}
    provider.hold.set()
    later = FakeProvider()
    async with memory_harness(tmp_path, later) as harness:
        await harness.scheduler.start(3600)
        await harness.wait_for_states(session_id, "committed")
        await harness.wait_for_states(other, "committed")
        assert key in later.stored and len(later.stored) == 2


async def test_a_new_session_that_names_the_previous_one_is_a_boundary_for_it(tmp_path: Path) -> None:
    """M9"""
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        assert await harness.states(session_id) == ["pending"]
        await harness.app.engine.create(f.SessionCreated(previous_session_id=session_id))
        await harness.wait_for_states(session_id, "committed")
        await harness.run_turn(session_id, "two")
        await harness.app.engine.clear(session_id)  # As is clearing it.
        await harness.wait_for_states(session_id, "committed", "committed")


async def evict_contexts(harness: MemoryHarness, clock: FakeClock) -> None:
    """Evict every conversation from the cache, as after a long idle time."""
    await harness.app.wait_until_idle()
    clock.advance(CONTEXT_CACHE_IDLE_MS)
    await harness.app.contexts.evict_idle()
    assert harness.app.contexts.entry_count == 0


async def test_eviction_commits_before_the_agent_is_dropped_then_forgets_it(tmp_path: Path) -> None:
    """M10: of a conversation that leaves the cache."""
    provider, clock = FakeProvider(), FakeClock()
    async with memory_harness(tmp_path, provider, clock=clock) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        provider.hold = asyncio.Event()
        await evict_contexts(harness, clock)
        async with asyncio.timeout(SOON_S):
            await provider.called.wait()
        assert harness.scheduler.active_owner(session_id) == owner_digest(Owner("keeper"))
        provider.hold.set()
        await harness.app.contexts.close(SOON_S)  # What leaves has left then.
        assert (
            await harness.states(session_id) == ["committed"]
            and harness.scheduler.active_owner(session_id) == ""
        )
        harness.agent_memory.current_owner = None
        await harness.run_turn(session_id, "two")
        outcome = await harness.scheduler.commit_pending(session_id, requested=True)
        assert (outcome.status, outcome.committed) == ("no_owner", 0)
        assert await harness.states(session_id) == ["committed", "pending"] and len(provider.calls) == 1


async def test_evicting_a_cached_conversation_commits_its_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M10: built as `holdfast serve` does it, with an installed provider."""
    witness, clock = WitnessMonitor(tmp_path / "witness"), FakeClock(SystemClock().now_ms())
    monkeypatch.syspath_prepend(str(INSTALLED))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    monkeypatch.setenv("WITNESS_MEMORY", witness.environ["WITNESS_MEMORY"])
    settings = Settings(data=tmp_path / "data", model="demo", memory="witness")
    store = await SqliteStore.open(settings.data, clock=clock)
    built = await app._build_app(
        app._Dependencies(
            store, settings, "http://127.0.0.1:1", {}, SecretMask(()), clock, IdGenerator(clock)
        )
    )
    engine = built.engine
    try:
        session_id = await engine.create(f.SessionCreated())
        await engine.send(session_id, (Text("Count to 1"),))
        await witness.wait_until(lambda: not engine.runner.running, "rest")
        assert witness.turns(session_id) == {}
        clock.advance(CONTEXT_CACHE_IDLE_MS)
        await engine.contexts.evict_idle()
        await engine.contexts.close(SOON_S)
        assert witness.turns(session_id) == {1: 1}
    finally:
        await engine.stop(0.0)
        await built.close()
        await store.close()


async def test_eviction_waits_for_a_commit_in_flight_and_closes_once(tmp_path: Path) -> None:
    """M11: though several tasks evict it."""
    provider, clock = FakeProvider(), FakeClock()
    async with memory_harness(tmp_path, provider, clock=clock) as harness:
        session_id, other, contexts = (
            await harness.app.create_session(),
            await harness.app.create_session(),
            harness.app.contexts,
        )
        await harness.run_turn(session_id, "one")
        provider.hold = asyncio.Event()
        harness.scheduler.schedule_commit(session_id)
        async with asyncio.timeout(SOON_S):
            await provider.called.wait()
        await harness.run_turn(session_id, "two")
        await harness.app.wait_until_idle()
        held = contexts.acquire(session_id, is_run=False)
        fold = weakref.ref(await held.fold(100_000, _not_read))
        held.release()
        del held
        await evict_contexts(harness, clock)
        leaving = [asyncio.create_task(harness.scheduler.evict(session_id)) for _ in range(2)]
        leaving.append(asyncio.create_task(contexts.close(SOON_S)))
        await harness.run_turn(other, "Meanwhile there is all the time in the world.")
        assert fold() is not None and not any(task.done() for task in leaving)
        provider.hold.set()
        await asyncio.gather(*leaving)
        gc.collect()
        assert fold() is None and harness.scheduler.active_owner(session_id) == ""
        assert await harness.states(session_id) == ["committed", "committed"] and len(provider.calls) == 2


async def test_eviction_times_out_on_a_hanging_provider_and_the_entry_stays(tmp_path: Path) -> None:
    """M11"""
    provider, clock = FakeProvider(), FakeClock()
    async with memory_harness(tmp_path, provider, clock=clock, stop_s=0.1, evict_s=0.1) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        provider.hold = asyncio.Event()
        await evict_contexts(harness, clock)
        async with asyncio.timeout(SOON_S):
            await harness.app.contexts.close(2 * SOON_S)
        assert provider.called.is_set() and await harness.states(session_id) == ["committing"]
        assert harness.scheduler.active_owner(session_id) == ""


async def _not_read() -> LoadedContext:
    raise AssertionError("it is held")


async def test_nothing_waits_for_memory_while_a_commit_hangs(tmp_path: Path) -> None:
    """M12: turns, clearing, other sessions, and caching one for which another is evicted."""
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider, handles_max=1, stop_s=0.1) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        provider.hold = asyncio.Event()
        async with asyncio.timeout(SOON_S):
            other = await harness.app.create_session()
            await harness.run_turn(other, "Enrolled, so the first is let go, and that hangs.")
            await provider.called.wait()
            assert await harness.states(session_id) == ["committing"]
            for number in range(3):
                await harness.run_turn(session_id, f"turn {number}")
                await harness.run_turn(other, f"turn {number}")
            await harness.app.engine.clear(session_id)
            await harness.app.engine.clear(other)
            await harness.run_turn(session_id, "after")
        assert not provider.stored
        assert (await harness.queue_entries(session_id))[0].state == "committing"


async def test_the_least_recently_used_handle_is_evicted_first(tmp_path: Path) -> None:
    """M12"""
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider, handles_max=2) as harness:
        first, second, third = [await harness.app.create_session() for _ in range(3)]
        for session_id in (first, second):
            await harness.run_turn(session_id, "one")
        await harness.scheduler.register_owner(
            first, Owner("keeper")
        )  # Used again: the other is the longest unused.
        await harness.scheduler.register_owner(third, Owner("keeper"))
        await harness.wait_for_states(second, "committed")

        async def is_gone() -> bool:
            return not harness.scheduler.active_owner(second)

        await harness.app.wait_until(is_gone)
        assert harness.scheduler.active_owner(first) and harness.scheduler.active_owner(third)
        assert await harness.states(first) == ["pending"]


async def test_a_completed_turn_is_marked_in_its_own_settling_and_nothing_else_is(tmp_path: Path) -> None:
    """M13"""
    tool = FakeTool("lever", "unsafe")
    tool.hold = asyncio.Event()
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider, fake_tools=(tool,)) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        harness.app.model.steps = [[ModelFailure(detail="no such model", retryable=False)]]
        failed = await harness.app.send(session_id, "two")
        await harness.app.wait_for_run(failed.run_id, "failed")
        harness.app.model.steps = [tool_call_step("lever")]
        cancelled = await harness.app.send(session_id, "three")
        await tool.started.wait()
        assert cancelled.run_id is not None
        await harness.app.engine.cancel(cancelled.run_id)
        await harness.run_turn(session_id, "four")
        (row,) = await harness.queue_entries(session_id)
        assert (row.state, row.turns) == ("pending", ((1, 1), (4, 4))) and not provider.calls
        events = await harness.app.store.read(session_id, 0, 1000)
        completed = {e.fact.run_id: e.fact for e in events if isinstance(e.fact, f.RunCompleted)}
        assert all(fact.owed and fact.owner == row.owner for fact in completed.values())
        for end in range(len(events) + 1):  # A crash leaves a prefix: none has one without the other.
            book = fold(session_id, events[:end])
            owed = {turn for debt in book.queued_commits.values() for turn in expand_ranges(debt.turns)}
            assert owed == {run.turn for run in book.runs.values() if run.status == "completed"}


async def test_unremembered_sessions_queue_no_memory_entries(tmp_path: Path) -> None:
    """M13"""
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        passing = await harness.app.engine.create(f.SessionCreated(remember=False))
        await harness.run_turn(passing, "one")
        harness.agent_memory.is_enabled = False
        off = await harness.app.create_session()
        await harness.run_turn(off, "two")
        assert await harness.queue_entries(passing) == [] and await harness.queue_entries(off) == []
        events = [e.fact for e in await harness.app.store.read(passing, 0, 1000)]
        assert [fact.owed for fact in events if isinstance(fact, f.RunCompleted)] == [False]
        assert (
            await harness.scheduler.commit_pending(passing) == SegmentCommitResult("nothing")
            and not provider.calls
        )


async def test_many_turns_make_one_commit_and_a_further_boundary_calls_nobody(tmp_path: Path) -> None:
    """M14"""
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        for number in range(5):
            await harness.run_turn(session_id, f"turn {number}")
        assert await harness.scheduler.commit_pending(session_id) == SegmentCommitResult("committed", 1)
        (commit,) = provider.calls
        assert commit.turns == ((1, 5),) and len(commit.messages) == 10
        head = await harness.app.store.head(session_id)
        assert await harness.scheduler.commit_pending(session_id) == SegmentCommitResult("nothing")
        assert len(provider.calls) == 1 and await harness.app.store.head(session_id) == head


@pytest.mark.parametrize("nobody", ["", None])
async def test_an_empty_session_id_is_a_safe_no_op_everywhere(tmp_path: Path, nobody: str | None) -> None:
    """M15"""
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        life = harness.scheduler
        assert await life.register_owner(nobody, A) == ""
        assert life.active_owner(nobody) == ""
        assert await life.commit_pending(
            nobody, await harness.save_owner("keeper"), requested=True
        ) == SegmentCommitResult("nothing")
        assert await life.commit_pending(nobody, requested=True) == SegmentCommitResult("nothing")
        life.schedule_commit(nobody)
        await life.evict(nobody)
        await life.resolve(nobody, 1, "drop")
        await life.stop(1)
        assert not provider.calls and not life.counts
        assert await life.commit_pending(
            SessionId("s_0000000000000000"), requested=True
        ) == SegmentCommitResult("nothing")
