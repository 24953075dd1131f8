"""Somebody else's page in the browser in which the owner is signed in: it reads and changes nothing."""

import hashlib
import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.acceptance.conftest import RunningServer
from tests.browser.conftest import NewUser
from tests.browser.hostile import TIMEOUT_MS, WINDOW_MS, AttackResults, hostile_site
from tests.support.api_client import ApiClient, api_client
from tests.support.browser_driver import FOREIGN_HOST, BrowserUser, ChatPage, sign_in

SECRET = "the owner's own words"
METHODS = ("get", "post", "patch", "delete", "put")
# Refusals that browsers print for what the hostile page itself tries.
REFUSED = (r"",)


async def _create_owned_objects(api: ApiClient, marker: Path) -> dict[str, str]:
    """A conversation in which a command waits to be allowed: the ids of all that is in it."""
    session = await api.create_session(title=SECRET)
    receipt = await api.send(session, f"run echo {SECRET.split()[-1]} > {marker}")
    await api.wait_for_run(receipt["run_id"], "waiting")
    (call,) = [each["id"] for each in await api.entries(session) if each["role"] == "tool"]
    return {"session_id": session, "run_id": receipt["run_id"], "call_id": call}


async def _store_snapshot(api: ApiClient) -> dict[str, Any]:
    """Whatever a request could have changed."""
    sessions = (await api.get("/api/sessions?limit=100"))["sessions"]
    archived = (await api.get("/api/sessions?limit=100&archived=true"))["sessions"]
    each = {one["id"]: await api.get(f"/api/sessions/{one['id']}") for one in sessions + archived}
    for one in each.values():
        # A window of the owner's own page marks what it shows as read, whoever opened it.
        del one["unread"]
    # A file is named by its content, and the page's uploads are these.
    files = [hashlib.sha256(content).hexdigest() for content in (b"{}", b'{"x":"="}\r\n')]
    kept = [name for name in files if isinstance(await api.get(f"/api/files/{name}"), bytes)]
    tokens, rules = await api.get("/api/tokens"), await api.get("/api/rules")
    return {"sessions": each, "files": kept, "tokens": tokens, "rules": rules}


async def _attack_plan(api: ApiClient, ids: dict[str, str], target: str) -> dict[str, Any]:
    """Every operation that there is, on what is really there, with a body that would be accepted."""
    described = await api.get("/openapi.json")
    operations = [
        ["GET", f"{target}{path}", {}] for path in ("/", "/openapi.json", "/metrics", "/page/page.js")
    ]
    for path, item in described["paths"].items():
        for method, operation in item.items():
            if method in METHODS:
                filled = re.sub(r"\{(\w+)\}", lambda found: ids.get(found[1], "none"), path)
                if path == "/api/search":
                    filled += "?q=owner"
                if path == "/api/stream":
                    filled += f"?session={ids['session_id']}:0"
                operations.append([method.upper(), target + filled, _body(described, operation)])
    window = f"{target}/#{ids['session_id']}"
    waits = {"patience_ms": TIMEOUT_MS, "window_ms": WINDOW_MS}
    return {"target": target, "operations": operations, "window": window, **waits}


def _body(described: dict[str, Any], operation: dict[str, Any]) -> Any:
    shapes = operation.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
    for shape in (shapes, *shapes.get("allOf", ())):
        named = (
            described["components"]["schemas"][shape["$ref"].rpartition("/")[2]] if "$ref" in shape else shape
        )
        for example in named.get("examples", ()):
            return example.get("value", example)
    return {}


def _leaked_ids(results: AttackResults, ids: dict[str, str]) -> list[tuple[str, int, str]]:
    """What was read that only the owner may read."""
    ours = re.compile("|".join(map(re.escape, (SECRET, "holdfast_events", *ids.values()))))
    return [each for each in results.read if ours.search(each[2])]


@pytest.mark.parametrize("name", ["127.0.0.1", FOREIGN_HOST])
async def test_a_page_of_another_origin_reads_nothing_and_changes_nothing(
    name: str, welcome: NewUser, server: RunningServer, tmp_path: Path
) -> None:
    owner, anonymous = await welcome(), await welcome()
    async with api_client(server.address) as api, hostile_site() as site:
        chat = ChatPage(await sign_in(owner, server.link))
        ids = await _create_owned_objects(api, tmp_path / "marker")
        site.plan = await _attack_plan(api, ids, server.address.rstrip("/"))
        before = await _store_snapshot(api)
        seen = {}
        for visitor in (owner, anonymous):
            visitor.expect_errors(*REFUSED)
            seen[visitor] = await site.open_attack_page(visitor, f"http://{name}:{site.port}")
            assert seen[visitor].read == []
        assert await _store_snapshot(api) == before
        assert not (tmp_path / "marker").exists()
        # Nor does it learn whether somebody is signed in here, or what there is.
        assert seen[owner].noticed == seen[anonymous].noticed
        # The owner is still in, is still asked, and can still answer.
        await chat.page.goto(f"{server.address}#{ids['session_id']}")
        await chat.page.reload()
        await chat.wait_for_approval()
        await chat.allow.click()
        await chat.wait_for_text("It said:")
        assert (tmp_path / "marker").read_text().strip() == SECRET.split()[-1]


async def test_a_rebound_name_reaches_nothing(
    welcome: NewUser, server: RunningServer, tmp_path: Path
) -> None:
    owner = await welcome()
    owner.expect_errors(*REFUSED)
    async with api_client(server.address) as api, hostile_site() as site:
        await sign_in(owner, server.link)
        ids = await _create_owned_objects(api, tmp_path / "marker")
        # To the page this is its own origin: nothing but the server stands in its way.
        site.plan = await _attack_plan(api, ids, f"http://{FOREIGN_HOST}:{server.port}")
        before = await _store_snapshot(api)
        results = await site.rebind(owner, server.port)
        assert len(results.read) > len(site.plan["operations"])
        assert _leaked_ids(results, ids) == []
        assert {status for what, status, _ in results.read if what.split()[0] in ("cors", "plain")} == {421}
        assert await _store_snapshot(api) == before
        assert not (tmp_path / "marker").exists()


async def test_a_neighbour_on_another_port_cannot_use_the_cookie_that_it_is_sent(
    visitor: BrowserUser, server: RunningServer
) -> None:
    visitor.expect_errors(*REFUSED)
    async with hostile_site() as site, aiohttp.ClientSession() as neighbour:
        await sign_in(visitor, server.link)
        await visitor.open_page(f"http://127.0.0.1:{site.port}/")
        for cookie in site.cookies:
            async with neighbour.get(f"{server.address}api/me", headers={"cookie": cookie}) as answer:
                assert answer.status == 401
