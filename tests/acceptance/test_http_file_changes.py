"""Files that an agent changes, over HTTP: asked about, told with their difference, put back; long output."""

import json
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import RunningServer
from tests.support.api_client import ApiClient, api_client, text_of


async def run_approved_call(
    api: ApiClient, session: str, tool: str, **arguments: object
) -> tuple[str, dict[str, Any]]:
    """A call that was asked about and allowed: its run, and its entry once that has ended."""
    run = (await api.send(session, f"use {tool} {json.dumps(arguments)}"))["run_id"]
    await api.wait_for_run(run, "waiting")
    waiting = (await api.entries(session))[-1]
    assert (waiting["name"], waiting["approval"]) == (tool, "requested")
    await api.post(f"/api/runs/{run}/tools/{waiting['id']}", {"decision": "approve"})
    await api.wait_for_run(run)
    return run, next(each for each in await api.entries(session) if each["id"] == waiting["id"])


async def test_a_file_change_is_approved_listed_and_restored(server: RunningServer, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Tidy up\nand rest\n")
    async with api_client(server.address) as api:
        session = await api.create_session(workspace=str(tmp_path))
        run, entry = await run_approved_call(
            api, session, "edit_file", path="notes.txt", old_text="Tidy", new_text="Tidied"
        )
        assert (tmp_path / "notes.txt").read_text() == "Tidied up\nand rest\n"
        (change,) = [part for part in entry["parts"] if part["type"] == "change"]
        reply = await api.get(f"/api/runs/{run}/changes")
        expected = {**{k: v for k, v in change.items() if k != "type"}, "kept": True}
        assert reply == {"changes": [expected], "left_out": 0} and change["workspace"] == str(tmp_path)
        assert (change["added"], change["removed"]) == (1, 1) and "+Tidied up" in change["diff"]
        assert await api.get(f"/api/files/{change['before']}") == b"Tidy up\nand rest\n"

        path = f"/api/runs/{run}/changes/restore"
        (tmp_path / "notes.txt").write_text("by hand\n")
        problem = await api.post(path, {})
        assert (api.status, problem["code"]) == (409, "files_changed") and "notes.txt" in problem["detail"]
        (tmp_path / "notes.txt").write_text("Tidied up\nand rest\n")
        problem = await api.post(path, {"paths": ["../etc/passwd"]})
        assert (api.status, problem["code"]) == (404, "no_such_change")
        wrong: tuple[dict[str, object], ...] = ({"paths": []}, {"paths": "notes.txt"}, {"force": True})
        for bad in wrong:
            assert (await api.post(path, bad))["code"] == "bad_request"
        assert await api.post(path) == {"restored": ["notes.txt"]}
        assert (tmp_path / "notes.txt").read_text() == "Tidy up\nand rest\n"
        frames = await api.events_through(session, 0, "files_restored")
        assert frames[-1].data["paths"] == ["notes.txt"]


async def test_restoring_files_needs_the_approve_right(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        run, _ = await run_approved_call(api, session, "write_file", path="f", content="x")
        made = await api.post("/api/tokens", {"name": "writer", "rights": ["read", "write"]})
    async with api_client(server.address, made["secret"]) as other:
        assert len((await other.get(f"/api/runs/{run}/changes"))["changes"]) == 1
        await other.post(f"/api/runs/{run}/changes/restore", {})
        assert other.status == 403


async def test_long_output_can_be_opened_whole(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        _, entry = await run_approved_call(api, session, "shell", command="seq 1 100000")
        (file,) = [part for part in entry["parts"] if part["type"] == "file"]
        assert len(text_of(entry)) < 70_000 and f"output:{entry['id']}" in text_of(entry)
        content = await api.get(f"/api/files/{file['blob']}?name={file['name']}")
        assert content == b"".join(b"%d\n" % n for n in range(1, 100_001)) + b"exit code 0\n"
        assert api.headers["content-disposition"].startswith("attachment")
        run = await api.send(session, f"use read_file {json.dumps({'path': 'output:' + entry['id']})}")
        await api.wait_for_run(run["run_id"])
        read = (await api.entries(session))[-2]
        assert read["outcome"] == "done" and "\n2000\n" in text_of(read)


async def test_files_are_searched_without_asking(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        session = await api.create_session()
        await run_approved_call(api, session, "write_file", path="src/a.py", content="def go():\n    pass\n")
        run = await api.send(session, f"use search_files {json.dumps({'pattern': 'def .o'})}")
        await api.wait_for_run(run["run_id"])
        assert text_of((await api.entries(session))[-2]) == "src/a.py:1: def go():\n"
