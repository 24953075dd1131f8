"""Whoever chooses the folder that tools work in decides what is read unasked and where commands run."""

from pathlib import Path

import pytest

from holdfast.domain.credentials import Right
from tests.acceptance.conftest import RunningServer
from tests.support.api_client import ApiClient, api_client
from tests.support.in_process_app import running_app
from tests.support.in_process_server import http_server, make_keyring


async def start_pending_approval(api: ApiClient, folder: Path, command: str) -> tuple[str, str]:
    """A conversation in `folder` and the address of its call that waits to be allowed."""
    session = await api.create_session(workspace=str(folder))
    run = (await api.send(session, f"run {command}"))["run_id"]
    await api.wait_for_run(run, "waiting")
    tool = (await api.entries(session))[-1]
    assert f"It works in {folder}" in tool["reason"]
    return session, f"/api/runs/{run}/tools/{tool['id']}"


async def test_an_approved_command_runs_in_the_chosen_workspace(
    server: RunningServer, tmp_path: Path
) -> None:
    here, elsewhere = (tmp_path / name for name in ("here", "elsewhere"))
    for folder in (here, elsewhere):
        folder.mkdir()
    async with api_client(server.address) as api:
        session, path = await start_pending_approval(api, here, "touch ran")
        body = {"workspace": str(elsewhere), "title": "Moved"}
        refused = await api.request("PATCH", f"/api/sessions/{session}", body)
        assert (api.status, refused["code"]) == (409, "run_refused")
        assert "is waiting: it cannot be moved to another folder" in refused["detail"]
        info = await api.get(f"/api/sessions/{session}")
        assert info["workspace"] == str(here) and info["title"] != "Moved", "nothing of it was done"
        await api.post(path, {"decision": "approve"})
        await api.wait_for_run(path.split("/")[3])
        assert (here / "ran").exists() and not (elsewhere / "ran").exists()
        await api.request("PATCH", f"/api/sessions/{session}", body)
        assert api.status == 200, "nothing is to be done there any more"


@pytest.mark.parametrize("more", [None, "approve"])
async def test_choosing_a_workspace_needs_the_approve_right(more: Right | None, tmp_path: Path) -> None:
    rights: tuple[Right, ...] = ("read", "write") if more is None else ("read", "write", more)
    async with running_app(tmp_path / "store") as app:
        keyring = make_keyring(app)
        _, secret = await keyring.add_token("a script", rights)
        async with http_server(app, keyring=keyring) as api, api_client(api.address, secret) as other:
            session = await other.create_session(workspace="")
            before = (await app.store.totals()).events
            sent = {"workspace": str(tmp_path)}
            path = f"/api/sessions/{session}"
            for method, at, body in (
                ("POST", "/api/sessions", sent),
                ("PATCH", path, {**sent, "title": "x"}),
                ("PATCH", path, {"workspace": ""}),
            ):
                problem = await other.request(method, at, body)
                if more is None:
                    assert (other.status, problem["code"]) == (403, "not_allowed"), (method, body)
                    assert "the right to approve, which a script does not have" in problem["detail"]
                else:
                    assert other.status < 300, problem
            if more is None:
                assert (await app.store.totals()).events == before
            await other.request("PATCH", path, {"title": "Still"})
            assert other.status == 200


@pytest.mark.parametrize("folder", ["/proc", "/proc/self", "/sys", "/sys/kernel", "/dev", "/dev/../proc"])
async def test_a_folder_of_the_system_itself_cannot_be_chosen(server: RunningServer, folder: str) -> None:
    async with api_client(server.address) as api:
        refused = await api.post("/api/sessions", {"workspace": folder})
        assert (api.status, refused["code"]) == (400, "bad_request"), refused
        session = await api.create_session()
        await api.request("PATCH", f"/api/sessions/{session}", {"workspace": folder})
        assert api.status == 400
