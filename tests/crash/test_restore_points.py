"""A killed restore leaves the old data or the content of the backup: conversations with their files."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.domain.clock import SystemClock
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.store import archive
from holdfast.store.sqlite.restore import restore
from holdfast.store.sqlite.store import SqliteStore
from tests.support.turn_events import created

ROOT = Path(__file__).resolve().parents[2]
Found = tuple[tuple[str, ...], dict[str, str]]
"""The titles of the conversations, and the content of their files."""


async def add(data: Path, title: str, backup: Path | None = None) -> SessionId:
    """Add a conversation whose title all files contain from now on; make a backup with them."""
    store = await SqliteStore.open(data)
    new = created(title)
    await store.append(new)
    (data / "workspaces" / new.session_id).mkdir(parents=True)
    for workspace in (data / "workspaces").iterdir():
        (workspace / "notes.txt").write_text(title)
    if backup is not None:
        copy = backup.with_suffix(".copy")
        await store.backup(copy, lambda done, total: None)
        archive.pack(backup, copy, data / "workspaces", lambda done, total: None)
    await store.close()
    return new.session_id


async def read_store(data: Path) -> Found:
    """Return what a server finds that is started now."""
    store = await SqliteStore.open(data)
    try:
        titles = tuple(sorted(row.title for row in (await store.sessions(None, 10)).sessions))
    finally:
        await store.close()
    files = {path.parent.name: path.read_text() for path in (data / "workspaces").glob("*/notes.txt")}
    return titles, files


def kill_at_every_call(data: Path, backup: Path, trials: Path) -> list[Path]:
    """Return the folders in which a restore was killed, each at another call; the last one was not killed."""
    trials.mkdir()
    words = [sys.executable, "-m", "tests.crash.restoring_process", str(data), str(backup), str(trials)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return sorted(trials.iterdir(), key=lambda path: int(path.name))


@pytest.mark.parametrize("goes_back", [False, True], ids=["an archive", "what a restore kept"])
def test_a_restore_that_is_killed_leaves_the_old_or_the_new(tmp_path: Path, goes_back: bool) -> None:
    data, backup = tmp_path / "data", tmp_path / "backup.tar"
    first = asyncio.run(add(data, "first", backup))
    second = asyncio.run(add(data, "second"))
    older: Found = (("first",), {first: "first"})
    newer: Found = (("first", "second"), {first: "second", second: "second"})
    old, new = newer, older
    if goes_back:
        kept = restore(data, backup, IdGenerator(SystemClock()).process(), lambda done, total: None).store
        assert kept is not None
        backup, old, new = kept, older, newer
    assert asyncio.run(read_store(data)) == old
    folders = kill_at_every_call(data, backup, tmp_path / "trials")
    assert len(folders) > 20
    found = [asyncio.run(read_store(folder)) for folder in folders]
    turn = found.index(new)
    assert found == [old] * turn + [new] * (len(found) - turn)
    for folder in folders:
        # Whatever it left: the same restore works, and nothing prepared is left over.
        path = folder / backup.relative_to(data) if goes_back else backup
        if path.exists():
            restore(folder, path, IdGenerator(SystemClock()).process(), lambda done, total: None)
            assert not list(folder.glob("restoring*"))
