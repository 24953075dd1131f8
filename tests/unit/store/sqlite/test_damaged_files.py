"""A file that is not what it should be: truncated, garbled, foreign, from the future, or gone.

Each gives one typed error that says what to do, and a file that is not ours is left as it is."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import apsw
import pytest

from holdfast.domain.errors import (
    HoldfastError,
    NotAStore,
    StoreCorrupt,
    StoreFault,
    StoreTooNew,
    StoreUnreadable,
)
from holdfast.domain.ids import SessionId
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from tests.support.turn_events import accept, created, turn_facts


def ignore_progress(done: int, total: int) -> None:
    """No one watches."""


async def store_with_turns(folder: Path, turns: int = 40) -> SessionId:
    """A closed store with a conversation of some length."""
    store = await SqliteStore.open(folder)
    new = created()
    await store.append(new)
    noise = random.Random(3)
    for turn in range(1, turns + 1):
        words = " ".join(noise.randbytes(4).hex() for _ in range(200))
        await store.append(Append(new.session_id, turn_facts(turn, words, (words,))))
    await store.search("anything", 1)
    await store.close()
    return new.session_id


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("holdfast.db*")}


async def opening_error(folder: Path) -> HoldfastError:
    before = files(folder)
    with pytest.raises(HoldfastError) as error:
        await SqliteStore.open(folder)
    assert files(folder) == before, "a file that was refused was changed"
    assert error.value.advice
    assert not list((folder / "processes").glob("*.lock")), "a process that did not open it is said to live"
    return error.value


@pytest.mark.parametrize("part", [0, 0.3, 0.5, 0.9])
async def test_a_truncated_file_is_damaged(tmp_path: Path, part: float) -> None:
    await store_with_turns(tmp_path)
    file = tmp_path / "holdfast.db"
    whole = file.read_bytes()
    with file.open("r+b") as handle:
        handle.truncate(int(len(whole) * part))
    assert type(await opening_error(tmp_path)) is StoreCorrupt
    file.write_bytes(whole)
    store = await SqliteStore.open(tmp_path)
    assert list(await store.check(False, ignore_progress)) == []
    await store.close()


async def test_a_missing_store_file_is_not_recreated(tmp_path: Path) -> None:
    await store_with_turns(tmp_path)
    file = tmp_path / "holdfast.db"
    file.rename(tmp_path / "elsewhere")
    error = await opening_error(tmp_path)
    assert type(error) in (StoreCorrupt, StoreUnreadable)
    assert not file.exists()
    (tmp_path / "elsewhere").rename(file)
    await (await SqliteStore.open(tmp_path)).close()


@pytest.mark.parametrize("content", [b"no database at all\n" * 100, bytes(8_192), b"x"])
async def test_garbage_is_not_a_store(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "holdfast.db").write_bytes(content)
    assert type(await opening_error(tmp_path)) in (StoreCorrupt, NotAStore)


async def test_another_programs_database_is_left_alone(tmp_path: Path) -> None:
    db = apsw.Connection(str(tmp_path / "holdfast.db"))
    db.execute("CREATE TABLE sessions (id TEXT); INSERT INTO sessions VALUES ('mine')")
    db.close()
    assert type(await opening_error(tmp_path)) is NotAStore


async def test_a_newer_store_is_left_alone(tmp_path: Path) -> None:
    await store_with_turns(tmp_path, 1)
    db = apsw.Connection(str(tmp_path / "holdfast.db"))
    db.pragma("user_version", 99)
    db.close()
    error = await opening_error(tmp_path)
    assert type(error) is StoreTooNew
    assert error.fields["found"] == 99


async def test_a_store_that_becomes_newer_while_open_is_refused_too(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path)
    new = created()
    await store.append(new)
    db = apsw.Connection(str(tmp_path / "holdfast.db"))
    db.set_busy_timeout(5_000)
    db.pragma("user_version", 99)
    db.close()
    with pytest.raises(StoreTooNew):
        await store.append(accept(new.session_id, "written by an old program"))
    await store.close()


@pytest.mark.parametrize("seed", range(6))
async def test_garbled_pages_give_typed_errors_only_and_doctor_finds_them(tmp_path: Path, seed: int) -> None:
    session_id = await store_with_turns(tmp_path)
    file = tmp_path / "holdfast.db"
    noise = random.Random(seed)
    content = bytearray(file.read_bytes())
    for _ in range(5):
        start = noise.randrange(8_192, len(content) - 4_096) & ~4_095
        content[start : start + 4_096] = noise.randbytes(4_096)
    file.write_bytes(content)
    try:
        store = await SqliteStore.open(tmp_path)
    except StoreFault as fault:
        assert type(fault) is StoreCorrupt
        return
    found: list[object] = []
    for ask in (
        lambda: store.check(False, ignore_progress),
        lambda: store.read(session_id, 0, 1_000),
        lambda: store.messages(session_id, None, 200),
        lambda: store.search("words", 10),
        lambda: store.append(accept(session_id, "more")),
        lambda: store.sweep(),
    ):
        found.append(await outcome_of(ask))
    assert found[0], "doctor found nothing wrong"
    await store.close()


async def outcome_of(ask: Callable[[], object]) -> object:
    """What came of it; an error must be one that says what to do."""
    try:
        return await ask()  # type: ignore[misc]
    except StoreFault as fault:
        assert type(fault) is StoreCorrupt and fault.advice
        return [fault]


@pytest.mark.parametrize("part", [0, 0.5])
async def test_truncating_an_open_store_is_reported(tmp_path: Path, part: float) -> None:
    session_id = await store_with_turns(tmp_path)
    file = tmp_path / "holdfast.db"
    whole = file.read_bytes()
    store = await SqliteStore.open(tmp_path)
    await store.append(accept(session_id, "fine"))
    with file.open("r+b") as handle:
        handle.truncate(int(len(whole) * part))
    for _ in range(3):
        for ask in (
            lambda: store.read(session_id, 0, 1_000),
            lambda: store.append(accept(session_id, "not so fine")),
            lambda: store.messages(session_id, None, 200),
        ):
            try:
                await ask()
            except StoreFault as fault:
                assert fault.advice
    await store.close()


async def test_an_unreadable_event_does_not_block_other_sessions(tmp_path: Path) -> None:
    session_id = await store_with_turns(tmp_path, 2)
    db = apsw.Connection(str(tmp_path / "holdfast.db"))
    db.execute("UPDATE events SET body = ? WHERE seq = 2", (b'{"turn_id": \xff\x00',))
    db.execute("UPDATE cursors SET position = 0; INSERT INTO search (search) VALUES ('delete-all')")
    db.close()
    store = await SqliteStore.open(tmp_path)
    await store.append(accept(session_id, "cuttlefish"))
    assert len(await store.search("cuttlefish", 10)) == 1
    assert len(await store.read(session_id, 0, 100)) > 3
    findings = await store.check(False, ignore_progress)
    assert any("cannot be read" in finding.what for finding in findings)
    await store.append(accept(session_id, "still works"))
    await store.close()


async def acknowledged(store: SqliteStore, session_id: SessionId, texts: list[str]) -> None:
    page = await store.messages(session_id, None, 200)
    stored = [message.events[0].fact.parts[0].text for message in page.messages]
    assert [text for text in texts if text not in stored] == []


async def test_moving_the_file_away_and_back_loses_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = await SqliteStore.open(folder)
    new = created()
    await store.append(new)
    texts = ["before"]
    await store.append(accept(new.session_id, "before"))
    (folder / "holdfast.db").rename(tmp_path / "away")
    for n in range(3):
        with pytest.raises(StoreUnreadable if n == 0 else StoreCorrupt) as gone:
            await store.append(accept(new.session_id, f"while away {n}"))
        assert gone.value.advice
        await asyncio.sleep(0.06)
    (tmp_path / "away").rename(folder / "holdfast.db")
    texts.append("after")
    await store.append(accept(new.session_id, "after"))
    await acknowledged(store, new.session_id, texts)
    await store.close()
    again = await SqliteStore.open(folder)
    await acknowledged(again, new.session_id, texts)
    assert list(await again.check(False, ignore_progress)) == []
    await again.close()


@pytest.mark.parametrize("chores_first", [False, True])
async def test_a_file_replaced_under_an_open_store_is_the_one_that_counts(
    tmp_path: Path, chores_first: bool
) -> None:
    folder, other = tmp_path / "store", tmp_path / "other"
    their_id = await store_with_turns(other, 3)
    store = await SqliteStore.open(folder)
    new = created()
    await store.append(new)
    await store.read(new.session_id, 0, 10)
    if chores_first:
        await store.append(accept(new.session_id, "words to be indexed after the file is another"))
    for leftover in ("holdfast.db-wal", "holdfast.db-shm"):
        (folder / leftover).unlink(missing_ok=True)
    (other / "holdfast.db").replace(folder / "holdfast.db")
    if chores_first:
        await asyncio.sleep(0.3)
    with pytest.raises(StoreUnreadable):
        await store.append(accept(new.session_id, "to which file?"))
    await store.append(accept(their_id, "to this one"))
    assert (await store.session(their_id)).last_turn == 4
    for _ in range(6):  # Whichever reader answers.
        assert (await store.messages(their_id, None, 10)).messages
    await store.close()


async def test_removing_the_folder_of_an_open_store_is_reported(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    store = await SqliteStore.open(folder)
    new = created()
    await store.append(new)
    folder.rename(tmp_path / "gone")
    with pytest.raises(StoreFault) as gone:
        await store.append(accept(new.session_id, "nowhere"))
    assert gone.value.advice
    (tmp_path / "gone").rename(folder)
    await store.append(accept(new.session_id, "here again"))
    await store.close()
