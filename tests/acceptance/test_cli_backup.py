"""Backups are whole whatever goes on meanwhile, and restoring one never loses what was there."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import tarfile
import time
from contextlib import closing
from pathlib import Path

import pytest

from tests.acceptance.conftest import CliHarness
from tests.support.sample_conversations import (
    SampleConversation,
    in_store,
    save_conversations,
    trip_conversation,
)

WRITER = """
import asyncio, sys
from pathlib import Path
from holdfast.domain.clock import SystemClock
from holdfast.domain.events.facts import SessionCreated, SessionRenamed
from holdfast.domain.ids import IdGenerator
from holdfast.store.ports import Append
from holdfast.store.sqlite.store import SqliteStore

async def write():
    store = await SqliteStore.open(Path(sys.argv[1]), "normal")
    session_id, n = IdGenerator(SystemClock()).session(), 0
    await store.append(Append(session_id, [SessionCreated("written meanwhile")]))
    print(session_id, flush=True)
    while True:
        n += 1
        # Both or neither: a copy that holds half of this pair is not whole.
        pair = [SessionRenamed(f"{n} {'x' * 100}", "user"), SessionRenamed(f"{n} again", "user")]
        await store.append(Append(session_id, pair))

asyncio.run(write())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "share" / "holdfast"


def test_a_backup_taken_while_a_writer_runs_restores_to_a_consistent_store(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    stories = [trip_conversation(f"Number {n}") for n in range(30)]
    save_conversations(folder, *stories)
    writer = subprocess.Popen(
        [sys.executable, "-P", "-c", WRITER, str(folder)],
        env=holdfast.environ, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    holdfast.started.append(writer)
    assert writer.stdout is not None
    written = writer.stdout.readline().strip()
    file = tmp_path / "copy.db"
    done = holdfast.run("backup", str(file), "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["bytes"] == file.stat().st_size
    assert writer.poll() is None, "it wrote all the while"
    writer.kill()
    writer.wait()
    elsewhere = tmp_path / "elsewhere"
    restored = holdfast.run("restore", str(file), "--data", str(elsewhere))
    assert (restored.returncode, restored.stderr) == (0, "")
    examined = holdfast.run("doctor", "--data", str(elsewhere))
    assert examined.returncode == 0, examined.stdout
    listed = json.loads(holdfast.run("sessions", "list", "--json", "--data", str(elsewhere)).stdout)
    assert {row["id"] for row in listed} == {story.id for story in stories} | {written}
    title = next(row["title"] for row in listed if row["id"] == written)
    assert title == "written meanwhile" or title.endswith(" again")


def test_a_backup_prints_a_working_restore_command(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    story, file = trip_conversation(), tmp_path / "it's a copy.db"
    save_conversations(folder, story)
    result = holdfast.run("backup", str(file))
    assert result.returncode == 0
    assert result.stdout.startswith(f"Copied every conversation to {file} (")
    assert file.stat().st_mode & 0o077 == 0
    command = result.stdout.splitlines()[1].removeprefix("To go back to it, with no server running: ")
    holdfast.run("sessions", "delete", story.id, "--yes")
    back = subprocess.run(
        ["sh", "-c", command.replace("holdfast", f"'{sys.executable}' -P -m holdfast", 1) + " --yes"],
        env=holdfast.environ, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert back.returncode == 0, back.stderr
    assert f"What was there before is in {folder / 'backups'}" in back.stdout
    assert "About 3 °C." in holdfast.run("sessions", "show", story.id).stdout


def test_a_backup_replaces_a_file_only_with_force(holdfast: CliHarness, folder: Path, tmp_path: Path) -> None:
    save_conversations(folder, trip_conversation())
    file = tmp_path / "copy.db"
    file.write_text("precious")
    assert holdfast.run("backup", str(file)).stderr.startswith(f"holdfast: {file} is there already.")
    assert file.read_text() == "precious"
    assert holdfast.run("backup", str(file), "--force").returncode == 0
    for target in (folder / "holdfast.db", tmp_path, tmp_path / "no such folder" / "copy.db"):
        result = holdfast.run("backup", str(target), "--force", "--json")
        assert (result.returncode, json.loads(result.stderr)["code"]) == (1, "cannot_write"), target
    assert in_store(folder, lambda store: store.totals()).sessions == 1


def test_backup_of_an_empty_folder_fails(holdfast: CliHarness, folder: Path, tmp_path: Path) -> None:
    result = holdfast.run("backup", str(tmp_path / "copy.db"))
    assert result.returncode == 1
    assert result.stderr.startswith(f"holdfast: There is nothing in {folder} yet.\n")
    assert not folder.exists() and not (tmp_path / "copy.db").exists()


def test_restore_refuses_while_a_server_runs(holdfast: CliHarness, folder: Path, tmp_path: Path) -> None:
    story, file = trip_conversation(), tmp_path / "copy.db"
    save_conversations(folder, story)
    holdfast.run("backup", str(file))
    server = holdfast.serve("--port", "0")
    result = holdfast.run("restore", str(file), "--yes")
    assert result.returncode == 1
    assert result.stderr.splitlines() == [
        f"holdfast: {folder} is in use by another Holdfast process.", "Stop `holdfast serve` first."
    ]  # fmt: skip
    assert server.request("/health/ready").status == 200
    server.process.terminate()
    server.process.wait(30)
    assert holdfast.run("restore", str(file), "--yes").returncode == 0


def test_restore_rejects_a_file_that_is_not_a_backup(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    story, other = trip_conversation(), tmp_path / "other"
    save_conversations(folder, story)
    save_conversations(other, SampleConversation("Other"))
    good = (other / "holdfast.db").read_bytes()
    bad = {
        "not there": None,
        "empty": b"",
        "cut short": good[: len(good) // 2],
        "overwritten": good[:20_000] + b"\xff" * 40_000 + good[60_000:],
    }
    for name, content in bad.items():
        file = tmp_path / name
        if content is not None:
            file.write_bytes(content)
        result = holdfast.run("restore", str(file), "--yes", "--json")
        assert result.returncode == 1, name
        assert json.loads(result.stderr)["code"] in ("not_a_store", "store_corrupt"), (name, result.stderr)
    assert in_store(folder, lambda store: store.head(story.id)) == len(story.facts)


def test_restore_asks_for_confirmation(holdfast: CliHarness, folder: Path, tmp_path: Path) -> None:
    save_conversations(folder, trip_conversation())
    holdfast.run("backup", str(tmp_path / "copy.db"))
    unsure = subprocess.run(
        [sys.executable, "-P", "-m", "holdfast", "restore", str(tmp_path / "copy.db")],
        env=holdfast.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert unsure.returncode == 1
    assert "What is there is kept aside." in unsure.stderr
    assert not (folder / "backups").exists()


def test_ctrl_c_stops_a_backup_and_leaves_nothing_behind(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    save_conversations(
        folder,
        *(
            SampleConversation(f"Big {n}").user_message("x" * 900_000).assistant_message("y")
            for n in range(60)
        ),
    )
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "holdfast", "backup", str(tmp_path / "copy.db")],
        env=holdfast.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    holdfast.started.append(process)
    until = time.monotonic() + 60
    while not list(tmp_path.glob(".copy.db.*")) and process.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert "Traceback" not in stderr
    copy = tmp_path / "copy.db"
    if copy.exists():  # It was there before the signal was: then it is whole.
        with closing(sqlite3.connect(copy)) as db:
            assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
            assert db.execute("SELECT count(*) FROM sessions").fetchone() == (60,)
    else:
        assert process.returncode != 0
    assert not list(tmp_path.glob(".copy.db.*"))


def add_workspace_file(folder: Path, story: SampleConversation, text: str) -> Path:
    """A file in the conversation's own folder."""
    file = folder / "workspaces" / story.id / "notes.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def files(folder: Path) -> dict[str, str]:
    """Return the text of the file in each conversation's folder."""
    return {path.parent.name: path.read_text() for path in folder.glob("workspaces/*/notes.txt")}


def test_a_backup_with_workspaces_restores_on_another_machine(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    story, file, elsewhere = trip_conversation(), tmp_path / "all.tar", tmp_path / "elsewhere"
    save_conversations(folder, story)
    add_workspace_file(folder, story, "about 3 °C")
    server = holdfast.serve("--port", "0")
    result = holdfast.run("backup", "--workspaces", str(file))
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.startswith(f"Copied every conversation and its files to {file} (")
    assert file.stat().st_mode & 0o077 == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["all.tar", "share"]
    assert server.request("/health/ready").status == 200
    restored = holdfast.run("restore", str(file), "--data", str(elsewhere))
    assert (restored.returncode, restored.stderr) == (0, "")
    assert restored.stdout == f"Restored {file} to {elsewhere}.\n"
    assert "About 3 °C." in holdfast.run("sessions", "show", story.id, "--data", str(elsewhere)).stdout
    assert files(elsewhere) == {story.id: "about 3 °C"}
    assert holdfast.run("doctor", "--data", str(elsewhere)).returncode == 0


def test_restore_keeps_the_previous_files_for_a_rollback(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    first, second, file = trip_conversation("First"), trip_conversation("Second"), tmp_path / "all.tar"
    save_conversations(folder, first)
    add_workspace_file(folder, first, "as it was")
    assert holdfast.run("backup", "--workspaces", str(file)).returncode == 0
    save_conversations(folder, second)
    add_workspace_file(folder, first, "newer")
    add_workspace_file(folder, second, "second")
    done = json.loads(holdfast.run("restore", str(file), "--yes", "--json").stdout)
    assert files(folder) == {first.id: "as it was"}
    kept = Path(done["kept_workspaces"])
    assert (kept / first.id / "notes.txt").read_text() == "newer"
    assert (kept / second.id / "notes.txt").read_text() == "second"
    result = holdfast.run("restore", done["kept"], "--yes")
    assert "The files that were there before are in " in result.stdout
    assert files(folder) == {first.id: "newer", second.id: "second"}
    listed = json.loads(holdfast.run("sessions", "list", "--json").stdout)
    assert {row["title"] for row in listed} == {"First", "Second"}


def test_restoring_without_workspaces_keeps_existing_files(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    story, file = trip_conversation(), tmp_path / "copy.db"
    save_conversations(folder, story)
    assert holdfast.run("backup", str(file)).returncode == 0
    add_workspace_file(folder, story, "newer")
    done = json.loads(holdfast.run("restore", str(file), "--yes", "--json").stdout)
    assert done["kept"] is not None and done["kept_workspaces"] is None
    assert files(folder) == {story.id: "newer"}


def test_a_backup_skips_and_reports_special_files(holdfast: CliHarness, folder: Path, tmp_path: Path) -> None:
    story, file, outside = trip_conversation(), tmp_path / "all.tar", tmp_path / "outside.txt"
    save_conversations(folder, story)
    outside.write_text("not in any workspace")
    own = add_workspace_file(folder, story, "mine").parent
    os.mkfifo(own / "pipe")
    (own / "link").symlink_to(outside)
    result = holdfast.run("backup", "--workspaces", str(file))
    assert result.returncode == 0
    assert result.stderr.splitlines() == [
        "1 file or link left out or cut short:",
        f"  workspaces/{story.id}/pipe: it is neither a file nor a folder nor a link",
    ]
    assert b"not in any workspace" not in file.read_bytes()
    done = holdfast.run("restore", str(file), "--yes", "--json")
    assert json.loads(done.stdout)["left_out"] == [
        f"workspaces/{story.id}/link: this link to {outside} may lead out of its folder"
    ]
    assert sorted(path.name for path in own.iterdir()) == ["notes.txt"]


def test_restore_rejects_an_archive_with_path_traversal(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    story, file = trip_conversation(), tmp_path / "all.tar"
    save_conversations(folder, story)
    add_workspace_file(folder, story, "mine")
    assert holdfast.run("backup", "--workspaces", str(file)).returncode == 0
    with tarfile.open(file, "a") as tar:
        tar.addfile(tarfile.TarInfo(f"workspaces/{story.id}/../../token"))
    before = sorted(folder.rglob("*"))
    result = holdfast.run("restore", str(file), "--yes", "--json")
    assert (result.returncode, json.loads(result.stderr)["code"]) == (1, "bad_backup")
    assert sorted(folder.rglob("*")) == before
    assert files(folder) == {story.id: "mine"}
