"""MCP servers over HTTP: a real one made with the SDK, and rude ones that say what HTTP can say wrong."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from holdfast.domain.limits import MCP_MESSAGES_AT_ONCE, MCP_MESSAGES_PER_S_MAX
from holdfast.domain.mcp import McpServerInfo
from tests.support.free_ports import own_port
from tests.support.mcp_fixture import http_mcp_server, mcp_servers, read_effects, wait_for_effects

Act = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]
TOOLS = [
    {"name": "act", "inputSchema": {"type": "object"}},
    {"name": "look", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}},
]
INITIALIZE_RESULT = {
    "protocolVersion": "2025-06-18", "capabilities": {"tools": {}},
    "serverInfo": {"name": "rude", "version": "1"},
}  # fmt: skip


def server_table(port: int, **more: Any) -> dict[str, Any]:
    return {"url": f"http://127.0.0.1:{port}/mcp", **more}


class MisbehavingServer:
    """A server of the older kind whose answers to calls a test makes."""

    def __init__(self) -> None:
        self.port = 0
        self.calls = 0
        self.lingers = False
        self.opened = 0
        self.ends_notices = False
        self.headers: list[dict[str, str]] = []
        self.act: Act = self.fine

    async def fine(self, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        return self.result(body, {"content": [{"type": "text", "text": "did it"}]})

    def result(
        self, body: dict[str, Any], result: object, headers: dict[str, str] | None = None
    ) -> web.Response:
        return web.json_response({"jsonrpc": "2.0", "id": body["id"], "result": result}, headers=headers)

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method == "DELETE" and self.lingers:
            await asyncio.sleep(60)  # Not worth waiting for.
        if request.method == "GET" and self.ends_notices:
            self.opened += 1
            return web.Response(text="retry: 0\nid: 1\ndata:\n\n", content_type="text/event-stream")
        if request.method != "POST":
            return web.Response(status=405)
        self.headers.append(dict(request.headers))
        body = msgspec.json.decode(await request.read())
        match body["method"]:
            case "initialize":
                return self.result(body, INITIALIZE_RESULT, {"mcp-session-id": "s1"})
            case "tools/list":
                return self.result(body, {"tools": TOOLS})
            case "tools/call":
                self.calls += 1
                return await self.act(request, body)
        return web.Response(status=202 if "id" not in body else 400)


@asynccontextmanager
async def rude() -> AsyncIterator[MisbehavingServer]:
    server = MisbehavingServer()
    app = web.Application()
    app.router.add_route("*", "/mcp", server.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        server.port = runner.addresses[0][1]
        yield server
    finally:
        await runner.cleanup()


async def test_connects_calls_a_tool_and_receives_notifications(tmp_path: Path) -> None:
    port = own_port()
    with http_mcp_server(port=port):
        async with mcp_servers(tmp_path, s=server_table(port)) as harness:
            await harness.wait_until_ready()
            call = await harness.call("s__count", to=3)
            assert call.text == "counted"
            assert sorted(call.emitted().splitlines()) == [f"{n} of 3 step {n}" for n in (1, 2, 3)]
            assert (await harness.call("s__fail", why="no")).outcome == "failed"
            await harness.call("s__grow")
            await harness.wait_for(lambda info: "s__grown" in info.tools)


async def test_server_killed_during_a_call_is_not_called_again_and_the_next_call_works(
    tmp_path: Path,
) -> None:
    port, effects = own_port(), tmp_path / "effects"
    async with mcp_servers(tmp_path, s=server_table(port)) as harness:
        with http_mcp_server(port=port) as process:
            await harness.wait_until_ready()
            until = {"effects": str(effects), "until": str(tmp_path / "never")}
            calling = asyncio.create_task(harness.call("s__act", line="one", **until))
            await wait_for_effects(effects)
            process.kill()
            call = await calling
            assert call.outcome == "unknown"
            assert "may have done it" in call.emitted("stderr")
        with http_mcp_server(port=port):
            await harness.wait_for(lambda info: info.connections == 2)
            assert (await harness.call("s__act", line="two", effects=str(effects))).text == "did two"
        assert read_effects(effects) == ["one", "two"]


async def test_headers_expand_environment_variables(tmp_path: Path) -> None:
    async with rude() as server:
        table = server_table(
            server.port, headers={"Authorization": "Bearer ${WIKI_TOKEN}", "X-Plain": "plain"}
        )
        async with mcp_servers(tmp_path, {"WIKI_TOKEN": "for-the-wiki"}, s=table) as harness:
            await harness.wait_until_ready()
            assert (await harness.call("s__act")).text == "did it"
        for sent in server.headers:
            assert (sent["Authorization"], sent["X-Plain"]) == ("Bearer for-the-wiki", "plain")


async def _status(status: int, request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.Response(status=status, text="<html>No.</html>")


async def _cut(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def _half(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "application/json", "content-length": "1000"})
    await response.prepare(request)
    await response.write(b'{"jsonrpc": "2.0"')
    return await _cut(request, body)


async def _stream_that_ends(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    response = web.StreamResponse(headers={"content-type": "text/event-stream"})
    await response.prepare(request)
    await response.write(b": hello\n\n")
    return response


async def _too_much(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.Response(body=b"x" * 17_000_000, content_type="application/json")


async def _rubbish(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    return web.Response(body=b"[1, 2", content_type="application/json")


UNSURE: dict[str, Act] = {
    "500": lambda request, body: _status(500, request, body),
    "504": lambda request, body: _status(504, request, body),
    "408": lambda request, body: _status(408, request, body),
    "cut": _cut, "half": _half, "stream": _stream_that_ends, "too much": _too_much,
}  # fmt: skip


@pytest.mark.parametrize("how", UNSURE)
async def test_a_missing_response_leaves_the_outcome_unknown_without_a_retry(
    tmp_path: Path, how: str
) -> None:
    async with rude() as server, mcp_servers(tmp_path, s=server_table(server.port)) as harness:
        await harness.wait_until_ready()
        server.act = UNSURE[how]
        call = await harness.call("s__act")
        assert (call.outcome, server.calls) == ("unknown", 1)
        assert "it may have done it" in call.emitted("stderr")
        look = await harness.call("s__look")
        assert (look.outcome, server.calls) == ("failed", 3)
        server.act = server.fine
        assert (await harness.call("s__act")).text == "did it"


@pytest.mark.parametrize("status", [400, 401, 403, 404, 429])
async def test_a_rejected_call_was_not_executed(tmp_path: Path, status: int) -> None:
    async with rude() as server, mcp_servers(tmp_path, s=server_table(server.port)) as harness:
        await harness.wait_until_ready()
        server.act = lambda request, body: _status(status, request, body)
        call = await harness.call("s__act")
        assert (call.outcome, server.calls) == ("failed", 1)
        assert f"HTTP {status}" in call.text
        server.act = server.fine
        assert (await harness.call("s__act")).text == "did it", (
            "a server that was started anew is reached anew"
        )


async def test_an_unreadable_response_ends_the_call_at_once(tmp_path: Path) -> None:
    async with rude() as server, mcp_servers(tmp_path, s=server_table(server.port)) as harness:
        await harness.wait_until_ready()
        server.act = _rubbish
        call = await harness.call("s__act")
        assert call.outcome == "unknown"


async def test_an_unreachable_server_is_reported_and_connected_once_available(tmp_path: Path) -> None:
    port = own_port()
    async with mcp_servers(tmp_path, s=server_table(port)) as harness:
        info: McpServerInfo = await harness.wait_for_error()
        assert info.last_error.startswith("it cannot be reached")
        with http_mcp_server("--time", port=port):
            await harness.wait_until_ready()
            assert set(harness.servers) == {"s__get_current_time", "s__convert_time"}
            assert '"timezone": "UTC"' in (await harness.call("s__get_current_time", timezone="UTC")).text


async def test_a_redirect_to_another_server_is_not_followed(tmp_path: Path) -> None:
    async with rude() as server, rude() as other:

        async def away(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
            return web.Response(status=307, headers={"location": f"http://127.0.0.1:{other.port}/mcp"})

        async with mcp_servers(tmp_path, s=server_table(server.port, headers={"X-Key": "k"})) as harness:
            await harness.wait_until_ready()
            server.act = away
            assert (await harness.call("s__act")).outcome == "failed"
        assert (other.calls, other.headers) == (0, [])


async def test_a_flooding_server_is_read_at_a_limited_rate(tmp_path: Path) -> None:
    allowed = MCP_MESSAGES_AT_ONCE + MCP_MESSAGES_PER_S_MAX

    async def chatter(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        token = body["params"]["_meta"]["progressToken"]
        for n in range(allowed):
            params = {"progressToken": token, "progress": n}
            notice = {"jsonrpc": "2.0", "method": "notifications/progress", "params": params}
            await response.write(b"event: message\ndata: " + msgspec.json.encode(notice) + b"\n\n")
        result = {"jsonrpc": "2.0", "id": body["id"], "result": {"content": [], "isError": False}}
        await response.write(b"event: message\ndata: " + msgspec.json.encode(result) + b"\n\n")
        return response

    async with rude() as server, mcp_servers(tmp_path, s=server_table(server.port)) as harness:
        await harness.wait_until_ready()
        server.act = chatter
        began = asyncio.get_running_loop().time()
        call = await harness.call("s__act")
        assert call.outcome == "done"
        assert asyncio.get_running_loop().time() - began > 0.9, "the last of them waited for a second"


async def test_reopening_the_notification_stream_is_rate_limited(tmp_path: Path) -> None:
    async with rude() as server:
        server.ends_notices = True
        async with mcp_servers(tmp_path, s=server_table(server.port)) as harness:
            await harness.wait_until_ready()
            at_once = MCP_MESSAGES_AT_ONCE // 50
            await harness.wait_for(lambda info: server.opened >= at_once)
            before, began = server.opened, asyncio.get_running_loop().time()
            assert (await harness.call("s__act")).text == "did it"
            await harness.wait_for(lambda info: server.opened > before + 3)
            took_s = asyncio.get_running_loop().time() - began
            assert server.opened - before <= 3 + MCP_MESSAGES_PER_S_MAX / 50 * took_s


async def test_a_server_that_ignores_session_end_does_not_delay_shutdown(tmp_path: Path) -> None:
    async with rude() as server, mcp_servers(tmp_path, s=server_table(server.port)) as harness:
        await harness.wait_until_ready()
        server.lingers = True
        harness.servers.reconnect("s")
        await harness.wait_for(lambda info: info.connections == 2)
        server.lingers = False
