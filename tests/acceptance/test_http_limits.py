"""Requests that are slow, huge or never end: cut off within limits, while everyone else is answered."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from asyncio import StreamReader, StreamWriter
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import pytest

from holdfast.domain.limits import (
    CONNECTION_IDLE_S_MAX,
    PASSWORD_CHARS_MAX,
    PUBLIC_BODY_BYTES_MAX,
    REQUEST_HEAD_BYTES_MAX,
)
from holdfast.http.connections import ConnectionTimeouts
from tests.acceptance.conftest import CliHarness
from tests.support.api_client import ApiClient, next_event
from tests.support.in_process_app import running_app
from tests.support.in_process_server import http_server, raw_request

QUICK = ConnectionTimeouts(head_s=0.6, body_idle_s=0.6, body_s=2.0, unauthenticated_max=50)
JSON = {"Content_Type": "application/json"}


@asynccontextmanager
async def bare(api: ApiClient) -> AsyncIterator[tuple[StreamReader, StreamWriter]]:
    """A connection without anything that speaks HTTP for us."""
    reader, writer = await asyncio.open_connection("127.0.0.1", int(api.address.rpartition(":")[2]))
    try:
        yield reader, writer
    finally:
        writer.close()


async def rest(reader: StreamReader) -> bytes:
    """All that comes until the server hangs up, which it must."""
    try:
        async with asyncio.timeout(30):
            return await reader.read()
    except ConnectionError:
        return b""


async def trickle(writer: StreamWriter, text: bytes, pause_s: float) -> None:
    for byte in text:
        if writer.is_closing():
            return
        writer.write(bytes([byte]))
        await asyncio.sleep(pause_s)


async def test_a_silent_connection_is_closed(tmp_path: Path) -> None:
    async with (
        running_app(tmp_path) as app,
        http_server(app, timeouts=QUICK) as api,
        bare(api) as (reader, _),
    ):
        assert await rest(reader) == b""


async def test_an_idle_connection_is_kept_alive_for_the_configured_time(tmp_path: Path) -> None:
    again = b"GET /health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
    async with (
        running_app(tmp_path) as app,
        http_server(app, timeouts=ConnectionTimeouts(idle_s=1)) as api,
        bare(api) as (reader, writer),
    ):
        for _ in range(2):
            writer.write(again)
            assert (await reader.readuntil(b'"live"}')).startswith(b"HTTP/1.1 200")
        answered = time.monotonic()
        assert b"HTTP" not in await rest(reader)
        assert time.monotonic() - answered > 0.9
    # A client that takes up a connection just as it is closed loses what it asks: clients let go sooner.
    assert CONNECTION_IDLE_S_MAX > 15


async def test_slow_request_headers_are_refused(tmp_path: Path) -> None:
    async with (
        running_app(tmp_path) as app,
        http_server(app, timeouts=QUICK) as api,
        bare(api) as (reader, writer),
    ):
        slowly = asyncio.ensure_future(trickle(writer, raw_request("/health/live"), 0.05))
        response = await rest(reader)
        slowly.cancel()
        assert response.startswith(b"HTTP/1.1 408 ") and b'"too_slow"' in response


async def test_slow_headers_of_a_second_request_are_refused(tmp_path: Path) -> None:
    async with (
        running_app(tmp_path) as app,
        http_server(app, timeouts=QUICK) as api,
        bare(api) as (reader, writer),
    ):
        writer.write(raw_request("/health/live"))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
        slowly = asyncio.ensure_future(trickle(writer, raw_request("/health/live"), 0.05))
        response = await rest(reader)
        slowly.cancel()
        assert b"HTTP/1.1 408 " in response


@pytest.mark.parametrize("pieces", [1, 1_000])
async def test_oversized_request_headers_are_refused(pieces: int, tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app) as api, bare(api) as (reader, writer):
        headers = {f"X{n}": "y" * (2 * REQUEST_HEAD_BYTES_MAX // pieces) for n in range(pieces)}
        writer.write(raw_request("/health/live", **headers))
        response = await rest(reader)
        assert response.startswith(b"HTTP/1.1 431 ") and b'"head_too_large"' in response


async def test_endless_request_headers_are_refused_early(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app) as api, bare(api) as (reader, writer):
        writer.write(b"GET / HTTP/1.1\r\nX: ")
        for _ in range(20):
            writer.write(b"y" * 8_000)
        assert (await rest(reader)).startswith(b"HTTP/1.1 431 ")


async def test_request_headers_just_within_the_limit_are_accepted(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app) as api, bare(api) as (reader, writer):
        writer.write(raw_request("/health/live", X="y" * (REQUEST_HEAD_BYTES_MAX - 500)))
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")


@pytest.mark.parametrize("pause_s", [0.05, 60.0])
async def test_a_slow_or_stalled_body_is_refused_and_changes_nothing(pause_s: float, tmp_path: Path) -> None:
    async with (
        running_app(tmp_path) as app,
        http_server(app, timeouts=QUICK) as api,
        bare(api) as (reader, writer),
    ):
        writer.write(raw_request("/api/sessions", method="POST", Content_Length="500", **JSON))
        slowly = asyncio.ensure_future(trickle(writer, b" " * 500, pause_s))
        response = await rest(reader)
        slowly.cancel()
        assert response.startswith(b"HTTP/1.1 408 ")
        assert (await api.get("/api/sessions"))["sessions"] == []


async def test_an_unauthenticated_body_has_a_shorter_timeout(tmp_path: Path) -> None:
    timeouts = ConnectionTimeouts(head_s=0.6, body_idle_s=0.6, body_s=60.0)
    async with (
        running_app(tmp_path) as app,
        http_server(app, timeouts=timeouts) as api,
        bare(api) as (reader, writer),
    ):
        began = time.monotonic()
        writer.write(raw_request("/api/sign-in", "", "POST", Content_Length="5000", **JSON))
        slowly = asyncio.ensure_future(trickle(writer, b" " * 5_000, 0.05))
        await rest(reader)
        slowly.cancel()
        assert time.monotonic() - began < timeouts.body_s / 2


@pytest.mark.parametrize("chunked", [False, True])
async def test_an_unauthenticated_body_has_a_smaller_limit(chunked: bool, tmp_path: Path) -> None:
    """It is refused before any of it is held: by the length that is said, or where it becomes too long."""
    size = PUBLIC_BODY_BYTES_MAX + 1
    length = {"Transfer_Encoding": "chunked"} if chunked else {"Content_Length": str(size)}
    async with running_app(tmp_path) as app, http_server(app) as api, bare(api) as (reader, writer):
        writer.write(raw_request("/api/sign-in", "", "POST", **length, **JSON))
        if chunked:
            writer.write(f"{size:x}\r\n".encode() + b" " * size)  # And the chunk goes on.
        async with asyncio.timeout(30):
            response = await reader.readuntil(b"}")
        assert response.startswith(b"HTTP/1.1 413 ") and b'"too_large"' in response and b"8000" in response
        answer = await api.post("/api/sign-in", {"password": "x" * PASSWORD_CHARS_MAX})
        assert (api.status, answer["code"]) == (401, "sign_in_failed")


async def test_a_request_that_is_not_http_gets_a_problem_document(tmp_path: Path) -> None:
    async with running_app(tmp_path) as app, http_server(app) as api, bare(api) as (reader, writer):
        writer.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this is TLS\r\n\r\n")
        response = await rest(reader)
        assert response.startswith(b"HTTP/1.1 400 ") and b'"bad_request"' in response


async def test_slow_connections_cannot_exhaust_the_server(tmp_path: Path) -> None:
    """Ten times as many as may wait: those who know a token are answered as ever, and stay."""
    patient = ConnectionTimeouts(head_s=60, unauthenticated_max=50)
    async with running_app(tmp_path) as app, http_server(app, timeouts=patient) as api:
        session = await api.create_session()
        async with api.stream(f"/api/sessions/{session}/events?after=1") as frames:
            await anext(frames)
            with ExitStack() as stack:
                slow = []
                for n in range(500):
                    address = ("127.0.0.1", int(api.address.rpartition(":")[2]))
                    slow.append(stack.enter_context(socket.create_connection(address, timeout=30)))
                    slow[-1].sendall(b"GET / HTTP/1.1\r\nHost: lo")
                    if n % 50 == 0:
                        assert (await api.get("/api/me"))["signed_in"]
                assert [await asyncio.to_thread(_left, each) for each in slow[:400]] == [b""] * 400
                await api.request("PATCH", f"/api/sessions/{session}", {"title": "Still here"})
                assert (await next_event(frames)).event == "session_renamed"


def _left(client: socket.socket) -> bytes:
    """What a connection holds that must have been ended."""
    try:
        return client.recv(1)
    except ConnectionError:
        return b""


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_startup_stops_cleanly(signum: int, holdfast: CliHarness, tmp_path: Path) -> None:
    """As soon as the store is being opened, and at moments from there on."""
    for wait_s in (0.0, 0.02, 0.05, 0.1, 0.2):
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "holdfast", "serve", "--port", "0"],
            env=holdfast.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        holdfast.started.append(process)
        processes = tmp_path / "share" / "holdfast" / "processes"
        until = time.monotonic() + 60
        while not (processes.exists() and any(processes.iterdir())):
            assert time.monotonic() < until and process.poll() is None
        time.sleep(wait_s)
        process.send_signal(signum)
        _, stderr = process.communicate(timeout=60)
        assert (process.returncode, stderr) == (0, ""), wait_s
        assert list(processes.iterdir()) == [], "the store was closed"


def test_repeated_signals_during_shutdown_still_stop_cleanly(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    until = time.monotonic() + 60
    while server.process.poll() is None:
        assert time.monotonic() < until
        os.kill(server.process.pid, signal.SIGTERM)
        time.sleep(0.001)
    assert server.process.returncode == 0


def test_malformed_requests_do_not_fill_the_log(holdfast: CliHarness) -> None:
    server = holdfast.serve("--port", "0")
    upgrade = raw_request("/", "", Connection="Upgrade", Upgrade="websocket", Sec_WebSocket_Version="13")
    for sent in (upgrade, b"\x16\x03\x01 this is not HTTP\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
        for _ in range(100):
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as line:
                line.sendall(sent)
                assert line.recv(12).startswith(b"HTTP/1.1 ")
    server.process.terminate()
    _, logged = server.process.communicate(timeout=60)
    assert len(logged) < 1_000, logged[:2_000]
