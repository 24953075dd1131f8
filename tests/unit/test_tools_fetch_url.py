"""`fetch_url` against real servers on loopback: pages as text, and everything that a server can do wrong."""

import asyncio
import gzip
import socket
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Sequence

import msgspec
import pytest

from holdfast.agent.tools.addresses import Admission
from holdfast.agent.tools.fetch_url import FetchUrl
from holdfast.agent.tools.unpacking import read_body
from holdfast.agent.tools.web_client import WebClient
from holdfast.domain.limits import (
    FETCH_URL_BYTES_MAX,
    FETCH_URL_CHARS_MAX,
    FETCH_URL_HEAD_BYTES_MAX,
    FETCH_URL_REDIRECTS_MAX,
    FETCH_URL_SHOWN_CHARS_MAX,
)
from tests.calls import Bench, Call, bench
from tests.web_server import Site, moved, reply, serving

__all__ = ["bench"]

HERE = "127.0.0.1"
INSIDE = "127.0.0.2"
"""Another address of this machine, which stands for one that nobody has allowed."""


class Names:
    """A resolver that says what a test wants, and another thing each time if it is given several."""

    def __init__(self, **known: list[list[str]]) -> None:
        self._known = {name.replace("_", "."): list(answers) for name, answers in known.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        answers = self._known.get(host)
        if not answers:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return answers.pop(0) if len(answers) > 1 else answers[0]


async def fetch(
    bench: Bench,
    url: str,
    start: int = 0,
    allowed: Sequence[str] = (f"{HERE}/32",),
    names: Names | None = None,
    seconds_max: float = 30,
    own_port: int = 0,
) -> Call:
    client = WebClient(Admission(allowed, own_port), names or Names())
    call = bench.prepare(url=url, start=start)
    call.result = await FetchUrl(client, seconds_max).run(call.run())
    return call


async def test_a_page_is_given_as_text_with_its_links(bench: Bench) -> None:
    page = "<title>T &amp; U</title><h1>Head</h1><p>Some <b>bold</b> text, <a href='/on?x=1'>a link</a>."
    async with serving(Site({"/p?q=%C3%A4&r=a+b": reply(page)})) as site:
        call = await fetch(bench, f"http://{HERE}:{site.port}/p?q=ä&r=a+b#part")
    base = f"http://{HERE}:{site.port}"
    assert call.outcome == "done"
    assert call.text == (
        f"[{base}/p?q=%C3%A4&r=a+b]\nTitle: T & U\n\n# Head\n\nSome bold text, [a link]({base}/on?x=1)."
    )


async def test_a_request_says_nothing_of_this_machine_or_of_anybody(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", f"http://{INSIDE}:1/")
    monkeypatch.setenv("HTTP_PROXY", f"http://{INSIDE}:1/")
    async with serving(Site({"/": reply("hello", Set_Cookie="a=b")})) as site:
        url = f"http://name.test:{site.port}/"
        names = Names(name_test=[[HERE]])
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
async def test_text_is_read_in_the_characters_that_it_is_in(
    bench: Bench, kind: str, body: bytes, shown: str
) -> None:
    async with serving(Site({"/": reply(body, kind)})) as site:
        call = await fetch(bench, f"http://{HERE}:{site.port}/")
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
async def test_what_is_no_text_is_refused_by_what_it_is(
    bench: Bench, kind: str, body: bytes, said: str
) -> None:
    async with serving(Site({"/": reply(body, kind)})) as site:
        call = await fetch(bench, f"http://{HERE}:{site.port}/")
    assert call.outcome == "failed" and said in call.text


async def test_a_long_page_is_read_on_where_it_was_left(bench: Bench) -> None:
    text = "".join(f"line {number}\n" for number in range(10_000))
    async with serving(Site({"/": reply(text, "text/plain")})) as site:
        url, start, read = f"http://{HERE}:{site.port}/", 0, ""
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


async def test_an_answer_that_is_no_page_is_told_with_what_it_says(bench: Bench) -> None:
    async with serving(Site({"/e": reply(status="204 No Content", kind="")})) as site:
        missing = await fetch(bench, f"http://{HERE}:{site.port}/gone")
        empty = await fetch(bench, f"http://{HERE}:{site.port}/e")
    assert missing.outcome == "failed"
    assert missing.text == f"{HERE}:{site.port} answers 404 Not Found:\nnot here"
    assert empty.outcome == "done" and empty.text.endswith("[there is no text]")


# Servers that point on.


async def test_a_server_points_on_within_itself_and_every_page_is_looked_up_anew(bench: Bench) -> None:
    site = Site({"/a": moved("b", "301 Moved"), "/b": moved("?c", "307 X"), "/b?c": reply("<p>end")})
    names = Names(name_test=[[HERE]])
    async with serving(site):
        call = await fetch(bench, f"http://name.test:{site.port}/a", names=names)
    assert call.text == f"[http://name.test:{site.port}/b?c]\n\nend"
    assert site.paths == ["/a", "/b", "/b?c"] and names.asked == ["name.test"] * 3


@pytest.mark.parametrize(
    "to",
    [
        "http://127.0.0.2:{port}/secret", "//127.0.0.2:{port}/secret", "http://127.2:{port}/", "http://0/",
        "http://[::1]:{port}/", "http://[::ffff:127.0.0.2]/", "http://2130706434/", "http://0x7f000002/",
        "http://169.254.169.254/latest/meta-data/", "https://10.0.0.1/", "http://０x7f.2/",
    ],
)  # fmt: skip
async def test_no_server_leads_into_this_machine_or_the_networks_around_it(bench: Bench, to: str) -> None:
    inside, names = Site({"/secret": reply("secret")}), Names(name_test=[[HERE]])
    async with serving(inside, INSIDE), serving(Site()) as site:
        site.pages["/"] = moved(to.format(port=inside.port))
        call = await fetch(bench, f"http://name.test:{site.port}/", names=names)
    assert call.outcome == "failed" and "not an address of the internet" in call.text
    assert inside.heads == []


@pytest.mark.parametrize(
    ("to", "said"),
    [
        ("file:///etc/passwd", "only http and https"),
        ("gopher://x/_", "only http and https"),
        ("javascript:alert(1)", "begins with http"),
        ("http://a:b@name.test/", "name or a password"),
        ("http://[::1", "points to something that is not asked for"),
        ("http://[bad]/", "points to something that is not asked for"),
        ("\udcff\udcfe://", "points to something that is not asked for"),
        ("http://name.test:99999/", "no port 99999"),
        ("/" + "x" * FETCH_URL_CHARS_MAX, f"at most {FETCH_URL_CHARS_MAX:,} characters"),
    ],
)
async def test_a_server_that_points_to_nowhere_is_not_followed(bench: Bench, to: str, said: str) -> None:
    async with serving(Site({"/": moved(to)})) as site:
        call = await fetch(bench, f"http://{HERE}:{site.port}/")
    assert call.outcome == "failed" and said in call.text, call.text
    assert len(site.heads) == 1


async def test_another_server_is_another_call_and_is_not_even_looked_up(bench: Bench) -> None:
    names = Names(name_test=[[HERE]], other_test=[[HERE]])
    async with serving(Site()) as site:
        to = f"http://other.test:{site.port}/?all=that+was+said"
        site.pages["/"] = moved(to)
        call = await fetch(bench, f"http://name.test:{site.port}/", names=names)
        site.pages["/port"] = moved(f"http://name.test:{site.port + 1}/")
        port = await fetch(bench, f"http://name.test:{site.port}/port", names=names)
    assert call.text == f"name.test:{site.port} points to another server; to go on, fetch {to}"
    assert "another server" in port.text
    assert "other.test" not in names.asked and len(site.heads) == 2


async def test_the_same_name_with_www_is_the_same_server_and_is_checked_as_well(bench: Bench) -> None:
    names = Names(name_test=[[HERE]], www_name_test=[[HERE], [INSIDE]])
    async with serving(Site()) as site:
        site.pages["/"] = moved(f"http://www.name.test:{site.port}/x")
        site.pages["/x"] = reply("there")
        good = await fetch(bench, f"http://name.test:{site.port}/", names=names)
        bad = await fetch(bench, f"http://name.test:{site.port}/", names=names)
    assert "there" in good.text
    assert bad.outcome == "failed" and f"{INSIDE} is not an address of the internet" in bad.text


async def test_a_circle_and_a_long_way_end(bench: Bench) -> None:
    site = Site({"/a": moved("/b"), "/b": moved("/a"), "/self": moved("/self")})
    site.pages |= {f"/{number}": moved(f"/{number + 1}") for number in range(FETCH_URL_REDIRECTS_MAX + 9)}
    async with serving(site):
        for path in ("/a", "/self"):
            call = await fetch(bench, f"http://{HERE}:{site.port}{path}")
            assert call.outcome == "failed" and "in a circle" in call.text
        site.heads.clear()
        far = await fetch(bench, f"http://{HERE}:{site.port}/0")
    assert far.outcome == "failed" and f"more than {FETCH_URL_REDIRECTS_MAX} times" in far.text
    assert len(site.heads) == FETCH_URL_REDIRECTS_MAX + 1


# Names that stand for something else from one look to the next.


async def test_a_name_that_changes_between_looks_is_connected_to_where_it_was_checked(bench: Bench) -> None:
    inside = Site({"/": reply("secret")})
    async with serving(Site({"/": reply("public")})) as site, serving(inside, INSIDE, site.port):
        names = Names(name_test=[[HERE], [INSIDE]])
        call = await fetch(bench, f"http://name.test:{site.port}/", names=names)
        again = await fetch(bench, f"http://name.test:{site.port}/", names=names)
    assert "public" in call.text and len(names.asked) == 2, "one look for each"
    assert again.outcome == "failed" and inside.heads == []


async def test_a_name_that_changes_on_the_way_is_refused_at_the_next_page(bench: Bench) -> None:
    inside = Site({"/b": reply("secret")})
    async with serving(Site({"/a": moved("/b")})) as site, serving(inside, INSIDE, site.port):
        names = Names(name_test=[[HERE], [INSIDE]])
        call = await fetch(bench, f"http://name.test:{site.port}/a", names=names)
    assert call.outcome == "failed" and f"{INSIDE} is not an address" in call.text
    assert inside.heads == [] and site.paths == ["/a"]


@pytest.mark.parametrize(
    "addresses",
    [
        [HERE, INSIDE], [INSIDE, HERE], ["::1"], ["fe80::1%lo"], ["fd00::1"], ["::ffff:127.0.0.2"],
        ["10.0.0.1"], ["93.184.216.34", "192.168.0.1"], ["64:ff9b::7f00:2"], ["2002:7f00:2::"],
        ["2001:0:7f00:2::"],
    ],
)  # fmt: skip
async def test_a_name_is_refused_when_anything_that_it_stands_for_is(
    bench: Bench, addresses: list[str]
) -> None:
    async with serving(Site({"/": reply("x")})) as site:
        call = await fetch(bench, f"http://name.test:{site.port}/", names=Names(name_test=[addresses]))
    assert call.outcome == "failed" and "not an address of the internet" in call.text
    assert site.heads == []


async def test_a_name_that_nobody_knows_and_a_port_that_nobody_has_are_told(bench: Bench) -> None:
    unknown = await fetch(bench, "http://nowhere.test/", names=Names())
    assert unknown.text == "nowhere.test is not found: Name or service not known"
    with socket.socket() as taken:
        taken.bind((HERE, 0))
        call = await fetch(bench, f"http://{HERE}:{taken.getsockname()[1]}/")
    assert call.outcome == "failed" and "cannot be asked" in call.text


async def test_what_is_allowed_is_allowed_by_name_or_network_and_never_the_server_itself(
    bench: Bench,
) -> None:
    async with serving(Site({"/": reply("inside")})) as site:
        names = Names(wiki_lan=[[HERE]], other_lan=[[HERE]])
        for allowed, host, fine in (
            (["wiki.lan"], "wiki.lan", True),
            (["WIKI.lan."], "wiki.lan", True),
            (["wiki.lan"], "other.lan", False),
            (["wiki.lan"], HERE, False),
            (["127.0.0.0/8"], "other.lan", True),
            (["10.0.0.0/8"], "other.lan", False),
            (["::/0"], "other.lan", False),
            ([HERE], "[::ffff:127.0.0.1]", True),
            ([], "wiki.lan", False),
        ):
            url = f"http://{host}:{site.port}/"
            call = await fetch(bench, url, allowed=allowed, names=names)
            assert (call.outcome == "done") == fine, (allowed, host, call.text)
            own = await fetch(bench, url, allowed=allowed, names=names, own_port=site.port)
            assert own.outcome == "failed" and "not an address of the internet" in own.text


# Servers that do wrong.


async def test_what_is_packed_is_unpacked(bench: Bench) -> None:
    page = b"<p>" + b"words " * 1_000
    raw = zlib.compressobj(wbits=-15)
    site = Site({
        "/gzip": reply(gzip.compress(page), Content_Encoding="gzip"),
        "/deflate": reply(zlib.compress(page), Content_Encoding="deflate"),
        "/raw": reply(raw.compress(page) + raw.flush(), Content_Encoding="deflate"),
        "/plain": reply(page, Content_Encoding="identity"),
    })  # fmt: skip
    async with serving(site):
        for path in site.pages:
            assert (await fetch(bench, f"http://{HERE}:{site.port}{path}")).text.count("words") == 1_000, path


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
)
async def test_what_is_packed_badly_is_told(bench: Bench, body: bytes, encoding: str, said: str) -> None:
    async with serving(Site({"/": reply(body, Content_Encoding=encoding)})) as site:
        call = await fetch(bench, f"http://{HERE}:{site.port}/")
    assert said in call.text


BOMB = b"0" * 40_000_000


async def test_a_small_file_that_unpacks_to_a_huge_one_is_cut_at_the_limit(bench: Bench) -> None:
    packed = gzip.compress(BOMB, 1)
    assert len(packed) < 400_000
    async with serving(Site({"/": reply(packed, "text/plain", Content_Encoding="gzip")})) as site:
        call = await fetch(bench, f"http://{HERE}:{site.port}/", FETCH_URL_BYTES_MAX - 10)
    assert call.outcome == "done" and f"of {FETCH_URL_BYTES_MAX:,}" in call.text
    assert call.text.endswith("0" * 10) and "its rest was not read" in call.text


@pytest.mark.parametrize("encoding", ["gzip", "deflate"])
async def test_such_a_file_fills_no_memory_either(encoding: str) -> None:
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


async def test_a_page_without_end_is_read_up_to_the_limit(bench: Bench) -> None:
    async def pour(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
        for _ in range(100 * FETCH_URL_BYTES_MAX // 65_536):
            writer.write(b"x" * 65_536)
            await writer.drain()

    async with serving(Site({"/": pour})) as site:
        call = await fetch(bench, f"http://{HERE}:{site.port}/", FETCH_URL_BYTES_MAX - 5)
        async with asyncio.timeout(30):
            await site.hung_up.wait()
    assert call.text.endswith("\n\nxxxxx") and "its rest was not read" in call.text


@pytest.mark.parametrize("before", [b"", b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n"])
async def test_a_server_that_drips_is_left_in_time(bench: Bench, before: bytes) -> None:
    async def drip(writer: asyncio.StreamWriter) -> None:
        writer.write(before or b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"x" if before else b"X-A: b\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async with serving(Site({"/": drip})) as site:
        call = await fetch(bench, f"http://{HERE}:{site.port}/", seconds_max=0.3)
        async with asyncio.timeout(30):
            await site.hung_up.wait()
    assert call.outcome == "failed" and call.text == "the page did not come within 0.3 s"


async def test_a_silent_server_a_silent_resolver_and_a_stop_end_a_call(bench: Bench) -> None:
    async def silence(writer: asyncio.StreamWriter) -> None:
        asked.set()
        await over.wait()

    async def never(host: str, port: int) -> Sequence[str]:
        await asyncio.Event().wait()
        return ()

    asked, over = asyncio.Event(), asyncio.Event()
    async with serving(Site({"/": silence})) as site:
        url = f"http://{HERE}:{site.port}/"
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
    call.result = await FetchUrl(WebClient(Admission(), never), 0.2).run(call.run())
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
async def test_whatever_a_server_answers_a_call_ends_with_a_sentence(bench: Bench, answer: bytes) -> None:
    async with serving(Site({"/": answer})) as site:
        call = await fetch(bench, f"http://{HERE}:{site.port}/")
    assert call.outcome == "failed" and call.text.startswith(f"{HERE}:{site.port} "), call.text
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
async def test_no_address_breaks_out_of_its_line(bench: Bench, url: str) -> None:
    async with serving(Site()) as site:
        call = await fetch(bench, url.format(at=f"{HERE}:{site.port}"))
    assert call.outcome == "failed"
    assert all("Evil" not in head and "X:" not in head for head in site.heads)
    # A line end after the address is only space around it.
    assert len(site.heads) == (url == "http://{at}/\n")


async def test_what_is_encoded_stays_so_and_everything_else_is(bench: Bench) -> None:
    async with serving(Site()) as site:
        await fetch(bench, f'http://{HERE}:{site.port}/%0d%0aX:%20y/ü"<>{{}}|^`?a=[1]&b=%zz&c=\U0001f600#f')
        await fetch(bench, f"http://{HERE}:{site.port}//evil.test/..//x")
        await fetch(bench, f"http://{HERE}:{site.port}?q")
    assert site.paths == [
        "/%0d%0aX:%20y/%C3%BC%22%3C%3E%7B%7D%7C%5E%60?a=%5B1%5D&b=%zz&c=%F0%9F%98%80",
        "//evil.test/..//x",
        "/?q",
    ]


async def test_bad_arguments_are_told_in_a_sentence(bench: Bench) -> None:
    tool = FetchUrl(WebClient(Admission()))
    for arguments, said in (
        ({}, "`url` is missing"),
        ({"url": 3}, "must be text"),
        ({"url": "http://a/", "start": -1}, "at least 0"),
        ({"url": "http://a/", "method": "POST"}, "no argument `method`"),
        ({"url": ""}, "begins with http"),
        ({"url": "example.org"}, "begins with http"),
        ({"url": "http://" + "a" * FETCH_URL_CHARS_MAX}, "at most"),
    ):
        call = Call(bench.prepare().id, msgspec.json.encode(arguments).decode(), bench.workspace)
        call.result = await tool.run(call.run())
        assert call.outcome == "failed" and said in call.text, (arguments, call.text)


def test_it_may_be_repeated_but_is_asked_about() -> None:
    tool = FetchUrl(WebClient(Admission()))
    assert (tool.effect, tool.asks) == ("idempotent", True)
    assert "server on the internet" in tool.spec.place
