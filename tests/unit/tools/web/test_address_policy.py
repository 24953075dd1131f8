"""Addresses of pages: every spelling comes out as one, and only those of the internet are let through."""

import asyncio
import errno
import ipaddress
import socket
import string
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.domain.events.parts import message_text
from holdfast.domain.ids import CallId
from holdfast.domain.urls import (
    InvalidUrl,
    Url,
    parse_authority,
    parse_host,
    parse_url,
    requested_authority,
    resolve_url,
)
from holdfast.tools.ports import ToolRun
from holdfast.tools.web.address_policy import AddressPolicy, is_own, is_public, read_address
from holdfast.tools.web.fetch_url import FetchUrlTool
from holdfast.tools.web.web_client import WebClient, resolve_host

LOOPBACK = (
    "127.0.0.1", "127.0.0.1.", "127.1", "127.0.1", "127.000.000.001", "0177.0.0.1", "0177.1", "0x7f.1",
    "0X7F.0.0.1", "0x7f.0x0.0x0.0x1", "0x7f000001", "2130706433", "017700000001", "0x7f.0.1", "127.0x1",
    "127.255.255.254", "127.0.0.01", "0", "0.0.0.0", "0x0", "0x", "00", "0.0",
    "１２７.０.０.１", "127。0。0。1", "127．1", "①②⑦.⓪.⓪.①", "0ｘ7f.1", "𝟏𝟐𝟕.𝟎.𝟎.𝟏",
    "[::1]", "[0:0:0:0:0:0:0:1]", "[0000::0001]", "[::]", "[::ffff:127.0.0.1]", "[::ffff:7f00:1]",
    "[0:0:0:0:0:ffff:7f00:1]", "[::127.0.0.1]", "[::ffff:0:127.0.0.1]", "[64:ff9b::127.0.0.1]",
    "[64:ff9b:1::127.0.0.1]", "[2002:7f00:1::]", "[2001:0:7f00:1::]",
    "[2001:0:4136:e378:8000:63bf:80ff:fffe]",
    "[::FFFF:127.0.0.1]",
)  # fmt: skip
OTHERS = (
    "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254",
    "100.64.0.1",
    "100.100.100.200", "100.127.255.255", "192.0.0.192", "192.0.2.1", "198.18.0.1", "198.51.100.1",
    "203.0.113.9",
    "192.88.99.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255", "168.63.129.16", "0.1.2.3",
    "2852039166", "0xa9fea9fe", "0251.0376.0251.0376", "169.254.43518", "10.1", "192.168.257",
    "[fc00::1]", "[fd00:ec2::254]", "[fe80::1]", "[fec0::1]", "[ff02::1]", "[100::1]", "[2001:db8::1]",
    "[3fff::1]", "[2001:10::1]", "[2001:20::1]", "[5f00::1]", "[4000::1]", "[::ffff:10.0.0.1]",
    "[64:ff9b::a00:1]", "[64:ff9b::169.254.169.254]", "[2002:a00:1::]", "[::ffff:169.254.169.254]",
    "[fe80::5efe:a00:1]", "[0100::]",
)  # fmt: skip
UNREADABLE = (
    "", ".", "..", "127.0.0.1..", "1.2.3.4.5", "256.1.1.1", "1.256.1", "4294967296", "0x100000000", "08",
    "09.1", "example.0x7f", "a.1", "1e3.1", "-1", "+127.0.0.1", "127.0.0.1 ", "127.0.0.1%00", "%31",
    "%6cocalhost", "[::1%25lo]", "[::1%lo]", "[fe80::1%eth0]", "[::1", "::1", "[]", "[1.2.3.4]", "[::g]",
    "[[::1]]",
    "[v1.x]", "[::1].x", "a..b", "-a.b", "a-.b", "a" * 64, ".".join(["abc"] * 64), "a b", "a@b", "a:b:c",
    "localhost\0", "xn--", "\u00ad", "\u200b", "a\u202eb", "9" * 5_000, "0x" + "f" * 5_000,
)  # fmt: skip
PUBLIC = (
    ("1.1.1.1", "1.1.1.1"), ("0127.0.0.1", "87.0.0.1"), ("134744072", "8.8.8.8"), ("0x08080808", "8.8.8.8"),
    ("8.8.2056", "8.8.8.8"),
    ("172.15.255.255", "172.15.255.255"), ("172.32.0.1", "172.32.0.1"), ("100.128.0.1", "100.128.0.1"),
    ("[2606:4700:4700::1111]", "2606:4700:4700::1111"), ("[2a00:1450::1]", "2a00:1450::1"),
    ("[::ffff:8.8.8.8]", "::ffff:808:808"), ("[64:ff9b::8.8.8.8]", "64:ff9b::808:808"),
)  # fmt: skip


async def nobody(host: str, port: int) -> list[str]:
    raise AssertionError(f"{host} was looked up")


async def refusal_for(url: str) -> str:
    arguments = msgspec.json.encode({"url": url}).decode()
    call = ToolRun(CallId("c_1"), arguments, Path("/"), lambda text, stream: None)
    result = await FetchUrlTool(WebClient(AddressPolicy(), nobody), 10).run(call)
    assert result.outcome == "failed" and result.parts is not None
    return message_text(result.parts)


@pytest.mark.parametrize("host", [*LOOPBACK, *OTHERS])
async def test_non_public_addresses_are_refused_in_every_notation(host: str) -> None:
    for url in (f"http://{host}/", f"HTTPS://{host}:8443/x?y#z", f"http://{host}"):
        literal = parse_url(url).ip_address
        # Looked at before it is tried: a mistake in the table must not reach anybody.
        assert literal is not None and not is_public(read_address(str(literal)))
        assert "not an address of the internet" in await refusal_for(url)


@pytest.mark.parametrize("host", [*LOOPBACK, *OTHERS, "localhost", "a.localhost."])
def test_a_forbidden_address_fails_validation(host: str) -> None:
    def flaw(url: str, *allowed: str) -> str:
        arguments = msgspec.json.encode({"url": url}).decode()
        return FetchUrlTool(WebClient(AddressPolicy(allowed, 8787), nobody)).validate(arguments)

    assert "not an address of the internet" in flaw(f"http://{host}/")
    assert flaw(f"http://{host}/", "0.0.0.0/0", "::/0") == ""
    assert "not an address of the internet" in flaw(f"http://{host}:8787/", "0.0.0.0/0", "::/0")
    assert flaw("https://example.org/") == flaw("http://1.1.1.1/") == ""
    assert flaw("ftp://example.org/") and FetchUrlTool(WebClient(AddressPolicy(), nobody)).validate("{}")


@pytest.mark.parametrize("host", UNREADABLE)
async def test_an_ambiguous_host_is_refused(host: str) -> None:
    with pytest.raises(InvalidUrl):
        parse_url(f"http://{host}/")
    assert "not an address of the internet" not in await refusal_for(f"http://{host}/")


@pytest.mark.parametrize("url", [
    "", "http", "http:", "http:/127.0.0.1/", "http:127.0.0.1", "//127.0.0.1/", "/x", "127.0.0.1", "ftp://a/",
    "file:///etc/passwd", "data:text/plain,x", "javascript:x", "http:\\\\127.0.0.1\\", "http://a\\b/", "http:///x/",
    "http://user@127.0.0.1/", "http://user:pass@example.org/", "http://example.org@127.0.0.1/",
    "http://127.0.0.1#@example.org/x@", "http://example.org:0/", "http://example.org:65536/",
    "http://example.org:-1/", "http://example.org:８０/", "http://example.org:80:80/", "http://example.org:x/",
    "http://exa mple.org/", "http://example.org/\r\nHost: x", "ht\ntp://example.org/", "http://\texample.org/",
    "http://example.org/\ud800", "unix:///var/run/docker.sock", "https://:443/", "http://?x", "http://#x",
])  # fmt: skip
async def test_an_invalid_url_is_refused_first(url: str) -> None:
    try:
        read = parse_url(url)
    except InvalidUrl:
        return
    # It is one after all, and says plainly who would be asked.
    assert url == "http://127.0.0.1#@example.org/x@" and read.host == "127.0.0.1"


@pytest.mark.parametrize(("host", "address"), PUBLIC)
def test_public_addresses_are_allowed_and_normalized(host: str, address: str) -> None:
    url = parse_url(f"http://{host}/")
    assert url.host == address and url.ip_address is not None
    assert AddressPolicy().allows(url, read_address(str(url.ip_address)))


@pytest.mark.parametrize(("text", "place"), [
    ("https://Example.ORG/", "example.org"), ("http://example.org:80/", "example.org"),
    ("https://example.org./x", "example.org"), ("https://example.org:8443/", "example.org:8443"),
    ("http://bücher.example/", "xn--bcher-kva.example"), ("http://BÜCHER.example", "xn--bcher-kva.example"),
    ("http://ⓔxample.org/", "example.org"), ("http://a_b.example.org", "a_b.example.org"),
    ("http://[2606:4700::1]:99/", "[2606:4700::1]:99"), ("http://faß.example", "xn--fa-hia.example"),
    ("  https://example.org/\n", "example.org"), ("http://example.org:/", "example.org"),
])  # fmt: skip
def test_a_url_place_is_normalized_and_round_trips(text: str, place: str) -> None:
    url = parse_url(text)
    assert url.authority == place and parse_authority(place) == place and parse_url(str(url)) == url
    assert requested_authority(msgspec.json.encode({"url": text}).decode()) == place


@pytest.mark.parametrize("arguments", [
    '{"url": "http://good.example/", "url": "http://bad.example/"}', "[]", "{}", '{"url": 3}', "{", "",
    '{"url": "http://u:p@good.example/"}', '{"url": "x"}', "[" * 10_000,
])  # fmt: skip
def test_an_ambiguous_call_has_no_place(arguments: str) -> None:
    assert requested_authority(arguments) is None


def test_links_resolve_relative_to_their_page() -> None:
    base = parse_url("https://example.org/a/b?c")
    assert str(resolve_url(base, "../d?e#f")) == "https://example.org/d?e"
    assert str(resolve_url(base, "//127.1/x")) == "https://127.0.0.1/x"
    assert str(resolve_url(base, "HTTP://OTHER.example:80")) == "http://other.example/"


def test_every_reserved_network_that_python_knows_is_refused() -> None:
    for text in ("2001:1::1", "2001:1::2", "192.0.0.9", "192.0.0.10"):
        assert not is_public(ipaddress.ip_address(text)), "Python calls these global, and nobody needs them"
    for number in range(0, 2**32, 65_521):
        address = ipaddress.IPv4Address(number)
        assert not is_public(address) or (address.is_global and not address.is_multicast)


@given(st.integers(0, 2**128 - 1))
def test_private_ipv6_addresses_are_refused(number: int) -> None:
    address = ipaddress.IPv6Address(number)
    assert not is_public(address) or (address.is_global and not address.is_multicast and not address.teredo)


@given(st.integers(0, 2**32 - 1), st.sampled_from(["::ffff:{}", "64:ff9b::{}"]))
def test_a_wrapped_ipv4_address_is_unwrapped(number: int, form: str) -> None:
    inner = ipaddress.IPv4Address(number)
    assert read_address(form.format(inner)) == inner


@given(st.text(alphabet=string.printable + "äß。．①𝟏\u202e\u2028\ud800[]@:%", max_size=60))
def test_no_text_is_read_as_an_address_that_could_break_a_request(text: str) -> None:
    for tried in (text, f"http://{text}/", f"http://example.org/{text}"):
        try:
            url = parse_url(tried)
        except InvalidUrl:
            continue
        assert str(url).isascii() and str(url).isprintable() and " " not in str(url)
        assert parse_url(str(url)) == url and "@" not in url.host and url.ip_address in (None, url.ip_address)


@pytest.mark.parametrize(
    "bad", ["10.0.0.0/33", "10.0.0.1/8", "a/b", "http://x/", "a b", "", "::1/200", "1.2.3.4.5"]
)
def test_an_allowed_entry_must_be_a_host_or_a_network(bad: str) -> None:
    with pytest.raises(InvalidUrl):
        AddressPolicy([bad])


def test_allowing_a_host_does_not_allow_its_neighbours() -> None:
    admission = AddressPolicy(["wiki.lan", "10.1.0.0/16", "fd00::/8", "[::1]"])
    inside = ipaddress.ip_address("192.168.0.1")
    assert admission.allows(Url("http", "wiki.lan", 80, "/"), inside)
    for host in ("x.wiki.lan", "wiki.lan.example", "wiki", "lan"):
        assert not admission.allows(Url("http", host, 80, "/"), inside)
    for text, fine in (
        ("10.1.2.3", True),
        ("10.2.0.1", False),
        ("fd00::9", True),
        ("::1", True),
        ("::2", False),
    ):
        assert admission.allows(Url("http", "a", 80, "/"), ipaddress.ip_address(text)) == fine
    assert parse_host("WIKI.lan.") == "wiki.lan"


@pytest.mark.parametrize("name", ["localhost", "localhost.", "LOCALHOST", "ⓛocalhost"])
async def test_this_machine_is_refused_under_its_own_names(name: str) -> None:
    async with asyncio.timeout(30):
        found = await resolve_host(parse_url(f"http://{name}/").host, 80)
    assert found and not any(is_public(read_address(each)) for each in found)
    client = WebClient(AddressPolicy())
    call = ToolRun(
        CallId("c_1"), msgspec.json.encode({"url": f"http://{name}/"}).decode(), Path("/"), lambda t, s: None
    )
    result = await FetchUrlTool(client).run(call)
    assert "not an address of the internet" in message_text(result.parts or ())


ASKS_ITSELF = """
import asyncio, sys
from holdfast.tools.web.address_policy import AddressPolicy
from holdfast.tools.arguments import ToolError
from holdfast.tools.web.web_client import WebClient
from holdfast.domain.urls import parse_url

async def hello(reader, writer):
    await reader.readuntil(b"\\r\\n\\r\\n")
    writer.write(b"HTTP/1.0 200 OK\\r\\n\\r\\nhello")
    writer.close()

async def ask(client, url):
    try:
        async with client.get(parse_url(url)) as response:
            return (await response.read()).decode()
    except ToolError as refusal:
        return str(refusal).partition(":")[2]

async def main():
    server = await asyncio.start_server(hello, sys.argv[1], 0)
    port = server.sockets[0].getsockname()[1]
    host = f"[{sys.argv[1]}]" if ":" in sys.argv[1] else sys.argv[1]
    for admission in (AddressPolicy(), AddressPolicy([sys.argv[1]]), AddressPolicy([sys.argv[1]], port)):
        print(await ask(WebClient(admission), f"http://{host}:{port}/"))

asyncio.run(main())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs a network namespace")
@pytest.mark.parametrize("address", ["5.5.5.5", "2a00:1450::5"])
def test_a_public_address_of_this_machine_is_refused(address: str) -> None:
    prepare = f'ip link set lo up && ip addr add {address} dev lo && exec "$@"'
    asks = [sys.executable, "-c", ASKS_ITSELF, address]
    words = ["unshare", "-rn", "sh", "-c", prepare, "sh", *asks]
    result = subprocess.run(words, capture_output=True, text=True, timeout=60)
    if "unshare" in result.stderr:
        pytest.skip("network namespaces cannot be made here")
    refused, allowed, own = result.stdout.splitlines() or [result.stderr] * 3
    assert "not an address of the internet" in refused
    assert allowed == "hello", "who runs the server can allow it"
    assert "not an address of the internet" in own, "but never the server itself"


def test_without_an_address_family_no_address_is_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*words: object) -> None:
        raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")

    monkeypatch.setattr(socket, "socket", refuse)
    assert not is_own(ipaddress.ip_address("2a00:1450::5"))
