"""Keeping a server over HTTP: the password, the browsers that are in, backups, what it stands on."""

import asyncio
import shlex
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest

from holdfast import __version__
from tests.acceptance.conftest import CliHarness, RunningServer
from tests.support.api_client import ApiClient, api_client

PASSWORD, OTHER = "correct horse battery", "another battery staple"


@asynccontextmanager
async def browser(server: RunningServer, **opening: str) -> AsyncIterator[ApiClient]:
    """A browser that has signed in, with what it shows from then on."""
    jar = aiohttp.CookieJar(unsafe=True)
    headers = {"Origin": server.address.rstrip("/")}
    async with aiohttp.ClientSession(cookie_jar=jar, headers=headers) as session:
        api = ApiClient(server.address, session)
        entered = await api.post("/api/sign-in", opening)
        assert api.status == 200, entered
        session.headers["X-Holdfast-Page"] = entered["page_key"]
        yield api


async def rights_of(api: ApiClient) -> bool:
    await api.get("/api/me")
    return api.status == 200


# The password.


async def test_a_password_signs_browsers_in_until_it_is_removed(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    async with api_client(server.address) as api:
        assert await api.get("/api/password") == {"is_set": False, "set_at": None}
        assert (await api.post("/api/password", {"password": "short"}))["code"] == "bad_password"
        reply = await api.post("/api/password", {"password": PASSWORD})
        assert (api.status, reply["is_set"]) == (200, True)
        async with browser(server, password=PASSWORD) as one:
            assert await rights_of(one)
        wrong = await api.post("/api/password", {"password": OTHER, "old_password": "not that one"})
        assert (api.status, wrong["code"]) == (401, "sign_in_failed")
        await api.post("/api/password", {"password": OTHER, "old_password": PASSWORD})
        assert api.status == 200
        refused = await api.post("/api/sign-in", {"password": PASSWORD})
        assert refused["code"] == "sign_in_failed"
        await api.request("DELETE", "/api/password")
        assert api.status == 204
        assert (await api.get("/api/password"))["is_set"] is False
        assert (await api.post("/api/sign-in", {"password": OTHER}))["code"] == "sign_in_failed"


async def test_changing_the_password_signs_out_all_other_browsers(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    async with browser(server, code=server.code) as own:
        await own.post("/api/password", {"password": PASSWORD})
        async with browser(server, password=PASSWORD) as other:
            listed = (await own.get("/api/sign-ins"))["sign_ins"]
            assert [each["current"] for each in listed].count(True) == 1
            assert len(listed) == 2
            await own.post("/api/password", {"password": OTHER})
            assert await rights_of(own)
            assert not await rights_of(other)
        await own.request("DELETE", "/api/password")
        assert await rights_of(own)


async def test_a_browser_can_be_signed_out_from_another(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    async with api_client(server.address) as api, browser(server, code=server.code) as there:
        (listed,) = (await api.get("/api/sign-ins"))["sign_ins"]
        assert listed["current"] is False
        async with asyncio.timeout(30), there.stream("/api/stream?feed=true") as frames:
            await anext(frames)
            await api.request("DELETE", f"/api/sign-ins/{listed['id']}")
            assert api.status == 204
            with pytest.raises((aiohttp.ClientError, StopAsyncIteration)):
                while True:
                    await anext(frames)
        assert not await rights_of(there)
        assert (await api.request("DELETE", f"/api/sign-ins/{listed['id']}"))["code"] == "no_such_sign_in"


# Backups.


async def test_a_backup_is_made_listed_downloaded_and_restored(holdfast: CliHarness, tmp_path: Path) -> None:
    server = holdfast.serve("--port", "0")
    async with api_client(server.address) as api:
        session = await api.create_session(title="Before")
        made = await api.post("/api/backup")
        assert api.status == 201, made
        assert made["size_bytes"] > 0
        await api.request("PATCH", f"/api/sessions/{session}", {"title": "After"})
        second = await api.post("/api/backup")
        listed = (await api.get("/api/backups"))["backups"]
        assert {each["name"] for each in listed} == {made["name"], second["name"]}
        content = await api.get(f"/api/backups/{made['name']}")
        assert api.headers["content-disposition"] == f'attachment; filename="{made["name"]}"'
        assert api.headers["content-type"] == "application/vnd.sqlite3"
        assert len(content) == made["size_bytes"]
        assert content.startswith(b"SQLite format 3\0")
    server.process.terminate()
    server.process.wait(20)
    program, *words = shlex.split(made["restore"])
    assert program == "holdfast"
    assert holdfast.run(*words, "--yes").returncode == 0
    again = holdfast.serve("--port", "0")
    async with api_client(again.address) as api:
        assert (await api.get(f"/api/sessions/{session}"))["title"] == "Before"
        kept = {each["name"] for each in (await api.get("/api/backups"))["backups"]}
        assert len(kept) == 3, "what was there before the restore is kept too"


async def test_a_second_concurrent_backup_is_refused(server: RunningServer) -> None:
    async with api_client(server.address) as one, api_client(server.address) as two:
        replies = await asyncio.gather(one.post("/api/backup"), two.post("/api/backup"))
        assert sorted((one.status, two.status)) == [201, 409]
        assert [each["code"] for each in replies if "code" in each] == ["backup_running"]


@pytest.mark.parametrize(
    "name", ["x.db", "..%2Fholdfast.db", "%2E%2E%2Fholdfast.db", "holdfast.db", "..", "%00", "x" * 300]
)
async def test_only_backups_can_be_downloaded(server: RunningServer, name: str) -> None:
    (server.folder / "backups").mkdir(exist_ok=True)
    link = server.folder / "backups" / "x.db"
    if not link.is_symlink():
        link.symlink_to(server.folder / "holdfast.db")
    reply = server.request(f"/api/backups/{name}")
    assert reply.status == 404, reply.body[:200]


# What it is.


async def test_about_reports_version_data_folder_and_sandbox(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        await api.create_session()
        about = await api.get("/api/about")
        ready = await api.get("/health/ready")
    assert about["version"] == __version__
    assert about["data"] == str(server.folder)
    assert about["addresses"] == [server.address]
    assert (about["durability"], about["model"]) == ("full", "openai:small")
    assert about["store_bytes"] > 0
    assert about["sessions"] > 0
    assert 0 <= about["uptime_s"] < 3_600
    assert (about["confinement"], about["unprotected"]) == (ready["confinement"], ready["unprotected"])


async def test_a_token_without_the_admin_right_sees_only_about(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        made = await api.post("/api/tokens", {"name": "x", "rights": ["read", "write", "approve"]})
    async with api_client(server.address, made["secret"]) as api:
        await api.get("/api/about")
        assert api.status == 200
        for method, path in (
            ("GET", "/api/backups"), ("POST", "/api/backup"), ("GET", "/api/backups/x.db"),
            ("POST", "/api/password"), ("DELETE", "/api/password"), ("GET", "/api/password"),
            ("GET", "/api/sign-ins"), ("DELETE", "/api/sign-ins/x"),
        ):  # fmt: skip
            assert (await api.request(method, path))["code"] == "not_allowed", path
