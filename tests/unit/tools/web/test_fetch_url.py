"""`fetch_url` against real servers on loopback: pages as text, and everything that a server can do wrong."""

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from holdfast.domain.limits import (
    FETCH_URL_BYTES_MAX,
    FETCH_URL_CHARS_MAX,
    FETCH_URL_HEAD_BYTES_MAX,
    FETCH_URL_SHOWN_CHARS_MAX,
)
from holdfast.tools.web.address_policy import AddressPolicy
from holdfast.tools.web.decompress import read_body
from holdfast.tools.web.fetch_url import FetchUrlTool
from holdfast.tools.web.web_client import WebClient
from tests.support.fetch_url_client import PRIVATE_ADDRESS, PUBLIC_ADDRESS, FakeResolver, fetch
from tests.support.tool_fixture import RecordedCall, ToolHarness, bench
from tests.support.web_server import WebSite, reply, web_server

__all__ = ["bench"]


async def test_a_page_is_returned_as_text_with_links(bench: ToolHarness) -> None:
    page = "<title>T &amp; U</title><h1>Head</h1><p>Some <b>bold</b> text, <a href='/on?x=1'>a link</a>."
    async with web_server(WebSite({"/p?q=%C3%A4&r=a+b": reply(page)})) as site:
        call = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/p?q=ä&r=a+b#part")
    base = f"http://{PUBLIC_ADDRESS}:{site.port}"
    assert call.outcome == "done"
    assert call.text == (
        f"[{base}/p?q=%C3%A4&r=a+b]\nTitle: T & U\n\n# Head\n\nSome bold text, [a link]({base}/on?x=1)."
    )


async def test_a_request_reveals_nothing_about_this_machine_or_user(
    bench: ToolHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{PRIVATE_ADDRESS}:1/")
    monkeypatch.setenv("HTTP_PROXY", f"http://{PRIVATE_ADDRESS}:1/")
    async with web_server(WebSite({"/": reply("hello", Set_Cookie="a=b")})) as site:
        url = f"http://name.test:{site.port}/"
        names = FakeResolver(name_test=[[PUBLIC_ADDRESS]])
        for _ in range(2):
            assert "hello" in (await fetch(bench, url, names=names)).text
    first, second = site.heads
    assert first == second, "a cookie came, and none went back"
    said = dict(line.split(": ", 1) for line in first.splitlines()[1:] if line)
    assert said.pop("Host") == f"name.test:{site.port}"
    assert sorted(said) == ["Accept", "Accept-Encoding", "Connection", "User-Agent"]


@pytest.mark.parametrize(
    ("kind", "body", "shown"),
    [
        ("application/json", b'{"a": "<b>"}', '{"a": "<b>"}'),
        ("text/plain", b"a <b> & c\r\nd", "a <b> & c\nd"),
        ("application/atom+xml", b"<feed/>", "<feed/>"),
        ("text/plain; charset=iso-8859-1", "f\xfcr \x80".encode("latin-1"), "für €"),
        ("text/plain; charset=UTF-16", "für".encode("utf-16"), "für"),
        ("text/plain; charset=shift_jis", "日本".encode("shift_jis"), "日本"),
        ("text/plain; charset=punycode", b"abc-def", "abc-def"),
        ("text/plain; charset=unicode_escape", b"a\\u0041", "a\\u0041"),
        ("text/plain; charset=rot13", b"abc", "abc"),
        ("text/plain; charset=no-such-thing\xe9", b"abc", "abc"),
        ("text/plain; charset=utf-8", b"a\xffb", "a\ufffdb"),
        ("text/html", b"<meta charset=windows-1251>" + "Привет".encode("cp1251"), "Привет"),
        ("text/html", b'<meta http-equiv=x content="text/html; charset=koi8-r">\xf0', "П"),
        ("text/html", b"<meta charset=utf-16>caf\xc3\xa9", "café"),
        ("text/html", b"caf\xe9 \x96", "café –"),
        ("", b"<!DOCTYPE html><p>said by nobody", "said by nobody"),
        ("application/octet-stream", b"plain words", "plain words"),
        ("text/plain", "\ufeffx".encode(), "x"),
        ("text/plain", "a\u202eb\u200b\U000e0041c\x1b[31m".encode(), "abc[31m"),
    ],
)
async def test_text_is_decoded_with_its_charset(
    bench: ToolHarness, kind: str, body: bytes, shown: str
) -> None:
    async with web_server(WebSite({"/": reply(body, kind)})) as site:
        call = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/")
    assert call.text.partition("]\n\n")[2] == shown, call.text


@pytest.mark.parametrize(
    ("kind", "body", "said"),
    [
        ("application/pdf", b"%PDF-1.7", "it is application/pdf, not text"),
        ("image/png", b"\x89PNG", "it is image/png, not text"),
        ("text/plain", b"%PDF-1.7 ...", "a PDF document of 12 bytes or more, not text"),
        ("text/html", b"<p>\0\0\0", "a binary file of 6 bytes or more, not text"),
        ("", b"\x7fELF\0\0", "a binary file of 6 bytes or more, not text"),
        ("application/zip", b"PK", "it is application/zip, not text"),
    ],
)
async def test_content_that_is_not_text_is_refused_by_type(
    bench: ToolHarness, kind: str, body: bytes, said: str
) -> None:
    async with web_server(WebSite({"/": reply(body, kind)})) as site:
        call = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/")
    assert call.outcome == "failed" and said in call.text


async def test_a_long_page_is_read_in_parts(bench: ToolHarness) -> None:
    text = "".join(f"line {number}\n" for number in range(10_000))
    async with web_server(WebSite({"/": reply(text, "text/plain")})) as site:
        url, start, read = f"http://{PUBLIC_ADDRESS}:{site.port}/", 0, ""
        for _ in range(10):
            call = await fetch(bench, url, start)
            head, _, shown = call.text.partition("]\n\n")
            assert len(shown) <= FETCH_URL_SHOWN_CHARS_MAX
            read += shown
            if "reads on" not in head:
                break
            start = int(head.rpartition("start=")[2].split()[0])
        past = await fetch(bench, url, len(text))
    assert read == text
    assert past.outcome == "failed" and f"only {len(text):,} characters" in past.text


async def test_an_error_response_is_reported_with_its_text(bench: ToolHarness) -> None:
    async with web_server(WebSite({"/e": reply(status="204 No Content", kind="")})) as site:
        missing = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/gone")
        empty = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/e")
    assert missing.outcome == "failed"
    assert missing.text == f"{PUBLIC_ADDRESS}:{site.port} answers 404 Not Found:\nnot here"
    assert empty.outcome == "done" and empty.text.endswith("[there is no text]")


# Servers that do wrong.


async def test_compressed_bodies_are_decompressed(bench: ToolHarness) -> None:
    page = b"<p>" + b"words " * 1_000
    raw = zlib.compressobj(wbits=-15)
    site = WebSite({
        "/gzip": reply(gzip.compress(page), Content_Encoding="gzip"),
        "/deflate": reply(zlib.compress(page), Content_Encoding="deflate"),
        "/raw": reply(raw.compress(page) + raw.flush(), Content_Encoding="deflate"),
        "/plain": reply(page, Content_Encoding="identity"),
    })  # fmt: skip
    async with web_server(site):
        for path in site.pages:
            assert (await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}{path}")).text.count(
                "words"
            ) == 1_000, path


@pytest.mark.parametrize(
    ("body", "encoding", "said"),
    [
        (b"not packed at all", "gzip", "cannot be unpacked"),
        (b"not packed at all", "deflate", "cannot be unpacked"),
        (b"x", "br", "not asked for"),
        (gzip.compress(gzip.compress(b"x")), "gzip, gzip", "not asked for"),
        (gzip.compress(b"some words, and more of them")[:-12], "gzip", "its rest was not read"),
        (b"", "gzip", "there is no text"),
    ],
    ids=["no gzip", "no deflate", "unknown", "twice", "cut", "empty"],
)
async def test_invalid_compression_is_reported(
    bench: ToolHarness, body: bytes, encoding: str, said: str
) -> None:
    async with web_server(WebSite({"/": reply(body, Content_Encoding=encoding)})) as site:
        call = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/")
    assert said in call.text


BOMB = b"0" * 40_000_000


async def test_a_decompression_bomb_is_cut_at_the_limit(bench: ToolHarness) -> None:
    packed = gzip.compress(BOMB, 1)
    assert len(packed) < 400_000
    async with web_server(WebSite({"/": reply(packed, "text/plain", Content_Encoding="gzip")})) as site:
        call = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/", FETCH_URL_BYTES_MAX - 10)
    assert call.outcome == "done" and f"of {FETCH_URL_BYTES_MAX:,}" in call.text
    assert call.text.endswith("0" * 10) and "its rest was not read" in call.text


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_a_decompression_bomb_does_not_fill_memory(encoding: str) -> None:
    packed = gzip.compress(BOMB, 1) if encoding == "gzip" else zlib.compress(BOMB, 1)

    async def chunks() -> AsyncIterator[bytes]:
        yield packed

    tracemalloc.start()
    try:
        body, is_cut = await read_body(chunks(), encoding, 100_000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert body == BOMB[:100_000] and is_cut
    assert peak < 2_000_000


async def test_an_endless_page_is_read_up_to_the_limit(bench: ToolHarness) -> None:
    async def pour(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        for _ in range(100 * FETCH_URL_BYTES_MAX // 65_536):
            writer.write(b"x" * 65_536)
            await writer.drain()

    async with web_server(WebSite({"/": pour})) as site:
        call = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/", FETCH_URL_BYTES_MAX - 5)
        async with asyncio.timeout(30):
            await site.hung_up.wait()
    assert call.text.endswith("\n\nxxxxx") and "its rest was not read" in call.text


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"])
async def test_a_slowly_sending_server_times_out(bench: ToolHarness, before: bytes) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(before or b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x" if before else b"X-A: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with web_server(WebSite({"/": drip})) as site:
        call = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/", seconds_max=0.3)
        async with asyncio.timeout(30):
            await site.hung_up.wait()
    assert call.outcome == "failed" and call.text == "the page did not come within 0.3 s"


async def test_a_silent_server_or_resolver_and_cancelling_end_a_call(bench: ToolHarness) -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        asked.set()
        await over.wait()

    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    asked, over = asyncio.Event(), asyncio.Event()
    async with web_server(WebSite({"/": silence})) as site:
        url = f"http://{PUBLIC_ADDRESS}:{site.port}/"
        assert "did not come" in (await fetch(bench, url, seconds_max=0.2)).text
        asked.clear()
        stopped = asyncio.create_task(fetch(bench, url))
        async with asyncio.timeout(30):
            await asked.wait()
        stopped.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopped
        over.set()
    call = bench.prepare(url="http://name.test/")
    call.result = await FetchUrlTool(WebClient(AddressPolicy(), never), 0.2).run(call.tool_run())
    assert "did not come" in call.text


@pytest.mark.parametrize(
    "answer",
    [
        b"", b"\0" * 100, b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"HTTP/9.9 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"y" * 4 * FETCH_URL_HEAD_BYTES_MAX + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"".join(b"X-%d: y\r\n" % n for n in range(5_000)) + b"\r\n",
        b"HTTP/1.1 200 " + b"y" * 4 * FETCH_URL_HEAD_BYTES_MAX + b"\r\n\r\n",
        b"HTTP/1.1 302 Found\r\n\r\n", b"HTTP/1.1 304 Not Modified\r\n\r\n", b"HTTP/1.1 999 Odd\r\n\r\n",
    ],
    ids=range(14),
)  # fmt: skip
async def test_any_server_response_yields_a_readable_result(bench: ToolHarness, answer: bytes) -> None:
    async with web_server(WebSite({"/": answer})) as site:
        call = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/")
    assert call.outcome == "failed" and call.text.startswith(f"{PUBLIC_ADDRESS}:{site.port} "), call.text
    assert len(call.text) < 1_000


# Arguments.


@pytest.mark.parametrize(
    "url",
    [
        "http://{at}/x HTTP/1.1\r\nX-Evil: 1\r\n", "http://{at}/a b", "http://{at}/\r\nX: y", "http://{at}/\n",
        "http://{at}/\t/x", "http://{at}\r\n/", "http://{at}/\0", "http://{at}/\u2028", "http://{at}\\@x/",
        "http://x y/", "http://{at}/\x7f",
    ],
)  # fmt: skip
async def test_a_url_cannot_inject_request_lines(bench: ToolHarness, url: str) -> None:
    async with web_server(WebSite()) as site:
        call = await fetch(bench, url.format(at=f"{PUBLIC_ADDRESS}:{site.port}"))
    assert call.outcome == "failed"
    assert all("Evil" not in head and "X:" not in head for head in site.heads)
    # A line end after the address is only space around it.
    assert len(site.heads) == (url == "http://{at}/\n")


async def test_url_encoding_is_kept_or_added(bench: ToolHarness) -> None:
    async with web_server(WebSite()) as site:
        await fetch(
            bench, f'http://{PUBLIC_ADDRESS}:{site.port}/%0d%0aX:%20y/ü"<>{{}}|^`?a=[1]&b=%zz&c=\U0001f600#f'
        )
        await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}//evil.test/..//x")
        await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}?q")
    assert site.paths == [
        "/%0d%0aX:%20y/%C3%BC%22%3C%3E%7B%7D%7C%5E%60?a=%5B1%5D&b=%zz&c=%F0%9F%98%80",
        "//evil.test/..//x",
        "/?q",
    ]


async def test_invalid_fetch_arguments_are_reported(bench: ToolHarness) -> None:
    tool = FetchUrlTool(WebClient(AddressPolicy()))
    for arguments, said in (
        ({}, "`url` is missing"),
        ({"url": 3}, "must be text"),
        ({"url": "http://a/", "start": -1}, "at least 0"),
        ({"url": "http://a/", "method": "POST"}, "no argument `method`"),
        ({"url": ""}, "begins with http"),
        ({"url": "example.org"}, "begins with http"),
        ({"url": "http://" + "a" * FETCH_URL_CHARS_MAX}, "at most"),
    ):
        call = RecordedCall(bench.prepare().id, msgspec.json.encode(arguments).decode(), bench.workspace)
        call.result = await tool.run(call.tool_run())
        assert call.outcome == "failed" and said in call.text, (arguments, call.text)


def test_fetch_url_is_idempotent_and_needs_approval() -> None:
    tool = FetchUrlTool(WebClient(AddressPolicy()))
    assert (tool.effect, tool.needs_approval) == ("idempotent", True)
    assert "server on the internet" in tool.spec.place
