"""A clock that was ahead and was put right: what memory is owed does not wait for the times that it set."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from holdfast.domain.clock import CLOCK_MARGIN_MS, FakeClock, has_come
from holdfast.domain.errors import ProviderFailure
from holdfast.domain.limits import COMMIT_RETRY_MS, COMMIT_RETRY_MS_MAX
from holdfast.domain.memories import NewNote, Origin
from holdfast.domain.state.rows import Debt
from holdfast.memory.backoff import Rests
from holdfast.memory.scheduler import Outcome, Rounds
from holdfast.memory.vector_index import Meaning
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_memory_providers import Keeper, home

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    "ahead_ms, is_so",
    [(0, True), (1, False), (1_000 + CLOCK_MARGIN_MS, False), (1_001 + CLOCK_MARGIN_MS, True)],
)
def test_a_time_has_come_when_it_is_past_or_nobody_can_have_meant_it(ahead_ms: int, is_so: bool) -> None:
    assert has_come(5_000 + ahead_ms, 5_000, 1_000) is is_so


def test_an_owner_does_not_rest_until_a_time_that_was_wrong() -> None:
    clock = FakeClock()
    rests = Rests(clock, lambda: 0.5)
    rests.failed("me")
    assert rests.resting() == ["me"]
    clock.put_back(DAY_MS)
    assert rests.resting() == []
    assert rests.failed("me") <= clock.now_ms() + COMMIT_RETRY_MS_MAX


async def test_what_failed_is_tried_again_and_what_was_said_is_told(tmp_path: Path) -> None:
    clock, keeper = FakeClock(), Keeper()
    async with home(tmp_path, keeper, clock=clock) as here:
        failed, said = await here.here.begin(), await here.here.begin()
        keeper.answers = [ProviderFailure(detail="down")]
        await here.turn(failed, "one")
        await here.lifecycle.settle(failed, asked=True)
        await here.turn(said, "two")
        now = clock.now_ms()
        assert await here.ledger.due_debts(now - 1, now, 10) == []
        clock.put_back(DAY_MS)
        now = clock.now_ms()
        assert [debt.session_id for debt in await here.ledger.due_debts(now - 1, now, 10)] == [failed, said]
        assert await here.lifecycle.settle(failed) == Outcome("paid", 1)


async def test_what_is_not_due_before_its_time_is_still_not(tmp_path: Path) -> None:
    clock, keeper = FakeClock(), Keeper()
    async with home(tmp_path, keeper, clock=clock) as here:
        session_id = await here.here.begin()
        keeper.answers = [ProviderFailure(detail="down")]
        await here.turn(session_id, "one")
        await here.lifecycle.settle(session_id, asked=True)
        clock.put_back(COMMIT_RETRY_MS // 2)
        assert (await here.lifecycle.settle(session_id)).status == "failed"
        assert len(keeper.calls) == 1


async def test_what_was_just_said_is_let_go_on_though_the_start_lies_ahead(tmp_path: Path) -> None:
    clock, taken = FakeClock(), list[str]()

    def take_up(due: Sequence[Debt]) -> list["asyncio.Task[Outcome]"]:
        taken.extend(debt.session_id for debt in due)
        return []

    async with home(tmp_path, clock=clock) as here:
        rounds = Rounds(here.ledger, clock, 3600, list, take_up, asyncio.sleep)
        clock.put_back(DAY_MS)
        await rounds.one()
        clock.advance(1_000)
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        clock.advance(1_000)
        await rounds.one()
        assert taken == []
        clock.advance(3_600_000)
        await rounds.one()
        assert taken == [session_id]


async def test_a_try_that_began_later_than_now_is_taken_for_lost(tmp_path: Path) -> None:
    clock, first, second = FakeClock(), Keeper(), Keeper()
    first.hold = asyncio.Event()
    async with home(tmp_path, first, clock=clock) as here, home(tmp_path, second, clock=clock) as there:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        telling = asyncio.create_task(here.lifecycle.settle(session_id, asked=True))
        await first.called.wait()
        assert (await there.lifecycle.settle(session_id, asked=True)).status == "busy"
        clock.put_back(DAY_MS)
        assert await there.lifecycle.settle(session_id, asked=True) == Outcome("paid", 1)
        first.hold.set()
        assert (await telling).status == "busy"


async def test_the_server_that_knows_meanings_is_asked_again(tmp_path: Path) -> None:
    clock, asked = FakeClock(), list[int]()

    async def embed(texts: Sequence[str]) -> Sequence[Sequence[float]]:
        asked.append(len(texts))
        raise ProviderFailure(detail="away")

    store = await SqliteStore.open(tmp_path)
    await store.add_notes("key", "receipt", Origin("user"), "", [NewNote("I like tea.")])
    meaning = Meaning(store, embed, "small", clock)
    for _ in range(2):  # It rests after the first.
        await meaning.near("tea", "", 1)
        await meaning.learned()
    assert asked == [1]
    clock.put_back(DAY_MS)
    await meaning.near("tea", "", 1)
    await meaning.learned()
    assert asked == [1, 1]
    await meaning.close()
    await store.close()
