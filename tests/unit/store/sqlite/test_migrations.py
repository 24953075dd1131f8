"""From one format to the next: a copy first, all of a step or none, and nothing from the future."""

from pathlib import Path

import apsw
import pytest

from holdfast.domain.clock import SystemClock
from holdfast.domain.decisions import runs
from holdfast.domain.errors import StoreTooNew
from holdfast.domain.events.facts import AnyFact, RunCompleted, SessionDeleted
from holdfast.domain.ids import IdGenerator
from holdfast.domain.state.session_state import SessionStateView
from holdfast.store.ports import Append
from holdfast.store.sqlite import restore
from holdfast.store.sqlite.connection import StoreLocation, connect
from holdfast.store.sqlite.migrate import FORMAT, migrations, prepare
from holdfast.store.sqlite.store import SqliteStore
from tests.support.turn_events import accept, created

NEXT = FORMAT + 1
STEP = "CREATE TABLE moods (name TEXT NOT NULL) STRICT; INSERT INTO moods VALUES ('calm'), ('bright');"

BROKEN_STEP = "CREATE TABLE moods (name TEXT NOT NULL) STRICT; INSERT INTO nowhere VALUES (1);"


async def store_with_turn(folder: Path) -> StoreLocation:
    store = await SqliteStore.open(folder)
    new = created("kept")
    await store.append(new)
    await store.append(accept(new.session_id, "remember me"))
    await store.close()
    return StoreLocation(folder, "full", None, 5)


def copies(place: StoreLocation) -> list[Path]:
    return sorted((place.folder / "backups").glob("*.db"))


async def test_a_step_runs_once_after_a_copy_was_made(tmp_path: Path) -> None:
    place = await store_with_turn(tmp_path / "store")
    db = connect(place, writes=True)
    copy_before = prepare(db, place, steps={NEXT: STEP}, target=NEXT)
    assert [copy_before] == copies(place)
    assert db.pragma("user_version") == NEXT
    assert db.execute("SELECT count(*) FROM moods").get == 2
    assert prepare(db, place, steps={NEXT: STEP}, target=NEXT) is None
    assert db.execute("SELECT count(*) FROM moods").get == 2
    db.close()
    (copy,) = copies(place)
    assert copy.name.startswith(f"format-{FORMAT}-")
    assert place.marker.read_text() == f"A Holdfast store lives here. Format {NEXT}.\n"
    await opens_as_a_store(copy, tmp_path / "copy")


async def opens_as_a_store(copy: Path, folder: Path) -> None:
    restore.restore(folder, copy, IdGenerator(SystemClock()).process(), lambda done, total: None)
    store = await SqliteStore.open(folder)
    (row,) = (await store.sessions(None, 10)).sessions
    assert (row.title, row.last_turn) == ("kept", 1)
    assert len(await store.search("remember", 10)) == 1
    assert list(await store.check(False, lambda done, total: None)) == []
    await store.close()


async def test_a_step_that_fails_leaves_everything_as_it_was(tmp_path: Path) -> None:
    place = await store_with_turn(tmp_path / "store")
    db = connect(place, writes=True)
    with pytest.raises(apsw.Error):
        prepare(db, place, steps={NEXT: BROKEN_STEP}, target=NEXT)
    assert not db.in_transaction
    assert db.pragma("user_version") == FORMAT
    assert not db.table_exists(None, "moods")
    db.close()
    assert len(copies(place)) == 1
    store = await SqliteStore.open(place.folder)
    assert len((await store.sessions(None, 10)).sessions) == 1
    await store.close()


async def test_each_step_has_a_copy_of_its_own(tmp_path: Path) -> None:
    place = await store_with_turn(tmp_path / "store")
    db = connect(place, writes=True)
    steps = {NEXT: STEP, NEXT + 1: "DROP TABLE moods;"}
    prepare(db, place, steps=steps, target=NEXT + 1)
    assert db.pragma("user_version") == NEXT + 1
    db.close()
    assert [path.name.split("-")[1] for path in copies(place)] == [str(FORMAT), str(NEXT)]
    db = apsw.Connection(str(copies(place)[1]), flags=apsw.SQLITE_OPEN_READONLY)
    assert db.pragma("user_version") == NEXT
    db.close()


async def test_a_migrated_store_is_too_new_for_this_program(tmp_path: Path) -> None:
    place = await store_with_turn(tmp_path / "store")
    db = connect(place, writes=True)
    prepare(db, place, steps={NEXT: STEP}, target=NEXT)
    db.close()
    with pytest.raises(StoreTooNew):
        await SqliteStore.open(place.folder)


TO_FORMAT_6 = """
DROP INDEX memory_queue_open;
ALTER TABLE memory_queue RENAME TO debts;
ALTER TABLE debts RENAME COLUMN queued_at TO owed_at;
UPDATE debts SET state = 'owed' WHERE state = 'pending';
UPDATE debts SET state = 'paid' WHERE state = 'committed';
CREATE INDEX debts_open ON debts (owed_at, session, n)
    WHERE state IN ('owed', 'committing', 'failed', 'in_doubt') OR retraction = 'wanted';
ALTER TABLE key_values RENAME TO shelf;
ALTER TABLE note_commits RENAME TO note_tellings;
"""
"""What the step to format 7 does, backwards."""


def without_memory(place: StoreLocation) -> None:
    """Make it a store of format 2, as it was before there was any memory, or any chat app."""
    db = connect(place, writes=True)
    db.execute(TO_FORMAT_6)
    db.execute("DROP INDEX events_prepared; DROP INDEX events_compacted; DROP INDEX events_removals;")
    db.execute("ALTER TABLE sessions DROP COLUMN remember;")
    for table in (
        "debts", "notes", "note_words", "note_tellings", "notes_forgotten", "notes_forgotten_key",
        "inbound", "routes", "deliveries",
    ):  # fmt: skip
        db.execute(f"DROP TABLE {table}")
    db.pragma("user_version", 2)
    db.close()


async def test_the_migration_to_format_6_drops_queued_commits_of_deleted_sessions(tmp_path: Path) -> None:
    place = await store_with_turn(tmp_path / "store")
    store = await SqliteStore.open(place.folder)
    names = []
    for _ in range(2):
        new = created("owes")
        await store.append(new)
        await store.append(accept(new.session_id, "hello"))
        await store.append(Append(new.session_id, complete_with_memory))
        names.append(new.session_id)
    await store.append(Append(names[1], (SessionDeleted(),)))
    await store.close()
    db = connect(place, writes=True)
    db.execute(TO_FORMAT_6)
    db.execute("DROP INDEX events_removals; DROP INDEX notes_by_session;")
    # Format 5 and earlier kept the queued commits of a deleted session.
    db.execute("UPDATE debts SET state = 'owed'")
    db.pragma("user_version", 5)
    db.close()
    store = await SqliteStore.open(place.folder)
    assert list(await store.check(False, lambda done, total: None)) == []
    await store.close()
    db = connect(place, writes=True)
    states = db.execute("SELECT state FROM memory_queue ORDER BY session").fetchall()
    assert states == [("pending",), ("dropped",)]
    db.close()


def complete_with_memory(view: SessionStateView) -> list[AnyFact]:
    (run,) = view.open_runs()
    return [*runs.start(run), RunCompleted(run.id, owed=True, owner="a")]


def columns(place: StoreLocation) -> dict[str, list[str]]:
    db = connect(place, writes=True)
    tables = [name for (name,) in db.execute("SELECT name FROM sqlite_schema ORDER BY name")]
    found = {name: [str(row) for row in db.execute(f"PRAGMA table_xinfo({name})")] for name in tables}
    db.close()
    return {name: sorted(row.split(", ", 1)[1] for row in rows) for name, rows in found.items()}


async def test_migrating_an_old_store_gives_the_current_schema_and_a_copy(
    tmp_path: Path,
) -> None:
    place, new = await store_with_turn(tmp_path / "store"), await store_with_turn(tmp_path / "new")
    without_memory(place)
    place.marker.write_text("A Holdfast store lives here. Format 2.\n")
    store = await SqliteStore.open(place.folder)
    assert [store.pre_migration_copy] == copies(place)[:1] and len(copies(place)) == FORMAT - 2
    await store.close()
    assert place.marker.read_text() == new.marker.read_text()
    assert columns(place) == columns(new)
    again = await SqliteStore.open(place.folder)
    assert again.pre_migration_copy is None
    await again.close()


async def test_a_new_store_needs_no_step_and_no_copy(tmp_path: Path) -> None:
    place = await store_with_turn(tmp_path / "store")
    assert not (place.folder / "backups").exists()
    assert sorted(migrations()) == list(range(2, FORMAT + 1))
