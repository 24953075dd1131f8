"""A clock that was ahead and was put right: what memory is owed does not wait for the times that it set."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.domain.clock import CLOCK_MARGIN_MS, FakeClock, is_due
from holdfast.domain.errors import ProviderFailure
from holdfast.domain.limits import COMMIT_RETRY_MS, COMMIT_RETRY_MS_MAX
from holdfast.domain.memories import NewNote, Origin
from holdfast.domain.state.rows import QueuedCommit
from holdfast.memory.backoff import OwnerBackoff
from holdfast.memory.scheduler import DuePoller, SegmentCommitResult
from holdfast.memory.vector_index import VectorIndex
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_memory_providers import FakeProvider, memory_harness

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    "ahead_ms, is_so",
    [(0, True), (1, False), (1_000 + CLOCK_MARGIN_MS, False), (1_001 + CLOCK_MARGIN_MS, True)],
)
def test_a_time_has_come_when_past_or_implausibly_far_ahead(ahead_ms: int, is_so: bool) -> None:
    assert is_due(5_000 + ahead_ms, 5_000, 1_000) is is_so


def test_backoff_ends_when_the_clock_is_set_back() -> None:
    clock = FakeClock()
    rests = OwnerBackoff(clock, lambda: 0.5)
    rests.record_failure("me")
    assert rests.owners_in_backoff() == ["me"]
    clock.rewind(DAY_MS)
    assert rests.owners_in_backoff() == []
    assert rests.record_failure("me") <= clock.now_ms() + COMMIT_RETRY_MS_MAX


async def test_a_failed_commit_is_retried_after_the_clock_is_set_back(tmp_path: Path) -> None:
    clock, provider = FakeClock(), FakeProvider()
    async with memory_harness(tmp_path, provider, clock=clock) as harness:
        failed, said = await harness.app.create_session(), await harness.app.create_session()
        provider.answers = [ProviderFailure(detail="down")]
        await harness.run_turn(failed, "one")
        await harness.scheduler.commit_pending(failed, requested=True)
        await harness.run_turn(said, "two")
        now = clock.now_ms()
        assert await harness.queue.due_entries(now - 1, now, 10) == []
        clock.rewind(DAY_MS)
        now = clock.now_ms()
        assert [debt.session_id for debt in await harness.queue.due_entries(now - 1, now, 10)] == [
            failed,
            said,
        ]
        assert await harness.scheduler.commit_pending(failed) == SegmentCommitResult("committed", 1)


async def test_an_entry_is_not_committed_before_it_is_due(tmp_path: Path) -> None:
    clock, provider = FakeClock(), FakeProvider()
    async with memory_harness(tmp_path, provider, clock=clock) as harness:
        session_id = await harness.app.create_session()
        provider.answers = [ProviderFailure(detail="down")]
        await harness.run_turn(session_id, "one")
        await harness.scheduler.commit_pending(session_id, requested=True)
        clock.rewind(COMMIT_RETRY_MS // 2)
        assert (await harness.scheduler.commit_pending(session_id)).status == "failed"
        assert len(provider.calls) == 1


async def test_an_active_session_is_not_due_when_the_start_time_lies_ahead(tmp_path: Path) -> None:
    clock, taken = FakeClock(), list[str]()

    def take_up(due: Sequence[QueuedCommit]) -> list["asyncio.Task[SegmentCommitResult]"]:
        taken.extend(debt.session_id for debt in due)
        return []

    async with memory_harness(tmp_path, clock=clock) as harness:
        rounds = DuePoller(harness.queue, clock, 3600, list, take_up, asyncio.sleep)
        clock.rewind(DAY_MS)
        await rounds.poll_once()
        clock.advance(1_000)
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        clock.advance(1_000)
        await rounds.poll_once()
        assert taken == []
        clock.advance(3_600_000)
        await rounds.poll_once()
        assert taken == [session_id]


async def test_an_attempt_started_in_the_future_counts_as_lost(tmp_path: Path) -> None:
    clock, first, second = FakeClock(), FakeProvider(), FakeProvider()
    first.hold = asyncio.Event()
    async with (
        memory_harness(tmp_path, first, clock=clock) as harness,
        memory_harness(tmp_path, second, clock=clock) as there,
    ):
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        telling = asyncio.create_task(harness.scheduler.commit_pending(session_id, requested=True))
        await first.called.wait()
        assert (await there.scheduler.commit_pending(session_id, requested=True)).status == "busy"
        clock.rewind(DAY_MS)
        assert await there.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 1
        )
        first.hold.set()
        assert (await telling).status == "busy"


async def test_the_embedding_server_is_retried_after_the_clock_is_set_back(tmp_path: Path) -> None:
    clock, asked = FakeClock(), list[int]()

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        asked.append(len(texts))
        raise ProviderFailure(detail="away")

    store = await SqliteStore.open(tmp_path)
    await store.add_notes("key", "receipt", Origin("user"), "", [NewNote("I like tea.")])
    meaning = VectorIndex(store, embed, "small", clock)
    for _ in range(2):  # It rests after the first.
        await meaning.nearest("tea", "", 1)
        await meaning.wait_until_refreshed()
    assert asked == [1]
    clock.rewind(DAY_MS)
    await meaning.nearest("tea", "", 1)
    await meaning.wait_until_refreshed()
    assert asked == [1, 1]
    await meaning.close()
    await store.close()
