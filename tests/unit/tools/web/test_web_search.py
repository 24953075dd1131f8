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
from holdfast.domain.secrets import Mask, secrets_in
from holdfast.hardening import harden
from holdfast.models.endpoint import Secret
from holdfast.tools.builtin import by_name, web_tools
from holdfast.tools.web.web_search import Brave, Engine, SearXNG, Tavily, WebSearch, engine_from
from tests.support.tool_fixture import Bench, Call, bench
from tests.support.web_server import Site, moved, reply, serving

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
Make = Callable[[str], Engine]
ENGINES: list[tuple[Make, str, dict[str, Any]]] = [
    (lambda url: SearXNG(f"{url}/"), "/search?q=holdfast&format=json", OF_SEARXNG),
    (
        lambda url: Brave(Secret(KEY), url),
        "/web/search?q=holdfast&count=5&text_decorations=false",
        OF_BRAVE,
    ),
    (lambda url: Tavily(Secret(KEY), url), "/search", OF_TAVILY),
]
EACH = pytest.mark.parametrize(("make", "path", "body"), ENGINES, ids=["searxng", "brave", "tavily"])


def found(body: object) -> bytes:
    return reply(json.dumps(body), "application/json")


async def search(bench: Bench, engine: Engine, query: str = "holdfast", max_results: int = 5) -> Call:
    call = bench.prepare(query=query, max_results=max_results)
    call.result = await WebSearch(engine).run(call.run())
    return call


@EACH
async def test_results_have_a_title_an_address_and_a_few_words(
    bench: Bench, make: Make, path: str, body: dict[str, Any]
) -> None:
    async with serving(Site({path: found(body)})) as site:
        call = await search(bench, make(f"http://127.0.0.1:{site.port}"))
        fewer = None
        if path == "/search":
            fewer = await search(bench, make(f"http://127.0.0.1:{site.port}"), max_results=1)
    assert (call.outcome, call.text) == ("done", SHOWN)
    assert fewer is None or fewer.text == SHOWN.partition("\n\n")[0]


async def test_each_is_asked_as_its_reference_says(bench: Bench) -> None:
    bodies: list[bytes] = []
    for make, path, body in ENGINES:
        async with serving(Site({path: found(body)})) as site:
            await search(bench, make(f"http://127.0.0.1:{site.port}"))
        head = site.heads[0].lower()
        bodies.append(site.heads[0].encode())
        assert ("x-subscription-token: " + KEY.lower() in head) == (path.startswith("/web"))
        assert (f"authorization: bearer {KEY}".lower() in head) == (make is ENGINES[2][0])
        assert head.startswith("post " if make is ENGINES[2][0] else "get ")
    assert KEY.encode() not in bodies[0]


async def test_what_is_found_is_given_within_bounds(bench: Bench) -> None:
    many = {"url": "https://a.example/", "title": "t" * 5_000, "content": "c" * 100_000 + "\u202e"}
    results = [many | {"url": f"https://a.example/{number}"} for number in range(30)]
    async with serving(Site({ENGINES[0][1]: found({"results": results})})) as site:
        call = await search(bench, SearXNG(f"http://127.0.0.1:{site.port}"), max_results=20)
    assert call.text.count("https://a.example/") == 20 and "\u202e" not in call.text
    assert max(map(len, call.text.splitlines())) < WEB_SEARCH_SNIPPET_CHARS_MAX + 10


async def test_nothing_found_is_said(bench: Bench) -> None:
    for body in ({"results": []}, {}):
        async with serving(Site({ENGINES[0][1]: found(body)})) as site:
            assert "nothing was found" in (await search(bench, SearXNG(f"http://127.0.0.1:{site.port}"))).text
    async with serving(Site({ENGINES[1][1]: found({"type": "search"})})) as site:
        engine = Brave(Secret(KEY), f"http://127.0.0.1:{site.port}")
        assert "nothing was found" in (await search(bench, engine)).text


@pytest.mark.parametrize(
    ("which", "answer", "said"),
    [
        (0, reply("no", status="403 Forbidden"), "search.formats must name json"),
        (0, reply("no", status="500 Oh"), "SearXNG answers 500 and no results"),
        (0, reply("<html>", "text/html"), "no list of results"),
        (0, moved("http://127.0.0.1:1/"), "answers 302 and no results"),
        (1, reply('{"type": "ErrorResponse"}', status="401 Unauthorized"), "key in BRAVE_API_KEY"),
        (1, reply("{}", status="422 Unprocessable"), "key in BRAVE_API_KEY"),
        (1, reply("{}", status="429 Too Many"), "takes no more searches for now"),
        (2, reply('{"detail": {"error": "no"}}', status="401 Unauthorized"), "key in TAVILY_API_KEY"),
        (2, reply("{}", status="432 Plan"), "takes no more searches for now"),
        (1, moved("http://127.0.0.1:1/"), "answers 302"),
        (2, found({"results": "many"}), "no list of results"),
        (2, found([1]), "no list of results"),
        (1, found({"web": {"results": [{"url": 3}]}}), "no list of results"),
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
async def test_what_goes_wrong_is_told_in_plain_words(
    bench: Bench, which: int, answer: bytes, said: str
) -> None:
    make, path, _ = ENGINES[which]
    async with serving(Site({path: answer})) as site:
        call = await search(bench, make(f"http://127.0.0.1:{site.port}"))
    assert call.outcome == "failed" and said in call.text, call.text
    assert KEY not in call.text
    # The client may ask once more where a connection ends without a word.
    assert len(site.heads) == 1 or not answer


async def test_an_engine_that_is_silent_or_not_there_is_told_of(bench: Bench) -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        await over.wait()

    over = asyncio.Event()
    async with serving(Site({ENGINES[0][1]: silence})) as site:
        call = await search(bench, SearXNG(f"http://127.0.0.1:{site.port}", 0.2))
        over.set()
    assert call.text == "SearXNG did not answer within 0.2 s"
    gone = await search(bench, SearXNG(f"http://127.0.0.1:{site.port}"))
    assert gone.outcome == "failed" and "cannot be asked" in gone.text
    assert "is none" in (await search(bench, SearXNG("http://[x/"))).text


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
async def test_bad_arguments_are_told(bench: Bench, arguments: dict[str, object], said: str) -> None:
    call = Call(bench.prepare().id, msgspec.json.encode(arguments).decode(), bench.workspace)
    call.result = await WebSearch(SearXNG("http://127.0.0.1:1")).run(call.run())
    assert call.outcome == "failed" and said in call.text


def test_there_is_a_search_only_where_an_engine_is_set_up() -> None:
    assert list(by_name(web_tools((), 0, "", {}))) == ["fetch_url"]
    assert list(by_name(web_tools((), 0, "", {"BRAVE_API_KEY": " ", "SEARXNG_URL": ""}))) == ["fetch_url"]
    keys = {"BRAVE_API_KEY": KEY, "TAVILY_API_KEY": "tvly-0123456789"}
    assert list(by_name(web_tools((), 0, "", keys))) == ["fetch_url", "web_search"]
    url = {"SEARXNG_URL": "http://127.0.0.1:8888"}
    for searxng, environ, kind in (
        ("http://127.0.0.1:8888", keys, SearXNG),
        ("", keys | url, SearXNG),
        ("", keys, Brave),
        ("", {"TAVILY_API_KEY": "tvly-0123456789"}, Tavily),
    ):
        assert type(engine_from(searxng, environ)) is kind


def test_the_keys_leave_the_environment_and_are_masked() -> None:
    environ = {
        "BRAVE_API_KEY": KEY, "TAVILY_API_KEY": "tvly-0123456789",
        "SEARXNG_URL": "http://me:longpassword@box.lan:8888", "PATH": "/bin",
    }  # fmt: skip
    known = harden(environ)
    assert environ == {"PATH": "/bin"}
    mask = Mask(secrets_in(known))
    for secret in (KEY, "tvly-0123456789", "longpassword"):
        assert secret not in mask.whole(f"it said {secret}!")
