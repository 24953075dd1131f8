"""Clients of a measured server, which take turns and record how long each turn took."""

import asyncio
import time
from functools import partial

import aiohttp

from bench.harness import percentile
from bench.turn.processes import BenchProcess
from bench.turn.reader import BENCH_TOKEN

TURN_S_MAX = 30
FIRST, LAST, BAD = b"event: text_appended\n", b"event: run_completed\n", b"event: run_failed\n"


class Times:
    """Times of turns in ms, from the send: to the first token, and to the end."""

    def __init__(self) -> None:
        self.first: list[float] = []
        self.whole: list[float] = []

    def figures(self, whole: bool) -> tuple[float, float, float]:
        """Return p50, p99 and the worst."""
        taken = self.whole if whole else self.first
        return percentile(taken, 50), percentile(taken, 99), max(taken)


class EventListener(asyncio.BufferedProtocol):
    """Follow one conversation over a bare connection: a protocol, not a task."""

    def __init__(self, path: str) -> None:
        head = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {BENCH_TOKEN}\r\n\r\n"
        self._request = head.encode()
        self._buffer = bytearray(1 << 16)
        self._incomplete = b""
        self.first_at = 0
        self.done: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def reset(self) -> None:
        self.first_at, self.done = 0, asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport: asyncio.Transport = transport  # type: ignore[assignment]
        self.transport.write(self._request)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        now = time.monotonic_ns()
        *frames, self._incomplete = (self._incomplete + self._buffer[:nbytes]).split(b"\n\n")
        for frame in frames:
            if FIRST in frame:
                self.first_at = self.first_at or now
            elif LAST in frame and not self.done.done():
                self.done.set_result(now)
            elif BAD in frame and not self.done.done():
                self.done.set_exception(RuntimeError(frame.decode()))

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.cancel()


class MeasuredServer:
    """One server and its conversations."""

    def __init__(self, process: BenchProcess, http: aiohttp.ClientSession) -> None:
        self._base = f"http://127.0.0.1:{process.port}/api"
        self._port = process.port
        self._http = http
        self._sessions: list[tuple[str, EventListener]] = []
        self.first_slow_ms = 0.0
        """Time to the first token in the turn in which the memory becomes slow."""
        self.times = Times()

    async def create_sessions(self, count: int) -> None:
        for _ in range(count):
            async with self._http.post(f"{self._base}/sessions", json={"title": "Bench"}) as response:
                session_id = (await response.json())["id"]
            listener = EventListener(f"/api/sessions/{session_id}/events?after=1")
            await asyncio.get_running_loop().create_connection(
                partial(existing_protocol, listener), "127.0.0.1", self._port
            )
            self._sessions.append((session_id, listener))

    async def turn(self, number: int) -> tuple[float, float]:
        """Run a turn of the next conversation; return the ms to its first token and to its end."""
        session_id, listener = self._sessions[number % len(self._sessions)]
        listener.reset()
        sent, path = time.monotonic_ns(), f"{self._base}/sessions/{session_id}/turns"
        async with self._http.post(path, json={"text": f"I went there {number} times."}) as response:
            assert response.status == 202, await response.text()
        async with asyncio.timeout(TURN_S_MAX):
            ended = await listener.done
        return (listener.first_at - sent) / 1e6, (ended - sent) / 1e6

    async def timed_turn(self, number: int) -> None:
        first, whole = await self.turn(number)
        self.times.first.append(first)
        self.times.whole.append(whole)

    async def committed_segments(self) -> int:
        """Return how many segments the server's memory has committed so far."""
        async with self._http.get(f"{self._base.removesuffix('/api')}/metrics") as response:
            lines = (await response.text()).splitlines()
        counted = [line for line in lines if line.startswith("holdfast_memory_commits_total{")]
        return int(sum(float(line.rpartition(" ")[2]) for line in counted if "paid" in line))

    def close(self) -> None:
        for _, listener in self._sessions:
            listener.transport.abort()


def existing_protocol(listener: EventListener) -> EventListener:
    return listener
