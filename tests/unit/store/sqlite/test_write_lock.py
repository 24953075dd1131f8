"""Writers of several processes take turns and wait for each other; only a long stall is a fault."""

import asyncio
import fcntl
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest

from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import StoreBusy
from holdfast.domain.ids import IdGenerator
from holdfast.store.sqlite.connection import WRITE_WAIT_S
from holdfast.store.sqlite.processes import ProcessLock
from holdfast.store.sqlite.store import SqliteStore
from holdfast.store.sqlite.write_lock import WriteLock
from tests.support.turn_events import accept, created

ROOT = Path(__file__).resolve().parents[4]
HOLD_TURN = """
import fcntl, sys
locks = [open(sys.argv[1] + "/" + name, "r+") for name in ("write.next.lock", "write.lock")]
for lock in locks:
    fcntl.flock(lock, fcntl.LOCK_EX)
print("held", flush=True)
sys.stdin.readline()
"""
WRITE_FAST = """
import asyncio, sys, time
from pathlib import Path
from holdfast.store.sqlite.store import SqliteStore
from tests.support.turn_events import accept, created

async def main():
    store = await SqliteStore.open(Path(sys.argv[1]))
    new = created()
    await store.append(new)
    print("ready", flush=True)
    sys.stdin.readline()
    count, worst, end = 0, 0.0, time.monotonic() + float(sys.argv[2])
    while time.monotonic() < end:
        start = time.monotonic()
        await store.append(accept(new.session_id, "x" * 100))
        worst, count = max(worst, time.monotonic() - start), count + 1
    print(count, worst, flush=True)
    await store.close()

asyncio.run(main())
"""


@contextmanager
def process(code: str, *words: str) -> Iterator["subprocess.Popen[str]"]:
    command = [sys.executable, "-c", code, *words]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **pipes) as child:  # type: ignore[call-overload]
        try:
            yield child
        finally:
            child.kill()


async def read_line(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return (await asyncio.to_thread(child.stdout.readline)).strip()


def send_go(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None
    child.stdin.write("go\n")
    child.stdin.flush()


async def test_a_stall_shorter_than_the_timeout_only_delays(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, wait_s=20)
    new = created()
    await store.append(new)
    with process(HOLD_TURN, str(tmp_path)) as child:
        assert await read_line(child) == "held"
        waiting = asyncio.ensure_future(store.append(accept(new.session_id, "patient")))
        await asyncio.sleep(0.3)
        assert not waiting.done()
        assert await store.head(new.session_id) == 1, "readers do not wait for writers"
        send_go(child)
        await waiting
    await store.close()


async def test_a_stall_longer_than_the_timeout_is_a_transient_fault(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, wait_s=0.5)
    new = created()
    await store.append(new)
    with process(HOLD_TURN, str(tmp_path)) as child:
        assert await read_line(child) == "held"
        with pytest.raises(StoreBusy) as busy:
            await store.append(accept(new.session_id, "impatient"))
        assert str(tmp_path) in busy.value.advice
        assert await store.head(new.session_id) == 1
        send_go(child)
        child.wait(30)
    await store.append(accept(new.session_id, "at last"))
    assert await store.head(new.session_id) == 2
    await store.close()


async def test_a_killed_holder_holds_nothing(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, wait_s=20)
    new = created()
    await store.append(new)
    with process(HOLD_TURN, str(tmp_path)) as child:
        assert await read_line(child) == "held"
        waiting = asyncio.ensure_future(store.append(accept(new.session_id, "patient")))
        await asyncio.sleep(0.05)
        child.kill()
        await asyncio.wait_for(waiting, 30)
    await store.close()


@pytest.mark.parametrize("wait_s", [0.4, 20])
async def test_the_store_waits_for_a_foreign_lock_on_the_file(tmp_path: Path, wait_s: float) -> None:
    store = await SqliteStore.open(tmp_path, wait_s=wait_s)
    new = created()
    await store.append(new)
    other_connection = apsw.Connection(str(tmp_path / "holdfast.db"))
    other_connection.set_busy_timeout(5_000)
    other_connection.execute("BEGIN IMMEDIATE")
    waiting = asyncio.ensure_future(store.append(accept(new.session_id, "locked out")))
    if wait_s < 1:
        with pytest.raises(StoreBusy):
            await waiting
    else:
        await asyncio.sleep(0.3)
        assert not waiting.done()
    other_connection.execute("ROLLBACK")
    other_connection.close()
    if wait_s > 1:
        await waiting
    await store.append(accept(new.session_id, "free again"))
    await store.close()


async def test_events_of_other_processes_arrive_while_waiting_for_the_write_lock(tmp_path: Path) -> None:
    store, other = await SqliteStore.open(tmp_path, wait_s=120), await SqliteStore.open(tmp_path)
    new, rung = created(), asyncio.Event()
    await store.append(new)
    turn = WriteLock(tmp_path, 5)
    # A tail looks by itself after a while. This reader learns only what is sent to it.
    with store.follow(new.session_id, 1, rung.set) as follower, turn.hold(lambda: None):
        assert list(await follower.next_events()) == []
        waiting = [store.submit(accept(new.session_id, "mine"))]
        await asyncio.sleep(0.05)
        # Another writer got in before; here it writes without the turn, as if it had just given it back.
        other_connection = apsw.Connection(str(tmp_path / "holdfast.db"))
        other_connection.execute(
            "INSERT INTO events (session, seq, at, kind, version, body)"
            " SELECT no, 2, 0, 'session_renamed', 1, ? FROM sessions",
            (b'{"title":"x","by":"user"}',),
        )
        other_connection.close()
        await asyncio.wait_for(rung.wait(), 30)
        assert [event.seq for event in await follower.next_events()] == [2]
    turn.close()
    await asyncio.gather(*waiting)
    for each in (store, other):
        await each.close()


async def test_two_processes_that_write_as_fast_as_they_can_both_get_on(tmp_path: Path) -> None:
    await (await SqliteStore.open(tmp_path)).close()
    with process(WRITE_FAST, str(tmp_path), "2") as one, process(WRITE_FAST, str(tmp_path), "2") as two:
        for child in (one, two):
            assert await read_line(child) == "ready"
        for child in (one, two):
            send_go(child)
        reports = [(await read_line(child)).split() for child in (one, two)]
        assert [child.wait(30) for child in (one, two)] == [0, 0]
    counts, waits = [int(count) for count, _ in reports], [float(wait) for _, wait in reports]
    print(f"two writers: {counts} appends, worst wait {max(waits) * 1000:.0f} ms")
    assert min(counts) > max(counts) / 5
    assert max(waits) < WRITE_WAIT_S
    store = await SqliteStore.open(tmp_path)
    assert sum(row.last_turn for row in (await store.sessions(None, 10)).sessions) == sum(counts)
    await store.close()


def test_a_writer_that_comes_back_at_once_queues_behind_one_that_waits(tmp_path: Path) -> None:
    order: list[str] = []
    one, two = WriteLock(tmp_path, 30), WriteLock(tmp_path, 30)
    waiting = threading.Event()

    def wait_for_turn() -> None:
        with two.hold(waiting.set):
            order.append("two")

    thread = threading.Thread(target=wait_for_turn)
    with one.hold(lambda: None):
        thread.start()
        assert waiting.wait(30)
        order.append("one")
    with one.hold(lambda: None):
        order.append("one again")
    thread.join()
    assert order == ["one", "two", "one again"]
    one.close()
    two.close()


def test_a_write_lock_timeout_raises_and_leaves_no_lock(tmp_path: Path) -> None:
    one, two = WriteLock(tmp_path, 120), WriteLock(tmp_path, 0.1)
    with one.hold(lambda: None):
        start = time.monotonic()
        with pytest.raises(StoreBusy), two.hold(lambda: None):
            pytest.fail("two writers at once")
        assert time.monotonic() - start < 20
    with two.hold(lambda: None):
        pass
    one.close()
    two.close()


def ids() -> IdGenerator:
    return IdGenerator(SystemClock())


def test_a_process_is_alive_as_long_as_it_holds_its_lock(tmp_path: Path) -> None:
    me = ProcessLock(tmp_path, ids().process())
    other = ProcessLock(tmp_path, ids().process())
    assert me.is_alive(me.process_id) and me.is_alive(other.process_id)
    assert me.living_others() == [other.process_id]
    other.release()
    other.release()
    assert not me.is_alive(other.process_id)
    assert me.living_others() == []
    assert not me.is_alive(ids().process())
    me.release()


def test_a_lock_file_left_by_a_killed_process_means_dead_and_is_cleared_away(tmp_path: Path) -> None:
    me = ProcessLock(tmp_path, ids().process())
    left = tmp_path / "processes" / f"{ids().process()}.lock"
    left.touch()
    assert me.living_others() == []
    assert not left.exists()
    me.release()


def test_a_child_process_does_not_inherit_the_process_lock(tmp_path: Path) -> None:
    mine = ProcessLock(tmp_path, ids().process())
    with process("import sys; print('up', flush=True); sys.stdin.readline()") as child:
        assert child.stdout is not None and child.stdout.readline() == "up\n"
        watcher = ProcessLock(tmp_path, ids().process())
        mine.release()
        assert not watcher.is_alive(mine.process_id)
        watcher.release()


def test_locks_that_are_only_looked_at_are_left_alone(tmp_path: Path) -> None:
    me, other = ProcessLock(tmp_path, ids().process()), ProcessLock(tmp_path, ids().process())
    for _ in range(50):
        assert me.is_alive(other.process_id)
        assert other.is_alive(me.process_id)
    path = tmp_path / "processes" / f"{other.process_id}.lock"
    handle = os.open(path, os.O_RDWR)
    with pytest.raises(BlockingIOError):
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(handle)
    me.release()
    other.release()
