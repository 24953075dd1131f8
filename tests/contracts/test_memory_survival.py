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
from holdfast.memory.scheduler import Outcome
from tests.support.fake_memory_providers import Diary, Home, Keeper, Stubborn, home, written
from tests.support.in_process_app import Lever, calls, says

ROOT = Path(__file__).resolve().parents[2]
SOON_S = 30
"""What may take a moment on a busy machine, and never takes so long."""


class Resident:
    """Another process that tells a diary, as the test sees it."""

    def __init__(self, folder: Path, diary: Path, keyed: bool, point: str) -> None:
        command = [sys.executable, "-m", "tests.contracts.memory_worker_process", str(folder), str(diary)]
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


def killed(folder: Path, diary: Path, keyed: bool, point: str) -> SessionId:
    """The session of a process that was killed at a point of telling memory of it."""
    other = Resident(folder, diary, keyed, point)
    other.kill()
    return other.session_id


SAID = ["My boat is called Vega.", "Noted."]


@pytest.mark.parametrize("point", ["owed", "before", "after", "paid"])
async def test_a_provider_that_takes_the_key_has_it_exactly_once_wherever_the_process_was_killed(
    tmp_path: Path, point: str
) -> None:
    """M16, M8"""
    diary = tmp_path / "diary"
    session_id = killed(tmp_path / "data", diary, True, point)
    keeper = Diary(diary, True)
    async with home(tmp_path / "data", keeper) as here:
        await here.lifecycle.start(3600)  # Nobody asks.
        await here.until_states(session_id, "paid")
        (row,) = await here.debts(session_id)
        assert written(diary) == [{"key": row.key, "said": SAID}]
        assert [segment.key for segment in keeper.calls] == ([] if point == "paid" else [row.key])


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_call_cut_off_in_the_middle_is_in_doubt_where_no_key_is_taken(
    tmp_path: Path, point: str
) -> None:
    """M16"""
    diary = tmp_path / "diary"
    session_id = killed(tmp_path / "data", diary, False, point)
    keeper, told = Diary(diary, False), len(written(diary))
    assert told == (point == "after")
    async with home(tmp_path / "data", keeper) as here:
        await here.lifecycle.start(3600)
        await here.until_states(session_id, "in_doubt")
        assert (await here.lifecycle.settle(session_id)).status == "in_doubt"
        assert len(written(diary)) == told and not keeper.calls  # Never silently twice.
        await here.turn(session_id, "And what comes after is not kept waiting.")
        assert await here.lifecycle.settle(session_id) == Outcome("in_doubt", 1)
        await here.lifecycle.resolve(session_id, 1, "retry" if point == "before" else "done")
        await here.until_states(session_id, "paid", "paid")
        assert sorted(len(line["said"]) for line in written(diary)) == [2, 2]  # type: ignore[arg-type]


@pytest.mark.parametrize("keyed", [True, False])
@pytest.mark.parametrize("point", ["owed", "before", "after"])
async def test_what_memory_was_not_told_of_a_deleted_conversation_is_never_told(
    tmp_path: Path, point: str, keyed: bool
) -> None:
    """M16: by no process, though the one that told memory of it was killed after the deletion."""
    diary = tmp_path / "diary"
    other = Resident(tmp_path / "data", diary, keyed, point)
    async with home(tmp_path / "data", Diary(diary, keyed)) as here:
        await here.here.engine.verbs.delete(other.session_id)
        other.kill()
    told, keeper = len(written(diary)), Diary(diary, keyed)
    assert told == (point == "after")
    async with home(tmp_path / "data", keeper) as here:
        assert await here.lifecycle.settle(other.session_id, asked=True) == Outcome("nothing")
        assert await here.lifecycle.totals() == (0, 0)
        assert len(written(diary)) == told and not keeper.calls


async def test_a_call_that_fails_after_its_conversation_was_deleted_is_not_made_again(tmp_path: Path) -> None:
    """M16"""
    keeper = Keeper()
    keeper.hold, keeper.answers = asyncio.Event(), [ProviderFailure(detail="down")]
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        commit = asyncio.create_task(here.lifecycle.settle(session_id, asked=True))
        await keeper.called.wait()
        await here.here.engine.delete(session_id)
        keeper.hold.set()
        assert (await commit).status == "failed"
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("nothing")
        assert await here.lifecycle.totals() == (0, 0) and len(keeper.calls) == 1


async def test_a_turn_that_is_answered_while_its_conversation_is_deleted_is_not_owed(tmp_path: Path) -> None:
    """M16: the deletion comes from another process."""
    lever, keeper = Lever("lever", "pure"), Keeper()
    lever.hold = asyncio.Event()
    async with home(tmp_path, keeper, levers=(lever,)) as here, home(tmp_path, Keeper()) as there:
        session_id = await here.here.begin()
        here.here.model.steps = [calls("lever"), says("Noted.")]
        await here.here.say(session_id, "one")
        async with asyncio.timeout(SOON_S):
            await lever.started.wait()
        await there.here.engine.delete(session_id)
        lever.hold.set()
        await here.here.until_at_rest()
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("nothing")
        assert await here.lifecycle.totals() == (0, 0) and not keeper.calls


async def test_a_call_in_doubt_is_made_again_where_people_have_chosen_that(tmp_path: Path) -> None:
    """M16"""
    diary = tmp_path / "diary"
    session_id = killed(tmp_path / "data", diary, False, "after")
    async with home(tmp_path / "data", Diary(diary, False), in_doubt="retry") as here:
        await here.lifecycle.start(3600)
        await here.until_states(session_id, "paid")
        assert [line["said"] for line in written(diary)] == [SAID, SAID]


async def test_two_processes_do_not_tell_the_same_and_a_lost_try_is_taken_over(tmp_path: Path) -> None:
    """M16: by another process, past the time that a try may take; what comes back late says nothing."""
    clock, first, second = FakeClock(), Keeper(), Keeper()
    first.hold = asyncio.Event()
    async with home(tmp_path, first, clock=clock) as here, home(tmp_path, second, clock=clock) as there:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        late = asyncio.create_task(here.lifecycle.settle(session_id, asked=True))
        await first.called.wait()
        assert (await there.lifecycle.settle(session_id, asked=True)).status == "busy" and not second.calls
        clock.advance(LOST_MS)
        assert await there.lifecycle.settle(session_id, asked=True) == Outcome("paid", 1)
        first.hold.set()
        assert (await late).status == "busy"
        (row,) = await here.debts(session_id)
        assert (row.state, row.attempts) == ("paid", 2)
        assert {segment.key for segment in (*first.calls, *second.calls)} == {row.key}


@pytest.mark.parametrize(("takes_key", "state"), [(True, "failed"), (False, "in_doubt")])
async def test_a_call_that_never_answers_is_cut_off_and_is_in_doubt_where_no_key_is_taken(
    tmp_path: Path, takes_key: bool, state: str
) -> None:
    """M16"""
    keeper = Stubborn(takes_key=takes_key)
    keeper.hold = asyncio.Event()
    async with home(tmp_path, keeper, commit_s=0.5) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        outcome = await asyncio.wait_for(here.lifecycle.settle(session_id, asked=True), SOON_S)
        assert outcome.status == state and "no answer within" in outcome.detail
        assert await here.states(session_id) == [state]
        keeper.hold.set()
        assert await here.lifecycle.settle(session_id, asked=True) == (
            Outcome("paid", 1) if takes_key else Outcome("in_doubt")
        )
        assert len(keeper.calls) == 1 + takes_key


async def test_the_provider_receives_the_actual_messages(tmp_path: Path) -> None:
    """M17"""
    lever, keeper = Lever("lever", "pure"), Keeper()
    async with home(tmp_path, keeper, levers=(lever,)) as here:
        session_id = await here.here.engine.create(f.SessionCreated(title="Boats"))
        here.here.model.steps = [calls("lever"), says("It ", "is ", "down.")]
        sent = await here.here.say(session_id, "Pull the lever")
        await here.here.until_run(sent.run_id, "completed")
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("paid", 1)
        (told,) = keeper.calls
        assert (told.session_id, told.title, told.scope, told.turns) == (session_id, "Boats", "", ((1, 1),))
        assert [(said.role, said.name, said.text) for said in told.messages] == [
            ("user", "", "Pull the lever"), ("tool", "lever", "pulled down"), ("assistant", "", "It is down.")
        ]  # fmt: skip
        entries = {entry.id: entry for entry in await here.here.entries(session_id)}
        assert all(said.id in entries and said.at == entries[said.id].at for said in told.messages)
        (row,) = await here.debts(session_id)
        assert row.receipt == f"receipt {row.key}" and row.key == told.key


@pytest.mark.parametrize(
    "answer",
    [
        ProviderFailure(detail="no room"), ValueError("odd"), KeyError(), TimeoutError(), OSError(5, "I/O"),
        asyncio.CancelledError(), None, 17, b"receipt", ["receipt"], object(),
    ],
    ids=lambda answer: type(answer).__name__,
)  # fmt: skip
async def test_whatever_a_provider_does_wrong_is_a_failure_and_never_a_success(
    tmp_path: Path, answer: object
) -> None:
    """M17"""
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        keeper.answers = [answer]
        outcome = await here.lifecycle.settle(session_id, asked=True)
        assert (outcome.status, outcome.paid) == ("failed", 0) and outcome.detail
        (row,) = await here.debts(session_id)
        assert row.state == "failed" and row.failure is not None and row.failure.detail
        assert here.lifecycle.counts == {"failed": 1}
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("paid", 1)


async def test_a_provider_that_is_down_is_left_in_peace_and_asked_again_later(tmp_path: Path) -> None:
    """M2: many that are owed do not hammer it, and all are paid once it is back."""
    keeper, clock = Keeper(), FakeClock()
    async with home(tmp_path, keeper, clock=clock) as here:
        sessions = [await here.here.begin() for _ in range(20)]
        for session_id in sessions:
            await here.turn(session_id, "one")
        keeper.answers = [ProviderFailure(detail="down") for _ in range(1000)]
        await asyncio.gather(*(here.lifecycle.settle(each) for each in sessions))
        assert len(keeper.calls) <= COMMITS_AT_ONCE_MAX
        before = len(keeper.calls)
        await asyncio.gather(*(here.lifecycle.settle(each) for each in sessions))
        assert len(keeper.calls) == before
        assert (await here.lifecycle.settle(sessions[0], asked=True)).status == "failed"  # A person may ask.
        assert len(keeper.calls) == before + 1
        keeper.answers = []
        clock.advance(8 * COMMIT_RETRY_MS)
        outcomes = await asyncio.gather(*(here.lifecycle.settle(each) for each in sessions))
        assert {outcome.status for outcome in outcomes} == {"paid"}
        assert keeper.at_once_max <= COMMITS_AT_ONCE_MAX


async def _owing(here: Home) -> SessionId:
    session_id = await here.here.begin()
    await here.turn(session_id, "one")
    return session_id


async def test_idle_time_is_a_boundary(tmp_path: Path) -> None:
    """M16: without anyone asking."""
    keeper, clock = Keeper(), FakeClock()
    async with home(tmp_path, keeper, clock=clock) as here:
        await here.lifecycle.start(1)
        clock.advance(10)
        session_id = await _owing(here)
        await asyncio.sleep(1.2)  # Two rounds, by a clock that stands still.
        assert await here.states(session_id) == ["owed"]
        clock.advance(1000)
        await here.until_states(session_id, "paid")
