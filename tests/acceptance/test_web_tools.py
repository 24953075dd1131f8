"""Pages and searches in a conversation: who is asked, what a rule allows, and what no rule does."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import cli_in, environ_for
from tests.support.api_client import ApiClient, ScriptedModelServer, api_client, text_of
from tests.support.web_server import WebSite, reply, web_server


async def run_tool(
    api: ApiClient, session: str, tool: str, status: str = "completed", **arguments: object
) -> dict[str, Any]:
    """The entry of a call that the model makes, once its run has come so far."""
    run = (await api.send(session, f"use {tool} {json.dumps(arguments)}"))["run_id"]
    await api.wait_for_run(run, status)
    return [each for each in await api.entries(session) if each["role"] == "tool"][-1] | {"run": run}


async def test_fetching_a_url_asks_once_per_server(speaker: ScriptedModelServer, tmp_path: Path) -> None:
    site = WebSite({"/a": reply("<h1>Found</h1>"), "/b": reply("<p>More</p>")})
    async with web_server(site):
        home = cli_in(tmp_path, **environ_for(speaker), HOLDFAST_FETCH_ALLOW="127.0.0.1/32")
        with home as holdfast:
            server = await asyncio.to_thread(holdfast.serve, "--port", "0")
            async with api_client(server.address) as api:
                session, at = await api.create_session(), f"http://127.0.0.1:{site.port}"
                tool = await run_tool(api, session, "fetch_url", "waiting", url=f"{at}/a")
                assert tool["approval"] == "requested" and "whole address" in tool["reason"]
                assert site.heads == [], "nothing is asked before a person says so"
                path = f"/api/runs/{tool['run']}/tools/{tool['id']}"
                refused = await api.post(
                    path, {"decision": "approve", "scope": "always", "rule": "other.test"}
                )
                assert (api.status, refused["code"]) == (409, "rule_refused")
                await api.post(path, {"decision": "approve", "scope": "always"})
                await api.wait_for_run(tool["run"])
                [rule] = (await api.get("/api/rules"))["rules"]
                assert (rule["tool"], rule["pattern"]) == ("fetch_url", f"127.0.0.1:{site.port}")
                assert "# Found" in (await api.message_texts(session))[-1][2], "the model was told"
                again = await run_tool(api, session, "fetch_url", url=f"{at}/b")
                assert again["outcome"] == "done" and "More" in text_of(again)
                other = await run_tool(api, session, "fetch_url", "waiting", url="http://127.0.0.1/")
                assert other["approval"] == "requested", "another port is another server"
                here = await api.create_session()
                own = await run_tool(api, here, "fetch_url", url=f"{server.address}health/live")
                assert (own["outcome"], own.get("approval", "")) == ("failed", ""), "nobody could allow it"
                assert "not an address of the internet" in text_of(own)
    assert site.paths == ["/a", "/b"]


async def test_a_web_search_uses_the_configured_engine_without_approval(
    speaker: ScriptedModelServer, tmp_path: Path
) -> None:
    results = {"results": [{"url": "https://a.example/", "title": "A", "content": "Said of it."}]}
    site = WebSite({"/search?q=holdfast&format=json": reply(json.dumps(results), "application/json")})
    async with web_server(site):
        home = cli_in(tmp_path, **environ_for(speaker), SEARXNG_URL=f"http://127.0.0.1:{site.port}")
        with home as holdfast:
            server = await asyncio.to_thread(holdfast.serve, "--port", "0")
            async with api_client(server.address) as api:
                tool = await run_tool(api, await api.create_session(), "web_search", query="holdfast")
    assert tool["outcome"] == "done" and "https://a.example/" in text_of(tool)
    assert len(site.heads) == 1


async def test_an_invalid_search_setting_stops_the_start_with_a_message(tmp_path: Path) -> None:
    with cli_in(tmp_path, HOLDFAST_FETCH_ALLOW="10.0.0.0/99") as holdfast:
        said = await asyncio.to_thread(holdfast.run, "serve", "--port", "0")
    assert said.returncode == 1
    assert "fetch_allow: 10.0.0.0/99 is no network; one is written like 10.0.0.0/8" in said.stderr
