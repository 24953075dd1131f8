"""Coming in with a browser: links, passwords, cookies, and going again."""

import asyncio
import itertools
import json
import re
import subprocess
import sys
from collections.abc import Mapping
from http.cookies import SimpleCookie
from pathlib import Path

import aiohttp
import pytest

from holdfast.domain.clock import FakeClock, SystemClock
from holdfast.domain.credentials import AuthConfig
from holdfast.http import authenticator
from holdfast.http.app import PATHS
from holdfast.http.route_rights import required_right
from tests.acceptance.conftest import CliHarness, HttpReply, RunningServer
from tests.support.api_client import ApiClient, api_client, wait_until
from tests.support.free_ports import own_port
from tests.support.in_process_app import running_app
from tests.support.in_process_server import CREDENTIAL_MS, browser_headers, http_server, make_keyring

JSON = {"Content-Type": "application/json"}
PASSWORD = "correct horse battery"


def sign_in(server: RunningServer, **body: str) -> HttpReply:
    return server.request("/api/sign-in", "POST", json.dumps(body), token="", **JSON)


def session_headers(reply: HttpReply) -> dict[str, str]:
    """What the page sends from then on: the browser adds the cookie, the page its own key."""
    assert reply.status == 200, reply.body
    cookie = reply.headers["set-cookie"].partition(";")[0]
    return {"Cookie": cookie, "X-Holdfast-Page": json.loads(reply.body)["page_key"]}


def browser_request(
    server: RunningServer, cookies: Mapping[str, str], path: str = "/api/me", method: str = "GET"
) -> HttpReply:
    own = {"Origin": server.address.rstrip("/"), **cookies, **JSON}
    return server.request(path, method, "{}" if method == "POST" else None, token="", **own)


def test_the_link_signs_one_browser_in_once(server: RunningServer) -> None:
    first = sign_in(server, code=server.code)
    assert json.loads(browser_request(server, session_headers(first)).body) == {
        "signed_in": True,
        "name": "browser",
        "rights": ["read", "write", "approve", "admin"],
        "browser": True,
    }
    again = sign_in(server, code=server.code)
    assert (again.status, json.loads(again.body)["code"]) == (401, "sign_in_failed")
    assert again.headers["www-authenticate"] == "Bearer"
    assert "set-cookie" not in again.headers


def test_the_cookie_is_http_only_same_site_and_named_by_port(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    reply = sign_in(server, code=server.code)
    name, morsel = next(iter(SimpleCookie(reply.headers["set-cookie"]).items()))
    assert name == f"holdfast_{server.port}"
    assert (morsel["httponly"], morsel["samesite"], morsel["path"]) == (True, "Strict", "/")
    assert (morsel["secure"], morsel["domain"], morsel["max-age"]) == ("", "", "2592000")
    assert morsel.value not in reply.body
    assert json.loads(reply.body)["page_key"] not in reply.headers["set-cookie"]


def test_a_link_opened_concurrently_signs_one_browser_in(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")

    async def all_at_once() -> list[int]:
        async def one(api: ApiClient) -> int:
            await api.post("/api/sign-in", {"code": server.code})
            return api.status

        async with aiohttp.ClientSession() as session:
            return list(await asyncio.gather(*(one(ApiClient(server.address, session)) for _ in range(8))))

    assert sorted(asyncio.run(all_at_once())) == [200, *[401] * 7]


def test_signing_out_takes_effect_on_every_server_at_once(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    shown = session_headers(sign_in(server, code=server.code))
    left = browser_request(server, shown, "/api/sign-out", "POST")
    assert (left.status, left.headers["set-cookie"].startswith(f"holdfast_{server.port}=; ")) == (204, True)
    assert "Max-Age=0" in left.headers["set-cookie"]
    assert browser_request(server, shown).status == 401


def test_a_sign_in_survives_a_restart(holdfast: CliHarness) -> None:
    first = holdfast.serve("--port", str(own_port()))
    shown = session_headers(sign_in(first, code=first.code))
    first.process.kill()
    first.process.wait()
    again = holdfast.serve("--port", str(first.port))
    assert browser_request(again, shown).status == 200
    assert again.token == first.token


def test_a_fresh_link_comes_from_the_command_beside_the_server(holdfast: CliHarness) -> None:
    servers = [holdfast.serve("--port", "0"), holdfast.serve("--port", "0")]
    links = holdfast.run("link").stdout.splitlines()
    assert [link.partition("#")[0] for link in links] == [server.address for server in servers]
    for server, link in zip(servers, links, strict=True):
        assert sign_in(server, code=link.partition("#code=")[2]).status == 200
    servers[0].process.kill()
    servers[0].process.wait()
    (left,) = json.loads(holdfast.run("link", "--json").stdout)
    assert left.startswith(servers[1].address)
    servers[1].process.terminate()
    servers[1].process.wait()
    result = holdfast.run("link")
    assert (result.returncode, result.stdout) == (1, "")
    assert "No server is running" in result.stderr


def test_a_password_signs_in_once_there_is_one(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    assert sign_in(server, password=PASSWORD).status == 401
    assert set_password(holdfast, PASSWORD).stdout == "The password is set.\n"
    assert sign_in(server, password=PASSWORD + "x").status == 401
    shown = session_headers(sign_in(server, password=PASSWORD))
    assert browser_request(server, shown).status == 200
    set_password(holdfast, "another horse battery")
    assert sign_in(server, password=PASSWORD).status == 401
    assert eventually_returns(server, shown, 401), "a changed password signs every browser out"
    assert holdfast.run("password", "--remove").stdout == "There is no password any more.\n"
    assert sign_in(server, password="another horse battery").status == 401


async def test_an_unauthenticated_client_learns_only_whether_a_password_is_set(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app) as api:
        own = dict(api.session.headers)
        flags: list[object] = []
        for password in ("", PASSWORD):
            if password:
                await api.post("/api/password", {"password": password})
            del api.session.headers["Authorization"]
            for path in ("/api/me", "/api/sessions", "/api/password"):
                problem = await api.get(path)
                assert api.status == 401
                assert set(problem) == {"title", "status", "detail", "code", "remedy", "password"}
                flags.append(problem["password"])
            # Only where somebody may yet come in: not beside a wrong try, nor a wrong name.
            assert "password" not in await api.post("/api/sign-in", {"password": "a wrong one, and long"})
            assert "password" not in await api.get("/api/me", headers={"Host": "evil.example"})
            api.session.headers.update(own)
        assert flags == [False] * 3 + [True] * 3


def eventually_returns(server: RunningServer, cookies: Mapping[str, str], status: int) -> bool:
    """Whether it does within the second that a server may be behind, and some more."""

    async def has_status() -> bool:
        return browser_request(server, cookies).status == status

    asyncio.run(wait_until(has_status, 5))
    return True


def set_password(holdfast: CliHarness, password: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-P", "-m", "holdfast", "password", "--stdin"],
        env=holdfast.environ, input=password + "\n", capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_a_password_that_is_too_short_is_refused_with_the_limit(holdfast: CliHarness) -> None:
    ended = set_password(holdfast, "short")
    assert (ended.returncode, ended.stderr) == (1, "holdfast: A password has 10 to 1000 characters.\n")


@pytest.mark.parametrize(
    "body", [{}, {"code": "a", "password": "b"}, {"code": ""}, {"user": "me"}, {"code": 5}]
)
def test_an_invalid_sign_in_request_is_explained(body: dict[str, str], server: RunningServer) -> None:
    reply = sign_in(server, **body)
    assert (reply.status, json.loads(reply.body)["code"]) == (400, "bad_request")


async def test_codes_and_sign_ins_expire(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        clock = FakeClock(SystemClock().now_ms())
        keyring = make_keyring(app, clock)
        async with http_server(app, keyring=keyring) as api, api_client(api.address, "") as browser:
            code = await keyring.create_code()
            clock.advance(CREDENTIAL_MS)
            assert (await browser.post("/api/sign-in", {"code": code}))["code"] == "sign_in_failed"
            own = await browser_headers(keyring, api.address)
            session = await api.create_session()
            async with browser.stream(f"/api/sessions/{session}/events", **own) as frames:
                await anext(frames)
                clock.advance(CREDENTIAL_MS)
                with pytest.raises((aiohttp.ClientError, StopAsyncIteration)):
                    async with asyncio.timeout(30):
                        while True:
                            await anext(frames)
            await browser.get("/api/me", headers=own)
            assert browser.status == 401


async def test_a_browser_that_signs_out_stops_following_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Nobody looks for changes by and by: it ends because of what is said here.
    monkeypatch.setattr(authenticator, "CREDENTIALS_STALE_MS", 3_600_000)
    async with running_app(tmp_path) as app:
        keyring = make_keyring(app)
        async with http_server(app, keyring=keyring) as api, api_client(api.address, "") as browser:
            own = await browser_headers(keyring, api.address)
            session = await api.create_session()
            async with browser.stream(f"/api/sessions/{session}/events", **own) as frames:
                await anext(frames)
                await browser.post("/api/sign-out", headers={**own, "Origin": api.address})
                assert browser.status == 204
                with pytest.raises((aiohttp.ClientError, StopAsyncIteration)):
                    async with asyncio.timeout(30):
                        while True:
                            await anext(frames)


async def test_a_cookie_request_that_changes_something_must_be_same_origin(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        keyring = make_keyring(app)
        async with http_server(app, keyring=keyring) as api, api_client(api.address, "") as browser:
            own = await browser_headers(keyring, api.address)
            problem = await browser.post("/api/sessions", {}, headers=own)
            assert (browser.status, problem["code"]) == (403, "cross_site")
            for said in ({"Origin": api.address}, {"Sec-Fetch-Site": "same-origin"}):
                await browser.post("/api/sessions", {}, headers=own | said)
                assert browser.status == 201
            await browser.get("/api/sessions", headers=own)
            assert browser.status == 200


async def test_a_cookie_without_its_page_key_is_refused(tmp_path: Path) -> None:
    """Whoever serves another port of this machine may have been sent it."""
    async with running_app(tmp_path) as app:
        keyring = make_keyring(app)
        async with http_server(app, keyring=keyring) as api, api_client(api.address, "") as thief:
            own, other = (
                await browser_headers(keyring, api.address),
                await browser_headers(keyring, api.address),
            )
            stolen = {"Cookie": own["Cookie"], "Origin": api.address, "Sec-Fetch-Site": "same-origin"}
            asked = 0
            for method, path in itertools.product(("GET", "POST", "PATCH", "DELETE"), PATHS):
                named = re.sub(r"\{\w+\}", "x_0000000000000000", path)
                is_file = (method, path) == ("GET", "/api/files/{file_id}")
                if required_right(method, named) is not None and not is_file:
                    problem = await thief.request(method, named, headers=stolen | JSON)
                    assert (thief.status, problem["code"]) == (401, "not_signed_in"), (method, path)
                    asked += 1
            assert asked > 60
            cookie_itself = own["Cookie"].partition("=")[2]
            for key in ("", other["X-Holdfast-Page"], cookie_itself, own["X-Holdfast-Page"] + "x"):
                problem = await thief.get("/api/me", headers=stolen | {"X-Holdfast-Page": key})
                assert (thief.status, problem["code"]) == (401, "not_signed_in"), key
            for shown in (own, other):
                assert (await thief.get("/api/me", headers=shown))["browser"] is True


async def test_a_page_key_without_its_cookie_is_refused(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app:
        keyring = make_keyring(app)
        async with http_server(app, keyring=keyring) as api, api_client(api.address, "") as thief:
            key = (await browser_headers(keyring, api.address))["X-Holdfast-Page"]
            cookie = {"Cookie": f"holdfast_{api.address.rpartition(':')[2]}={key}"}
            for shown in ({}, cookie, {"Authorization": f"Bearer {key}"}):
                await thief.get("/api/me", headers=shown | {"X-Holdfast-Page": key})
                assert thief.status == 401, shown


def test_only_files_are_fetched_by_the_cookie_alone(holdfast: CliHarness) -> None:
    """The browser itself asks for a picture in the page, and shows no key of the page."""
    server = holdfast.serve("--port", "0")
    cookie = {"Cookie": session_headers(sign_in(server, code=server.code))["Cookie"]}
    kept = server.request("/api/files?name=a.txt", "POST", "a note", **{"Content-Type": "text/plain"})
    path = f"/api/files/{json.loads(kept.body)['id']}"
    fetched = server.request(path, token="", **cookie)
    assert (fetched.status, fetched.body) == (200, "a note")
    assert server.request(path, "HEAD", token="", **cookie).status == 200
    assert server.request(path, token="").status == 401
    for method, other in (
        ("DELETE", path), ("OPTIONS", path), ("POST", "/api/files"), ("GET", "/api/files"),
        ("GET", "/api/filesystem"), ("GET", "/api/sessions"), ("GET", "/api/stream?feed=true"),
    ):  # fmt: skip
        assert browser_request(server, cookie, other, method).status == 401, (method, other)
    for roundabout in ("../sessions", "%2e%2e/sessions", "..%2fsessions", "../../metrics", ""):
        refused = browser_request(server, cookie, f"/api/files/{roundabout}")
        assert refused.status in (401, 404, 405), roundabout


async def test_with_auth_off_every_request_is_allowed(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app, auth_config=AuthConfig(auth=False)) as anybody:
        del anybody.session.headers["Authorization"]
        assert (await anybody.get("/api/me"))["signed_in"] is True
        assert await anybody.create_session()
        await anybody.post("/api/sign-in", {"password": "whatever it is"})
        assert (anybody.status, "set-cookie" in anybody.headers) == (200, False)
        await anybody.get("/api/me", headers={"Host": "evil.example"})
        assert anybody.status == 421


def test_with_auth_off_the_last_line_is_the_plain_address(holdfast: CliHarness) -> None:
    holdfast.environ["HOLDFAST_AUTH"] = "off"
    server = holdfast.serve("--port", "0")
    assert server.link == f"http://127.0.0.1:{server.port}/"
    assert not (server.folder / "token").exists()
    assert server.request("/api/sessions", token="").status == 200
    assert holdfast.run("link").stdout == server.link + "\n"


def test_the_local_token_is_created_once_and_private(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    path = server.folder / "token"
    assert path.stat().st_mode & 0o777 == 0o600
    assert server.request("/api/tokens").status == 200
    path.chmod(0o644)
    other = holdfast.serve("--port", "0")
    assert other.token == server.token
    assert path.stat().st_mode & 0o777 == 0o600
    other.process.terminate()
    _, said = other.process.communicate(timeout=60)
    assert "could be read by others; now it cannot" in said


@pytest.mark.parametrize("content", ["", "short\n", "two words " * 10, "é" * 50])
def test_an_unusable_token_file_is_rejected(content: str, holdfast: CliHarness, tmp_path: Path) -> None:
    folder = tmp_path / "share" / "holdfast"
    folder.mkdir(parents=True, mode=0o700)
    (folder / "token").write_text(content)
    ended = holdfast.run("serve", "--port", "0")
    assert (ended.returncode, "is not a token of yours" in ended.stderr) == (1, True)


def test_a_symlinked_token_file_is_not_followed(holdfast: CliHarness, tmp_path: Path) -> None:
    folder = tmp_path / "share" / "holdfast"
    folder.mkdir(parents=True, mode=0o700)
    (tmp_path / "elsewhere").write_text("x" * 50)
    (folder / "token").symlink_to(tmp_path / "elsewhere")
    assert "is not a token of yours" in holdfast.run("serve", "--port", "0").stderr
