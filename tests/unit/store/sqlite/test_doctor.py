"""Doctor: every row that does not say what the journal says is found, and mended from it."""

from pathlib import Path

import apsw
import pytest

from holdfast.domain.events import facts as f
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import PRUNE_AFTER_MS
from holdfast.domain.memories import NewNote, Origin
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore
from tests.support.turn_events import TurnEvents, created, turn_facts, turn_with_tool


def ignore_progress(done: int, total: int) -> None:
    """No one watches."""


async def store_with_content(folder: Path) -> SessionId:
    store = await SqliteStore.open(folder)
    new, story = created("one"), TurnEvents(3)
    await store.append(new)
    facts = [*turn_with_tool(1), *turn_facts(2, "pangolin"), *story.opening(), story.text("half")]
    await store.append(Append(new.session_id, facts))
    await store.append(created("two"))
    await store.search("x", 1)
    await store.close()
    return new.session_id


DAMAGE = {
    "session": "UPDATE sessions SET title = 'forged', live_turns = 99 WHERE title = 'one'",
    "turn": "UPDATE turns SET status = 'undone' WHERE turn = 1",
    "missing turn": "DELETE FROM turns WHERE turn = 2",
    "extra turn": "INSERT INTO turns SELECT session, 9, id || 'x', seq, status, run_id, NULL, NULL, NULL"
    " FROM turns WHERE turn = 1",
    "run": "UPDATE runs SET status = 'completed', steps = 7 WHERE turn = 3",
    "missing run": "DELETE FROM runs WHERE turn = 1",
    "tool": "UPDATE tools SET state = 'started'",
    "missing tool": "DELETE FROM tools",
    "message": "UPDATE messages SET body_seq = 2 WHERE turn = 2 AND place = 1",
    "missing message": "DELETE FROM messages WHERE turn = 1 AND place = 2",
    "extra message": "INSERT INTO messages SELECT session, turn, 77, id, role, status, first_seq, body_seq,"
    " run_id, late FROM messages WHERE turn = 1 AND place = 0",
}


@pytest.mark.parametrize("what", sorted(DAMAGE))
async def test_doctor_finds_and_repairs_a_wrong_row(tmp_path: Path, what: str) -> None:
    session_id = await store_with_content(tmp_path)
    store = await SqliteStore.open(tmp_path)
    assert list(await store.check(False, ignore_progress)) == []
    before = await store.messages(session_id, None, 100)
    damage(tmp_path, DAMAGE[what])
    found = await store.check(False, ignore_progress)
    assert found and not any(finding.repaired for finding in found)
    assert all(session_id in finding.where for finding in found)
    assert await store.check(False, ignore_progress) == found, "looking changes nothing"
    mended = await store.check(True, ignore_progress)
    assert len(mended) == len(found) and all(finding.repaired for finding in mended)
    assert list(await store.check(False, ignore_progress)) == []
    assert await store.messages(session_id, None, 100) == before
    await store.close()


def damage(folder: Path, sql: str) -> None:
    db = apsw.Connection(str(folder / "holdfast.db"))
    db.set_busy_timeout(5_000)
    db.execute(sql)
    db.close()


async def test_doctor_rebuilds_an_incomplete_search_index(tmp_path: Path) -> None:
    await store_with_content(tmp_path)
    store = await SqliteStore.open(tmp_path)
    assert len(await store.search("pangolin", 10)) == 1
    damage(tmp_path, "INSERT INTO search (search) VALUES ('delete-all')")
    assert await store.search("pangolin", 10) == []
    (finding,) = await store.check(True, ignore_progress)
    assert (finding.where, finding.repaired) == ("search", True)
    assert len(await store.search("pangolin", 10)) == 1
    assert list(await store.check(False, ignore_progress)) == []
    await store.close()


NOTE_DAMAGE = {
    "words lost": "INSERT INTO note_words (note_words) VALUES ('delete-all')",
    "words of one that is gone": "INSERT INTO note_words (rowid, words) VALUES (77, 'pangolin')",
}


@pytest.mark.parametrize("what", sorted(NOTE_DAMAGE))
async def test_doctor_repairs_the_note_index(tmp_path: Path, what: str) -> None:
    store = await SqliteStore.open(tmp_path)
    fresh = [NewNote("The user has a pangolin."), NewNote("☕")]
    _, (old, _) = await store.add_notes("a", "r", Origin("user"), "", fresh)
    await store.add_notes("b", "r", Origin("user"), "", [NewNote("The user has two pangolins.", (old.id,))])
    assert list(await store.check(False, ignore_progress)) == []
    before = await store.find_notes("", "pangolin", 10)
    damage(tmp_path, NOTE_DAMAGE[what])
    (finding,) = await store.check(True, ignore_progress)
    assert (finding.where, finding.repaired) == ("notes", True)
    assert list(await store.check(False, ignore_progress)) == []
    assert await store.find_notes("", "pangolin", 10) == before
    assert len(before) == 1
    await store.close()


async def test_doctor_reports_lost_events_and_invents_none(tmp_path: Path) -> None:
    session_id = await store_with_content(tmp_path)
    damage(tmp_path, "DELETE FROM events WHERE kind = 'message_settled'")
    store = await SqliteStore.open(tmp_path)
    found = await store.check(True, ignore_progress)
    assert any("missing" in finding.what and not finding.repaired for finding in found)
    assert any(session_id in finding.where for finding in found)
    await store.close()


async def test_pruned_deltas_are_not_reported_as_lost(tmp_path: Path) -> None:
    store = await SqliteStore.open(tmp_path, clock=HourlyClock())
    new = created()
    await store.append(new)
    await store.append(Append(new.session_id, turn_with_tool(1)))
    assert (await store.sweep()).deltas == 7
    assert list(await store.check(False, ignore_progress)) == []
    await store.close()


class HourlyClock:
    """A clock on which each look is an hour after the one before."""

    def __init__(self) -> None:
        self._now = 1_700_000_000_000

    def now_ms(self) -> int:
        self._now += PRUNE_AFTER_MS
        return self._now


async def test_doctor_reports_orphaned_rows(tmp_path: Path) -> None:
    await store_with_content(tmp_path)
    damage(
        tmp_path,
        "INSERT INTO events (session, seq, at, kind, version, body) VALUES (999, 1, 0, 'x', 1, x'7b7d')",
    )
    store = await SqliteStore.open(tmp_path)
    found = await store.check(False, ignore_progress)
    assert [finding.where for finding in found] == ["file"]
    await store.close()


async def test_doctor_finds_nothing_beside_a_busy_writer(tmp_path: Path) -> None:
    session_id = await store_with_content(tmp_path)
    store, other = await SqliteStore.open(tmp_path), await SqliteStore.open(tmp_path)
    steps: list[tuple[int, int]] = []
    writing = [other.submit(Append(session_id, (f.SessionRenamed(str(n), "user"),))) for n in range(200)]
    assert list(await store.check(False, lambda done, total: steps.append((done, total)))) == []
    for each in writing:
        await each
    assert steps[-1] == (2, 2)
    for opened in (store, other):
        await opened.close()
