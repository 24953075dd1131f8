"""C14: only the deletion of its conversation, recorded in this store, removes a workspace.

The server, the backup and the restore are real processes; the server sweeps many times a second.
"""

import json
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in

WAIT_S = 60.0
QUICK_SWEEPER = Path(__file__).with_name("frequent_sweeper.py")


@pytest.fixture
def holdfast(tmp_path: Path) -> Iterator[CliHarness]:
    with cli_in(tmp_path) as command:
        yield command


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "share" / "holdfast"


def serve(holdfast: CliHarness) -> RunningServer:
    return holdfast.serve("--port", "0", program=(str(QUICK_SWEEPER),))


def stop(server: RunningServer) -> None:
    server.process.terminate()
    server.process.wait(WAIT_S)


def create_session_with_file(server: RunningServer, text: str) -> str:
    """Create a conversation with a file in its own folder."""
    made = server.request("/api/sessions", "POST", "{}", **{"content-type": "application/json"})
    session_id = str(json.loads(made.body)["id"])
    own = own_folder(server.folder, session_id)
    own.mkdir(parents=True)
    (own / "notes.txt").write_text(text)
    return session_id


def own_folder(folder: Path, session_id: str) -> Path:
    return folder / "workspaces" / session_id


def files(folder: Path) -> dict[str, str]:
    """Return the text of each workspace's file."""
    return {path.parent.name: path.read_text() for path in folder.glob("workspaces/*/notes.txt")}


def delete(server: RunningServer, session_id: str) -> None:
    assert server.request(f"/api/sessions/{session_id}", "DELETE").status == 204


def wait_until_removed(path: Path) -> None:
    """Wait until a folder is gone, also under the name that it has during its removal."""
    until = time.monotonic() + WAIT_S
    while list(path.parent.glob(f"{path.name}*")):
        assert time.monotonic() < until, f"{path} is still there"
        time.sleep(0.01)


def sweeps(server: RunningServer, times: int) -> None:
    """Return after this many sweeps, each with a folder to remove."""
    for _ in range(times):
        session_id = create_session_with_file(server, "passing")
        delete(server, session_id)
        wait_until_removed(own_folder(server.folder, session_id))


def restore(holdfast: CliHarness, file: str) -> str:
    """Restore `file`; return the kept one."""
    done = holdfast.run("restore", file, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["kept"])


def test_a_workspace_stays_until_the_deletion_of_its_session_is_recorded_in_this_store(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    """C14: restoring a backup, and rolling back."""
    server = serve(holdfast)
    first = create_session_with_file(server, "first")
    assert holdfast.run("backup", str(tmp_path / "older.db")).returncode == 0
    second = create_session_with_file(server, "second")
    both = {first: "first", second: "second"}
    stop(server)
    kept = restore(holdfast, str(tmp_path / "older.db"))
    server = serve(holdfast)
    assert server.request(f"/api/sessions/{second}").status == 404
    sweeps(server, 3)
    assert files(folder) == both
    stop(server)
    restore(holdfast, kept)
    server = serve(holdfast)
    sweeps(server, 3)
    assert files(folder) == both
    for session_id in both:
        assert server.request(f"/api/sessions/{session_id}").status == 200
    delete(server, second)
    wait_until_removed(own_folder(folder, second))
    assert files(folder) == {first: "first"}


def test_a_start_with_another_database_deletes_no_workspace(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    """C14: a new store, and one that an operator put there."""
    server = serve(holdfast)
    before = tmp_path / "before.db"
    assert holdfast.run("backup", str(before)).returncode == 0
    session_id = create_session_with_file(server, "mine")
    stop(server)
    for name in ("holdfast.db", "format"):
        (folder / name).unlink()
    server = serve(holdfast)
    sweeps(server, 3)
    stop(server)
    shutil.copyfile(before, folder / "holdfast.db")
    server = serve(holdfast)
    sweeps(server, 3)
    assert files(folder) == {session_id: "mine"}


def test_a_restore_performs_no_deletion_recorded_by_an_older_store(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    """C14: the conversation was imported again since, and has the folder."""
    server = holdfast.serve("--port", "0")
    session_id = create_session_with_file(server, "first")
    exported = tmp_path / "conversation.json"
    assert holdfast.run("sessions", "export", session_id, "-o", str(exported)).returncode == 0
    delete(server, session_id)
    backup = tmp_path / "deleted.db"
    assert holdfast.run("backup", str(backup)).returncode == 0
    assert holdfast.run("sessions", "import", str(exported)).returncode == 0
    (own_folder(folder, session_id) / "notes.txt").write_text("again")
    stop(server)
    kept = restore(holdfast, str(backup))
    server = serve(holdfast)
    sweeps(server, 3)
    stop(server)
    restore(holdfast, kept)
    server = serve(holdfast)
    assert server.request(f"/api/sessions/{session_id}").status == 200
    assert files(folder) == {session_id: "again"}


def test_a_deletion_removes_the_folder_though_the_server_is_killed_before_that(
    holdfast: CliHarness, folder: Path
) -> None:
    """C14: the next server carries out the recorded deletion."""
    server = holdfast.serve("--port", "0")  # Its first sweep is a minute away.
    kept, gone = create_session_with_file(server, "kept"), create_session_with_file(server, "gone")
    delete(server, gone)
    server.process.kill()
    server.process.wait(WAIT_S)
    assert set(files(folder)) == {kept, gone}
    serve(holdfast)
    wait_until_removed(own_folder(folder, gone))
    assert files(folder) == {kept: "kept"}


def test_without_a_server_doctor_removes_the_folder_of_a_deleted_conversation(
    holdfast: CliHarness, folder: Path
) -> None:
    """C14"""
    server = holdfast.serve("--port", "0")
    kept, gone = create_session_with_file(server, "kept"), create_session_with_file(server, "gone")
    stop(server)
    assert holdfast.run("sessions", "delete", gone, "--yes").returncode == 0
    assert holdfast.run("doctor").returncode == 0
    assert files(folder) == {kept: "kept"}


def test_a_deletion_that_a_backup_records_holds_for_the_workspaces_that_came_with_it(
    holdfast: CliHarness, folder: Path, tmp_path: Path
) -> None:
    """C14: they belong to that store."""
    server = holdfast.serve("--port", "0")
    kept, gone = create_session_with_file(server, "kept"), create_session_with_file(server, "gone")
    delete(server, gone)
    backup = str(tmp_path / "all.tar")
    assert holdfast.run("backup", "--workspaces", backup).returncode == 0
    stop(server)
    restore(holdfast, backup)
    assert set(files(folder)) == {kept, gone}
    serve(holdfast)
    wait_until_removed(own_folder(folder, gone))
    assert files(folder) == {kept: "kept"}
