"""Whoever chooses the folder that tools work in decides what is read unasked and where commands run."""

from pathlib import Path

import pytest

from holdfast.domain.credentials import Right
from tests.acceptance.conftest import Running
from tests.support.api_client import Api, talking
from tests.support.in_process_app import house
from tests.support.in_process_server import door, keyring_of


async def waiting(api: Api, folder: Path, command: str) -> tuple[str, str]:
    """A conversation in `folder` and the address of its call that waits to be allowed."""
    session = await api.begin(workspace=str(folder))
    run = (await api.say(session, f"run {command}"))["run_id"]
    await api.done(run, "waiting")
    tool = (await api.entries(session))[-1]
    assert f"It works in {folder}" in tool["reason"]
    return session, f"/api/runs/{run}/tools/{tool['id']}"


async def test_what_is_allowed_runs_in_the_folder_that_was_named(server: Running, tmp_path: Path) -> None:
    here, elsewhere = (tmp_path / name for name in ("here", "elsewhere"))
    for folder in (here, elsewhere):
        folder.mkdir()
    async with talking(server.address) as api:
        session, path = await waiting(api, here, "touch ran")
        body = {"workspace": str(elsewhere), "title": "Moved"}
        refused = await api.ask("PATCH", f"/api/sessions/{session}", body)
        assert (api.status, refused["code"]) == (409, "run_refused")
        assert "is waiting: it cannot be moved to another folder" in refused["detail"]
        told = await api.get(f"/api/sessions/{session}")
        assert told["workspace"] == str(here) and told["title"] != "Moved", "nothing of it was done"
        await api.post(path, {"decision": "approve"})
        await api.done(path.split("/")[3])
        assert (here / "ran").exists() and not (elsewhere / "ran").exists()
        await api.ask("PATCH", f"/api/sessions/{session}", body)
        assert api.status == 200, "nothing is to be done there any more"


@pytest.mark.parametrize("more", [None, "approve"])
async def test_to_choose_a_folder_needs_the_right_to_approve(more: Right | None, tmp_path: Path) -> None:
    rights: tuple[Right, ...] = ("read", "write") if more is None else ("read", "write", more)
    async with house(tmp_path / "store") as here:
        keyring = keyring_of(here)
        _, secret = await keyring.add_token("a script", rights)
        async with door(here, keyring=keyring) as api, talking(api.address, secret) as other:
            session = await other.begin(workspace="")
            before = (await here.store.totals()).events
            sent = {"workspace": str(tmp_path)}
            path = f"/api/sessions/{session}"
            for method, at, body in (
                ("POST", "/api/sessions", sent),
                ("PATCH", path, {**sent, "title": "x"}),
                ("PATCH", path, {"workspace": ""}),
            ):
                told = await other.ask(method, at, body)
                if more is None:
                    assert (other.status, told["code"]) == (403, "not_allowed"), (method, body)
                    assert "the right to approve, which a script does not have" in told["detail"]
                else:
                    assert other.status < 300, told
            if more is None:
                assert (await here.store.totals()).events == before
            await other.ask("PATCH", path, {"title": "Still"})
            assert other.status == 200


@pytest.mark.parametrize("folder", ["/proc", "/proc/self", "/sys", "/sys/kernel", "/dev", "/dev/../proc"])
async def test_a_folder_of_the_system_itself_cannot_be_chosen(server: Running, folder: str) -> None:
    async with talking(server.address) as api:
        refused = await api.post("/api/sessions", {"workspace": folder})
        assert (api.status, refused["code"]) == (400, "bad_request"), refused
        session = await api.begin()
        await api.ask("PATCH", f"/api/sessions/{session}", {"workspace": folder})
        assert api.status == 400
