"""The page, as it is served: whole, by this server alone, and kept by browsers as long as it may be."""

import gzip
import re
import urllib.request

import pytest

from tests.acceptance.conftest import RunningServer
from tests.acceptance.page_files import files_named_in, loaded_by_page
from tests.support.api_client import api_client

TYPES = {"js": "text/javascript", "css": "text/css", "svg": "image/svg+xml", "html": "text/html"}
ELSEWHERE = re.compile(
    r"""(?:\bfrom|import|fetch|Worker|EventSource|WebSocket|sendBeacon|importScripts|URL|url|open)"""
    r"""\s*\(?\s*["'`]?(?:https?:|wss?:)?//(?=\w)"""
)
"""Something is loaded from another host. Names of formats and addresses in messages look like hosts too."""
POLICY = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'"


async def test_the_page_loads_nothing_from_other_origins(server: RunningServer) -> None:
    """Everything that it names, and what that names in turn, comes from the server itself."""
    async with api_client(server.address, "") as api:
        named = files_named_in((await api.get("/")).decode())
        assert (api.status, api.headers["content-type"]) == (200, "text/html; charset=utf-8")
        assert [address for address in named if not re.fullmatch(r"\./page/[\w.-]+", address)] == []
        files = await loaded_by_page(api)
    for name, text, headers in files:
        assert headers["content-type"].partition(";")[0] == TYPES[name.rpartition(".")[2]], name
        assert headers["content-security-policy"].startswith(POLICY), name
        assert ELSEWHERE.search(text) is None, name
    assert {"js", "css"} <= {name.rpartition(".")[2] for name, _, _ in files}
    assert len(files) > len(named), "what the scripts load was found too"


async def test_only_content_hashed_files_are_cached_forever(server: RunningServer) -> None:
    async with api_client(server.address, "") as api:
        await api.get("/")
        assert "immutable" not in api.headers.get("cache-control", "")
        for name, _, headers in await loaded_by_page(api):
            is_hashed = re.search(r"-[\w-]{8}\.\w+$", name) is not None
            assert ("immutable" in headers.get("cache-control", "")) == is_hashed, name


@pytest.mark.parametrize("name", ["index-00000000.js", "page.js", "index.html", "..%2findex.html", "%00"])
async def test_a_missing_built_file_is_not_found(name: str, server: RunningServer) -> None:
    """One of an earlier build above all: no copy of the answer may be kept for ever."""
    async with api_client(server.address) as api:
        problem = await api.get(f"/page/{name}")
        assert (api.status, problem["code"]) == (404, "no_such_page")
        assert "immutable" not in api.headers.get("cache-control", "")


def test_the_page_is_gzipped_for_clients_that_accept_gzip(server: RunningServer) -> None:
    plain = server.request("/", token="")
    request = urllib.request.Request(server.address, headers={"accept-encoding": "gzip"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        packed = answer.read()
        assert (answer.headers["content-encoding"], answer.headers["vary"]) == ("gzip", "accept-encoding")
    assert gzip.decompress(packed).decode() == plain.body
    assert "content-encoding" not in plain.headers
