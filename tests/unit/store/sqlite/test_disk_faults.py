"""A disk that is full, breaks or cannot be written: a clear error, nothing acknowledged that is not stored,
and the same store object works on when the fault has gone."""

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from holdfast.domain.errors import DiskFull, HoldfastError, StoreFault, StoreReadOnly
from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from tests.support.faulty_disk import FaultyDisk, FaultyVFS, mount_small_disk, remount
from tests.support.turn_events import accept, created


def ignore_progress(done: int, total: int) -> None:
    """No one watches."""


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


@pytest.fixture
def vfs(disk: FaultyDisk) -> Iterator[str]:
    faulty = FaultyVFS(disk)
    yield faulty.name
    faulty.unregister()


class AckedSender:
    """Sends turns and remembers which were acknowledged."""

    def __init__(self, store: SqliteStore, session_id: SessionId) -> None:
        self.store = store
        self.session_id = session_id
        self.acknowledged: list[str] = []
        self.refused: list[HoldfastError] = []
        self._sent = 0

    async def send(self, size: int = 20) -> bool:
        self._sent += 1
        text = f"{self._sent} ".ljust(size, "x")
        try:
            await self.store.append(accept(self.session_id, text))
        except HoldfastError as error:
            self.refused.append(error)
            return False
        self.acknowledged.append(text)
        return True

    async def check_acknowledged(self, store: SqliteStore, check: bool = True) -> None:
        """Everything acknowledged is there, in order, once; the rest may be; nothing is half."""
        events = []
        while batch := await store.read(self.session_id, len(events), 1_000):
            events += batch
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        stored = [fact.parts[0].text for e in events if isinstance(fact := e.fact, f.TurnAccepted)]
        assert len(set(stored)) == len(stored)
        left = iter(stored)
        assert all(text in left for text in self.acknowledged), "an acknowledged turn is missing"
        if check:
            assert list(await store.check(False, ignore_progress)) == []


async def open_sender(folder: Path, vfs: str | None, wal_bytes_max: int = 64_000_000) -> AckedSender:
    store = await SqliteStore.open(folder, vfs=vfs, wal_bytes_max=wal_bytes_max)
    created_session = created()
    await store.append(created_session)
    return AckedSender(store, created_session.session_id)


async def check_after_reopen(witness: AckedSender, folder: Path) -> None:
    """The same store works on, and what it says is what a new one finds."""
    assert await witness.send()
    assert await witness.send()
    await witness.check_acknowledged(witness.store)
    await witness.store.close()
    again = await SqliteStore.open(folder)
    await witness.check_acknowledged(again)
    await again.close()


FULL = (apsw.FullError, 0, DiskFull)
BROKEN = (apsw.IOError, apsw.SQLITE_IOERR_WRITE, StoreFault)
UNSYNCED = (apsw.IOError, apsw.SQLITE_IOERR_FSYNC, StoreFault)
READ_ONLY = (apsw.ReadOnlyError, 0, StoreReadOnly)


@pytest.mark.parametrize("skip", [0, 1, 5])
@pytest.mark.parametrize(
    ("call", "kind"), [("write", FULL), ("write", BROKEN), ("write", READ_ONLY), ("sync", UNSYNCED)]
)
async def test_a_log_that_cannot_be_written_refuses_until_it_can(
    tmp_path: Path, disk: FaultyDisk, vfs: str, call: str, kind: tuple[type[apsw.Error], int, type], skip: int
) -> None:
    error, code, fault = kind
    witness = await open_sender(tmp_path, vfs)
    disk.inject_fault(call, "-wal", error, code, skip=skip)
    for _ in range(12):
        await witness.send()
    assert {type(each) for each in witness.refused} == {fault}
    assert all(each.advice for each in witness.refused)
    await witness.check_acknowledged(witness.store, check=False)
    disk.clear_faults()
    await check_after_reopen(witness, tmp_path)


@pytest.mark.parametrize("times", [1, 2, 3])
async def test_a_transient_fault_fails_only_the_appends_it_hit(
    tmp_path: Path, disk: FaultyDisk, vfs: str, times: int
) -> None:
    witness = await open_sender(tmp_path, vfs)
    disk.inject_fault("sync", "-wal", apsw.IOError, apsw.SQLITE_IOERR_FSYNC, skip=2, times=times)
    for _ in range(10):
        await witness.send()
    assert 1 <= len(witness.refused) <= times
    assert len(witness.acknowledged) >= 10 - times
    await check_after_reopen(witness, tmp_path)


async def test_the_file_is_reopened_after_a_failed_sync(tmp_path: Path, disk: FaultyDisk, vfs: str) -> None:
    witness = await open_sender(tmp_path, vfs)
    assert await witness.send()
    disk.calls.clear()
    disk.inject_fault("sync", "-wal", apsw.IOError, apsw.SQLITE_IOERR_FSYNC, times=1)
    assert not await witness.send()
    assert await witness.send()
    failed = disk.calls.index(("sync", "-wal"))
    next_write = disk.calls.index(("write", "-wal"), failed)
    # What was not synced is not trusted: nothing is added to the log before its content is in the main file.
    assert {("open", ".db"), ("open", "-wal")} <= set(disk.calls[failed:next_write])
    await check_after_reopen(witness, tmp_path)


@pytest.mark.parametrize("kind", [FULL, BROKEN])
@pytest.mark.parametrize("call", ["write", "sync"])
async def test_a_checkpoint_that_fails_refuses_nothing_that_is_stored(
    tmp_path: Path, disk: FaultyDisk, vfs: str, call: str, kind: tuple[type[apsw.Error], int, type]
) -> None:
    witness = await open_sender(tmp_path, vfs, wal_bytes_max=40_000)
    disk.inject_fault(call, ".db", kind[0], kind[1])
    for _ in range(30):
        await witness.send(2_000)
    assert (call, ".db") in disk.calls
    assert witness.refused == []
    await witness.check_acknowledged(witness.store)
    disk.clear_faults()
    await check_after_reopen(witness, tmp_path)


async def test_a_commit_fault_fails_every_append_of_the_batch(
    tmp_path: Path, disk: FaultyDisk, vfs: str
) -> None:
    witness = await open_sender(tmp_path, vfs)
    disk.inject_fault("write", "-wal", apsw.FullError)
    assert not any(await asyncio.gather(*(witness.send() for _ in range(50))))
    assert {type(each) for each in witness.refused} == {DiskFull}
    disk.clear_faults()
    assert all(await asyncio.gather(*(witness.send() for _ in range(50))))
    await check_after_reopen(witness, tmp_path)


async def test_readers_and_tails_go_on_beside_a_full_disk(tmp_path: Path, disk: FaultyDisk, vfs: str) -> None:
    witness = await open_sender(tmp_path, vfs)
    await witness.send()
    tail = witness.store.tail(witness.session_id, 0)
    disk.inject_fault("write", "-wal", apsw.FullError)
    assert not await witness.send()
    assert [(await anext(tail)).seq for _ in range(2)] == [1, 2]
    assert len((await witness.store.messages(witness.session_id, None, 10)).messages) == 1
    disk.clear_faults()
    await witness.send()
    async with asyncio.timeout(30):
        assert (await anext(tail)).kind == "turn_accepted"
    await tail.aclose()
    await check_after_reopen(witness, tmp_path)


async def test_readers_never_see_events_that_failed_to_commit(
    tmp_path: Path, disk: FaultyDisk, vfs: str
) -> None:
    witness = await open_sender(tmp_path, vfs)
    with witness.store.follow(witness.session_id, 1, lambda: None) as follower:
        assert list(await follower.next_events()) == []  # From here on it receives what is new.
        disk.inject_fault("write", "-wal", apsw.FullError)
        assert not await witness.send()
        assert list(await follower.next_events()) == []
        disk.clear_faults()
        assert await witness.send()
        assert [event.kind for event in await follower.next_events()] == ["turn_accepted"]
    await check_after_reopen(witness, tmp_path)


@pytest.mark.parametrize("ending", [".db", "-wal"])
async def test_failed_reads_raise_typed_errors_and_recover(
    tmp_path: Path, disk: FaultyDisk, vfs: str, ending: str
) -> None:
    witness = await open_sender(tmp_path, vfs)
    for _ in range(20):
        await witness.send(5_000)
    disk.inject_fault("read", ending, apsw.IOError, apsw.SQLITE_IOERR_READ)
    for _ in range(4):
        try:
            await witness.store.read(witness.session_id, 0, 1_000)
            await witness.store.messages(witness.session_id, None, 200)
            await witness.store.search("x", 10)
        except StoreFault as fault:
            assert fault.advice
    disk.clear_faults()
    await check_after_reopen(witness, tmp_path)


async def test_maintenance_that_hits_a_fault_raises_and_can_be_retried(
    tmp_path: Path, disk: FaultyDisk, vfs: str
) -> None:
    witness = await open_sender(tmp_path, vfs)
    await witness.send()
    disk.inject_fault("write", "-wal", apsw.FullError)
    for work in (witness.store.put_blob(b"x"), witness.store.search("never seen", 1)):
        try:
            await work
        except DiskFull as fault:
            assert fault.advice
    disk.clear_faults()
    await witness.store.put_blob(b"x")
    await witness.store.sweep()
    await check_after_reopen(witness, tmp_path)


async def test_closing_with_a_broken_disk_ends_and_loses_nothing_acknowledged(
    tmp_path: Path, disk: FaultyDisk, vfs: str
) -> None:
    witness = await open_sender(tmp_path, vfs)
    for _ in range(5):
        await witness.send()
    for call in ("write", "sync"):
        disk.inject_fault(call, ".db", apsw.IOError, apsw.SQLITE_IOERR_WRITE)
    await witness.store.close()
    disk.clear_faults()
    again = await SqliteStore.open(tmp_path)
    await witness.check_acknowledged(again)
    await again.close()


async def test_a_real_full_disk(tmp_path: Path) -> None:
    with mount_small_disk(tmp_path / "small", "3m") as folder:
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(600_000))
        witness = await open_sender(folder / "store", None)
        for _ in range(200):
            if not await witness.send(50_000):
                break
        else:
            pytest.fail("the disk was never full")
        assert isinstance(witness.refused[0], DiskFull), witness.refused
        assert str(folder) in str(witness.refused[0]) and witness.refused[0].advice
        await witness.store.read(witness.session_id, 0, 10)
        ballast.unlink()
        assert await witness.send()
        stored = await witness.store.read(witness.session_id, 0, 1_000)
        assert len(stored) >= len(witness.acknowledged) + 1
        await witness.store.close()
        remount(folder, "size=9m")
        again = await SqliteStore.open(folder / "store")
        assert list(await again.read(witness.session_id, 0, 1_000)) == list(stored)
        await again.close()


async def test_a_full_disk_from_the_start(tmp_path: Path) -> None:
    with mount_small_disk(tmp_path / "small", "200k") as folder:
        ballast = folder / "ballast"
        ballast.write_bytes(bytes(150_000))
        with pytest.raises(DiskFull):
            await SqliteStore.open(folder / "store")
        ballast.unlink()
        remount(folder, "size=3m")
        store = await SqliteStore.open(folder / "store")
        await store.append(created())
        await store.close()


async def test_a_read_only_folder_is_refused_with_a_remedy(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        with mount_small_disk(tmp_path / "small", "3m") as folder:
            await (await SqliteStore.open(folder / "store")).close()
            remount(folder, "ro")
            await refused_as_read_only(folder / "store")
            await refused_as_read_only(folder / "new")
            remount(folder, "rw")
            await (await SqliteStore.open(folder / "store")).close()
        return
    folder = tmp_path / "store"
    await (await SqliteStore.open(folder)).close()
    folder.chmod(0o500)
    await refused_as_read_only(folder)
    folder.chmod(0o700)
    await (await SqliteStore.open(folder)).close()


async def refused_as_read_only(folder: Path) -> None:
    with pytest.raises(StoreReadOnly) as refused:
        await SqliteStore.open(folder)
    assert str(folder) in str(refused.value) and "--data" in refused.value.advice


async def test_an_append_is_either_stored_whole_or_refused_by_a_typed_error(
    tmp_path: Path, disk: FaultyDisk, vfs: str
) -> None:
    witness = await open_sender(tmp_path, vfs)
    rename = Append(witness.session_id, (f.SessionRenamed("x", "user"),))
    disk.inject_fault("write", "-wal", apsw.FullError, skip=1, times=1)
    tried = await asyncio.gather(*(witness.store.append(rename) for _ in range(20)), return_exceptions=True)
    assert all(isinstance(each, tuple | StoreFault) for each in tried)
    stored = await witness.store.head(witness.session_id)
    assert stored - 1 >= sum(isinstance(each, tuple) for each in tried)
    await check_after_reopen(witness, tmp_path)
