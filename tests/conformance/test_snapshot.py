"""Several reads in one snapshot."""

import asyncio
import threading

import pytest

from holdfast.domain.errors import NoSuchSession
from holdfast.domain.events import facts as f
from holdfast.store.ports import Append, Snapshot, Store
from tests.support.turn_events import IDS

WAIT_S = 30.0


async def test_reads_in_one_snapshot_see_nothing_of_what_is_committed_between_them(store: Store) -> None:
    session_id = IDS.session()
    await store.append(Append(session_id, (f.SessionCreated("before"),)))
    loop, has_begun, is_renamed = asyncio.get_running_loop(), asyncio.Event(), threading.Event()

    def read(snapshot: Snapshot) -> list[tuple[int, str, int, str]]:
        found = []
        for _ in range(2):
            status = snapshot.session_statuses([session_id])[session_id]
            (listed,) = snapshot.sessions(None, 10).sessions
            page = snapshot.messages(session_id, None, 10)
            found.append((snapshot.head(session_id), status.row.title, page.head, listed.title))
            loop.call_soon_threadsafe(has_begun.set)
            assert is_renamed.wait(WAIT_S)
        return found

    reading = asyncio.ensure_future(store.snapshot(read))
    await has_begun.wait()
    await store.append(Append(session_id, (f.SessionRenamed("after", "user"),)))
    is_renamed.set()
    assert await reading == [(1, "before", 1, "before")] * 2
    assert await store.snapshot(lambda snapshot: snapshot.session(session_id).title) == "after"


async def test_a_refusal_inside_a_snapshot_leaves_the_store_readable(store: Store) -> None:
    for _ in range(5):
        with pytest.raises(NoSuchSession):
            await store.snapshot(lambda snapshot: snapshot.session(IDS.session()))
    assert (await store.snapshot(lambda snapshot: snapshot.sessions(None, 10))).sessions == ()
