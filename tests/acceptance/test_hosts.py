"""By which names a server is reached: this machine's, a proxy's, and no other's."""

import json
import re
from pathlib import Path

import pytest

from holdfast.domain.credentials import AuthConfig
from tests.acceptance.conftest import CliHarness, RunningServer
from tests.acceptance.page_files import files_named_in, loaded_by_page
from tests.support.api_client import api_client
from tests.support.free_ports import own_port
from tests.support.in_process_app import running_app
from tests.support.in_process_server import TOKEN_DIGEST, http_server, make_keyring

PATHS = ("/", "/page/icon.svg", "/health/live", "/api/sessions", "/api/stream?session=x:0", "/metrics")


@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_host_name_is_refused(path: str, server: RunningServer) -> None:
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example"):
        response = server.request(path, Host=host)
        assert (response.status, json.loads(response.body)["code"]) == (421, "wrong_host")
        assert "allowed_hosts" in response.body and "public_url" in response.body


@pytest.mark.parametrize("path", PATHS)
def test_a_page_of_another_origin_cannot_read(path: str, server: RunningServer) -> None:
    response = server.request(path, Origin="https://evil.example")
    assert (response.status, json.loads(response.body)["code"]) == (403, "wrong_origin")
    assert "allowed_hosts" in response.body
    assert "access-control-allow-origin" not in response.headers


def test_every_response_has_the_security_headers(server: RunningServer) -> None:
    for path in (*PATHS, "/nowhere", "/openapi.json"):
        for token in (None, ""):
            headers = server.request(path.partition("?")[0], token=token).headers
            assert headers["cross-origin-resource-policy"] == "same-origin", path
            assert headers["cross-origin-opener-policy"] == "same-origin", path
            policy = headers["content-security-policy"]
            for rule in (
                "default-src 'none'",
                "script-src 'self'",
                "frame-ancestors 'none'",
                "base-uri 'none'",
            ):
                assert rule in policy, path
            assert "unsafe" not in policy and "*" not in policy


async def test_the_base_path_works_with_and_without_proxy_stripping(
    tmp_path: Path,
) -> None:
    entrance = AuthConfig(True, TOKEN_DIGEST, "https://example.org/agent", ())
    async with running_app(tmp_path) as app:
        keyring = make_keyring(app)
        async with (
            http_server(app, keyring=keyring, auth_config=entrance) as api,
            api_client(api.address, "") as browser,
        ):
            own = {"Host": "example.org", "Origin": "https://example.org"}
            for prefix in ("/agent", ""):
                code = await keyring.create_code()
                reply = await browser.post(f"{prefix}/api/sign-in", {"code": code}, headers=own)
                assert browser.status == 200
                cookie = browser.headers["set-cookie"]
                assert cookie.startswith("holdfast_443=hf_")
                assert "Path=/agent;" in cookie and cookie.endswith("; Secure")
                signed_in = own | {"Cookie": cookie.partition(";")[0], "X-Holdfast-Page": reply["page_key"]}
                await browser.get(f"{prefix}/api/me", headers=signed_in)
                assert browser.status == 200
                assert len(await loaded_by_page(browser, prefix, **own)) > 2
                await browser.post(f"{prefix}/api/sessions", {}, headers=signed_in)
                assert browser.status == 201
                kept = await browser.post(
                    f"{prefix}/api/files", data=b"a note", headers=signed_in | {"Content-Type": "text/plain"}
                )
                del signed_in["X-Holdfast-Page"]
                assert await browser.get(f"{prefix}/api/files/{kept['id']}", headers=signed_in) == b"a note"
                await browser.get(f"{prefix}/api/me", headers=signed_in)
                assert browser.status == 401
            await browser.get("/agent", headers=own, allow_redirects=False)
            assert (browser.status, browser.headers["location"]) == (308, "/agent/")


async def test_the_page_uses_only_relative_urls(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        assert all(name.startswith("./page/") for name in files_named_in((await api.get("/")).decode()))
        for name, text, _ in await loaded_by_page(api):
            assert re.search(r"[\"'`(]/(api|page)/|fetch\([\"'`]/", text) is None, name


async def test_forwarded_headers_are_ignored(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        forged = {"X-Forwarded-Host": "localhost", "Forwarded": "host=localhost", "Host": "evil.example"}
        assert (await api.get("/api/me", headers=forged))["code"] == "wrong_host"
    async with api_client(server.address, "") as api:
        problem = await api.get("/api/me", headers={"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1"})
        assert problem["code"] == "not_signed_in"


def test_a_public_address_needs_a_password_or_token_to_start(holdfast: CliHarness) -> None:
    words = ("--host", "0.0.0.0", "--port", str(own_port()))
    ended = holdfast.run("serve", *words)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no password and no token yet" in ended.stderr and "holdfast password" in ended.stderr
    secret = holdfast.run("tokens", "add", "far away").stdout.strip()
    holdfast.environ["HOLDFAST_ALLOWED_HOSTS"] = "box.lan"
    server = holdfast.serve(*words)
    assert server.address == f"http://127.0.0.1:{server.port}/"
    assert server.request("/api/me", token=secret, Host="box.lan").status == 200
    assert server.request("/api/me", token="", Host="box.lan").status == 401
    assert server.request("/api/me", token=secret, Host="other.lan").status == 421


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("HOST", "0.0.0.0", "the host 0.0.0.0"),
        ("PUBLIC_URL", "https://example.org", "public_url"),
        ("ALLOWED_HOSTS", "box.lan", "allowed_hosts"),
    ],
)
def test_with_auth_off_a_public_address_is_refused(
    name: str, value: str, words: str, holdfast: CliHarness, tmp_path: Path
) -> None:
    holdfast.environ |= {"HOLDFAST_AUTH": "off", f"HOLDFAST_{name}": value, "HOLDFAST_PORT": str(own_port())}
    ended = holdfast.run("serve")
    assert ended.returncode == 1
    assert f"there is {words}." in ended.stderr and "set auth to on" in ended.stderr
    assert not (tmp_path / "share").exists()


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("https://example.org/api", "a path of the server's own"),
        ("https://example.org/page/x", "a path of the server's own"),
        ("https://example.org:99999", "must be an address like"),
        ("https://[::1", "must be an address like"),
        ("https://[1::2::3]", "1::2::3"),
    ],
)
def test_an_invalid_public_url_is_refused(url: str, why: str, holdfast: CliHarness) -> None:
    holdfast.environ["HOLDFAST_PUBLIC_URL"] = url
    ended = holdfast.run("serve", "--port", "0")
    assert (ended.returncode, "public_url" in ended.stderr, why in ended.stderr) == (1, True, True)


def test_the_sign_in_link_uses_the_public_url(holdfast: CliHarness) -> None:
    holdfast.environ["HOLDFAST_PUBLIC_URL"] = "https://example.org/agent"
    server = holdfast.serve("--port", str(own_port()))
    assert server.link == f"https://example.org/agent/#code={server.code}"
    assert holdfast.run("link").stdout.startswith("https://example.org/agent/#code=hf_")
