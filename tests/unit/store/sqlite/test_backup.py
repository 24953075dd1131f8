"""Copies made beside writers are whole and end; a copy put back is the store."""

import asyncio
import os
import random
import time
from pathlib import Path

import apsw
import pytest

from holdfast.domain.clock import SystemClock
from holdfast.domain.errors import (
    DiskFull,
    NotAStore,
    StoreCorrupt,
    StoreFault,
    StoreInUse,
    StoreTooNew,
)
from holdfast.domain.ids import IdGenerator, SessionId
from holdfast.store.ports import Append
from holdfast.store.sqlite import backup, restore
from holdfast.store.sqlite.store import SqliteStore
from tests.support.faulty_disk import mount_small_disk
from tests.support.turn_events import accept, created, turn_facts


def ignore_progress(done: int, total: int) -> None:
    """No one watches."""


async def add_turns(store: SqliteStore, turns: int = 20) -> SessionId:
    new = created("copied")
    await store.append(new)
    noise = random.Random(5)
    for turn in range(1, turns + 1):
        words = " ".join(noise.randbytes(4).hex() for _ in range(500))
        await store.append(Append(new.session_id, turn_facts(turn, words, (words,))))
    return new.session_id


def restore_backup(folder: Path, path: Path) -> Path | None:
    return restore.restore(folder, path, IdGenerator(SystemClock()).process(), ignore_progress).store


async def open_copy(path: Path, folder: Path) -> SqliteStore:
    restore_backup(folder, path)
    return await SqliteStore.open(folder)


async def test_a_backup_is_a_consistent_snapshot(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store")
    session_id = await add_turns(store)
    blob = await store.put_blob(b"kept " * 100_000)
    events = await store.read(session_id, 0, 1_000)
    seen: list[tuple[int, int]] = []
    await store.backup(tmp_path / "copy.db", lambda done, total: seen.append((done, total)))
    assert seen and seen[-1][0] == seen[-1][1] > 0
    await store.append(accept(session_id, "after the copy"))
    copy = await open_copy(tmp_path / "copy.db", tmp_path / "other")
    assert await copy.read(session_id, 0, 1_000) == events
    assert await copy.get_blob(blob) == b"kept " * 100_000
    assert list(await copy.check(False, ignore_progress)) == []
    for each in (store, copy):
        await each.close()


async def test_a_copy_is_one_private_file_that_appears_whole(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store")
    await add_turns(store, 2)
    target = tmp_path / "out" / "copy.db"
    target.parent.mkdir()
    target.write_bytes(b"an older copy")
    await store.backup(target, ignore_progress)
    assert [path.name for path in target.parent.iterdir()] == ["copy.db"]
    assert target.stat().st_mode & 0o077 == 0
    await store.close()


@pytest.mark.parametrize("own", [True, False])
async def test_a_copy_beside_busy_writers_ends_and_is_consistent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    monkeypatch.setattr(backup, "STEP_PAGES", 20)
    store = await SqliteStore.open(tmp_path / "store")
    session_id = await add_turns(store)
    writer = store if own else await SqliteStore.open(tmp_path / "store")
    acknowledged = 0

    async def write() -> None:
        nonlocal acknowledged
        while True:
            await writer.append(accept(session_id, "busy"))
            acknowledged += 1

    writing = asyncio.ensure_future(write())
    await asyncio.sleep(0.05)
    before = acknowledged
    async with asyncio.timeout(30):
        await store.backup(tmp_path / "copy.db", lambda done, total: time.sleep(0.01))
    after = acknowledged
    writing.cancel()
    await asyncio.wait([writing])
    copy = await open_copy(tmp_path / "copy.db", tmp_path / "other")
    turns = (await copy.session(session_id)).last_turn - 20
    assert before <= turns <= after + 1
    assert list(await copy.check(False, ignore_progress)) == []
    for each in {store, writer, copy}:
        await each.close()


async def test_a_copy_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store")
    await add_turns(store)
    with pytest.raises(StoreFault):
        await store.backup(tmp_path / "no" / "such" / "folder.db", ignore_progress)
    with mount_small_disk(tmp_path / "small", "100k") as small:
        with pytest.raises(DiskFull) as full:
            await store.backup(small / "copy.db", ignore_progress)
        assert str(small) in str(full.value)
        assert list(small.iterdir()) == []
    await store.append(created())
    await store.close()


async def test_a_copy_never_replaces_the_store_itself(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    session_id = await add_turns(store, 2)
    with pytest.raises(StoreInUse):
        await store.backup(tmp_path / "holdfast.db", ignore_progress)
    await store.append(accept(session_id, "still the same file"))
    await store.close()


async def test_restoring_a_backup_keeps_the_replaced_store(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = await SqliteStore.open(folder)
    session_id = await add_turns(store, 2)
    await store.backup(tmp_path / "copy.db", ignore_progress)
    await store.append(accept(session_id, "too much"))
    await store.close()
    kept = restore_backup(folder, tmp_path / "copy.db")
    assert kept is not None and kept.parent == folder / "backups"
    store = await SqliteStore.open(folder)
    assert (await store.session(session_id)).last_turn == 2
    await store.close()
    restore_backup(folder, kept)
    store = await SqliteStore.open(folder)
    assert (await store.session(session_id)).last_turn == 3
    await store.close()


async def test_restoring_twice_within_a_second_keeps_both_replaced_stores(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = await SqliteStore.open(folder)
    session_id = await add_turns(store, 1)
    await store.backup(tmp_path / "copy.db", ignore_progress)
    await store.append(accept(session_id, "precious"))
    await store.close()
    kept = [restore_backup(folder, tmp_path / "copy.db") for _ in range(3)]
    assert len(set(kept)) == 3
    restore_backup(folder, kept[0] or Path())
    store = await SqliteStore.open(folder)
    assert (await store.session(session_id)).last_turn == 2
    await store.close()


async def test_a_wal_left_by_a_crash_stays_with_the_replaced_store(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = await SqliteStore.open(folder)
    session_id = await add_turns(store, 1)
    await store.backup(tmp_path / "copy.db", ignore_progress)
    await store.append(accept(session_id, "only in the log"))
    content = {path.name: path.read_bytes() for path in folder.glob("holdfast.db*")}
    await store.close()
    for name, piece in content.items():
        (folder / name).write_bytes(piece)
    kept = restore_backup(folder, tmp_path / "copy.db")
    store = await SqliteStore.open(folder)
    assert (await store.session(session_id)).last_turn == 1
    assert list(await store.check(False, ignore_progress)) == []
    await store.close()
    assert kept is not None
    copy_with_log(kept, tmp_path / "old")
    old = await SqliteStore.open(tmp_path / "old")
    assert (await old.session(session_id)).last_turn == 2
    await old.close()


def copy_with_log(path: Path, folder: Path) -> None:
    folder.mkdir()
    for suffix in ("", "-wal"):
        piece = path.with_name(path.name + suffix)
        if piece.exists():
            (folder / ("holdfast.db" + suffix)).write_bytes(piece.read_bytes())


async def test_restoring_over_an_open_store_is_refused(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store")
    await add_turns(store, 1)
    await store.backup(tmp_path / "copy.db", ignore_progress)
    with pytest.raises(StoreInUse) as used:
        restore_backup(tmp_path / "store", tmp_path / "copy.db")
    assert used.value.advice
    await store.append(created())
    await store.close()
    restore_backup(tmp_path / "store", tmp_path / "copy.db")


async def test_an_unusable_backup_is_not_restored(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = await SqliteStore.open(folder)
    await add_turns(store)
    await store.backup(tmp_path / "copy.db", ignore_progress)
    await store.close()
    before = (folder / "holdfast.db").read_bytes()
    whole = (tmp_path / "copy.db").read_bytes()
    bad = tmp_path / "bad.db"
    newer = whole[:60] + (99).to_bytes(4) + whole[64:]
    foreign = whole[:68] + bytes(4) + whole[72:]
    garbled = whole[:20_480] + random.Random(1).randbytes(8_192) + whole[28_672:]
    for content, error in (
        (b"", NotAStore),
        (b"nothing like it", NotAStore),
        (newer, StoreTooNew),
        (foreign, NotAStore),
        (garbled, StoreCorrupt),
        (whole[: len(whole) // 2], StoreCorrupt),
    ):
        bad.write_bytes(content)
        with pytest.raises(error):
            restore_backup(folder, bad)
    with pytest.raises(NotAStore):
        restore_backup(folder, tmp_path / "nowhere.db")
    assert (folder / "holdfast.db").read_bytes() == before
    assert not (folder / "restoring.db").exists()
    assert not (folder / "backups").exists()


async def test_a_backup_can_be_restored_into_a_new_folder(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store")
    session_id = await add_turns(store, 1)
    await store.backup(tmp_path / "copy.db", ignore_progress)
    await store.close()
    assert restore_backup(tmp_path / "new" / "place", tmp_path / "copy.db") is None
    again = await SqliteStore.open(tmp_path / "new" / "place")
    assert (await again.session(session_id)).last_turn == 1
    await again.close()


async def test_a_backup_from_before_the_key_value_table_can_be_restored(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path / "store")
    await store.backup(tmp_path / "copy.db", ignore_progress)
    await store.close()
    db = apsw.Connection(str(tmp_path / "copy.db"))
    db.execute("DROP TABLE key_values")
    db.pragma("user_version", 1)
    db.close()
    restore_backup(tmp_path / "store", tmp_path / "copy.db")
    db = apsw.Connection(str(tmp_path / "store" / "holdfast.db"))
    assert db.pragma("user_version") == 1
    db.close()


async def test_the_store_cannot_be_opened_during_a_restore(tmp_path: Path) -> None:
    """The restore would drop writes that were acknowledged meanwhile."""
    store = await SqliteStore.open(tmp_path / "store")
    await add_turns(store)
    await store.backup(tmp_path / "copy.db", ignore_progress)
    await store.close()
    refused: list[StoreFault] = []

    def come_in(done: int, total: int) -> None:
        with pytest.raises(StoreInUse) as found:
            asyncio.run(SqliteStore.open(tmp_path / "store", wait_s=0.1))
        refused.append(found.value)

    process = IdGenerator(SystemClock()).process()
    await asyncio.to_thread(restore.restore, tmp_path / "store", tmp_path / "copy.db", process, come_in)
    assert refused
    await (await SqliteStore.open(tmp_path / "store")).close()


async def test_opening_the_store_cleans_up_an_interrupted_restore(
    tmp_path: Path,
) -> None:
    await (await SqliteStore.open(tmp_path)).close()
    (tmp_path / "restoring.db").write_bytes(b"half")
    (tmp_path / "restoring.part" / "workspaces").mkdir(parents=True)
    await (await SqliteStore.open(tmp_path)).close()
    assert not [name for name in os.listdir(tmp_path) if name.startswith("restoring")]  # noqa: PTH208
