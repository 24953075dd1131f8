"""Opening and closing a store, and what it still knows afterwards."""

import asyncio
from pathlib import Path

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import StoreClosed
from holdfast.domain.events import facts as f
from holdfast.domain.ids import RunId, SessionId
from holdfast.store.ports import Append, Lease, Store
from tests.conformance.factories import StoreHome
from tests.support.turn_events import IDS, TurnEvents, accept, created, turn_with_tool


def ignore_progress(done: int, total: int) -> None:
    """Ignore the progress of a check."""


async def test_everything_is_there_after_reopening(store: Store, home: StoreHome, clock: FakeClock) -> None:
    new = created("kept")
    story = TurnEvents(2)
    facts = [*turn_with_tool(1), *story.opening(), story.text("half a"), f.SessionArchived(True)]
    await store.append(new)
    await store.append(Append(new.session_id, facts))

    async def all_of_it(opened: Store) -> list[object]:
        return [
            await opened.session(new.session_id),
            await opened.read(new.session_id, 0, 1_000),
            await opened.messages(new.session_id, None, 100),
            await opened.sessions(None, 10, archived=True),
            await opened.open_runs(),
            await opened.search("look", 10),
        ]

    before = await all_of_it(store)
    await store.close()
    assert await all_of_it(await home.open(clock)) == before


async def test_what_was_submitted_is_stored_before_closing(store: Store, home: StoreHome) -> None:
    new = created()
    await store.append(new)
    waiting = [store.submit(accept(new.session_id, str(n))) for n in range(100)]
    await store.close()
    assert all(future.done() for future in waiting)
    assert (await (await home.open()).session(new.session_id)).last_turn == 100


async def test_a_closed_store_raises_store_closed(store: Store, tmp_path: Path) -> None:
    new = created()
    await store.append(new)
    await store.close()
    session_id, run_id = new.session_id, RunId("r")
    lease = Lease(run_id, 1, IDS.process(), 0)
    for asked in (
        store.append(created()), store.read(session_id, 0, 1), anext(store.tail(session_id, 0)),
        store.import_session(session_id, await no_events()), store.session(session_id),
        store.head(session_id),
        store.sessions(None, 1), store.messages(session_id, None, 1), store.run(run_id), store.open_runs(),
        store.tools(session_id, run_id), store.search("x", 1), store.totals(), store.claim(run_id, 1),
        store.renew(lease, 1), store.release(lease), store.put_blob(b"x"), store.get_blob("x"),
        store.sweep(), store.check(False, ignore_progress), store.backup(tmp_path / "copy", ignore_progress),
    ):  # fmt: skip
        with pytest.raises(StoreClosed):
            await asked
    with pytest.raises(StoreClosed):
        store.submit(created())


async def no_events() -> list[f.AnyFact]:
    return []


async def test_closing_twice_is_closing_once(store: Store) -> None:
    await asyncio.gather(store.close(), store.close())
    await store.close()


async def test_one_store_can_close_while_another_works_on(store: Store, home: StoreHome) -> None:
    new = created()
    await store.append(new)
    other = await home.open()
    await store.close()
    await other.append(accept(new.session_id, "still here"))
    assert await other.head(new.session_id) == 2


async def test_a_tail_of_a_store_that_closes_ends_soon(store: Store) -> None:
    new = created()
    await store.append(new)
    tail = store.tail(new.session_id, 1)
    following = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0.05)
    await store.close()
    with pytest.raises(StoreClosed):
        await asyncio.wait_for(following, 30)


async def test_many_stores_can_open_an_empty_folder_at_once(home: StoreHome) -> None:
    stores = await asyncio.gather(*(home.open() for _ in range(5)))
    ids: list[SessionId] = []
    for store in stores:
        new = created()
        await store.append(new)
        ids.append(new.session_id)
    for store in stores:
        assert {row.id for row in (await store.sessions(None, 10)).sessions} == set(ids)


async def test_many_processes_can_open_an_empty_folder_at_once(home: StoreHome) -> None:
    children = [home.start_child("rename", "s", "0") for _ in range(4)]
    for child in children:
        with child:
            assert child.stdout is not None
            assert await asyncio.to_thread(child.stdout.readline) == "ready\n"
    assert [child.returncode for child in children] == [0] * 4
