"""By which names a server is reached: this machine's, a proxy's, and no other's."""

import json
import re
from pathlib import Path

import pytest

from holdfast.domain.credentials import Entrance
from tests.acceptance.conftest import Holdfast, Running
from tests.acceptance.page_files import loaded_by_page, named_in
from tests.support.api_client import talking
from tests.support.free_ports import own_port
from tests.support.in_process_app import house
from tests.support.in_process_server import OWN, door, keyring_of

PATHS = ("/", "/page/icon.svg", "/health/live", "/api/sessions", "/api/stream?session=x:0", "/metrics")


@pytest.mark.parametrize("path", PATHS)
def test_a_foreign_name_that_leads_here_reads_nothing(path: str, server: Running) -> None:
    for host in ("evil.example", f"evil.example:{server.port}", "127.0.0.1.evil.example"):
        told = server.ask(path, Host=host)
        assert (told.status, json.loads(told.body)["code"]) == (421, "wrong_host")
        assert "allowed_hosts" in told.body and "public_url" in told.body


@pytest.mark.parametrize("path", PATHS)
def test_a_page_of_another_origin_reads_nothing(path: str, server: Running) -> None:
    told = server.ask(path, Origin="https://evil.example")
    assert (told.status, json.loads(told.body)["code"]) == (403, "wrong_origin")
    assert "allowed_hosts" in told.body
    assert "access-control-allow-origin" not in told.headers


def test_no_answer_may_be_framed_read_or_run_by_another_page(server: Running) -> None:
    for path in (*PATHS, "/nowhere", "/openapi.json"):
        for token in (None, ""):
            headers = server.ask(path.partition("?")[0], token=token).headers
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


async def test_behind_a_proxy_it_answers_below_its_path_in_both_ways_that_proxies_have(
    tmp_path: Path,
) -> None:
    entrance = Entrance(True, OWN, "https://example.org/agent", ())
    async with house(tmp_path) as here:
        keyring = keyring_of(here)
        async with door(here, keyring=keyring, entrance=entrance) as api, talking(api.address, "") as browser:
            own = {"Host": "example.org", "Origin": "https://example.org"}
            for prefix in ("/agent", ""):
                code = await keyring.new_code()
                told = await browser.post(f"{prefix}/api/sign-in", {"code": code}, headers=own)
                assert browser.status == 200
                cookie = browser.headers["set-cookie"]
                assert cookie.startswith("holdfast_443=hf_")
                assert "Path=/agent;" in cookie and cookie.endswith("; Secure")
                signed_in = own | {"Cookie": cookie.partition(";")[0], "X-Holdfast-Page": told["page_key"]}
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


async def test_the_page_names_everything_relative_to_itself(server: Running) -> None:
    async with talking(server.address) as api:
        assert all(name.startswith("./page/") for name in named_in((await api.get("/")).decode()))
        for name, text, _ in await loaded_by_page(api):
            assert re.search(r"[\"'`(]/(api|page)/|fetch\([\"'`]/", text) is None, name


async def test_what_a_proxy_says_of_where_a_request_came_from_is_not_believed(server: Running) -> None:
    async with talking(server.address) as api:
        forged = {"X-Forwarded-Host": "localhost", "Forwarded": "host=localhost", "Host": "evil.example"}
        assert (await api.get("/api/me", headers=forged))["code"] == "wrong_host"
    async with talking(server.address, "") as api:
        told = await api.get("/api/me", headers={"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1"})
        assert told["code"] == "not_signed_in"


def test_beyond_this_machine_it_does_not_start_without_a_password_or_a_token(holdfast: Holdfast) -> None:
    words = ("--host", "0.0.0.0", "--port", str(own_port()))
    ended = holdfast.run("serve", *words)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "no password and no token yet" in ended.stderr and "holdfast password" in ended.stderr
    secret = holdfast.run("tokens", "add", "far away").stdout.strip()
    holdfast.environ["HOLDFAST_ALLOWED_HOSTS"] = "box.lan"
    server = holdfast.serve(*words)
    assert server.address == f"http://127.0.0.1:{server.port}/"
    assert server.ask("/api/me", token=secret, Host="box.lan").status == 200
    assert server.ask("/api/me", token="", Host="box.lan").status == 401
    assert server.ask("/api/me", token=secret, Host="other.lan").status == 421


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("HOST", "0.0.0.0", "the host 0.0.0.0"),
        ("PUBLIC_URL", "https://example.org", "public_url"),
        ("ALLOWED_HOSTS", "box.lan", "allowed_hosts"),
    ],
)
def test_with_auth_off_it_does_not_start_where_others_could_reach_it(
    name: str, value: str, words: str, holdfast: Holdfast, tmp_path: Path
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
def test_an_address_that_cannot_be_the_public_one_is_refused(url: str, why: str, holdfast: Holdfast) -> None:
    holdfast.environ["HOLDFAST_PUBLIC_URL"] = url
    ended = holdfast.run("serve", "--port", "0")
    assert (ended.returncode, "public_url" in ended.stderr, why in ended.stderr) == (1, True, True)


def test_the_link_is_for_the_address_that_people_use(holdfast: Holdfast) -> None:
    holdfast.environ["HOLDFAST_PUBLIC_URL"] = "https://example.org/agent"
    server = holdfast.serve("--port", str(own_port()))
    assert server.link == f"https://example.org/agent/#code={server.code}"
    assert holdfast.run("link").stdout.startswith("https://example.org/agent/#code=hf_")
