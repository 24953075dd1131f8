"""A process that opens a store of an older format and dies while the store is migrated.

    python -m tests.crash.migrating_process DATA TRIALS

For each N, `TRIALS/vfs-N` becomes a copy of the folder DATA. A child opens the store there and kills itself
at the Nth call that changes a database file: before, during or after it. `TRIALS/os-N` is the same for calls
that change other files and names of the folder. A series ends with the first N that the child outlives.
"""

import asyncio
import os
import random
import shutil
import signal
import sys
from collections.abc import Callable
from itertools import count
from pathlib import Path

from holdfast.store.sqlite.store import SqliteStore
from tests.crash.fatal_vfs import CrashTrigger, FatalVFS
from tests.crash.restoring_process import die_at

CHANGES = frozenset({"write", "sync", "truncate", "delete"})


def die_in_vfs(number: int) -> FatalVFS:
    """Have this process kill itself at a call to SQLite's files, for as long as the result is referenced."""
    trigger = CrashTrigger(random.Random(number))
    trigger.arm(number, lambda path, call: call in CHANGES)
    return FatalVFS("fatal", trigger)


def run_series(data: Path, trials: Path, name: str, arm: Callable[[int], object]) -> None:
    """Kill one child after another, each at a later call, until a child ends by itself."""
    for number in count(1):
        folder = trials / f"{name}-{number}"
        shutil.copytree(data, folder)
        child = os.fork()
        if child == 0:
            armed = arm(number)
            asyncio.run(open_and_close(folder))
            del armed
            os._exit(0)
        ended = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if ended == 0:
            return
        assert ended == -signal.SIGKILL, f"{folder.name} ended with {ended}"


async def open_and_close(folder: Path) -> None:
    store = await SqliteStore.open(folder)
    await store.close()


if __name__ == "__main__":
    source, target = map(Path, sys.argv[1:])
    run_series(source, target, "vfs", die_in_vfs)
    run_series(source, target, "os", die_at)
