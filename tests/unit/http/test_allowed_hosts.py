"""By which names a server may be called, and from which pages."""

from typing import Any

import pytest

from holdfast.domain.credentials import AuthConfig
from holdfast.domain.errors import HoldfastError
from holdfast.http.hosts import HostPolicy


def scope(path: str = "/api/me", method: str = "GET", **headers: str) -> dict[str, Any]:
    lines = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    return {"path": path, "raw_path": path.encode(), "method": method, "headers": lines}


def error_code(hosts: HostPolicy, path: str = "/api/me", method: str = "GET", **headers: str) -> str:
    try:
        hosts.check(scope(path, method, **headers))
    except HoldfastError as error:
        return error.code
    return ""


PROXIED = AuthConfig(public_url="https://Example.org/agent/", allowed_hosts=("box.lan", "10.0.0.5:9000"))


@pytest.mark.parametrize(
    ("entrance", "host", "code"),
    [
        (AuthConfig(), "localhost", ""),
        (AuthConfig(), "LocalHost:1234", ""),
        (AuthConfig(), "127.0.0.1:8787", ""),
        (AuthConfig(), "[::1]:8787", ""),
        (AuthConfig(), "192.168.1.5:8787", ""),
        (AuthConfig(), "192.168.1.6", "wrong_host"),
        (AuthConfig(), "example.org", "wrong_host"),
        (AuthConfig(), "localhost.example.org", "wrong_host"),
        (AuthConfig(), "localhost:8787@example.org", "wrong_host"),
        (AuthConfig(), "", "wrong_host"),
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
def test_only_allowed_hosts_are_answered(entrance: AuthConfig, host: str, code: str) -> None:
    assert error_code(HostPolicy("192.168.1.5", 8787, entrance), host=host) == code


def test_two_host_headers_are_refused() -> None:
    twice = scope(host="localhost")
    twice["headers"] *= 2
    with pytest.raises(HoldfastError, match="does not answer"):
        HostPolicy("127.0.0.1", 8787, AuthConfig()).check(twice)


def test_a_wildcard_address_is_no_host_name() -> None:
    for host in ("0.0.0.0", "::"):
        assert error_code(HostPolicy(host, 8787, AuthConfig()), host=f"{host}:8787") == "wrong_host"


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
def test_only_allowed_origins_may_send_requests(origin: str, host: str, code: str) -> None:
    assert error_code(HostPolicy("127.0.0.1", 8787, PROXIED), origin=origin, host=host) == code


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
def test_cross_site_fetch_metadata_is_refused(site: str, path: str, method: str, code: str) -> None:
    hosts = HostPolicy("127.0.0.1", 8787, AuthConfig())
    assert error_code(hosts, path, method, host="localhost", sec_fetch_site=site) == code


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
def test_the_base_path_is_stripped_if_present(path: str, inside: str | None) -> None:
    found = HostPolicy("127.0.0.1", 8787, PROXIED).strip_base_path(scope(path))
    assert (found and (found["path"], found["raw_path"])) == (inside and (inside, inside.encode()))


def test_a_cookie_fits_the_address_that_the_browser_used() -> None:
    hosts = HostPolicy("127.0.0.1", 8787, PROXIED)
    near = hosts.cookie(scope(host="localhost:8787")).set_cookie_header("x", 60)
    far = hosts.cookie(scope(host="example.org")).set_cookie_header("x", 60)
    rewritten = hosts.cookie(scope(host="127.0.0.1:8787", origin="https://example.org")).set_cookie_header(
        "x", 60
    )
    assert near == "holdfast_8787=x; Path=/; Max-Age=60; HttpOnly; SameSite=Strict"
    assert far == "holdfast_443=x; Path=/agent; Max-Age=60; HttpOnly; SameSite=Strict; Secure"
    assert rewritten == far


def test_only_own_cookies_are_read() -> None:
    hosts = HostPolicy("127.0.0.1", 8787, PROXIED)
    sent = "holdfast_8788=other; holdfast_8787=mine; theme=dark;holdfast_443=far; holdfast_87870=no"
    assert hosts.cookie_secrets(scope(cookie=sent)) == ["mine", "far"]
