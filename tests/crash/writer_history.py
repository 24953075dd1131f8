"""The acknowledgements of the dead writers of one folder, and the check that the store still has them."""

import asyncio
import os
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from holdfast.domain.errors import LeaseHeld, NoSuchRun, RunRefused
from holdfast.domain.ids import RunId, SessionId
from holdfast.store.sqlite.store import SqliteStore
from tests.crash.writers import WriterLog
from tests.support.durability_checker import DurabilityReport, ExpectedChange, check_durability, read_journals


def run_seed() -> int:
    """Return HOLDFAST_SEED to replay a run, else a new seed."""
    seed = int(os.environ.get("HOLDFAST_SEED") or random.SystemRandom().getrandbits(32))
    print(f"seed={seed}")
    return seed


def kill_count() -> int:
    """Return HOLDFAST_KILLS: `make crash` asks for more than `make test`."""
    return int(os.environ.get("HOLDFAST_KILLS") or 5)


@contextmanager
def temporary_store_folder() -> Iterator[Path]:
    """Yield a folder for a store that need not outlast the test."""
    memory = Path("/dev/shm")  # Where syncs cost nothing.
    folder = tempfile.mkdtemp(prefix="holdfast-", dir=memory if os.access(memory, os.W_OK) else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class WriterHistory:
    """The acknowledgements of the dead writers of one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kills = self.acks = 0
        self._promises: list[ExpectedChange] = []
        self._deleting: set[SessionId] = set()

    def add_dead(self, log: WriterLog) -> None:
        self.kills += 1
        self.acks += log.acks
        self._promises += log.promises.values()
        self._deleting |= log.deleting

    def check(self, living: Sequence[WriterLog] = ()) -> DurabilityReport:
        """Open the store and compare. The acknowledgements of living writers so far count too."""
        # Not what they only tried: such a change over two sessions may come between our reads of them.
        alive = [promise for log in living for promise in list(log.promises.values()) if promise.first]
        return asyncio.run(self._check(alive, living))

    def has_leases(self, log: WriterLog, last: int = 5) -> bool:
        """Return whether the last runs that a living writer claimed cannot be taken from it."""
        return asyncio.run(self._has_leases(log.leases[-last:]))

    async def _check(self, alive: list[ExpectedChange], living: Sequence[WriterLog]) -> DurabilityReport:
        store = await SqliteStore.open(self.folder)
        try:
            journals = await read_journals(store)
            deleting = self._deleting.union(*(log.deleting for log in living))
            promises = self._promises + alive
            report = check_durability(
                promises, journals, lambda each: bool(each.first), lambda each: each in deleting
            )
            report.findings = await store.check(False, lambda done, total: None)
            if not living:
                # Every lease of the dead is free at once, however long it had to run.
                for _, run in await store.open_runs():
                    await store.release(await store.claim(run.id, 1))
            return report
        finally:
            await store.close()

    async def _has_leases(self, runs: Sequence[RunId]) -> bool:
        store = await SqliteStore.open(self.folder)
        try:
            for run in runs:
                try:
                    await store.claim(run, 1)
                    return False
                except (LeaseHeld, RunRefused, NoSuchRun):
                    continue  # Held, or over by now.
            return True
        finally:
            await store.close()
