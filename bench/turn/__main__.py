"""`python -m bench.turn`: prints one table. Linux only (it reads /proc)."""

import argparse
import asyncio
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import aiohttp
import uvloop
from rich.console import Console

from bench.harness import percentile
from bench.table import ResultLine, info_line, print_table, ratio_line, write_json
from bench.turn.history import write_long_history
from bench.turn.processes import BenchProcess, running_process
from bench.turn.reader import BENCH_TOKEN, StreamReader, follow

RATE = 50
LONG_MESSAGES = 10_000
SETTLING_NS = 250_000_000
"""The time after the last answer has begun until the start-up load is over."""
IDLE_STREAMS = 1_000
Start = Callable[[BenchProcess, str], Awaitable[StreamReader]]


class StreamLoad:
    """The result of a load: ages of tokens in ms, missing tokens, CPU in ms per 1,000 tokens.

    p50 and p99 are of tokens sent once all answers were streaming; `whole` is of all, the start included.
    """

    def __init__(
        self, readers: list[StreamReader], expected: int, cpu_s: float, lag_ms: float, steady_from: int
    ) -> None:
        self.ages_ms = [age / 1e6 for reader in readers for age in reader.ages]
        pairs = [pair for reader in readers for pair in zip(reader.sent, reader.ages, strict=True)]
        steady = [age / 1e6 for sent, age in pairs if sent >= steady_from]
        self.missing = expected * len(readers) - len(self.ages_ms)
        self.cpu_ms = 1000 * cpu_s / (len(self.ages_ms) / 1000)
        self.lag_ms = lag_ms
        self.p50, self.p99 = percentile(steady, 50), percentile(steady, 99)
        self.whole_p99 = percentile(self.ages_ms, 99)

    def __str__(self) -> str:
        return f"p50 {self.p50:.2f} ms, p99 {self.p99:.2f} ms, {self.cpu_ms:.0f} ms CPU per 1,000 tokens"


async def load(process: BenchProcess, start: Start, streams: int, tokens: int) -> StreamLoad:
    """Stream `streams` answers at once, started over a second so that they do not march in step."""
    lags: list[float] = []
    watching = asyncio.create_task(_watch_lag(lags))
    before = process.cpu_s()

    async def one(i: int) -> StreamReader:
        await asyncio.sleep(i / streams)
        return await start(process, f"{tokens}@{RATE}")

    readers = await asyncio.gather(*(one(i) for i in range(streams)))
    steady_from = time.monotonic_ns() + SETTLING_NS
    async with asyncio.timeout(tokens / RATE * 3 + 20):
        await asyncio.gather(*(reader.done for reader in readers))
    cpu_s = process.cpu_s() - before
    watching.cancel()
    for reader in readers:
        reader.close()
    return StreamLoad(list(readers), tokens, cpu_s, percentile(lags, 99), steady_from)


async def _watch_lag(lags: list[float]) -> None:
    while True:
        at = time.monotonic()
        await asyncio.sleep(0.01)
        lags.append(1000 * (time.monotonic() - at) - 10)


async def pass_through(process: BenchProcess, model: str) -> StreamReader:
    return await follow(process.port, f"/?{model}", int(model.split("@")[0]))


class TurnClient:
    """A client of a Holdfast server that reads over a bare connection."""

    def __init__(self, http: aiohttp.ClientSession, session_id: str | None = None) -> None:
        self._http = http
        self._session_id = session_id

    async def turn(self, process: BenchProcess, model: str) -> StreamReader:
        base = f"http://127.0.0.1:{process.port}/api"
        session_id = self._session_id
        if session_id is None:
            async with self._http.post(f"{base}/sessions", json={}) as response:
                session_id = (await response.json())["id"]
        async with self._http.get(f"{base}/sessions/{session_id}") as response:
            head = (await response.json())["head"]
        reader = await follow(
            process.port, f"/api/sessions/{session_id}/events?after={head}", int(model.split("@")[0])
        )
        await reader.opened
        reader.first_at, reader.ages, reader.sent = 0, [], []
        sent = time.monotonic_ns()
        async with self._http.post(f"{base}/sessions/{session_id}/turns", json={"text": "Go"}) as response:
            assert response.status == 202, await response.text()
        reader.sent_at = sent  # type: ignore[attr-defined]
        return reader


async def first_token_ms(process: BenchProcess, start: Start, times: int) -> float:
    """Return the median time from the send to the first token, without other load."""
    found = []
    for _ in range(times):
        sent = time.monotonic_ns()
        reader = await start(process, f"5@{RATE}")
        await reader.done
        found.append((reader.first_at - getattr(reader, "sent_at", sent)) / 1e6)
        reader.close()
        await asyncio.sleep(0.05)
    return percentile(found, 50)


async def idle_streams(process: BenchProcess, http: aiohttp.ClientSession, count: int) -> tuple[float, float]:
    """Return the CPU share in % and the kB per stream, of idle streams."""
    base = f"http://127.0.0.1:{process.port}/api"
    async with http.post(f"{base}/sessions", json={}) as response:
        session_id = (await response.json())["id"]
    before_kb = process.rss_kb()
    path = f"/api/sessions/{session_id}/events?after=1"
    readers = [await follow(process.port, path, 1) for _ in range(count)]
    await asyncio.gather(*(reader.opened for reader in readers))
    each_kb = (process.rss_kb() - before_kb) / count
    await asyncio.sleep(2)
    before_s, at = process.cpu_s(), time.monotonic()
    await asyncio.sleep(20)
    share = 100 * (process.cpu_s() - before_s) / (time.monotonic() - at)
    for reader in readers:
        reader.close()
    return share, each_kb


async def measure(console: Console, streams: int, tokens: int) -> list[ResultLine]:
    with TemporaryDirectory(prefix="holdfast-bench-", dir=Path(".cache")) as name:
        folder = Path(name)
        long_id = await write_long_history(folder / "data", LONG_MESSAGES)
        (folder / "data" / "token").write_text(BENCH_TOKEN)
        (folder / "data" / "token").chmod(0o600)
        with running_process("-m", "bench.turn.fake_model") as model:
            bare_words = ("-m", "bench.turn.prototype", str(model.port))
            # The model's name says what it streams, so each load needs a new server.
            env = {
                "OPENAI_BASE_URL": f"http://127.0.0.1:{model.port}/v1", "OPENAI_API_KEY": "none",
                "HOLDFAST_DATA": str(folder / "data"),
            }  # fmt: skip
            with (
                running_process(*bare_words) as bare,
                running_process(*bare_words, str(folder / "log.db")) as durable,
            ):
                return await _compare(console, bare, durable, env, long_id, streams, tokens)


async def _compare(
    console: Console,
    bare: BenchProcess,
    durable: BenchProcess,
    env: dict[str, str],
    long_id: str,
    streams: int,
    tokens: int,
) -> list[ResultLine]:
    lines: list[ResultLine] = []
    serve = ("-m", "holdfast", "serve", "--port", "0")
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {BENCH_TOKEN}"}) as http:
        fresh, long = TurnClient(http).turn, TurnClient(http, long_id).turn
        with running_process(*serve, env={**env, "HOLDFAST_MODEL": f"openai:{tokens}@{RATE}"}) as ours:
            lines.append(info_line("start", "ready to answer", f"{ours.ready_s:.2f} s, limit 1 s"))
            lines[-1] = ResultLine(
                "start", "ready to answer", f"{ours.ready_s:.2f} s", "≤ 1 s", is_met=ours.ready_s < 1
            )
            rss = ours.rss_kb() / 1000
            lines.append(ResultLine("start", "idle memory", f"{rss:.0f} MB", "≤ 90 MB", is_met=rss < 90))
            console.print("load …")
            plain = await load(bare, pass_through, streams, tokens)
            kept = await load(durable, pass_through, streams, tokens)
            mine = await load(ours, fresh, streams, tokens)
            alone = await load(ours, fresh, 5, tokens)
            aged = await load(ours, long, 1, tokens)
            young = await load(ours, fresh, 1, tokens)
            lines += _load_lines(plain, kept, mine, alone, aged, young, streams)
            console.print("idle streams …")
            share, each_kb = await idle_streams(ours, http, IDLE_STREAMS)
            lines.append(
                ResultLine("idle", "1,000 streams, CPU", f"{share:.2f} %", "< 1 %", is_met=share < 1)
            )
            lines.append(
                ResultLine("idle", "1,000 streams, each", f"{each_kb:.1f} kB", "< 50 kB", is_met=each_kb < 50)
            )
        with running_process(*serve, env={**env, "HOLDFAST_MODEL": f"openai:5@{RATE}"}) as ours:
            direct = await first_token_ms(bare, pass_through, 40)
            mine_ms = await first_token_ms(ours, fresh, 40)
            aged_ms = await first_token_ms(ours, long, 40)
            added = mine_ms - direct
            lines.append(ResultLine(
                "first token", "added, alone", f"{added:.2f} ms", "≤ 10 ms",
                f"bare {direct:.2f} ms", is_met=added <= 10,
            ))  # fmt: skip
            # The model answers at once here, so this compares the whole time to the first token.
            lines.append(ratio_line(
                "first token", "in a 10,000-message session", aged_ms / mine_ms, 1.2,
                f"{aged_ms:.2f} ms", f"in a new one {mine_ms:.2f} ms",
            ))  # fmt: skip
    return lines


def _load_lines(
    plain: StreamLoad,
    kept: StreamLoad,
    mine: StreamLoad,
    alone: StreamLoad,
    aged: StreamLoad,
    young: StreamLoad,
    streams: int,
) -> list[ResultLine]:
    part = f"{streams} answers at {RATE} tokens/s, durability full"
    return [
        ResultLine(
            part, "tokens missing", f"{mine.missing} of {len(mine.ages_ms):,}", "0", is_met=mine.missing == 0
        ),
        ResultLine(
            part, "CPU per 1,000 tokens", f"{mine.cpu_ms:.0f} ms", "≤ 150 ms",
            f"durable prototype {kept.cpu_ms:.0f} ms, bare {plain.cpu_ms:.0f} ms",
            mine.cpu_ms / kept.cpu_ms, mine.cpu_ms <= 150,
        ),
        ratio_line(
            part, "p99 of a token's age", mine.p99 / kept.p99, 2.0, str(mine),
            f"durable prototype: {kept}",
        ),
        info_line(
            part, "the same, beside a bare pass-through", f"p99 {mine.p99:.2f} ms", str(plain),
            mine.p99 / plain.p99,
        ),
        info_line(
            part, "lag of the load generator itself, p99", f"{mine.lag_ms:.2f} ms",
            f"bare {plain.lag_ms:.2f} ms",
        ),
        info_line(
            part, "p99 with the crowd of beginnings in the first second", f"{mine.whole_p99:.2f} ms",
            f"durable prototype {kept.whole_p99:.2f} ms", mine.whole_p99 / kept.whole_p99,
        ),
        info_line("few", "5 answers", str(alone)),
        ratio_line(
            "10,000 messages", "p99 of a token's age", aged.p99 / young.p99, 1.2, str(aged), f"new: {young}",
        ),
        ratio_line(
            "10,000 messages", "CPU per 1,000 tokens", aged.cpu_ms / young.cpu_ms, 1.2,
            f"{aged.cpu_ms:.0f} ms", f"new: {young.cpu_ms:.0f} ms",
        ),
    ]  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.turn", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="20 streams, 3 s: for trying a change")
    parser.add_argument("--json", type=Path, help="leave the figures here too")
    chosen = parser.parse_args()
    console = Console(width=150)
    Path(".cache").mkdir(exist_ok=True)
    streams, tokens = (20, 150) if chosen.quick else (100, 500)
    lines = uvloop.run(measure(console, streams, tokens))
    print_table(lines, "A turn, end to end", console)
    if chosen.json:
        write_json(lines, {"streams": streams}, chosen.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
