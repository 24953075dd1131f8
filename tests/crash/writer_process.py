"""A process that writes to a store until it is killed, and says on its standard output what it was promised.

    python -m tests.crash.writer_process FOLDER SEED HOURS              until someone kills it
    python -m tests.crash.writer_process FOLDER SEED HOURS POINT N …    kills itself at each call N of POINT
    python -m tests.crash.writer_process FOLDER SEED HOURS crowd N …    several at once make each store N

Lines: `try CHANGE SESSION:0:DIGESTS` before a change can be stored, `ack CHANGE SESSION:SEQ:DIGESTS …` after
its receipt, `del SESSION`, `lease RUN`, `open`. Each is one write: it is there whole or not at all.
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
from holdfast.store.ports import Append, Receipt
from holdfast.store.sqlite.store import SqliteStore
from tests.crash.fatal_vfs import Fatality, FatalVFS
from tests.support.store_client import Change, Client
from tests.support.store_workload import JumpingClock, Workload

HOUR_MS = 3_600_000
CONVERSATIONS = 4
CROWD = 5
WAL_BYTES_MAX = 400_000


class Teller:
    """A witness who tells it to whoever reads our output."""

    def __init__(self, prefix: str = "", name: str = "") -> None:
        self._prefix = prefix
        self._name = name

    def say(self, *words: object) -> None:
        os.write(1, (self._prefix + " ".join(map(str, words)) + "\n").encode())

    def tried(self, change: Change, session_id: SessionId) -> None:
        self.say(
            "try", f"{self._name}{change.number}", f"{session_id}:0:{','.join(change.tried[session_id])}"
        )

    def stored(self, change: Change, receipts: Sequence[Receipt]) -> None:
        first = {receipt.session_id: receipt.first_seq for receipt in receipts}
        told = (f"{session}:{first[session]}:{','.join(events)}" for session, events in change.tried.items())
        self.say("ack", f"{self._name}{change.number}", *told)

    def deleting(self, session_id: SessionId) -> None:
        self.say("del", session_id)

    def claimed(self, run_id: RunId) -> None:
        self.say("lease", run_id)


async def write_until_killed(folder: Path, seed: int, hours: int) -> None:
    chance, clock, teller = random.Random(seed), JumpingClock(hours * HOUR_MS), Teller()
    store = await SqliteStore.open(folder, clock=clock, wal_bytes_max=WAL_BYTES_MAX)
    teller.say("open")
    workload = Workload(Client(store, teller), clock, chance, pause_s=0.001)
    async with asyncio.TaskGroup() as group:
        group.create_task(_look_after(store, random.Random(seed + 1), folder))
        await workload.recover()
        while True:
            await workload.run(CONVERSATIONS, 6)


async def _look_after(store: SqliteStore, chance: random.Random, folder: Path) -> None:
    """What else goes on in a server: searches, sweeps, a backup now and then."""
    while True:
        await asyncio.sleep(chance.random() * 0.2)
        match chance.choices(("search", "sweep", "backup"), (5, 3, 1))[0]:
            case "search":
                await store.search("holdfast", 10)
            case "sweep":
                await store.sweep()
            case _:
                await store.backup(folder.parent / f"{os.getpid()}.backup", lambda done, total: None)


class Scene:
    """A store with some history in it, at the point of which the process is to die."""

    def __init__(self, folder: Path, client: Client, workload: Workload, clock: JumpingClock) -> None:
        self.folder = folder
        self.store = client.store
        self.workload = workload
        self.client = client
        self.clock = clock


Point = Callable[[Scene, Callable[[Callable[[str, str], bool]], None]], Awaitable[object]]


async def _commit(scene: Scene, arm: Callable[..., None]) -> None:
    arm(lambda path, call: path.endswith("-wal") and call in ("write", "sync"))
    await scene.workload.run(CONVERSATIONS, 6)


async def _checkpoint(scene: Scene, arm: Callable[..., None]) -> None:
    arm(lambda path, call: path.endswith(".db") and call in ("write", "truncate", "sync"))
    await scene.workload.run(CONVERSATIONS, 20)


async def _indexing(scene: Scene, arm: Callable[..., None]) -> None:
    turn = f.TurnAccepted(f.TurnId("t_1"), 1, f.MessageId("m_1"), (Text("kelp anchor " * 3_000),))
    await scene.client.append(Append(SessionId("s_words"), (f.SessionCreated(), turn), expect=0))
    # Nothing else is left to write now: whatever reaches the log next are words.
    arm(lambda path, call: path.endswith("-wal") and call in ("write", "sync"))
    await scene.store.search("kelp", 10)


async def _sweep(scene: Scene, arm: Callable[..., None]) -> None:
    await scene.store.search("kelp", 10)
    scene.clock.jump(2 * HOUR_MS)
    arm(lambda path, call: path.endswith(("-wal", ".db")) and call != "read")
    await scene.store.sweep()


async def _backup(scene: Scene, arm: Callable[..., None]) -> None:
    arm(lambda path, call: ".part" in path)
    await scene.store.backup(scene.folder.with_suffix(".backup"), lambda done, total: None)


async def _close(scene: Scene, arm: Callable[..., None]) -> None:
    arm(lambda path, call: call != "read")
    await scene.store.close()


POINTS: Mapping[str, Point] = MappingProxyType({
    "commit": _commit, "checkpoint": _checkpoint, "indexing": _indexing, "sweep": _sweep,
    "backup": _backup, "close": _close,
})  # fmt: skip


async def die_at(folder: Path, seed: int, point: str, number: int) -> None:
    chance, clock, teller = random.Random(f"{seed}.{point}.{number}"), JumpingClock(), Teller(f"{number} ")
    fatality = Fatality(chance)
    vfs = FatalVFS("fatal", fatality)
    if point == "creation":
        fatality.arm(number, lambda path, call: call != "read")
    store = await SqliteStore.open(folder, clock=clock, wal_bytes_max=WAL_BYTES_MAX)
    client = Client(store, teller)
    workload = Workload(client, clock, chance)
    await workload.run(2, 2)
    if point != "creation":
        scene = Scene(folder, client, workload, clock)
        await POINTS[point](scene, lambda matches: fatality.arm(number, matches))
    del vfs


async def arrive(folder: Path, number: int, name: str) -> None:
    """Come to a store that may just be being made, and leave without a word."""
    store = await SqliteStore.open(folder)
    client = Client(store, Teller(f"{number} ", name))
    await client.append(Append(SessionId(f"s_{name}"), (f.SessionCreated(),), expect=0))
    if number % 2:
        await store.close()


def _in_a_child(work: Callable[[], Coroutine[None, None, None]]) -> int:
    """One start of Python for many deaths."""
    child = os.fork()
    if child == 0:
        try:
            asyncio.run(work())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return child


def _die_in_turn(folder: Path, seed: int, point: str, numbers: Sequence[int]) -> None:
    for number in numbers:
        _await_end(number, [_in_a_child(partial(die_at, folder / str(number), seed, point, number))])


def _come_together(folder: Path, numbers: Sequence[int]) -> None:
    for number in numbers:
        arrivals = [partial(arrive, folder / str(number), number, f"{number}-{i}-") for i in range(CROWD)]
        _await_end(number, [_in_a_child(arrival) for arrival in arrivals])


def _await_end(number: int, children: Sequence[int]) -> None:
    ends = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    Teller(f"{number} ").say("ended", min(ends) or max(ends))


def main(arguments: Sequence[str]) -> None:
    folder, seed, hours, *point = arguments
    if point and point[0] == "crowd":
        _come_together(Path(folder), [int(number) for number in point[1:]])
    elif point:
        _die_in_turn(Path(folder), int(seed), point[0], [int(number) for number in point[1:]])
    else:
        asyncio.run(write_until_killed(Path(folder), int(seed), int(hours)))


if __name__ == "__main__":
    main(sys.argv[1:])
