"""`holdfast doctor` proves that all is well, finds what is not, and mends what can be mended."""

import json
from pathlib import Path

import apsw
import pytest

from tests.acceptance.conftest import CliHarness
from tests.support.sample_conversations import (
    SampleConversation,
    in_store,
    save_conversations,
    trip_conversation,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "share" / "holdfast"


def alter(folder: Path, statement: str) -> None:
    """Change the file behind Holdfast's back."""
    with apsw.Connection(str(folder / "holdfast.db")) as db:
        db.execute(statement)
        assert db.changes() > 0, statement


def test_doctor_reports_a_healthy_store_and_its_environment(holdfast: CliHarness, folder: Path) -> None:
    save_conversations(folder, trip_conversation(), SampleConversation("Second"))
    result = holdfast.run("doctor")
    assert (result.returncode, result.stderr) == (0, "")
    assert "Checked: the file, 2 conversations with" in result.stdout
    assert result.stdout.endswith("All is well.\n")
    for text in (str(folder), "SQLite 3.", "power loss", "Free disk"):
        assert text in result.stdout
    assert "In use by" not in result.stdout
    report = json.loads(holdfast.run("doctor", "--json", "--durability", "normal").stdout)
    assert (report["ok"], report["found"], report["surroundings"]["durability"]) == (True, [], "normal")


def test_doctor_counts_active_and_archived_conversations(holdfast: CliHarness, folder: Path) -> None:
    gone = SampleConversation("Gone")
    save_conversations(
        folder,
        trip_conversation(),
        SampleConversation("Put away").archive(),
        SampleConversation("Second"),
        gone,
    )
    assert holdfast.run("sessions", "delete", gone.id, "--yes").returncode == 0
    listed, away = (
        len(json.loads(holdfast.run("sessions", "list", "--json", *more).stdout))
        for more in ((), ("--archived",))
    )
    assert (listed, away) == (2, 1)
    assert "Checked: the file, 3 conversations (1 of them archived) with" in holdfast.run("doctor").stdout
    holds = json.loads(holdfast.run("doctor", "--json").stdout)["holds"]
    assert (holds["sessions"], holds["archived"]) == (listed + away, away)


def test_doctor_accepts_an_empty_folder(holdfast: CliHarness, folder: Path) -> None:
    result = holdfast.run("doctor")
    assert (result.returncode, result.stderr) == (0, "")
    assert "There is nothing here yet" in result.stdout
    assert not folder.exists()


DAMAGE = {
    "session 1": "UPDATE sessions SET title = 'forged', live_turns = 9",
    "message 1.1": "DELETE FROM messages WHERE turn = 1 AND role = 'assistant'",
    "run r_": "UPDATE runs SET status = 'running' WHERE turn = 2",
    "turn 99": "INSERT INTO turns (session, turn, id, seq, status) VALUES (1, 99, 't_x', 99, 'live')",
    "not in the index": "DELETE FROM search WHERE rowid = (SELECT min(rowid) FROM search)",
}
"""What doctor must name, by what was done to the file."""


def test_doctor_finds_and_repairs_a_row_that_differs(holdfast: CliHarness, folder: Path) -> None:
    story = trip_conversation()
    save_conversations(folder, story)
    whole = holdfast.run("sessions", "show", story.id, "--json").stdout
    in_store(folder, lambda store: store.search("Reykjavík", 1))
    for statement in DAMAGE.values():
        alter(folder, statement)
    found = holdfast.run("doctor")
    assert found.returncode == 1
    assert [name for name in DAMAGE if name not in found.stdout] == [], found.stdout
    assert found.stdout.count("  wrong: ") == len(DAMAGE)
    assert "holdfast doctor --rebuild" in found.stderr
    repaired = holdfast.run("doctor", "--rebuild")
    assert repaired.returncode == 0, repaired.stdout + repaired.stderr
    assert repaired.stdout.count("  repaired: ") == len(DAMAGE)
    assert repaired.stdout.endswith("Everything is repaired.\n")
    assert holdfast.run("doctor").stdout.endswith("All is well.\n")
    assert holdfast.run("sessions", "show", story.id, "--json").stdout == whole


def test_doctor_reports_what_rebuild_cannot_repair(holdfast: CliHarness, folder: Path) -> None:
    story = trip_conversation()
    save_conversations(folder, story)
    alter(folder, "UPDATE events SET body = CAST('{}' AS BLOB) WHERE kind = 'turn_accepted' AND seq = 2")
    result = holdfast.run("doctor", "--rebuild")
    assert result.returncode == 1
    assert f"wrong: conversation {story.id}: event 2 (turn_accepted) cannot be read" in result.stdout
    assert "holdfast restore FILE" in result.stderr
    report = json.loads(holdfast.run("doctor", "--json").stdout)
    assert not report["ok"] and not all(found["repaired"] for found in report["found"])


@pytest.mark.parametrize("how", ["not a database", "cut short", "overwritten inside", "empty", "gone"])
def test_doctor_reports_a_damaged_file(how: str, holdfast: CliHarness, folder: Path) -> None:
    save_conversations(folder, *(trip_conversation(f"Number {n}") for n in range(20)))
    file = folder / "holdfast.db"
    with file.open("r+b") as handle:
        size = handle.seek(0, 2)
        if how == "not a database":
            handle.seek(0)
            handle.write(b"x" * 4096)
        elif how == "cut short":
            handle.truncate(size // 2)
        elif how == "overwritten inside":
            handle.seek(size // 2)
            handle.write(b"\xff" * (size // 4))
        elif how == "empty":
            handle.truncate(0)
    if how == "gone":
        file.unlink()
    result = holdfast.run("doctor", "--json")
    assert (result.returncode, result.stderr) == (1, "")
    report = json.loads(result.stdout)
    assert not report["ok"] and report["surroundings"]["data"] == str(folder)
    if "problem" in report:
        assert report["problem"]["code"] == "store_corrupt"
        assert "holdfast restore FILE" in report["problem"]["remedy"]
    else:
        assert "file" in {found["where"] for found in report["found"]}


def test_doctor_prints_a_remedy_for_a_damaged_file(holdfast: CliHarness, folder: Path) -> None:
    save_conversations(folder, trip_conversation())
    (folder / "holdfast.db").write_bytes(b"x" * 100_000)
    result = holdfast.run("doctor")
    assert result.returncode == 1
    assert str(folder) in result.stdout, "what it stands on is told all the same"
    what, remedy = result.stderr.splitlines()
    assert what.startswith(f"holdfast: {folder / 'holdfast.db'} is damaged: ")
    assert remedy == "Run `holdfast restore FILE` with your newest backup."


def test_doctor_reports_a_store_of_a_newer_version(holdfast: CliHarness, folder: Path) -> None:
    save_conversations(folder, trip_conversation())
    with apsw.Connection(str(folder / "holdfast.db")) as db:
        db.pragma("user_version", 99)
    result = holdfast.run("doctor")
    assert result.returncode == 1
    assert "was written by a newer Holdfast" in result.stderr
    report = json.loads(holdfast.run("doctor", "--json").stdout)
    assert report["problem"]["code"] == "store_too_new"
    assert report["problem"]["remedy"].startswith("Install the newer Holdfast")


def test_doctor_runs_beside_a_server_and_reports_it(holdfast: CliHarness, folder: Path) -> None:
    save_conversations(folder, trip_conversation())
    holdfast.serve("--port", "0")
    result = holdfast.run("doctor")
    assert result.returncode == 0
    assert "In use by" in result.stdout and "1 other process" in result.stdout


def test_doctor_reclaims_the_space_of_deleted_conversations(holdfast: CliHarness, folder: Path) -> None:
    big = SampleConversation("Big")
    for n in range(40):
        # Numbers that do not repeat: what repeats takes hardly any space to begin with.
        big.user_message(" ".join(f"{n * 7919 + i * 104729:x}" for i in range(2000))).assistant_message(
            "So it is."
        )
    save_conversations(folder, big)
    size = (folder / "holdfast.db").stat().st_size
    assert holdfast.run("sessions", "delete", big.id, "--yes").returncode == 0
    save_conversations(folder, SampleConversation("Comes after"))
    # Two minutes pass.
    alter(folder, "UPDATE sessions SET deleted_at = deleted_at - 120000 WHERE deleted_at IS NOT NULL")
    alter(folder, "UPDATE events SET at = at - 120000 WHERE kind = 'session_deleted'")
    result = holdfast.run("doctor")
    assert result.returncode == 0, result.stdout
    assert "1 deleted conversation" in result.stdout
    assert (folder / "holdfast.db").stat().st_size < size / 2
