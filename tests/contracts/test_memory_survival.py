"""M16 and M17: memory survives kill -9, providers that misbehave, and other processes."""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import ProviderFailure
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import COMMIT_RETRY_MS, COMMITS_AT_ONCE_MAX
from holdfast.memory.committer import LOST_MS
from holdfast.memory.scheduler import SegmentCommitResult
from tests.support.fake_memory_providers import (
    FakeProvider,
    FileProvider,
    MemoryHarness,
    UncancellableProvider,
    memory_harness,
    read_commits,
)
from tests.support.in_process_app import FakeTool, text_step, tool_call_step

ROOT = Path(__file__).resolve().parents[2]
SOON_S = 30
"""A generous timeout for a busy machine."""


class MemoryWorkerProcess:
    """Another process that commits to a file, as the test sees it."""

    def __init__(self, folder: Path, log_file: Path, keyed: bool, point: str) -> None:
        command = [sys.executable, "-m", "tests.contracts.memory_worker_process", str(folder), str(log_file)]
        command += ["keyed" if keyed else "keyless", point]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.session_id = SessionId(self._line())
        assert self._line() == point

    def _line(self) -> str:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, "the other process ended by itself"
        return line.strip()

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


def start_and_kill(folder: Path, log_file: Path, keyed: bool, point: str) -> SessionId:
    """Return the session of a process that was killed at a point of its commit."""
    other = MemoryWorkerProcess(folder, log_file, keyed, point)
    other.kill()
    return other.session_id


USER_TEXTS = ["My boat is called Vega.", "Noted."]


@pytest.mark.parametrize("point", ["pending", "before", "after", "committed"])
async def test_a_provider_that_takes_the_key_has_it_exactly_once_wherever_the_process_was_killed(
    tmp_path: Path, point: str
) -> None:
    """M16, M8"""
    log_file = tmp_path / "diary"
    session_id = start_and_kill(tmp_path / "data", log_file, True, point)
    provider = FileProvider(log_file, True)
    async with memory_harness(tmp_path / "data", provider) as harness:
        await harness.scheduler.start(3600)  # Nobody asks.
        await harness.wait_for_states(session_id, "committed")
        (row,) = await harness.queue_entries(session_id)
        assert read_commits(log_file) == [{"key": row.key, "said": USER_TEXTS}]
        assert [segment.key for segment in provider.calls] == ([] if point == "committed" else [row.key])


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_call_cut_off_in_the_middle_is_in_doubt_where_no_key_is_taken(
    tmp_path: Path, point: str
) -> None:
    """M16"""
    log_file = tmp_path / "diary"
    session_id = start_and_kill(tmp_path / "data", log_file, False, point)
    provider, committed = FileProvider(log_file, False), len(read_commits(log_file))
    assert committed == (point == "after")
    async with memory_harness(tmp_path / "data", provider) as harness:
        await harness.scheduler.start(3600)
        await harness.wait_for_states(session_id, "in_doubt")
        assert (await harness.scheduler.commit_pending(session_id)).status == "in_doubt"
        assert len(read_commits(log_file)) == committed and not provider.calls  # Never silently twice.
        await harness.run_turn(session_id, "And what comes after is not kept waiting.")
        assert await harness.scheduler.commit_pending(session_id) == SegmentCommitResult("in_doubt", 1)
        await harness.scheduler.resolve(session_id, 1, "retry" if point == "before" else "done")
        await harness.wait_for_states(session_id, "committed", "committed")
        assert sorted(len(line["said"]) for line in read_commits(log_file)) == [2, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("point", ["pending", "before", "after"])
async def test_uncommitted_turns_of_a_deleted_conversation_are_never_committed(
    tmp_path: Path, point: str, keyed: bool
) -> None:
    """M16: by no process, though the committing one was killed after the deletion."""
    log_file = tmp_path / "diary"
    other = MemoryWorkerProcess(tmp_path / "data", log_file, keyed, point)
    async with memory_harness(tmp_path / "data", FileProvider(log_file, keyed)) as harness:
        await harness.app.engine.commands.delete(other.session_id)
        other.kill()
    committed, provider = len(read_commits(log_file)), FileProvider(log_file, keyed)
    assert committed == (point == "after")
    async with memory_harness(tmp_path / "data", provider) as harness:
        assert await harness.scheduler.commit_pending(
            other.session_id, requested=True
        ) == SegmentCommitResult("nothing")
        assert await harness.scheduler.pending_totals() == (0, 0)
        assert len(read_commits(log_file)) == committed and not provider.calls


async def test_a_call_that_fails_after_its_conversation_was_deleted_is_not_made_again(tmp_path: Path) -> None:
    """M16"""
    provider = FakeProvider()
    provider.hold, provider.answers = asyncio.Event(), [ProviderFailure(detail="down")]
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        commit = asyncio.create_task(harness.scheduler.commit_pending(session_id, requested=True))
        await provider.called.wait()
        await harness.app.engine.delete(session_id)
        provider.hold.set()
        assert (await commit).status == "failed"
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "nothing"
        )
        assert await harness.scheduler.pending_totals() == (0, 0) and len(provider.calls) == 1


async def test_a_turn_answered_during_deletion_queues_no_memory_entry(tmp_path: Path) -> None:
    """M16: the deletion comes from another process."""
    tool, provider = FakeTool("lever", "pure"), FakeProvider()
    tool.hold = asyncio.Event()
    async with (
        memory_harness(tmp_path, provider, fake_tools=(tool,)) as harness,
        memory_harness(tmp_path, FakeProvider()) as there,
    ):
        session_id = await harness.app.create_session()
        harness.app.model.steps = [tool_call_step("lever"), text_step("Noted.")]
        await harness.app.send(session_id, "one")
        async with asyncio.timeout(SOON_S):
            await tool.started.wait()
        await there.app.engine.delete(session_id)
        tool.hold.set()
        await harness.app.wait_until_idle()
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "nothing"
        )
        assert await harness.scheduler.pending_totals() == (0, 0) and not provider.calls


async def test_a_call_in_doubt_is_made_again_where_people_have_chosen_that(tmp_path: Path) -> None:
    """M16"""
    log_file = tmp_path / "diary"
    session_id = start_and_kill(tmp_path / "data", log_file, False, "after")
    async with memory_harness(tmp_path / "data", FileProvider(log_file, False), in_doubt="retry") as harness:
        await harness.scheduler.start(3600)
        await harness.wait_for_states(session_id, "committed")
        assert [line["said"] for line in read_commits(log_file)] == [USER_TEXTS, USER_TEXTS]


async def test_two_processes_never_commit_the_same_entry_and_a_lost_attempt_is_taken_over(
    tmp_path: Path,
) -> None:
    """M16: by another process, after the attempt's timeout; a late result is ignored."""
    clock, first, second = FakeClock(), FakeProvider(), FakeProvider()
    first.hold = asyncio.Event()
    async with (
        memory_harness(tmp_path, first, clock=clock) as harness,
        memory_harness(tmp_path, second, clock=clock) as there,
    ):
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        late = asyncio.create_task(harness.scheduler.commit_pending(session_id, requested=True))
        await first.called.wait()
        assert (
            await there.scheduler.commit_pending(session_id, requested=True)
        ).status == "busy" and not second.calls
        clock.advance(LOST_MS)
        assert await there.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 1
        )
        first.hold.set()
        assert (await late).status == "busy"
        (row,) = await harness.queue_entries(session_id)
        assert (row.state, row.attempts) == ("committed", 2)
        assert {segment.key for segment in (*first.calls, *second.calls)} == {row.key}


@pytest.mark.parametrize(("takes_key", "state"), [(True, "failed"), (False, "in_doubt")])
async def test_a_call_that_never_answers_is_cut_off_and_is_in_doubt_where_no_key_is_taken(
    tmp_path: Path, takes_key: bool, state: str
) -> None:
    """M16"""
    provider = UncancellableProvider(takes_key=takes_key)
    provider.hold = asyncio.Event()
    async with memory_harness(tmp_path, provider, commit_s=0.5) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        outcome = await asyncio.wait_for(harness.scheduler.commit_pending(session_id, requested=True), SOON_S)
        assert outcome.status == state and "no answer within" in outcome.detail
        assert await harness.states(session_id) == [state]
        provider.hold.set()
        assert await harness.scheduler.commit_pending(session_id, requested=True) == (
            SegmentCommitResult("committed", 1) if takes_key else SegmentCommitResult("in_doubt")
        )
        assert len(provider.calls) == 1 + takes_key


async def test_the_provider_receives_the_actual_messages(tmp_path: Path) -> None:
    """M17"""
    tool, provider = FakeTool("lever", "pure"), FakeProvider()
    async with memory_harness(tmp_path, provider, fake_tools=(tool,)) as harness:
        session_id = await harness.app.engine.create(f.SessionCreated(title="Boats"))
        harness.app.model.steps = [tool_call_step("lever"), text_step("It ", "is ", "down.")]
        sent = await harness.app.send(session_id, "Pull the lever")
        await harness.app.wait_for_run(sent.run_id, "completed")
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 1
        )
        (commit,) = provider.calls
        assert (commit.session_id, commit.title, commit.scope, commit.turns) == (
            session_id,
            "Boats",
            "",
            ((1, 1),),
        )
        assert [(said.role, said.name, said.text) for said in commit.messages] == [
            ("user", "", "Pull the lever"), ("tool", "lever", "pulled down"), ("assistant", "", "It is down.")
        ]  # fmt: skip
        entries = {entry.id: entry for entry in await harness.app.entries(session_id)}
        assert all(said.id in entries and said.at == entries[said.id].at for said in commit.messages)
        (row,) = await harness.queue_entries(session_id)
        assert row.receipt == f"receipt {row.key}" and row.key == commit.key


@pytest.mark.parametrize(
    "answer",
    [
        ProviderFailure(detail="no room"), ValueError("odd"), KeyError(), TimeoutError(), OSError(5, "I/O"),
        asyncio.CancelledError(), None, 17, b"receipt", ["receipt"], object(),
    ],
    ids=lambda answer: type(answer).__name__,
)  # fmt: skip
async def test_any_provider_error_is_a_failure(tmp_path: Path, answer: object) -> None:
    """M17"""
    provider = FakeProvider()
    async with memory_harness(tmp_path, provider) as harness:
        session_id = await harness.app.create_session()
        await harness.run_turn(session_id, "one")
        provider.answers = [answer]
        outcome = await harness.scheduler.commit_pending(session_id, requested=True)
        assert (outcome.status, outcome.committed) == ("failed", 0) and outcome.detail
        (row,) = await harness.queue_entries(session_id)
        assert row.state == "failed" and row.failure is not None and row.failure.detail
        assert harness.scheduler.counts == {"failed": 1}
        assert await harness.scheduler.commit_pending(session_id, requested=True) == SegmentCommitResult(
            "committed", 1
        )


async def test_a_provider_that_is_down_backs_off_and_is_retried(tmp_path: Path) -> None:
    """M2: many pending entries do not overload it, and all are committed once it is back."""
    provider, clock = FakeProvider(), FakeClock()
    async with memory_harness(tmp_path, provider, clock=clock) as harness:
        sessions = [await harness.app.create_session() for _ in range(20)]
        for session_id in sessions:
            await harness.run_turn(session_id, "one")
        provider.answers = [ProviderFailure(detail="down") for _ in range(1000)]
        await asyncio.gather(*(harness.scheduler.commit_pending(each) for each in sessions))
        assert len(provider.calls) <= COMMITS_AT_ONCE_MAX
        before = len(provider.calls)
        await asyncio.gather(*(harness.scheduler.commit_pending(each) for each in sessions))
        assert len(provider.calls) == before
        assert (
            await harness.scheduler.commit_pending(sessions[0], requested=True)
        ).status == "failed"  # A person may ask.
        assert len(provider.calls) == before + 1
        provider.answers = []
        clock.advance(8 * COMMIT_RETRY_MS)
        outcomes = await asyncio.gather(*(harness.scheduler.commit_pending(each) for each in sessions))
        assert {outcome.status for outcome in outcomes} == {"committed"}
        assert provider.max_running <= COMMITS_AT_ONCE_MAX


async def _start_with_pending(harness: MemoryHarness) -> SessionId:
    session_id = await harness.app.create_session()
    await harness.run_turn(session_id, "one")
    return session_id


async def test_idle_time_is_a_boundary(tmp_path: Path) -> None:
    """M16: without a request."""
    provider, clock = FakeProvider(), FakeClock()
    async with memory_harness(tmp_path, provider, clock=clock) as harness:
        await harness.scheduler.start(1)
        clock.advance(10)
        session_id = await _start_with_pending(harness)
        await asyncio.sleep(1.2)  # Two rounds, by a clock that stands still.
        assert await harness.states(session_id) == ["pending"]
        clock.advance(1000)
        await harness.wait_for_states(session_id, "committed")
