"""`web_search` against servers on loopback that speak each engine's API, well and badly.

The answers are constructed from the published references (SearXNG: Search API; Brave: Web Search API,
WebSearchApiResponse; Tavily: POST /search); none is a recording.
"""

import asyncio
import gzip
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from holdfast.domain.limits import (
    WEB_SEARCH_BYTES_MAX,
    WEB_SEARCH_QUERY_CHARS_MAX,
    WEB_SEARCH_SNIPPET_CHARS_MAX,
)
from holdfast.domain.secrets import SecretMask, find_secrets
from holdfast.hardening import harden
from holdfast.models.endpoint import Secret
from holdfast.tools.builtin import tools_by_name, web_tools
from holdfast.tools.web.web_search import (
    BraveEngine,
    SearchEngine,
    SearxngEngine,
    TavilyEngine,
    WebSearchTool,
    select_search_engine,
)
from tests.support.tool_fixture import RecordedCall, ToolHarness, bench
from tests.support.web_server import WebSite, redirect, reply, web_server

__all__ = ["bench"]

KEY = "BSA-0123456789abcdef"
OF_SEARXNG: dict[str, Any] = {
    "query": "holdfast", "number_of_results": 0,
    "results": [
        {"url": "https://a.example/", "title": "A &amp; B", "content": "About <b>holdfasts</b>.",
         "engine": "x", "engines": ["x"], "score": 1.0, "category": "general", "publishedDate": None},
        {"url": "https://b.example/p", "title": "B", "content": None},
        {"url": "https://a.example/", "title": "again", "content": ""},
        {"url": "javascript:x", "title": "no", "content": "no"},
        {"title": "an answer without a page"},
    ],
    "answers": [], "corrections": [], "infoboxes": [], "suggestions": [],
    "unresponsive_engines": [["y", "timeout"]],
}  # fmt: skip
OF_BRAVE: dict[str, Any] = {
    "type": "search", "query": {"original": "holdfast", "more_results_available": True},
    "web": {"type": "search", "family_friendly": True, "results": [
        {"title": "A &amp; B", "url": "https://a.example/",
         "description": "About <strong>holdfasts</strong>.", "is_source_local": False,
         "language": "en", "type": "search_result", "subtype": "generic"},
        {"title": "B", "url": "https://b.example/p"},
    ]},
}  # fmt: skip
OF_TAVILY: dict[str, Any] = {
    "query": "holdfast", "answer": None, "images": [], "follow_up_questions": None, "response_time": 1.2,
    "results": [
        {"title": "A & B", "url": "https://a.example/", "content": "About holdfasts.", "score": 0.9,
         "raw_content": None},
        {"title": "B", "url": "https://b.example/p", "content": "", "score": 0.1},
    ],
}  # fmt: skip
SHOWN = "1. A & B\n   https://a.example/\n   About holdfasts.\n\n2. B\n   https://b.example/p"
Make = Callable[[str], SearchEngine]
ENGINES: list[tuple[Make, str, dict[str, Any]]] = [
    (lambda url: SearxngEngine(f"{url}/"), "/search?q=holdfast&format=json", OF_SEARXNG),
    (
        lambda url: BraveEngine(Secret(KEY), url),
        "/web/search?q=holdfast&count=5&text_decorations=false",
        OF_BRAVE,
    ),
    (lambda url: TavilyEngine(Secret(KEY), url), "/search", OF_TAVILY),
]
EACH = pytest.mark.parametrize(("make", "path", "body"), ENGINES, ids=["searxng", "brave", "tavily"])


def json_reply(body: object) -> bytes:
    return reply(json.dumps(body), "application/json")


async def search(
    bench: ToolHarness, engine: SearchEngine, query: str = "holdfast", max_results: int = 5
) -> RecordedCall:
    call = bench.prepare(query=query, max_results=max_results)
    call.result = await WebSearchTool(engine).run(call.tool_run())
    return call


@EACH
async def test_results_have_a_title_a_url_and_a_snippet(
    bench: ToolHarness, make: Make, path: str, body: dict[str, Any]
) -> None:
    async with web_server(WebSite({path: json_reply(body)})) as site:
        call = await search(bench, make(f"http://127.0.0.1:{site.port}"))
        fewer = None
        if path == "/search":
            fewer = await search(bench, make(f"http://127.0.0.1:{site.port}"), max_results=1)
    assert (call.outcome, call.text) == ("done", SHOWN)
    assert fewer is None or fewer.text == SHOWN.partition("\n\n")[0]


async def test_each_engine_receives_its_documented_request(bench: ToolHarness) -> None:
    bodies: list[bytes] = []
    for make, path, body in ENGINES:
        async with web_server(WebSite({path: json_reply(body)})) as site:
            await search(bench, make(f"http://127.0.0.1:{site.port}"))
        head = site.heads[0].lower()
        bodies.append(site.heads[0].encode())
        assert ("x-subscription-token: " + KEY.lower() in head) == (path.startswith("/web"))
        assert (f"authorization: bearer {KEY}".lower() in head) == (make is ENGINES[2][0])
        assert head.startswith("post " if make is ENGINES[2][0] else "get ")
    assert KEY.encode() not in bodies[0]


async def test_search_results_are_bounded(bench: ToolHarness) -> None:
    many = {"url": "https://a.example/", "title": "t" * 5_000, "content": "c" * 100_000 + "\u202e"}
    results = [many | {"url": f"https://a.example/{number}"} for number in range(30)]
    async with web_server(WebSite({ENGINES[0][1]: json_reply({"results": results})})) as site:
        call = await search(bench, SearxngEngine(f"http://127.0.0.1:{site.port}"), max_results=20)
    assert call.text.count("https://a.example/") == 20 and "\u202e" not in call.text
    assert max(map(len, call.text.splitlines())) < WEB_SEARCH_SNIPPET_CHARS_MAX + 10


async def test_an_empty_search_result_is_reported(bench: ToolHarness) -> None:
    for body in ({"results": []}, {}):
        async with web_server(WebSite({ENGINES[0][1]: json_reply(body)})) as site:
            assert (
                "nothing was found"
                in (await search(bench, SearxngEngine(f"http://127.0.0.1:{site.port}"))).text
            )
    async with web_server(WebSite({ENGINES[1][1]: json_reply({"type": "search"})})) as site:
        engine = BraveEngine(Secret(KEY), f"http://127.0.0.1:{site.port}")
        assert "nothing was found" in (await search(bench, engine)).text


@pytest.mark.parametrize(
    ("which", "answer", "said"),
    [
        (0, reply("no", status="403 Forbidden"), "search.formats must name json"),
        (0, reply("no", status="500 Oh"), "SearXNG answers 500 and no results"),
        (0, reply("<html>", "text/html"), "no list of results"),
        (0, redirect("http://127.0.0.1:1/"), "answers 302 and no results"),
        (1, reply('{"type": "ErrorResponse"}', status="401 Unauthorized"), "key in BRAVE_API_KEY"),
        (1, reply("{}", status="422 Unprocessable"), "key in BRAVE_API_KEY"),
        (1, reply("{}", status="429 Too Many"), "takes no more searches for now"),
        (2, reply('{"detail": {"error": "no"}}', status="401 Unauthorized"), "key in TAVILY_API_KEY"),
        (2, reply("{}", status="432 Plan"), "takes no more searches for now"),
        (1, redirect("http://127.0.0.1:1/"), "answers 302"),
        (2, json_reply({"results": "many"}), "no list of results"),
        (2, json_reply([1]), "no list of results"),
        (1, json_reply({"web": {"results": [{"url": 3}]}}), "no list of results"),
        (0, reply(b"\xff\xfe{", "application/json"), "no list of results"),
        (0, reply("[" * 100_000, "application/json"), "no list of results"),
        (0, reply('{"results": [', "application/json"), "no list of results"),
        (0, reply(b"x" * (WEB_SEARCH_BYTES_MAX + 1), "application/json"), "answers more than"),
        (0, reply(gzip.compress(b" " * 40_000_000, 1), Content_Encoding="gzip"), "answers more than"),
        (0, b"", "cannot be asked"),
        (0, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx", "cannot be asked"),
    ],
    ids=range(20),
)  # fmt: skip
async def test_engine_errors_are_reported_in_plain_words(
    bench: ToolHarness, which: int, answer: bytes, said: str
) -> None:
    make, path, _ = ENGINES[which]
    async with web_server(WebSite({path: answer})) as site:
        call = await search(bench, make(f"http://127.0.0.1:{site.port}"))
    assert call.outcome == "failed" and said in call.text, call.text
    assert KEY not in call.text
    # The client may ask once more where a connection ends without a word.
    assert len(site.heads) == 1 or not answer


async def test_a_silent_or_missing_engine_is_reported(bench: ToolHarness) -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        await over.wait()

    over = asyncio.Event()
    async with web_server(WebSite({ENGINES[0][1]: silence})) as site:
        call = await search(bench, SearxngEngine(f"http://127.0.0.1:{site.port}", 0.2))
        over.set()
    assert call.text == "SearXNG did not answer within 0.2 s"
    gone = await search(bench, SearxngEngine(f"http://127.0.0.1:{site.port}"))
    assert gone.outcome == "failed" and "cannot be asked" in gone.text
    assert "is none" in (await search(bench, SearxngEngine("http://[x/"))).text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"query": " \n"}, "query is empty"),
        ({"query": "x" * (WEB_SEARCH_QUERY_CHARS_MAX + 1)}, "at most"),
        ({"query": "x", "max_results": 0}, "at least 1"),
        ({"query": "x", "max_results": 21}, "at most 20"),
        ({}, "`query` is missing"),
    ],
)
async def test_invalid_search_arguments_are_reported(
    bench: ToolHarness, arguments: dict[str, object], said: str
) -> None:
    call = RecordedCall(bench.prepare().id, msgspec.json.encode(arguments).decode(), bench.workspace)
    call.result = await WebSearchTool(SearxngEngine("http://127.0.0.1:1")).run(call.tool_run())
    assert call.outcome == "failed" and said in call.text


def test_web_search_exists_only_with_an_engine() -> None:
    assert list(tools_by_name(web_tools((), 0, "", {}))) == ["fetch_url"]
    assert list(tools_by_name(web_tools((), 0, "", {"BRAVE_API_KEY": " ", "SEARXNG_URL": ""}))) == [
        "fetch_url"
    ]
    keys = {"BRAVE_API_KEY": KEY, "TAVILY_API_KEY": "tvly-0123456789"}
    assert list(tools_by_name(web_tools((), 0, "", keys))) == ["fetch_url", "web_search"]
    url = {"SEARXNG_URL": "http://127.0.0.1:8888"}
    for searxng, environ, kind in (
        ("http://127.0.0.1:8888", keys, SearxngEngine),
        ("", keys | url, SearxngEngine),
        ("", keys, BraveEngine),
        ("", {"TAVILY_API_KEY": "tvly-0123456789"}, TavilyEngine),
    ):
        assert type(select_search_engine(searxng, environ)) is kind


def test_engine_keys_are_removed_from_the_environment_and_masked() -> None:
    environ = {
        "BRAVE_API_KEY": KEY, "TAVILY_API_KEY": "tvly-0123456789",
        "SEARXNG_URL": "http://me:longpassword@box.lan:8888", "PATH": "/bin",
    }  # fmt: skip
    known = harden(environ)
    assert environ == {"PATH": "/bin"}
    mask = SecretMask(find_secrets(known))
    for secret in (KEY, "tvly-0123456789", "longpassword"):
        assert secret not in mask.mask(f"it said {secret}!")
