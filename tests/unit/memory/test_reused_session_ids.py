"""Conversations that had the same id, one after another: each owes and is answered for by itself."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.errors import NoSuchDebt, ProviderFailure
from holdfast.domain.ids import SessionId
from holdfast.memory.scheduler import Outcome
from holdfast.store.ports import Event
from tests.support.fake_memory_providers import Home, Keeper, home


async def begun(here: Home) -> tuple[SessionId, list[Event]]:
    """A conversation of which memory has the first turn, and its events so far."""
    session_id = await here.here.begin()
    await here.turn(session_id, "one")
    events = list(await here.here.store.read(session_id, 0, 1000))
    assert await here.lifecycle.settle(session_id) == Outcome("paid", 1)
    return session_id, events


async def open_of(here: Home, session_id: SessionId) -> list[tuple[bool, int, str]]:
    return [(debt.buried, debt.row.n, debt.row.state) for debt in await here.ledger.owing(session_id)]


async def again(here: Home, session_id: SessionId, events: list[Event], text: str) -> None:
    """Delete the conversation, of which memory fails to forget a turn, import it again and go on in it."""
    await here.lifecycle.settle(session_id, asked=True)
    await here.here.engine.verbs.undo(session_id, None)
    await here.here.engine.delete(session_id)
    await here.here.store.adopt(session_id, events, closes=True)
    await here.turn(session_id, text)


def failing(times: int = 50) -> list[Exception]:
    return [ProviderFailure(detail="down") for _ in range(times)]


async def test_a_decision_reaches_the_one_that_was_shown(tmp_path: Path) -> None:
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id, events = await begun(here)
        keeper.retractions = failing()
        await here.turn(session_id, "two")
        await again(here, session_id, events, "three")
        assert await open_of(here, session_id) == [(False, 2, "owed"), (True, 2, "paid")]
        await here.lifecycle.resolve(session_id, 2, "drop", buried=True)
        assert await open_of(here, session_id) == [(False, 2, "owed")]
        with pytest.raises(NoSuchDebt):
            await here.lifecycle.resolve(session_id, 2, "drop", buried=True)
        await here.lifecycle.resolve(session_id, 2, "drop")
        assert await open_of(here, session_id) == []


async def test_a_receipt_finds_the_one_that_was_told_though_its_id_lives_again(tmp_path: Path) -> None:
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id, events = await begun(here)
        await here.turn(session_id, "two")
        keeper.hold = asyncio.Event()
        keeper.called.clear()
        commit = asyncio.create_task(here.lifecycle.settle(session_id, asked=True))
        await keeper.called.wait()
        await here.here.engine.delete(session_id)
        await here.here.store.adopt(session_id, events, closes=True)
        await here.turn(session_id, "three")
        keeper.hold.set()
        assert await commit == Outcome("paid", 2)
        assert await here.lifecycle.totals() == (0, 0)
        said = [segment.messages[0].text for segment in keeper.calls]
        assert said == ["one", "two", "three"]


async def test_each_of_several_that_were_deleted_can_be_answered_for_and_is_forgotten(
    tmp_path: Path,
) -> None:
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id, events = await begun(here)
        keeper.retractions = failing()
        await here.turn(session_id, "two")
        await again(here, session_id, events, "three")
        await again(here, session_id, events, "four")
        rows = await open_of(here, session_id)
        assert rows == [(False, 2, "owed"), (True, 2, "paid"), (True, 2, "paid")]
        first, second = (await here.ledger.owing(session_id))[1:]
        assert first.number < second.number
        await here.lifecycle.resolve(session_id, 2, "drop", buried=True)
        buried = [debt.number for debt in await here.ledger.owing(session_id) if debt.buried]
        assert buried == [second.number]
        keeper.retractions = []
        assert (await here.lifecycle.settle(session_id, asked=True)).paid == 1
        assert [segment.messages[0].text for segment in keeper.kept.values()] == ["one", "two", "four"]
        assert keeper.retracted[-1][0] == second.row.key and await open_of(here, session_id) == []
