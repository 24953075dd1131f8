"""A process that writes to a store until it is killed, and prints every acknowledgement.

    python -m tests.crash.writer_process FOLDER SEED HOURS              until someone kills it
    python -m tests.crash.writer_process FOLDER SEED HOURS POINT N …    kills itself at each call N of POINT
    python -m tests.crash.writer_process FOLDER SEED HOURS crowd N …    several at once make each store N

Lines: `try CHANGE SESSION:0:DIGESTS` before a change can be stored, `ack CHANGE SESSION:SEQ:DIGESTS …` after
its receipt, `del SESSION`, `lease RUN`, `open`. Each is one write: it is printed whole or not at all.
"""

import asyncio
import os
import random
import sys
import traceback
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import MappingProxyType

from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import RunId, SessionId
from holdfast.store.ports import Append, AppendReceipt
from holdfast.store.sqlite.store import SqliteStore
from tests.crash.fatal_vfs import CrashTrigger, FatalVFS
from tests.support.store_client import AttemptedChange, ObservedClient
from tests.support.store_workload import JumpingClock, Workload

HOUR_MS = 3_600_000
CONVERSATIONS = 4
CROWD = 5
WAL_BYTES_MAX = 400_000


class AckPrinter:
    """Print every attempt and acknowledgement."""

    def __init__(self, prefix: str = "", name: str = "") -> None:
        self._prefix = prefix
        self._name = name

    def write_line(self, *words: object) -> None:
        os.write(1, (self._prefix + " ".join(map(str, words)) + "\n").encode())

    def on_attempt(self, change: AttemptedChange, session_id: SessionId) -> None:
        self.write_line(
            "try", f"{self._name}{change.number}", f"{session_id}:0:{','.join(change.digests[session_id])}"
        )

    def on_stored(self, change: AttemptedChange, receipts: Sequence[AppendReceipt]) -> None:
        first = {receipt.session_id: receipt.first_seq for receipt in receipts}
        appended = (
            f"{session}:{first[session]}:{','.join(events)}" for session, events in change.digests.items()
        )
        self.write_line("ack", f"{self._name}{change.number}", *appended)

    def on_delete(self, session_id: SessionId) -> None:
        self.write_line("del", session_id)

    def on_claim(self, run_id: RunId) -> None:
        self.write_line("lease", run_id)


async def write_until_killed(folder: Path, seed: int, hours: int) -> None:
    rng, clock, teller = random.Random(seed), JumpingClock(hours * HOUR_MS), AckPrinter()
    store = await SqliteStore.open(folder, clock=clock, wal_bytes_max=WAL_BYTES_MAX)
    teller.write_line("open")
    workload = Workload(ObservedClient(store, teller), clock, rng, pause_s=0.001)
    async with asyncio.TaskGroup() as group:
        group.create_task(_maintain(store, random.Random(seed + 1), folder))
        await workload.recover()
        while True:
            await workload.run(CONVERSATIONS, 6)


async def _maintain(store: SqliteStore, rng: random.Random, folder: Path) -> None:
    """Do the other work of a server: searches, sweeps, a backup now and then."""
    while True:
        await asyncio.sleep(rng.random() * 0.2)
        match rng.choices(("search", "sweep", "backup"), (5, 3, 1))[0]:
            case "search":
                await store.search("holdfast", 10)
            case "sweep":
                await store.sweep()
            case _:
                await store.backup(folder.parent / f"{os.getpid()}.backup", lambda done, total: None)


class CrashScenario:
    """A store with some history, and the point at which the process dies."""

    def __init__(self, folder: Path, client: ObservedClient, workload: Workload, clock: JumpingClock) -> None:
        self.folder = folder
        self.store = client.store
        self.workload = workload
        self.client = client
        self.clock = clock


Point = Callable[[CrashScenario, Callable[[Callable[[str, str], bool]], None]], Awaitable[object]]


async def _commit(scene: CrashScenario, arm: Callable[..., None]) -> None:
    arm(lambda path, call: path.endswith("-wal") and call in ("write", "sync"))
    await scene.workload.run(CONVERSATIONS, 6)


async def _checkpoint(scene: CrashScenario, arm: Callable[..., None]) -> None:
    arm(lambda path, call: path.endswith(".db") and call in ("write", "truncate", "sync"))
    await scene.workload.run(CONVERSATIONS, 20)


async def _indexing(scene: CrashScenario, arm: Callable[..., None]) -> None:
    turn = f.TurnAccepted(f.TurnId("t_1"), 1, f.MessageId("m_1"), (Text("kelp anchor " * 3_000),))
    await scene.client.append(Append(SessionId("s_words"), (f.SessionCreated(), turn), expect=0))
    # Nothing else is left to write now: whatever reaches the log next are words.
    arm(lambda path, call: path.endswith("-wal") and call in ("write", "sync"))
    await scene.store.search("kelp", 10)


async def _sweep(scene: CrashScenario, arm: Callable[..., None]) -> None:
    await scene.store.search("kelp", 10)
    scene.clock.advance(2 * HOUR_MS)
    arm(lambda path, call: path.endswith(("-wal", ".db")) and call != "read")
    await scene.store.sweep()


async def _backup(scene: CrashScenario, arm: Callable[..., None]) -> None:
    arm(lambda path, call: ".part" in path)
    await scene.store.backup(scene.folder.with_suffix(".backup"), lambda done, total: None)


async def _close(scene: CrashScenario, arm: Callable[..., None]) -> None:
    arm(lambda path, call: call != "read")
    await scene.store.close()


POINTS: Mapping[str, Point] = MappingProxyType({
    "commit": _commit, "checkpoint": _checkpoint, "indexing": _indexing, "sweep": _sweep,
    "backup": _backup, "close": _close,
})  # fmt: skip


async def die_at(folder: Path, seed: int, point: str, number: int) -> None:
    rng, clock, teller = random.Random(f"{seed}.{point}.{number}"), JumpingClock(), AckPrinter(f"{number} ")
    fatality = CrashTrigger(rng)
    vfs = FatalVFS("fatal", fatality)
    if point == "creation":
        fatality.arm(number, lambda path, call: call != "read")
    store = await SqliteStore.open(folder, clock=clock, wal_bytes_max=WAL_BYTES_MAX)
    client = ObservedClient(store, teller)
    workload = Workload(client, clock, rng)
    await workload.run(2, 2)
    if point != "creation":
        scene = CrashScenario(folder, client, workload, clock)
        await POINTS[point](scene, lambda matches: fatality.arm(number, matches))
    del vfs


async def append_numbered_changes(folder: Path, number: int, name: str) -> None:
    """Append to a store that may be being created, and exit without closing it."""
    store = await SqliteStore.open(folder)
    client = ObservedClient(store, AckPrinter(f"{number} ", name))
    await client.append(Append(SessionId(f"s_{name}"), (f.SessionCreated(),), expect=0))
    if number % 2:
        await store.close()


def _in_a_child(work: Callable[[], Coroutine[None, None, None]]) -> int:
    """Run in a forked child, so that many deaths need one start of Python."""
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(work())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def _die_one_by_one(folder: Path, seed: int, point: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        _await_end(number, [_in_a_child(partial(die_at, folder / str(number), seed, point, number))])


def _run_concurrently(folder: Path, numbers: Sequence[int]) -> None:
    for number in numbers:
        arrivals = [
            partial(append_numbered_changes, folder / str(number), number, f"{number}-{i}-")
            for i in range(CROWD)
        ]
        _await_end(number, [_in_a_child(arrival) for arrival in arrivals])


def _await_end(number: int, children: Sequence[int]) -> None:
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    AckPrinter(f"{number} ").write_line("ended", min(ends) or max(ends))


def main(arguments: Sequence[str]) -> None:
    folder, seed, hours, *point = arguments
    if point and point[0] == "crowd":
        _run_concurrently(Path(folder), [int(number) for number in point[1:]])
    elif point:
        _die_one_by_one(Path(folder), int(seed), point[0], [int(number) for number in point[1:]])
    else:
        asyncio.run(write_until_killed(Path(folder), int(seed), int(hours)))


if __name__ == "__main__":
    main(sys.argv[1:])
