"""The writer's own promises: what is joined, what waits, what order is kept, and how it ends."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from holdfast.domain.errors import NoSuchSession, StoreClosed
from holdfast.domain.events import facts as f
from holdfast.domain.ids import CallId, SessionId
from holdfast.domain.limits import DELTA_BYTES_MAX, PENDING_APPENDS_MAX
from holdfast.domain.state.changes import CommittedChange
from holdfast.domain.state.session_state import SessionStateView
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.writer import PendingWrite
from tests.support.turn_events import TurnEvents, accept, created


class WriterHold:
    """Keeps the writer busy inside a transaction until it is let go."""

    def __init__(self, store: SqliteStore, session_id: SessionId) -> None:
        self._busy, self._free = threading.Event(), threading.Event()
        self.future = store.submit(Append(session_id, self._decide))

    async def wait_started(self) -> None:
        assert await asyncio.to_thread(self._busy.wait, 30)

    def release(self) -> None:
        self._free.set()

    def _decide(self, view: SessionStateView) -> Sequence[f.AnyFact]:
        self._busy.set()
        assert self._free.wait(120)
        return ()


async def store_with_open_turn(folder: Path) -> tuple[SqliteStore, SessionId, TurnEvents]:
    store = await SqliteStore.open(folder)
    new, story = created(), TurnEvents()
    await store.append(new)
    await store.append(Append(new.session_id, story.opening()))
    return store, new.session_id, story


async def facts_after(store: SqliteStore, session_id: SessionId, head: int) -> list[Any]:
    return [event.fact for event in await store.read(session_id, head, 1_000)]


async def test_all_text_that_waits_for_one_commit_is_one_event(tmp_path: Path) -> None:
    store, session_id, story = await store_with_open_turn(tmp_path)
    hold = WriterHold(store, session_id)
    await hold.wait_started()
    waiting = [store.submit(Append(session_id, (story.text(f"{n} "),))) for n in range(500)]
    assert len(set(map(id, waiting))) == 1, "they share one answer"
    hold.release()
    receipts = await asyncio.gather(hold.future, *waiting)
    assert {receipt.last_seq for (receipt,) in receipts[1:]} == {5}
    (fact,) = await facts_after(store, session_id, 4)
    assert fact.text == "".join(f"{n} " for n in range(500))
    await store.close()


async def test_an_event_between_two_deltas_prevents_merging(tmp_path: Path) -> None:
    store, session_id, story = await store_with_open_turn(tmp_path)
    other = TurnEvents(2)
    other.step_started()
    call, second = CallId("c1"), CallId("c2")
    facts: list[f.AnyFact] = [
        story.text("a"), story.reasoning("b"), story.text("c"), other.text("d"), story.text("e"),
        story.tool_arguments(call, "1"), story.tool_arguments(second, "2"), story.tool_arguments(call, "3"),
        f.SessionRenamed("x", "user"), story.text("f"),
    ]  # fmt: skip
    hold = WriterHold(store, session_id)
    await hold.wait_started()
    waiting = [store.submit(Append(session_id, (fact,))) for fact in facts]
    hold.release()
    await asyncio.gather(hold.future, *waiting)
    assert await facts_after(store, session_id, 4) == facts
    await store.close()


async def test_deltas_of_other_sessions_do_not_prevent_merging(tmp_path: Path) -> None:
    store, session_id, story = await store_with_open_turn(tmp_path)
    other = created()
    await store.append(other)
    hold = WriterHold(store, session_id)
    await hold.wait_started()
    waiting = []
    for _ in range(3):
        waiting.append(store.submit(Append(session_id, (story.text("a"),))))
        waiting.append(store.submit(Append(other.session_id, (story.text("b"),))))
    hold.release()
    await asyncio.gather(hold.future, *waiting)
    assert [fact.text for fact in await facts_after(store, session_id, 4)] == ["aaa"]
    assert [fact.text for fact in await facts_after(store, other.session_id, 1)] == ["bbb"]
    await store.close()


async def test_a_transaction_between_deltas_prevents_merging(tmp_path: Path) -> None:
    store, session_id, story = await store_with_open_turn(tmp_path)
    hold = WriterHold(store, session_id)
    await hold.wait_started()
    first = store.submit(Append(session_id, (story.text("before"),)))
    claiming = asyncio.ensure_future(store.claim(story.run_id, 1_000))
    await asyncio.sleep(0.01)
    second = store.submit(Append(session_id, (story.text("after"),)))
    hold.release()
    await asyncio.gather(hold.future, first, claiming, second)
    assert [fact.text for fact in await facts_after(store, session_id, 4)] == ["before", "after"]
    await store.close()


async def test_capacity_returns_only_after_a_commit(tmp_path: Path) -> None:
    store, session_id, story = await store_with_open_turn(tmp_path)
    hold = WriterHold(store, session_id)
    await hold.wait_started()
    delta = Append(session_id, (story.text("x"),))
    waiting = [store.submit(delta) for _ in range(PENDING_APPENDS_MAX - 2)]
    await asyncio.wait_for(store.wait_for_capacity(), 30)
    waiting.append(store.submit(delta))
    blocked = [asyncio.ensure_future(store.wait_for_capacity()) for _ in range(3)]
    appending = asyncio.ensure_future(store.append(accept(session_id, "waits as well")))
    await asyncio.sleep(0.05)
    assert not any(each.done() for each in (*blocked, appending))
    blocked[0].cancel()
    hold.release()
    await asyncio.wait_for(asyncio.gather(*blocked[1:], appending, *waiting, hold.future), 30)
    await store.close()


async def test_readers_do_not_wait_for_a_busy_writer(tmp_path: Path) -> None:
    store, session_id, _ = await store_with_open_turn(tmp_path)
    hold = WriterHold(store, session_id)
    await hold.wait_started()
    assert await asyncio.wait_for(store.head(session_id), 30) == 4
    assert len((await asyncio.wait_for(store.messages(session_id, None, 10), 30)).messages) == 2
    hold.release()
    await hold.future
    await store.close()


async def test_closing_commits_submitted_appends_and_refuses_new_ones(tmp_path: Path) -> None:
    store, session_id, story = await store_with_open_turn(tmp_path)
    hold = WriterHold(store, session_id)
    await hold.wait_started()
    waiting = [store.submit(Append(session_id, (story.text("x"),)))]
    waiting += [store.submit(Append(SessionId("s_none"), (story.text("x"),)))]
    closing = asyncio.ensure_future(store.close())
    await asyncio.sleep(0.01)
    with pytest.raises(StoreClosed):
        store.submit(Append(session_id, (story.text("late"),)))
    hold.release()
    await closing
    assert (await waiting[0])[0].last_seq == 5
    with pytest.raises(NoSuchSession):
        await waiting[1]


async def test_a_failed_writer_fails_every_pending_append(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, session_id, story = await store_with_open_turn(tmp_path)
    seen: list[type[BaseException] | None] = []
    monkeypatch.setattr(threading, "excepthook", lambda about: seen.append(about.exc_type))
    hold = WriterHold(store, session_id)
    await hold.wait_started()

    def fail(idle: bool) -> bool:
        raise ZeroDivisionError

    monkeypatch.setattr(store._writer._committer, "housekeep", fail)
    waiting = store.submit(Append(session_id, (story.text("x"),)))
    hold.release()
    await hold.future
    with pytest.raises(StoreClosed):
        await asyncio.wait_for(waiting, 30)
    with pytest.raises(StoreClosed):
        await store.append(accept(session_id, "too late"))
    await store.close()
    async with asyncio.timeout(30):
        while not seen:  # noqa: ASYNC110 - The thread says so last of all.
            await asyncio.sleep(0.01)
    assert seen == [ZeroDivisionError]


def ticket(fact: f.AnyFact, expect: int | None = None) -> PendingWrite:
    return PendingWrite(
        asyncio.get_running_loop().create_future(), (Append(SessionId("s"), (fact,), expect),)
    )


async def test_joined_text_is_bounded_in_bytes() -> None:
    story = TurnEvents()
    story.step_started()
    first = ticket(story.text("é" * (DELTA_BYTES_MAX // 2 - 1)))
    assert first.try_merge(ticket(story.text("é")))
    assert not first.try_merge(ticket(story.text("x")))
    assert first.weight == 2


async def test_what_is_not_one_delta_joins_nothing() -> None:
    story = TurnEvents()
    story.step_started()
    delta, rename = story.text("x"), f.SessionRenamed("x", "user")
    assert not ticket(delta).try_merge(ticket(rename))
    assert not ticket(rename).try_merge(ticket(rename))
    assert not ticket(delta, expect=3).try_merge(ticket(delta))
    assert not ticket(delta).try_merge(ticket(delta, expect=3))
    assert ticket(delta).try_merge(ticket(delta))


async def test_change_listeners_run_in_order_before_the_append_returns(tmp_path: Path) -> None:
    store, session_id, story = await store_with_open_turn(tmp_path)
    changes: list[CommittedChange] = []
    store.add_change_listener(changes.append)
    head = await store.head(session_id)
    (first,) = await store.append(Append(session_id, (story.text("one "),)))
    assert [change.events[0].seq for change in changes] == [head + 1]
    await asyncio.gather(
        store.append(Append(session_id, (f.SessionRenamed("A title", "user"),))),
        store.append(Append(session_id, ())),
        store.append(accept(session_id, "More", key="k")),
    )
    numbers = [(change.first_seq, change.last_seq, len(change.events)) for change in changes]
    assert numbers[:3] == [(head + 1, head + 1, 1), (head + 2, head + 2, 1), (head + 3, head + 2, 0)]
    assert [change.context_before for change in changes[1:]] == [
        change.context_after for change in changes[:-1]
    ]
    assert changes[0].context_after == first.context_after
    await store.close()


async def test_refused_and_repeated_appends_are_not_reported(tmp_path: Path) -> None:
    store, session_id, _ = await store_with_open_turn(tmp_path)
    await store.append(accept(session_id, "More", key="k"))
    changes: list[CommittedChange] = []
    store.add_change_listener(changes.append)
    (again,) = await store.append(accept(session_id, "More", key="k"))
    assert again.repeated_turn is not None
    with pytest.raises(NoSuchSession):
        await store.append(Append(SessionId("s_nowhere"), ()))
    assert changes == []
    await store.close()


async def test_an_import_is_reported_without_context_versions(tmp_path: Path) -> None:
    store, session_id, _ = await store_with_open_turn(tmp_path / "from")
    there = await SqliteStore.open(tmp_path / "to")
    changes: list[CommittedChange] = []
    there.add_change_listener(changes.append)
    events = await store.read(session_id, 0, 100)
    assert await there.import_session(session_id, events) == len(events)
    assert [change.events[0].seq for change in changes] == [event.seq for event in events]
    assert {change.context_before for change in changes} == {None}
    await store.close()
    await there.close()
