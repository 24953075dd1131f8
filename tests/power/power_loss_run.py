"""Run a store on a recorded disk, and check what is left after a loss of power at any step."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from pathlib import Path

from holdfast.domain.clock import SystemClock
from holdfast.domain.events import facts as f
from holdfast.domain.ids import IdGenerator, RunId, SessionId
from holdfast.store.ports import Append, AppendReceipt, Durability
from holdfast.store.sqlite.store import SqliteStore
from tests.crash.writer_history import temporary_store_folder
from tests.power.disk import Files, SimulatedDisk, lay_out
from tests.power.recording import Record, Sync, recording
from tests.support.durability_checker import (
    DurabilityReport,
    ExpectedChange,
    Journals,
    check_durability,
    read_journals,
)
from tests.support.store_client import AttemptedChange, ObservedClient
from tests.support.store_workload import JumpingClock, Workload

STORE = Path("new") / "store"
"""Two folders that the store has to make for itself."""
CONVERSATIONS, TURNS = 5, 4
WAL_BYTES_MAX = 200_000
"""Small, so that the log is checkpointed many times while there is work."""


class AckHistory:
    """The requests and acknowledgements of clients, each with the step of the record it came after."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.promises: list[ExpectedChange] = []
        self.pruned = 0
        self._deleting_from: dict[SessionId, int] = {}

    def on_attempt(self, change: AttemptedChange, session_id: SessionId) -> None:
        return

    def on_stored(self, change: AttemptedChange, receipts: Sequence[AppendReceipt]) -> None:
        first = {receipt.session_id: receipt.first_seq for receipt in receipts}
        self.promises.append(ExpectedChange(dict(change.digests), first, len(self.record)))

    def on_delete(self, session_id: SessionId) -> None:
        self._deleting_from[session_id] = len(self.record)

    def on_claim(self, run_id: RunId) -> None:
        return

    def moments(self) -> list[int]:
        """Return the steps after which something was acknowledged."""
        return sorted({promise.due_from for promise in self.promises})

    def checkpoints(self) -> int:
        """Return how often the log was checkpointed after the first acknowledgement."""
        steps = self.record.steps[self.moments()[0] :]
        return sum(isinstance(step, Sync) and step.path.suffix == ".db" for step in steps)

    def judge(self, journals: Journals, moment: int) -> DurabilityReport:
        return check_durability(
            self.promises,
            journals,
            lambda promise: promise.due_from <= moment,
            lambda session: self._deleting_from.get(session, moment + 1) <= moment,
        )


def run_recorded_workload(root: Path, durability: Durability, seed: int) -> AckHistory:
    """Run the workload of a store below `root`, and record all of it."""
    root.mkdir()
    history = AckHistory(Record(root))
    with recording(history.record, "recording"):
        asyncio.run(_run_two_processes(root / STORE, durability, seed, history))
    return history


async def _run_two_processes(folder: Path, durability: Durability, seed: int, history: AckHistory) -> None:
    """Run one process that is always short of log, then one with much of it that is idle for a while."""
    rng, clock = random.Random(seed), JumpingClock()
    for wal_bytes_max, blob_bytes in ((WAL_BYTES_MAX, 50_000), (64_000_000, 2_300_000)):
        store = await SqliteStore.open(
            folder, durability, clock=clock, vfs="recording", wal_bytes_max=wal_bytes_max
        )
        workload = Workload(ObservedClient(store, history), clock, rng)
        await workload.recover()
        await workload.run(CONVERSATIONS, TURNS)
        await store.put_blob(rng.randbytes(blob_bytes))
        await asyncio.sleep(0.1)
        clock.advance(7_200_000)
        history.pruned += (await workload.sweep()).deltas
        await workload.run(2, 1)
        await store.close()


def images(record: Record, moments: Sequence[int], rng: random.Random | None) -> Iterator[tuple[int, Files]]:
    """Yield what is left at each of `moments` (ascending): with `chance`, torn; without, only synced data."""
    disk, done = SimulatedDisk(record.root), 0
    for moment in moments:
        for step in record.steps[done:moment]:
            disk.apply(step)
        done = moment
        yield moment, disk.after_power_loss(rng)


def verdict_on(history: AckHistory, files: Files, moment: int, thorough: bool = True) -> DurabilityReport:
    """Open what is left as any process would, compare it, and go on writing to it."""
    with temporary_store_folder() as target:
        lay_out(files, history.record.root, target)
        return asyncio.run(_examine(target / STORE, history, moment, thorough))


async def _examine(folder: Path, history: AckHistory, moment: int, thorough: bool) -> DurabilityReport:
    store = await SqliteStore.open(folder)
    try:
        verdict = history.judge(await read_journals(store), moment)
        if thorough:
            verdict.findings = await store.check(False, lambda done, total: None)
        session_id = IdGenerator(SystemClock()).session()
        await store.append(Append(session_id, (f.SessionCreated(title="after"),), expect=0))
        assert await store.head(session_id) == 1
        return verdict
    finally:
        await store.close()
