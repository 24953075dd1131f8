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
from holdfast.domain.urls import read_url
from holdfast.tools.arguments import Refused
from holdfast.tools.web.fetch_url import followed
from tests.support.fetch_url_client import HERE, INSIDE, Names, fetch
from tests.support.tool_fixture import Bench, bench
from tests.support.web_server import Site, moved, reply, serving

__all__ = ["bench"]


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


async def test_a_server_must_be_who_its_name_says_and_is_told_which_name_is_meant(
    bench: Bench, tmp_path: Path
) -> None:
    named: list[str | None] = []
    own = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own.load_cert_chain(a_certificate(tmp_path, "name.test"))
    own.sni_callback = lambda connection, name, context: named.append(name)
    site = Site({"/": reply("hello")})
    server = await asyncio.start_server(site.answer, HERE, 0, ssl=own)
    try:
        port = server.sockets[0].getsockname()[1]
        call = await fetch(bench, f"https://name.test:{port}/", names=Names(name_test=[[HERE]]))
    finally:
        server.close()
        await server.wait_closed()
    assert call.outcome == "failed" and "certificate" in call.text.lower()
    assert named == ["name.test"] and site.heads == []


async def test_nothing_leads_from_https_to_http() -> None:
    secure, plain = read_url("https://example.org/"), read_url("http://example.org/")
    with pytest.raises(Refused, match="from https to http"):
        followed(secure, plain)
    assert followed(plain, secure) == secure
