"""By which names a server may be called, and from which pages."""

from typing import Any

import pytest

from holdfast.domain.credentials import Entrance
from holdfast.domain.errors import HoldfastError
from holdfast.http.hosts import Hosts


def scope(path: str = "/api/me", method: str = "GET", **headers: str) -> dict[str, Any]:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"path": path, "raw_path": path.encode(), "method": method, "headers": lines}


def told(hosts: Hosts, path: str = "/api/me", method: str = "GET", **headers: str) -> str:
    try:
        hosts.check(scope(path, method, **headers))
    except HoldfastError as error:
        return error.code
    return ""


PROXIED = Entrance(public_url="https://Example.org/agent/", allowed_hosts=("box.lan", "10.0.0.5:9000"))


@pytest.mark.parametrize(
    ("entrance", "host", "code"),
    [
        (Entrance(), "localhost", ""),
        (Entrance(), "LocalHost:1234", ""),
        (Entrance(), "127.0.0.1:8787", ""),
        (Entrance(), "[::1]:8787", ""),
        (Entrance(), "192.168.1.5:8787", ""),
        (Entrance(), "192.168.1.6", "wrong_host"),
        (Entrance(), "example.org", "wrong_host"),
        (Entrance(), "localhost.example.org", "wrong_host"),
        (Entrance(), "localhost:8787@example.org", "wrong_host"),
        (Entrance(), "", "wrong_host"),
        (PROXIED, "example.org", ""),
        (PROXIED, "EXAMPLE.ORG", ""),
        (PROXIED, "example.org:444", "wrong_host"),
        (PROXIED, "sub.example.org", "wrong_host"),
        (PROXIED, "box.lan", ""),
        (PROXIED, "box.lan:8787", ""),
        (PROXIED, "box.lan:8788", "wrong_host"),
        (PROXIED, "10.0.0.5:9000", ""),
        (PROXIED, "10.0.0.5", "wrong_host"),
    ],
)
def test_only_its_own_names_are_answered(entrance: Entrance, host: str, code: str) -> None:
    assert told(Hosts("192.168.1.5", 8787, entrance), host=host) == code


def test_two_host_headers_are_no_name() -> None:
    twice = scope(host="localhost")
    twice["headers"] *= 2
    with pytest.raises(HoldfastError, match="does not answer"):
        Hosts("127.0.0.1", 8787, Entrance()).check(twice)


def test_a_server_that_listens_everywhere_is_not_called_so() -> None:
    for host in ("0.0.0.0", "::"):
        assert told(Hosts(host, 8787, Entrance()), host=f"{host}:8787") == "wrong_host"


@pytest.mark.parametrize(
    ("origin", "host", "code"),
    [
        ("http://localhost:8787", "localhost:8787", ""),
        ("http://localhost:3000", "localhost:8787", "wrong_origin"),
        ("null", "localhost:8787", "wrong_origin"),
        ("https://example.org", "example.org", ""),
        ("https://example.org", "127.0.0.1:8787", ""),
        ("http://example.org", "127.0.0.1:8787", ""),
        ("https://example.org.evil", "example.org", "wrong_origin"),
        ("https://box.lan", "127.0.0.1:8787", ""),
        ("https://evil.example", "box.lan", "wrong_origin"),
    ],
)
def test_only_its_own_pages_may_ask(origin: str, host: str, code: str) -> None:
    assert told(Hosts("127.0.0.1", 8787, PROXIED), origin=origin, host=host) == code


@pytest.mark.parametrize(
    ("site", "path", "method", "code"),
    [
        ("same-origin", "/api/sessions", "POST", ""),
        ("none", "/api/sessions", "GET", ""),
        ("cross-site", "/", "GET", ""),
        ("cross-site", "/", "POST", "cross_site"),
        ("cross-site", "/api/sessions", "GET", "cross_site"),
        ("cross-site", "/page/page.js", "GET", "cross_site"),
        ("same-site", "/api/sessions", "GET", "cross_site"),
    ],
)
def test_what_a_browser_says_of_another_page_is_believed(
    site: str, path: str, method: str, code: str
) -> None:
    hosts = Hosts("127.0.0.1", 8787, Entrance())
    assert told(hosts, path, method, host="localhost", sec_fetch_site=site) == code


@pytest.mark.parametrize(
    ("path", "inside"),
    [
        ("/agent/api/me", "/api/me"),
        ("/agent/", "/"),
        ("/agent", None),
        ("/api/me", "/api/me"),
        ("/agents/api", "/agents/api"),
        ("/", "/"),
    ],
)
def test_the_path_in_front_is_taken_off_whether_a_proxy_passes_it_on_or_not(
    path: str, inside: str | None
) -> None:
    found = Hosts("127.0.0.1", 8787, PROXIED).inside(scope(path))
    assert (found and (found["path"], found["raw_path"])) == (inside and (inside, inside.encode()))


def test_a_cookie_is_for_the_way_that_a_browser_came() -> None:
    hosts = Hosts("127.0.0.1", 8787, PROXIED)
    near = hosts.cookie(scope(host="localhost:8787")).holding("x", 60)
    far = hosts.cookie(scope(host="example.org")).holding("x", 60)
    rewritten = hosts.cookie(scope(host="127.0.0.1:8787", origin="https://example.org")).holding("x", 60)
    assert near == "holdfast_8787=x; Path=/; Max-Age=60; HttpOnly; SameSite=Strict"
    assert far == "holdfast_443=x; Path=/agent; Max-Age=60; HttpOnly; SameSite=Strict; Secure"
    assert rewritten == far


def test_of_many_cookies_only_its_own_are_read() -> None:
    hosts = Hosts("127.0.0.1", 8787, PROXIED)
    sent = "holdfast_8788=other; holdfast_8787=mine; theme=dark;holdfast_443=far; holdfast_87870=no"
    assert hosts.cookies_in(scope(cookie=sent)) == ["mine", "far"]
