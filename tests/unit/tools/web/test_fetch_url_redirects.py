"""Where `fetch_url` can be led: servers that point on, names that change, and who is asked in the end."""

import asyncio
import datetime
import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdfast.domain.limits import FETCH_URL_CHARS_MAX, FETCH_URL_REDIRECTS_MAX
from holdfast.domain.urls import parse_url
from holdfast.tools.arguments import ToolError
from holdfast.tools.web.fetch_url import check_redirect
from tests.support.fetch_url_client import PRIVATE_ADDRESS, PUBLIC_ADDRESS, FakeResolver, fetch
from tests.support.tool_fixture import ToolHarness, bench
from tests.support.web_server import WebSite, redirect, reply, web_server

__all__ = ["bench"]


# Servers that point on.


async def test_same_server_redirects_are_followed_with_a_new_lookup_each(bench: ToolHarness) -> None:
    site = WebSite({"/a": redirect("b", "301 Moved"), "/b": redirect("?c", "307 X"), "/b?c": reply("<p>end")})
    names = FakeResolver(name_test=[[PUBLIC_ADDRESS]])
    async with web_server(site):
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
async def test_redirects_to_private_addresses_are_refused(bench: ToolHarness, to: str) -> None:
    inside, names = WebSite({"/secret": reply("secret")}), FakeResolver(name_test=[[PUBLIC_ADDRESS]])
    async with web_server(inside, PRIVATE_ADDRESS), web_server(WebSite()) as site:
        site.pages["/"] = redirect(to.format(port=inside.port))
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
async def test_invalid_redirects_are_not_followed(bench: ToolHarness, to: str, said: str) -> None:
    async with web_server(WebSite({"/": redirect(to)})) as site:
        call = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/")
    assert call.outcome == "failed" and said in call.text, call.text
    assert len(site.heads) == 1


async def test_a_redirect_to_another_server_is_refused_without_a_lookup(bench: ToolHarness) -> None:
    names = FakeResolver(name_test=[[PUBLIC_ADDRESS]], other_test=[[PUBLIC_ADDRESS]])
    async with web_server(WebSite()) as site:
        to = f"http://other.test:{site.port}/?all=that+was+said"
        site.pages["/"] = redirect(to)
        call = await fetch(bench, f"http://name.test:{site.port}/", names=names)
        site.pages["/port"] = redirect(f"http://name.test:{site.port + 1}/")
        port = await fetch(bench, f"http://name.test:{site.port}/port", names=names)
    assert call.text == f"name.test:{site.port} points to another server; to go on, fetch {to}"
    assert "another server" in port.text
    assert "other.test" not in names.asked and len(site.heads) == 2


async def test_a_www_redirect_is_the_same_server_and_is_checked(bench: ToolHarness) -> None:
    names = FakeResolver(name_test=[[PUBLIC_ADDRESS]], www_name_test=[[PUBLIC_ADDRESS], [PRIVATE_ADDRESS]])
    async with web_server(WebSite()) as site:
        site.pages["/"] = redirect(f"http://www.name.test:{site.port}/x")
        site.pages["/x"] = reply("there")
        good = await fetch(bench, f"http://name.test:{site.port}/", names=names)
        bad = await fetch(bench, f"http://name.test:{site.port}/", names=names)
    assert "there" in good.text
    assert bad.outcome == "failed" and f"{PRIVATE_ADDRESS} is not an address of the internet" in bad.text


async def test_redirect_loops_and_long_chains_end(bench: ToolHarness) -> None:
    site = WebSite({"/a": redirect("/b"), "/b": redirect("/a"), "/self": redirect("/self")})
    site.pages |= {f"/{number}": redirect(f"/{number + 1}") for number in range(FETCH_URL_REDIRECTS_MAX + 9)}
    async with web_server(site):
        for path in ("/a", "/self"):
            call = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}{path}")
            assert call.outcome == "failed" and "in a circle" in call.text
        site.heads.clear()
        far = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{site.port}/0")
    assert far.outcome == "failed" and f"more than {FETCH_URL_REDIRECTS_MAX} times" in far.text
    assert len(site.heads) == FETCH_URL_REDIRECTS_MAX + 1


# Names that stand for something else from one look to the next.


async def test_dns_rebinding_connects_to_the_checked_address(bench: ToolHarness) -> None:
    inside = WebSite({"/": reply("secret")})
    async with (
        web_server(WebSite({"/": reply("public")})) as site,
        web_server(inside, PRIVATE_ADDRESS, site.port),
    ):
        names = FakeResolver(name_test=[[PUBLIC_ADDRESS], [PRIVATE_ADDRESS]])
        call = await fetch(bench, f"http://name.test:{site.port}/", names=names)
        again = await fetch(bench, f"http://name.test:{site.port}/", names=names)
    assert "public" in call.text and len(names.asked) == 2, "one look for each"
    assert again.outcome == "failed" and inside.heads == []


async def test_dns_rebinding_is_refused_at_the_next_redirect(bench: ToolHarness) -> None:
    inside = WebSite({"/b": reply("secret")})
    async with (
        web_server(WebSite({"/a": redirect("/b")})) as site,
        web_server(inside, PRIVATE_ADDRESS, site.port),
    ):
        names = FakeResolver(name_test=[[PUBLIC_ADDRESS], [PRIVATE_ADDRESS]])
        call = await fetch(bench, f"http://name.test:{site.port}/a", names=names)
    assert call.outcome == "failed" and f"{PRIVATE_ADDRESS} is not an address" in call.text
    assert inside.heads == [] and site.paths == ["/a"]


@pytest.mark.parametrize(
    "addresses",
    [
        [PUBLIC_ADDRESS, PRIVATE_ADDRESS], [PRIVATE_ADDRESS, PUBLIC_ADDRESS], ["::1"], ["fe80::1%lo"],
        ["fd00::1"], ["::ffff:127.0.0.2"],
        ["10.0.0.1"], ["93.184.216.34", "192.168.0.1"], ["64:ff9b::7f00:2"], ["2002:7f00:2::"],
        ["2001:0:7f00:2::"],
    ],
)  # fmt: skip
async def test_a_host_is_refused_if_any_of_its_addresses_is(bench: ToolHarness, addresses: list[str]) -> None:
    async with web_server(WebSite({"/": reply("x")})) as site:
        call = await fetch(bench, f"http://name.test:{site.port}/", names=FakeResolver(name_test=[addresses]))
    assert call.outcome == "failed" and "not an address of the internet" in call.text
    assert site.heads == []


async def test_unknown_hosts_and_closed_ports_are_reported(bench: ToolHarness) -> None:
    unknown = await fetch(bench, "http://nowhere.test/", names=FakeResolver())
    assert unknown.text == "nowhere.test is not found: Name or service not known"
    with socket.socket() as taken:
        taken.bind((PUBLIC_ADDRESS, 0))
        call = await fetch(bench, f"http://{PUBLIC_ADDRESS}:{taken.getsockname()[1]}/")
    assert call.outcome == "failed" and "cannot be asked" in call.text


async def test_hosts_and_networks_can_be_allowed_but_never_the_server_itself(
    bench: ToolHarness,
) -> None:
    async with web_server(WebSite({"/": reply("inside")})) as site:
        names = FakeResolver(wiki_lan=[[PUBLIC_ADDRESS]], other_lan=[[PUBLIC_ADDRESS]])
        for allowed, host, fine in (
            (["wiki.lan"], "wiki.lan", True),
            (["WIKI.lan."], "wiki.lan", True),
            (["wiki.lan"], "other.lan", False),
            (["wiki.lan"], PUBLIC_ADDRESS, False),
            (["127.0.0.0/8"], "other.lan", True),
            (["10.0.0.0/8"], "other.lan", False),
            (["::/0"], "other.lan", False),
            ([PUBLIC_ADDRESS], "[::ffff:127.0.0.1]", True),
            ([], "wiki.lan", False),
        ):
            url = f"http://{host}:{site.port}/"
            call = await fetch(bench, url, allowed=allowed, names=names)
            assert (call.outcome == "done") == fine, (allowed, host, call.text)
            own = await fetch(bench, url, allowed=allowed, names=names, own_port=site.port)
            assert own.outcome == "failed" and "not an address of the internet" in own.text


# Connections that nobody else can read.


def a_certificate(folder: Path, name: str) -> Path:
    """A certificate that vouches for itself, with its key."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    who = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    made = x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - datetime.timedelta(days=1))
    made = made.not_valid_after(now + datetime.timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
    path, plain = folder / "certificate.pem", serialization.NoEncryption()
    pem, kind = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    path.write_bytes(made.sign(key, hashes.SHA256()).public_bytes(pem) + key.private_bytes(pem, kind, plain))
    return path


async def test_tls_certificates_are_verified_and_sni_is_sent(bench: ToolHarness, tmp_path: Path) -> None:
    named: list[str | None] = []
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(a_certificate(tmp_path, "name.test"))
    own.sni_callback = lambda connection, name, context: named.append(name)
    site = WebSite({"/": reply("hello")})
    server = await asyncio.start_server(site.answer, PUBLIC_ADDRESS, 0, ssl=own)
    try:
        port = server.sockets[0].getsockname()[1]
        call = await fetch(
            bench, f"https://name.test:{port}/", names=FakeResolver(name_test=[[PUBLIC_ADDRESS]])
        )
    finally:
        server.close()
        await server.wait_closed()
    assert call.outcome == "failed" and "certificate" in call.text.lower()
    assert named == ["name.test"] and site.heads == []


async def test_https_to_http_redirects_are_refused() -> None:
    secure, plain = parse_url("https://example.org/"), parse_url("http://example.org/")
    with pytest.raises(ToolError, match="from https to http"):
        check_redirect(secure, plain)
    assert check_redirect(plain, secure) == secure
