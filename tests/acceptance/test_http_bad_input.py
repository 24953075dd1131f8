"""What is wrong is refused with a stable code, and nothing has changed."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from io import BytesIO
from typing import Any

import aiohttp
import pytest

from holdfast.domain.limits import BODY_BYTES_MAX, TEXT_BYTES_MAX, TITLE_CHARS_MAX
from tests.acceptance.conftest import RunningServer
from tests.support.api_client import ApiClient, api_client

NO_SESSION, NO_RUN = "s_0000000000000000", "r_0000000000000000"
JSON = {"content-type": "application/json"}


@asynccontextmanager
async def unchanged(server: RunningServer) -> AsyncIterator[tuple[ApiClient, str, str]]:
    """A client, a conversation and its run; both are afterwards as they were."""
    async with api_client(server.address) as api:
        session = await api.create_session(title="Untouched")
        run = (await api.send(session, "hold", "used"))["run_id"]
        await api.wait_for_streaming_text(session, "Well")
        before = await state(api, session, run)
        yield api, session, run
        assert await state(api, session, run) == before
        await api.post(f"/api/runs/{run}/cancel")


async def state(api: ApiClient, session: str, run: str) -> list[Any]:
    return [
        await api.get(f"/api/sessions/{session}"),
        await api.get(f"/api/runs/{run}"),
        await api.entries(session),
        (await api.get("/api/sessions?limit=200"))["sessions"],
        (await api.get("/api/sessions?limit=200&archived=true"))["sessions"],
    ]


BAD: list[tuple[str, str, object, int, str]] = [
    # Ids that name nothing.
    ("GET", "/api/sessions/NO", None, 404, "no_such_session"),
    ("GET", "/api/sessions/%00%ff", None, 404, "no_such_session"),
    ("GET", "/api/sessions/' OR 1=1 --", None, 404, "no_such_session"),
    ("PATCH", "/api/sessions/NO", {"title": "x"}, 404, "no_such_session"),
    ("DELETE", "/api/sessions/NO", None, 404, "no_such_session"),
    ("POST", "/api/sessions/NO/turns", {"text": "x"}, 404, "no_such_session"),
    ("GET", "/api/sessions/NO/messages", None, 404, "no_such_session"),
    ("GET", "/api/sessions/NO/events", None, 404, "no_such_session"),
    ("GET", "/api/stream?session=NO:0", None, 404, "no_such_session"),
    ("GET", "/api/stream?session=SESSION:0&session=NO:0", None, 404, "no_such_session"),
    ("POST", "/api/sessions/NO/undo", {}, 404, "no_such_session"),
    ("POST", "/api/sessions/NO/restore", {}, 404, "no_such_session"),
    ("POST", "/api/sessions/NO/retry", {}, 404, "no_such_session"),
    ("POST", "/api/sessions/NO/edit", {"text": "x"}, 404, "no_such_session"),
    ("POST", "/api/sessions/NO/fork", {}, 404, "no_such_session"),
    ("POST", "/api/sessions/NO/clear", None, 404, "no_such_session"),
    ("POST", "/api/sessions", {"previous_session_id": "NO"}, 404, "no_such_session"),
    ("POST", "/api/sessions/SESSION/undo", {"turn_id": "t_0"}, 404, "no_such_turn"),
    ("POST", "/api/sessions/SESSION/restore", {"turn_id": "t_0"}, 404, "no_such_turn"),
    ("POST", "/api/sessions/SESSION/retry", {"turn_id": "t_0"}, 404, "no_such_turn"),
    ("POST", "/api/sessions/SESSION/edit", {"text": "x", "turn_id": "t_0"}, 404, "no_such_turn"),
    ("POST", "/api/sessions/SESSION/fork", {"turn_id": "t_0"}, 404, "no_such_turn"),
    ("GET", "/api/runs/NONE", None, 404, "no_such_run"),
    ("POST", "/api/runs/NONE/cancel", None, 404, "no_such_run"),
    ("POST", "/api/runs/NONE/resume", None, 404, "no_such_run"),
    ("POST", "/api/runs/NONE/tools/c_0", {"decision": "approve"}, 404, "no_such_run"),
    ("POST", "/api/runs/RUN/tools/c_0", {"decision": "approve"}, 404, "no_such_tool"),
    ("GET", "/no/such/page", None, 404, "no_such_page"),
    ("GET", "/page/../../pyproject.toml", None, 404, "no_such_page"),
    ("GET", "/page/index.html", None, 404, "no_such_page"),
    ("GET", "/openapi/unused.json", None, 404, "no_such_page"),
    # Wrong types, unknown fields, missing ones.
    ("POST", "/api/sessions", b"", 400, "bad_request"),
    ("POST", "/api/sessions", b"{", 400, "bad_request"),
    ("POST", "/api/sessions", b"[]", 400, "bad_request"),
    ("POST", "/api/sessions", b"null", 400, "bad_request"),
    ("POST", "/api/sessions", b'"text"', 400, "bad_request"),
    ("POST", "/api/sessions", b'{"title":"\xff"}', 400, "bad_request"),
    ("POST", "/api/sessions", b'{"title":"\\ud800"}', 400, "bad_request"),
    ("POST", "/api/sessions", b'{"title":' + b"[" * 100_000, 400, "bad_request"),
    ("POST", "/api/sessions", b"\xef\xbb\xbf{}", 400, "bad_request"),
    ("POST", "/api/sessions", {"title": 5}, 400, "bad_request"),
    ("POST", "/api/sessions", {"title": None}, 400, "bad_request"),
    ("POST", "/api/sessions", {"id": "s_mine"}, 400, "bad_request"),
    ("POST", "/api/sessions", {"agent": "x" * 201}, 400, "bad_request"),
    ("POST", "/api/sessions", {"workspace": "relative"}, 400, "bad_request"),
    ("POST", "/api/sessions", {"workspace": "/no/such/folder"}, 400, "bad_request"),
    ("POST", "/api/sessions", {"workspace": "/tmp\0/x"}, 400, "bad_request"),
    ("POST", "/api/sessions", {"model": "nobodys:model"}, 400, "no_such_model"),
    ("PATCH", "/api/sessions/SESSION", {"title": "New", "model": "nobodys:model"}, 400, "no_such_model"),
    ("PATCH", "/api/sessions/SESSION", {"archived": "true"}, 400, "bad_request"),
    ("PATCH", "/api/sessions/SESSION", {"archived": 1}, 400, "bad_request"),
    ("PATCH", "/api/sessions/SESSION", {"resume": "sometimes"}, 400, "bad_request"),
    ("PATCH", "/api/sessions/SESSION", {"title": "New", "status": "idle"}, 400, "bad_request"),
    ("PATCH", "/api/sessions/SESSION", {"title": "New", "workspace": "/no/such"}, 400, "bad_request"),
    ("POST", "/api/sessions/SESSION/turns", {}, 400, "bad_request"),
    ("POST", "/api/sessions/SESSION/turns", {"text": ""}, 400, "bad_request"),
    ("POST", "/api/sessions/SESSION/turns", {"text": ["x"]}, 400, "bad_request"),
    ("POST", "/api/sessions/SESSION/turns", {"text": "x", "key": 5}, 400, "bad_request"),
    ("POST", "/api/sessions/SESSION/turns", {"text": "x", "key": ""}, 400, "bad_request"),
    ("POST", "/api/sessions/SESSION/turns", {"text": "x", "files": []}, 400, "bad_request"),
    ("POST", "/api/sessions/SESSION/undo", {"turn": 1}, 400, "bad_request"),
    ("POST", "/api/sessions/SESSION/restore", {"turn": 1}, 400, "bad_request"),
    ("POST", "/api/sessions/SESSION/edit", {}, 400, "bad_request"),
    ("POST", "/api/runs/RUN/tools/c_0", {"decision": "perhaps"}, 400, "bad_request"),
    ("POST", "/api/runs/RUN/tools/c_0", {}, 400, "bad_request"),
    ("POST", "/api/runs/RUN/tools/c_0", {"decision": "approve", "result": "x"}, 400, "bad_request"),
    ("POST", "/api/runs/RUN/tools/c_0", {"decision": "skip", "reason": "x"}, 400, "bad_request"),
    ("GET", "/api/sessions?limit=0", None, 400, "bad_request"),
    ("GET", "/api/sessions?limit=201", None, 400, "bad_request"),
    ("GET", "/api/sessions?limit=many", None, 400, "bad_request"),
    ("GET", "/api/sessions?archived=perhaps", None, 400, "bad_request"),
    ("GET", "/api/sessions/SESSION/messages?limit=-1", None, 400, "bad_request"),
    ("GET", "/api/search", None, 400, "bad_request"),
    ("GET", "/api/search?q=x&limit=1000", None, 400, "bad_request"),
    ("GET", "/api/search?q=", None, 400, "bad_query"),
    ("GET", "/api/search?q=...", None, 400, "bad_query"),
    ("GET", "/api/stream", None, 400, "bad_request"),
    # Cursors.
    ("GET", "/api/sessions?cursor=nonsense", None, 400, "bad_cursor"),
    ("GET", "/api/sessions?cursor=1.2.3", None, 400, "bad_cursor"),
    ("GET", "/api/sessions?cursor=", None, 400, "bad_cursor"),
    ("GET", "/api/sessions/SESSION/messages?before=x", None, 400, "bad_cursor"),
    ("GET", "/api/sessions/SESSION/messages?before=99999999999999999999.1", None, 400, "bad_cursor"),
    ("GET", "/api/sessions/SESSION/events?after=x", None, 400, "bad_cursor"),
    ("GET", "/api/sessions/SESSION/events?after=-1", None, 400, "bad_cursor"),
    ("GET", "/api/sessions/SESSION/events?after=1e3", None, 400, "bad_cursor"),
    ("GET", "/api/sessions/SESSION/events?after=100000", None, 400, "bad_cursor"),
    ("GET", "/api/stream?session=SESSION:x", None, 400, "bad_cursor"),
    ("GET", "/api/stream?session=SESSION:100000", None, 400, "bad_cursor"),
    # Too large.
    ("POST", "/api/sessions", {"title": "x" * (TITLE_CHARS_MAX + 1)}, 413, "too_large"),
    ("PATCH", "/api/sessions/SESSION", {"title": "x" * (TITLE_CHARS_MAX + 1)}, 413, "too_large"),
    ("POST", "/api/sessions/SESSION/turns", {"text": "x" * (TEXT_BYTES_MAX + 1)}, 413, "too_large"),
    ("POST", "/api/sessions/SESSION/turns", {"text": "x", "key": "k" * 201}, 413, "too_large"),
    ("POST", "/api/sessions/SESSION/turns", b" " * (BODY_BYTES_MAX + 1), 413, "too_large"),
    ("GET", "/api/stream?" + "&".join(["session=SESSION:0"] * 101), None, 413, "too_large"),
    # Conflicts.
    ("POST", "/api/sessions/SESSION/turns", {"text": "other", "key": "used"}, 409, "key_reused"),
    ("POST", "/api/runs/RUN/resume", None, 409, "run_refused"),
    # Methods.
    ("PUT", "/api/sessions", {}, 405, "method_not_allowed"),
    ("POST", "/api/sessions/SESSION", {}, 405, "method_not_allowed"),
    ("POST", "/api/sessions/SESSION/events", {}, 405, "method_not_allowed"),
    ("HEAD", "/api/stream?session=SESSION:0", None, 405, ""),
    ("DELETE", "/", None, 405, "method_not_allowed"),
]


async def test_invalid_requests_are_refused_and_change_nothing(server: RunningServer) -> None:
    wrong = []
    async with unchanged(server) as (api, session, run):
        for method, path, body, status, code in BAD:
            named = path.replace("NONE", NO_RUN).replace("SESSION", session)
            named = named.replace("RUN", run) if "RUN/" in named else named
            named = named.replace("/NO", f"/{NO_SESSION}").replace("=NO", f"={NO_SESSION}")
            sent = {"data": BytesIO(body), "headers": JSON} if isinstance(body, bytes) else {"body": body}
            if isinstance(body, dict) and body.get("previous_session_id"):
                sent = {"body": {"previous_session_id": NO_SESSION}}
            answer = await api.request(method, named, **sent)
            problem_code = answer.get("code") if isinstance(answer, dict) else ""
            kind = api.headers.get("content-type")
            if (api.status, problem_code) != (status, code) or kind != "application/problem+json":
                wrong.append((method, path[:70], str(body)[:40], api.status, answer))
            elif isinstance(answer, dict) and not {"title", "status", "detail"} <= answer.keys():
                wrong.append((method, path, "", api.status, answer))
    assert wrong == []


@pytest.mark.parametrize(
    "kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""]
)
async def test_a_body_that_is_not_json_is_refused(kind: str, server: RunningServer) -> None:
    async with unchanged(server) as (api, session, run):
        for path in (f"/api/sessions/{session}/turns", f"/api/runs/{run}/cancel"):
            headers = {"content-type": kind} if kind else {}
            skip = [] if kind else ["content-type"]
            async with api.session.post(
                api.address + path, data=b'{"text":"x"}', headers=headers, skip_auto_headers=skip
            ) as answer:
                assert (answer.status, (await answer.json(content_type=None))["code"]) == (415, "not_json")


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"])
async def test_every_request_from_another_origin_is_refused(origin: str, server: RunningServer) -> None:
    async with unchanged(server) as (api, session, run):
        for method, path, body in (
            ("GET", "/api/sessions", None),
            ("GET", f"/api/sessions/{session}/events", None),
            ("POST", f"/api/sessions/{session}/turns", {"text": "x"}),
            ("DELETE", f"/api/sessions/{session}", None),
            ("POST", f"/api/runs/{run}/cancel", None),
        ):
            answer = await api.request(method, path, body, headers={"Origin": origin})
            assert (api.status, answer["code"]) == (403, "wrong_origin")


async def test_every_allowed_host_and_origin_is_accepted(server: RunningServer) -> None:
    async with api_client(server.address) as api:
        for name in ("127.0.0.1", "localhost", "LOCALHOST"):
            host = f"{name}:{server.port}"
            await api.get("/api/sessions", headers={"Host": host, "Origin": f"http://{host.lower()}"})
            assert api.status == 200


@pytest.mark.parametrize("path", ["/api/sessions", "/api/stream?session=x:0", "/metrics", "/openapi.json"])
async def test_an_unknown_host_is_refused_on_every_path(path: str, server: RunningServer) -> None:
    async with api_client(server.address) as api:
        answer = await api.get(path, headers={"Host": "evil.example"})
        assert (api.status, answer["code"]) == (421, "wrong_host")


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(server: RunningServer) -> None:
    """Only the head is sent: whoever answers has not waited for the rest."""
    head = (
        f"POST /api/sessions HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {server.token}\r\n"
        f"Content-Length: {BODY_BYTES_MAX + 1}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as client:
        client.sendall(head.encode() + b"{")
        assert client.recv(4096).startswith(b"HTTP/1.1 413")


async def test_a_body_of_unknown_length_is_read_no_further_than_the_limit(server: RunningServer) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(2 * BODY_BYTES_MAX // 100_000):
            yield b" " * 100_000

    async with unchanged(server) as (api, _, _):
        try:
            answer = await api.post("/api/sessions", data=endless(), headers=JSON)
            assert (api.status, answer["code"]) == (413, "too_large")
        except aiohttp.ClientError:
            pass  # The server hung up while we were still sending, which is as good.
