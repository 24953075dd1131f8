"""A killed migration leaves the old format or the new one, and a backup of the old one."""

import asyncio
import subprocess
import sys
from pathlib import Path

import apsw

from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import IdGenerator
from holdfast.store.sqlite.migrate import FORMAT
from holdfast.store.sqlite.restore import restore
from holdfast.store.sqlite.store import SqliteStore
from tests.support.older_data import write_backup

ROOT = Path(__file__).resolve().parents[2]
OLD, NEW = {"debts", "shelf", "note_tellings"}, {"memory_queue", "key_values", "note_commits"}


def restore_old(folder: Path) -> Path:
    """Make `folder` a data folder of format 6."""
    backup = folder.with_suffix(".tar")
    write_backup(backup)
    restore(folder, backup, IdGenerator(SystemClock()).process(), lambda done, total: None)
    return folder


def schema_of(file: Path) -> tuple[int, set[str]]:
    """Return the format of a store and which of the renamed tables it has."""
    db = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        assert db.execute("PRAGMA integrity_check").get == "ok"
        tables = {name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
        return int(db.pragma("user_version")), tables & (OLD | NEW)
    finally:
        db.close()


async def read_everything(folder: Path) -> list[object]:
    """Open the store as a server does; return every conversation's row and the memory queue."""
    store = await SqliteStore.open(folder)
    try:
        assert list(await store.check(False, lambda done, total: None)) == []
        rows = (await store.sessions(None, 100)).sessions
        queue = await store.pending_commits(100)
        return [rows, queue, [await store.queued_commits(row.id) for row in rows]]
    finally:
        await store.close()


def test_a_migration_killed_at_any_point_leaves_the_old_format_or_the_new_one(tmp_path: Path) -> None:
    data, trials = restore_old(tmp_path / "data"), tmp_path / "trials"
    trials.mkdir()
    command = [sys.executable, "-m", "tests.crash.migrating_process", str(data), str(trials)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    folders = sorted(trials.iterdir())
    assert len([each for each in folders if each.name.startswith("vfs-")]) > 50
    assert len([each for each in folders if each.name.startswith("os-")]) > 5
    before = asyncio.run(read_everything(restore_old(tmp_path / "whole")))
    found = set()
    for folder in folders:
        version, tables = schema_of(folder / "holdfast.db")
        assert (version, tables) in ((6, OLD), (FORMAT, NEW)), folder.name
        found.add(version)
        if version == FORMAT:
            copies = [schema_of(path) for path in (folder / "backups").glob("format-6-*.db")]
            assert copies == [(6, OLD)], folder.name
        assert asyncio.run(read_everything(folder)) == before, folder.name
    assert found == {6, FORMAT}
