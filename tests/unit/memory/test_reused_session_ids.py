"""Conversations that had the same id, one after another: each owes and is answered for by itself."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.errors import NoSuchQueuedCommit, ProviderFailure
from holdfast.domain.ids import SessionId
from holdfast.memory.scheduler import SegmentCommitResult
from holdfast.store.ports import Event
from tests.support.fake_memory_providers import FakeProvider, MemoryHarness, memory_harness


async def start_with_first_turn(harness: MemoryHarness) -> tuple[SessionId, list[Event]]:
    """A conversation of which memory has the first turn, and its events so far."""
    session_id = await harness.app.create_session()
    await harness.run_turn(session_id, "one")
    events = list(await harness.app.store.read(session_id, 0, 1000))
    assert await harness.scheduler.commit_pending(session_id) == SegmentCommitResult("committed", 1)
    return session_id, events


async def pending_of(harness: MemoryHarness, session_id: SessionId) -> list[tuple[bool, int, str]]:
    return [
        (debt.is_deleted, debt.row.n, debt.row.state) for debt in await harness.queue.pending_for(session_id)
    ]


async def delete_and_reimport(
    harness: MemoryHarness, session_id: SessionId, events: list[Event], text: str
) -> None:
    """Delete the conversation, of which memory fails to forget a turn, import it again and go on in it."""
    await harness.scheduler.commit_pending(session_id, requested=True)
    await harness.app.engine.commands.undo(session_id, None)
    await harness.app.engine.delete(session_id)
    await harness.app.store.import_session(session_id, events, cancel_open_runs=True)
    await harness.run_turn(session_id, text)


def provider_failures(times: int = 50) -> list[Exception]:
    return [ProviderFailure(detail="down") for _ in range(times)]


async def test_a_decision_reaches_the_one_that_was_shown(tmp_path: Path) -> None:
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        session_id, events = await start_with_first_turn(harness)
        provider.retract_errors = provider_failures()
        await harness.run_turn(session_id, "two")
        await delete_and_reimport(harness, session_id, events, "three")
        assert await pending_of(harness, session_id) == [(False, 2, "pending"), (True, 2, "committed")]
        await harness.scheduler.resolve(session_id, 2, "drop", deleted=True)
        assert await pending_of(harness, session_id) == [(False, 2, "pending")]
        with pytest.raises(NoSuchQueuedCommit):
            await harness.scheduler.resolve(session_id, 2, "drop", deleted=True)
        await harness.scheduler.resolve(session_id, 2, "drop")
        assert await pending_of(harness, session_id) == []


async def test_a_receipt_finds_its_session_although_the_id_is_used_again(tmp_path: Path) -> None:
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        session_id, events = await start_with_first_turn(harness)
        await harness.run_turn(session_id, "two")
        provider.hold = asyncio.Event()
        provider.called.clear()
        commit = asyncio.create_task(harness.scheduler.commit_pending(session_id, requested=True))
        await provider.called.wait()
        await harness.app.engine.delete(session_id)
        await harness.app.store.import_session(session_id, events, cancel_open_runs=True)
        await harness.run_turn(session_id, "three")
        provider.hold.set()
        assert await commit == SegmentCommitResult("committed", 2)
        assert await harness.scheduler.pending_totals() == (0, 0)
        said = [segment.messages[0].text for segment in provider.calls]
        assert said == ["one", "two", "three"]


async def test_each_of_several_that_were_deleted_can_be_answered_for_and_is_forgotten(
    tmp_path: Path,
) -> None:
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        session_id, events = await start_with_first_turn(harness)
        provider.retract_errors = provider_failures()
        await harness.run_turn(session_id, "two")
        await delete_and_reimport(harness, session_id, events, "three")
        await delete_and_reimport(harness, session_id, events, "four")
        rows = await pending_of(harness, session_id)
        assert rows == [(False, 2, "pending"), (True, 2, "committed"), (True, 2, "committed")]
        first, second = (await harness.queue.pending_for(session_id))[1:]
        assert first.number < second.number
        await harness.scheduler.resolve(session_id, 2, "drop", deleted=True)
        buried = [debt.number for debt in await harness.queue.pending_for(session_id) if debt.is_deleted]
        assert buried == [second.number]
        provider.retract_errors = []
        assert (await harness.scheduler.commit_pending(session_id, requested=True)).committed == 1
        assert [segment.messages[0].text for segment in provider.stored.values()] == ["one", "two", "four"]
        assert provider.retracted[-1][0] == second.row.key and await pending_of(harness, session_id) == []
