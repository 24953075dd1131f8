"""Pages and searches in a conversation: who is asked, what a rule allows, and what no rule does."""

import asyncio
import json
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import environ_of, living_in
from tests.support.api_client import Api, Speaker, talking, words_of
from tests.support.web_server import Site, reply, serving


async def used(
    api: Api, session: str, tool: str, status: str = "completed", **arguments: object
) -> dict[str, Any]:
    """The entry of a call that the model makes, once its run has come so far."""
    run = (await api.say(session, f"use {tool} {json.dumps(arguments)}"))["run_id"]
    await api.done(run, status)
    return [each for each in await api.entries(session) if each["role"] == "tool"][-1] | {"run": run}


async def test_a_page_is_asked_about_once_and_then_its_server_may_be_asked(
    speaker: Speaker, tmp_path: Path
) -> None:
    site = Site({"/a": reply("<h1>Found</h1>"), "/b": reply("<p>More</p>")})
    async with serving(site):
        home = living_in(tmp_path, **environ_of(speaker), HOLDFAST_FETCH_ALLOW="127.0.0.1/32")
        with home as holdfast:
            server = await asyncio.to_thread(holdfast.serve, "--port", "0")
            async with talking(server.address) as api:
                session, at = await api.begin(), f"http://127.0.0.1:{site.port}"
                tool = await used(api, session, "fetch_url", "waiting", url=f"{at}/a")
                assert tool["approval"] == "requested" and "whole address" in tool["reason"]
                assert site.heads == [], "nothing is asked before a person says so"
                path = f"/api/runs/{tool['run']}/tools/{tool['id']}"
                refused = await api.post(
                    path, {"decision": "approve", "scope": "always", "rule": "other.test"}
                )
                assert (api.status, refused["code"]) == (409, "rule_refused")
                await api.post(path, {"decision": "approve", "scope": "always"})
                await api.done(tool["run"])
                [rule] = (await api.get("/api/rules"))["rules"]
                assert (rule["tool"], rule["pattern"]) == ("fetch_url", f"127.0.0.1:{site.port}")
                assert "# Found" in (await api.read(session))[-1][2], "the model was told"
                again = await used(api, session, "fetch_url", url=f"{at}/b")
                assert again["outcome"] == "done" and "More" in words_of(again)
                other = await used(api, session, "fetch_url", "waiting", url="http://127.0.0.1/")
                assert other["approval"] == "requested", "another port is another server"
                here = await api.begin()
                own = await used(api, here, "fetch_url", url=f"{server.address}health/live")
                assert (own["outcome"], own.get("approval", "")) == ("failed", ""), "nobody could allow it"
                assert "not an address of the internet" in words_of(own)
    assert site.paths == ["/a", "/b"]


async def test_a_search_asks_the_engine_that_is_set_up_and_nobody_is_asked_first(
    speaker: Speaker, tmp_path: Path
) -> None:
    results = {"results": [{"url": "https://a.example/", "title": "A", "content": "Said of it."}]}
    site = Site({"/search?q=holdfast&format=json": reply(json.dumps(results), "application/json")})
    async with serving(site):
        home = living_in(tmp_path, **environ_of(speaker), SEARXNG_URL=f"http://127.0.0.1:{site.port}")
        with home as holdfast:
            server = await asyncio.to_thread(holdfast.serve, "--port", "0")
            async with talking(server.address) as api:
                tool = await used(api, await api.begin(), "web_search", query="holdfast")
    assert tool["outcome"] == "done" and "https://a.example/" in words_of(tool)
    assert len(site.heads) == 1


async def test_what_is_wrong_in_the_setting_stops_the_start_with_a_sentence(tmp_path: Path) -> None:
    with living_in(tmp_path, HOLDFAST_FETCH_ALLOW="10.0.0.0/99") as holdfast:
        said = await asyncio.to_thread(holdfast.run, "serve", "--port", "0")
    assert said.returncode == 1
    assert "fetch_allow: 10.0.0.0/99 is no network; one is written like 10.0.0.0/8" in said.stderr
