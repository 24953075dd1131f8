"""Letting programs in, each with the rights it was given and no other."""

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from holdfast.domain.credentials import RIGHTS
from holdfast.http.app import PATHS
from holdfast.http.route_rights import required_right
from tests.acceptance.conftest import CliHarness, RunningServer
from tests.support.api_client import ApiClient, api_client, wait_until
from tests.support.in_process_app import running_app
from tests.support.in_process_server import browser_headers, http_server, make_keyring

METHODS = ("GET", "POST", "PATCH", "DELETE", "PUT", "OPTIONS")
LET_IN = {200, 201, 202, 204, 308, 400, 404, 405, 409, 413, 415, 422}


async def request_status_and_body(api: ApiClient, method: str, path: str) -> tuple[int, Any]:
    """Status and body; of a stream only its beginning."""
    named = re.sub(r"\{\w+\}", "x_0000000000000000", path)
    headers = {"content-type": "application/json"}
    sent = b"{}" if method in ("POST", "PATCH") else None
    async with api.session.request(method, api.address + named, data=sent, headers=headers) as answer:
        if answer.content_type == "text/event-stream":
            return answer.status, {}
        raw = await answer.read()
        return answer.status, json.loads(raw) if "json" in answer.content_type else {}


@pytest.mark.parametrize("held", [None, "", *RIGHTS])
async def test_every_path_requires_its_right(held: str | None, tmp_path: Path) -> None:
    """`None` is nobody, an empty text a token that does not exist."""
    async with running_app(tmp_path) as app:
        keyring = make_keyring(app)
        secret = "" if held is None else "hf_" + "x" * 43
        if held:
            _, secret = await keyring.add_token("test", (held,))  # type: ignore[arg-type]
        async with http_server(app, keyring=keyring) as api, api_client(api.address, secret) as other:
            before = await app.store.totals()
            for path in PATHS:
                for method in METHODS:
                    if (method, path) == ("POST", "/api/sign-out"):
                        continue
                    right = required_right(method, path.replace("{name}", "x"))
                    status, body = await request_status_and_body(other, method, path)
                    if right is None or right == held:
                        wanted = LET_IN | ({401} if path == "/api/sign-in" else set())
                        assert status in wanted, (method, path, status, body)
                    elif not held:
                        assert (status, body["code"]) in ((401, "not_signed_in"), (429, "too_many_tries"))
                    else:
                        assert (status, body["code"]) == (403, "not_allowed"), (method, path)
                        assert f"the right to {right}" in body["detail"]
            if held != "write":
                assert (await app.store.totals()).events == before.events
            if held != "admin":
                assert not [each for each, _ in await keyring.tokens() if each.name != "test"]


def test_a_token_is_shown_once_and_works_until_revoked(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    made = holdfast.run("tokens", "add", "backup script")
    secret = made.stdout.strip()
    assert (made.returncode, secret.startswith("hf_")) == (0, True)
    assert server.request("/api/sessions", token=secret).status == 200
    listed = holdfast.run("tokens", "list")
    assert "backup script" in listed.stdout and "read, write" in listed.stdout
    assert secret not in listed.stdout + holdfast.run("tokens", "list", "--json").stdout
    (row,) = json.loads(holdfast.run("tokens", "list", "--json").stdout)
    assert holdfast.run("tokens", "revoke", row["id"]).stdout == f"Revoked {row['id']}.\n"

    async def is_out() -> bool:
        return server.request("/api/sessions", token=secret).status == 401

    asyncio.run(wait_until(is_out, 5))
    assert holdfast.run("tokens", "revoke", row["id"]).returncode == 1
    assert holdfast.run("tokens", "list").stdout == "There are no tokens.\n"


def test_the_rights_of_a_token_are_those_that_were_named(holdfast: CliHarness) -> None:
    made = json.loads(
        holdfast.run("tokens", "add", "x", "--right", "approve", "--right", "read", "--json").stdout
    )
    assert made["token"]["rights"] == ["read", "approve"]
    wrong = holdfast.run("tokens", "add", "x", "--right", "everything")
    assert (wrong.returncode, "none of read, write, approve, admin" in wrong.stderr) == (2, True)


async def test_a_stream_ends_soon_after_its_token_was_revoked_elsewhere(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        keyring = make_keyring(app)
        token, secret = await keyring.add_token("test", ("read",))
        async with http_server(app) as api, api_client(api.address, secret) as other:
            session = await api.create_session()
            for path in (f"/api/sessions/{session}/events", f"/api/stream?session={session}:0"):
                async with other.stream(path) as frames:
                    await anext(frames)
            async with other.stream(f"/api/sessions/{session}/events") as frames:
                await anext(frames)
                # Not by the door's own keyring: as another process does it.
                await keyring.revoke_token(token.id)
                with pytest.raises((aiohttp.ClientError, StopAsyncIteration)):
                    async with asyncio.timeout(30):
                        while True:
                            await anext(frames)
            await other.get("/api/me")
            assert other.status == 401


async def test_tokens_are_made_listed_and_revoked_over_http_by_an_administrator(
    server: RunningServer,
) -> None:
    async with api_client(server.address) as api:
        made = await api.post("/api/tokens", {"name": "over http", "rights": ["read"]})
        assert (api.status, made["token"]["rights"]) == (201, ["read"])
        listed = await api.get("/api/tokens")
        assert made["token"]["id"] in [each["id"] for each in listed["tokens"]]
        assert made["secret"] not in json.dumps(listed)
        async with api_client(server.address, made["secret"]) as other:
            assert (await other.get("/api/me"))["rights"] == ["read"]
            await api.request("DELETE", f"/api/tokens/{made['token']['id']}")
            assert api.status == 204
            await other.get("/api/me")
            assert other.status == 401, "in this process at once"


async def test_the_last_use_of_a_token_is_recorded(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        keyring = make_keyring(app)
        _, secret = await keyring.add_token("test", ("read",))
        async with http_server(app, keyring=keyring) as api, api_client(api.address, secret) as other:
            await other.get("/api/me")

            async def is_noted() -> bool:
                return (await keyring.tokens())[0][1] is not None

            await wait_until(is_noted, 5)


async def test_another_authorization_scheme_is_ignored(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        keyring = make_keyring(app)
        async with http_server(app, keyring=keyring) as api, api_client(api.address, "") as browser:
            own = await browser_headers(keyring, api.address)
            await browser.get("/api/me", headers=own | {"Authorization": "Basic dXNlcjpwYXNz"})
            assert browser.status == 200
            await browser.get("/api/me", headers=own | {"Authorization": "Bearer wrong"})
            assert browser.status == 401
