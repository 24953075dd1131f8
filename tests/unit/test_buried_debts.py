"""Conversations that had the same id, one after another: each owes and is answered for by itself."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.errors import NoSuchDebt, ProviderFailure
from holdfast.domain.ids import SessionId
from holdfast.memory.lifecycle import Outcome
from holdfast.store.ports import Event
from tests.keepers import Home, Keeper, home


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
    """The conversation fails to be told, is deleted and lives again, from an export, and goes on."""
    assert (await here.lifecycle.settle(session_id, asked=True)).status == "failed"
    await here.here.engine.delete(session_id)
    await here.here.store.adopt(session_id, events, closes=True)
    await here.turn(session_id, text)


def failing(times: int = 50) -> list[object]:
    return [ProviderFailure(detail="down") for _ in range(times)]


async def test_a_decision_reaches_the_one_that_was_shown(tmp_path: Path) -> None:
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id, events = await begun(here)
        keeper.answers = failing()
        await here.turn(session_id, "two")
        await again(here, session_id, events, "three")
        assert await open_of(here, session_id) == [(False, 2, "owed"), (True, 2, "failed")]
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


async def test_of_several_that_were_deleted_the_first_is_told_first_and_each_can_be_answered_for(
    tmp_path: Path,
) -> None:
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id, events = await begun(here)
        keeper.answers = failing()
        await here.turn(session_id, "two")
        await again(here, session_id, events, "three")
        await again(here, session_id, events, "four")
        rows = await open_of(here, session_id)
        assert rows == [(False, 2, "owed"), (True, 2, "failed"), (True, 2, "failed")]
        first, second = (debt.number for debt in (await here.ledger.owing(session_id))[1:])
        assert first < second
        keeper.answers, before = [], len(keeper.calls)
        await here.lifecycle.resolve(session_id, 2, "drop", buried=True)
        assert [debt.number for debt in await here.ledger.owing(session_id) if debt.buried] == [second]
        assert (await here.lifecycle.settle(session_id, asked=True)).paid == 2
        told = [segment.messages[0].text for segment in keeper.calls[before:]]
        assert told == ["four", "three"]
