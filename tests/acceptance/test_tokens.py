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
from holdfast.http.route_rights import right_needed
from tests.acceptance.conftest import Holdfast, Running
from tests.support.api_client import Api, talking, until
from tests.support.in_process_app import house
from tests.support.in_process_server import door, keyring_of, signed_in

METHODS = ("GET", "POST", "PATCH", "DELETE", "PUT", "OPTIONS")
LET_IN = {200, 201, 202, 204, 308, 400, 404, 405, 409, 413, 415, 422}


async def answered(api: Api, method: str, path: str) -> tuple[int, Any]:
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
async def test_every_path_asks_for_its_right_and_does_nothing_without(
    held: str | None, tmp_path: Path
) -> None:
    """`None` is nobody, an empty text a token that does not exist."""
    async with house(tmp_path) as here:
        keyring = keyring_of(here)
        secret = "" if held is None else "hf_" + "x" * 43
        if held:
            _, secret = await keyring.add_token("test", (held,))  # type: ignore[arg-type]
        async with door(here, keyring=keyring) as api, talking(api.address, secret) as other:
            before = await here.store.totals()
            for path in PATHS:
                for method in METHODS:
                    if (method, path) == ("POST", "/api/sign-out"):
                        continue
                    right = right_needed(method, path.replace("{name}", "x"))
                    status, told = await answered(other, method, path)
                    if right is None or right == held:
                        wanted = LET_IN | ({401} if path == "/api/sign-in" else set())
                        assert status in wanted, (method, path, status, told)
                    elif not held:
                        assert (status, told["code"]) in ((401, "not_signed_in"), (429, "too_many_tries"))
                    else:
                        assert (status, told["code"]) == (403, "not_allowed"), (method, path)
                        assert f"the right to {right}" in told["detail"]
            if held != "write":
                assert (await here.store.totals()).events == before.events
            if held != "admin":
                assert not [each for each, _ in await keyring.tokens() if each.name != "test"]


def test_a_token_is_shown_once_and_let_in_until_it_is_revoked(holdfast: Holdfast) -> None:
    server = holdfast.serve("--port", "0")
    made = holdfast.run("tokens", "add", "backup script")
    secret = made.stdout.strip()
    assert (made.returncode, secret.startswith("hf_")) == (0, True)
    assert server.ask("/api/sessions", token=secret).status == 200
    listed = holdfast.run("tokens", "list")
    assert "backup script" in listed.stdout and "read, write" in listed.stdout
    assert secret not in listed.stdout + holdfast.run("tokens", "list", "--json").stdout
    (row,) = json.loads(holdfast.run("tokens", "list", "--json").stdout)
    assert holdfast.run("tokens", "revoke", row["id"]).stdout == f"Revoked {row['id']}.\n"

    async def is_out() -> bool:
        return server.ask("/api/sessions", token=secret).status == 401

    asyncio.run(until(is_out, 5))
    assert holdfast.run("tokens", "revoke", row["id"]).returncode == 1
    assert holdfast.run("tokens", "list").stdout == "There are no tokens.\n"


def test_the_rights_of_a_token_are_those_that_were_named(holdfast: Holdfast) -> None:
    made = json.loads(
        holdfast.run("tokens", "add", "x", "--right", "approve", "--right", "read", "--json").stdout
    )
    assert made["token"]["rights"] == ["read", "approve"]
    wrong = holdfast.run("tokens", "add", "x", "--right", "everything")
    assert (wrong.returncode, "none of read, write, approve, admin" in wrong.stderr) == (2, True)


async def test_a_stream_ends_soon_after_its_token_was_revoked_elsewhere(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        keyring = keyring_of(here)
        token, secret = await keyring.add_token("test", ("read",))
        async with door(here) as api, talking(api.address, secret) as other:
            session = await api.begin()
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


async def test_tokens_are_made_listed_and_revoked_over_http_by_an_administrator(server: Running) -> None:
    async with talking(server.address) as api:
        made = await api.post("/api/tokens", {"name": "over http", "rights": ["read"]})
        assert (api.status, made["token"]["rights"]) == (201, ["read"])
        listed = await api.get("/api/tokens")
        assert made["token"]["id"] in [each["id"] for each in listed["tokens"]]
        assert made["secret"] not in json.dumps(listed)
        async with talking(server.address, made["secret"]) as other:
            assert (await other.get("/api/me"))["rights"] == ["read"]
            await api.ask("DELETE", f"/api/tokens/{made['token']['id']}")
            assert api.status == 204
            await other.get("/api/me")
            assert other.status == 401, "in this process at once"


async def test_the_last_use_of_a_token_is_noted(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        keyring = keyring_of(here)
        _, secret = await keyring.add_token("test", ("read",))
        async with door(here, keyring=keyring) as api, talking(api.address, secret) as other:
            await other.get("/api/me")

            async def is_noted() -> bool:
                return (await keyring.tokens())[0][1] is not None

            await until(is_noted, 5)


async def test_what_a_proxy_uses_for_itself_is_not_taken_for_a_token(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        keyring = keyring_of(here)
        async with door(here, keyring=keyring) as api, talking(api.address, "") as browser:
            own = await signed_in(keyring, api.address)
            await browser.get("/api/me", headers=own | {"Authorization": "Basic dXNlcjpwYXNz"})
            assert browser.status == 200
            await browser.get("/api/me", headers=own | {"Authorization": "Bearer wrong"})
            assert browser.status == 401
