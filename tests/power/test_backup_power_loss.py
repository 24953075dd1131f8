"""Whenever the power went: a backup is there whole or not at all, a restored store old or new."""

import asyncio
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import IdGenerator
from holdfast.store.sqlite import restore
from holdfast.store.sqlite.store import SqliteStore
from tests.crash.writer_history import run_seed, temporary_store_folder
from tests.power.disk import Files, SimulatedDisk, lay_out
from tests.power.recording import Record, Write, recording
from tests.support.durability_checker import Journals, read_journals
from tests.support.store_client import NullObserver, ObservedClient
from tests.support.store_workload import JumpingClock, Workload

VARIANTS = 4
"""How often each moment is tried with other parts of what was not synced."""
WRITES_TRIED = 8
"""Of the many plain writes, how many are moments to lose power at. Everything else is one."""


@pytest.fixture
def random_source() -> random.Random:
    return random.Random(run_seed())


def test_a_backup_appears_whole_or_not_at_all(tmp_path: Path, random_source: random.Random) -> None:
    root, record = tmp_path, Record(tmp_path)
    wanted = asyncio.run(_fill(root / "store", random_source))
    disk = SimulatedDisk.holding(root)
    with recording(record, "recording-copies", everywhere=True):
        asyncio.run(_back_up(root / "store", root / "copy.db"))
    for is_last, files in _states_after_power_loss(record, disk, random_source):
        copied = files.get(record.root / "copy.db")
        assert copied is not None or not is_last, "a backup that was reported as done is not there"
        if copied is not None:
            with temporary_store_folder() as target:
                (target / "copy.db").write_bytes(copied)
                restore.restore(
                    target / "store",
                    target / "copy.db",
                    IdGenerator(SystemClock()).process(),
                    _ignore_progress,
                )
                assert asyncio.run(_read(target / "store")) == wanted


def test_a_restored_store_is_the_old_one_or_the_new_one(tmp_path: Path, random_source: random.Random) -> None:
    root, record = tmp_path / "disk", Record(tmp_path / "disk")
    root.mkdir()
    new = asyncio.run(_fill(root / "other", random_source))
    asyncio.run(_back_up(root / "other", root / "copy.db"))
    old = asyncio.run(_fill(tmp_path / "origin", random_source, root / "store"))
    disk = SimulatedDisk.holding(root)
    assert (root / "store" / "holdfast.db-wal").stat().st_size > 0, "it should have died with a log"
    with recording(record, "recording-copies", everywhere=True):
        replaced = restore.restore(
            root / "store", root / "copy.db", IdGenerator(SystemClock()).process(), _ignore_progress
        )
    for is_last, files in _states_after_power_loss(record, disk, random_source):
        with temporary_store_folder() as target:
            lay_out(files, record.root, target)
            found = asyncio.run(_read(target / "store"))
            assert found == new or (found == old and not is_last)
    kept = replaced.store
    assert kept is not None
    with temporary_store_folder() as target:
        shutil.copytree(kept.parent, target / "store")
        (target / "store" / kept.name).rename(target / "store" / "holdfast.db")
        assert asyncio.run(_read(target / "store")) == old, "what was set aside is not the old store"


def _states_after_power_loss(
    record: Record, disk: SimulatedDisk, rng: random.Random
) -> Iterator[tuple[bool, Files]]:
    """Every moment, with only what was synced and then with some of the rest; and whether it is the last."""
    writes = [i for i, step in enumerate(record.steps) if isinstance(step, Write)]
    skipped = set(writes) - set(rng.sample(writes, min(len(writes), WRITES_TRIED)))
    for i, step in enumerate([*record.steps, None]):
        for torn in (None, *([rng] * VARIANTS)) if i not in skipped else ():
            yield step is None, disk.after_power_loss(torn)
        if step is not None:
            disk.apply(step)


async def _fill(folder: Path, rng: random.Random, dying: Path | None = None) -> Journals:
    """A store with something in it; `dying` is what a kill would have left of it, log and all."""
    clock = JumpingClock()
    store = await SqliteStore.open(folder, clock=clock)
    await Workload(ObservedClient(store, NullObserver()), clock, rng).run(2, 2)
    journals = await read_journals(store)
    if dying is not None:
        shutil.copytree(folder, dying)
    await store.close()
    return journals


async def _back_up(folder: Path, path: Path) -> None:
    store = await SqliteStore.open(folder)
    await store.backup(path, _ignore_progress)
    await store.close()


async def _read(folder: Path) -> Journals:
    store = await SqliteStore.open(folder)
    try:
        assert await store.check(False, _ignore_progress) == []
        return await read_journals(store)
    finally:
        await store.close()


def _ignore_progress(done: int, total: int) -> None:
    return
