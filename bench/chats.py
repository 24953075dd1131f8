"""`python -m bench.chats`: a thousand chats of one bot on one server; prints one table. Linux only (/proc).

The bot's platform is `tests/support/telegram_api.py` in this process, asked through the real client library;
the model only keeps time. What is timed is from the moment at which somebody said something to the first
message that the server sends to their chat, seen by the platform.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import uvloop
from rich.console import Console

from bench.harness import percentile
from bench.machine import OtherLoad, family_cpu_s
from bench.report import report
from bench.table import ResultLine, info_line, ratio_line
from bench.turn.processes import BenchProcess, running_process
from holdfast.channels.pairing import Pairing, Sender
from holdfast.domain.clock import SystemClock
from holdfast.store.sqlite.store import SqliteStore
from tests.support.telegram_api import TOKEN, Json, TelegramApi, telegram_server

MODEL = "openai:10@500"
"""Ten tokens in 20 ms, so that almost all of the time is the server's own."""
NOISY_RATIO_MAX = 2.0
ANSWER_S_MAX = 120.0
IDLE_S = 5.0


@dataclass(frozen=True)
class Scale:
    chats: int
    rate: int
    """Messages per second, each in another chat."""
    seconds: int
    noise: int
    """Messages that one chat sends at once, before the others send theirs."""


FULL, QUICK = Scale(1_000, 20, 25, 400), Scale(100, 10, 5, 50)


@dataclass
class TimedPlatform:
    """Record when the bot first writes to a chat after each message from it."""

    api: TelegramApi
    posted_at: dict[int, float] = field(default_factory=dict)
    waits_ms: dict[int, float] = field(default_factory=dict)
    sent: int = 0

    def on_stage(self, stage: str, method: str, request: Json) -> None:
        if (stage, method) == ("arrived", "sendMessage"):
            self.sent += 1
            chat = int(request["chat_id"])
            if chat in self.posted_at:
                self.waits_ms[chat] = 1000 * (time.monotonic() - self.posted_at.pop(chat))

    def post_message(self, chat: int, text: str) -> None:
        self.posted_at[chat] = time.monotonic()
        self.api.post_message(chat, text)

    async def wait_for_answers(self) -> None:
        async with asyncio.timeout(ANSWER_S_MAX):
            while self.posted_at:  # noqa: ASYNC110
                await asyncio.sleep(0.01)

    def take_waits(self) -> list[float]:
        """Return the waits since the last call, in ms."""
        waits, self.waits_ms = list(self.waits_ms.values()), {}
        return waits


@dataclass(frozen=True)
class LoadResult:
    """The result of a load: waits in ms, its duration, and the server's CPU time."""

    waits_ms: list[float]
    took_s: float
    cpu_s: float

    @property
    def p99(self) -> float:
        return percentile(self.waits_ms, 99)

    def __str__(self) -> str:
        return f"p50 {percentile(self.waits_ms, 50):.0f} ms, p99 {self.p99:.0f} ms"


async def send_burst(platform: TimedPlatform, server: BenchProcess, chats: range) -> LoadResult:
    """Send a message from every chat at the same moment."""
    began, cpu_s = time.monotonic(), server.cpu_s()
    for chat in chats:
        platform.post_message(chat, "good morning")
    await platform.wait_for_answers()
    return LoadResult(platform.take_waits(), time.monotonic() - began, server.cpu_s() - cpu_s)


async def send_steadily(
    platform: TimedPlatform, server: BenchProcess, chats: list[int], scale: Scale
) -> LoadResult:
    """Send messages at a fixed rate, whether or not earlier ones are answered."""
    began, cpu_s = time.monotonic(), server.cpu_s()
    for number in range(scale.rate * scale.seconds):
        await asyncio.sleep(max(0.0, began + number / scale.rate - time.monotonic()))
        platform.post_message(chats[number % len(chats)], "how are you?")
    took_s = time.monotonic() - began
    cpu_s = server.cpu_s() - cpu_s
    await platform.wait_for_answers()
    return LoadResult(platform.take_waits(), took_s, cpu_s)


async def wait_until_idle(platform: TimedPlatform) -> None:
    """Wait until the bot has sent nothing for a second."""
    before = -1
    while before != platform.sent:
        before = platform.sent
        await asyncio.sleep(1.0)


async def run_scenarios(
    platform: TimedPlatform, server: BenchProcess, scale: Scale, console: Console
) -> list[ResultLine]:
    everyone = range(1, scale.chats + 1)
    empty_mb = server.rss_kb() / 1000
    console.print("everyone at once …")
    first = await send_burst(platform, server, everyone)
    await wait_until_idle(platform)
    again = await send_burst(platform, server, everyone)
    await wait_until_idle(platform)
    full_mb = server.rss_kb() / 1000
    at, cpu_s = time.monotonic(), server.cpu_s()
    await asyncio.sleep(IDLE_S)
    idle = 100 * (server.cpu_s() - cpu_s) / (time.monotonic() - at)
    console.print("steady, then beside a noisy chat …")
    noisy, *others = everyone
    without_noise = await send_steadily(platform, server, others, scale)
    await wait_until_idle(platform)
    for number in range(scale.noise):
        platform.api.post_message(noisy, f"noise {number}")
    sent = len(platform.api.shown(noisy))
    with_noise = await send_steadily(platform, server, others, scale)
    answered = len(platform.api.shown(noisy)) - sent
    return [
        *_at_once_lines(scale, first, again),
        *_memory_lines(scale, empty_mb, full_mb, idle),
        *_steady_lines(scale, without_noise, with_noise, answered),
    ]


def _at_once_lines(scale: Scale, first: LoadResult, again: LoadResult) -> list[ResultLine]:
    part = f"{scale.chats:,} chats say something at once"

    def line(what: str, load: LoadResult) -> ResultLine:
        rate, each_ms = scale.chats / load.took_s, 1000 * load.cpu_s / scale.chats
        return info_line(part, what, f"{rate:.0f} messages/s, {each_ms:.1f} ms CPU each", str(load))

    return [
        line("each begins a conversation (two calls of the model)", first),
        line("each goes on with it", again),
    ]


def _memory_lines(scale: Scale, empty_mb: float, full_mb: float, idle: float) -> list[ResultLine]:
    part = f"{scale.chats:,} chats, nobody says anything"
    each_kb = 1000 * (full_mb - empty_mb) / scale.chats
    return [
        info_line(part, "memory", f"{full_mb:.0f} MB, {each_kb:.0f} kB each", f"before: {empty_mb:.0f} MB"),
        ResultLine(part, "CPU", f"{idle:.2f} %", "< 1 %", is_met=idle < 1),
    ]


def _steady_lines(
    scale: Scale, without_noise: LoadResult, with_noise: LoadResult, answered: int
) -> list[ResultLine]:
    part = f"{scale.rate} messages/s for {scale.seconds} s, each in another chat"
    cores = without_noise.cpu_s / without_noise.took_s
    return [
        info_line(
            part, "from what was said to the first message back", str(without_noise), f"{cores:.2f} cores"
        ),
        ratio_line(
            part, f"the same while one chat has {scale.noise} messages answered, p99",
            with_noise.p99 / without_noise.p99, NOISY_RATIO_MAX, str(with_noise), f"without: {without_noise}",
        ),
        info_line(part, "of the noisy chat answered meanwhile", f"{answered:,} of {scale.noise:,}"),
    ]  # fmt: skip


@asynccontextmanager
async def running_bot(folder: Path, scale: Scale) -> AsyncIterator[tuple[TimedPlatform, BenchProcess]]:
    """Run a server whose bot answers every user."""
    store = await SqliteStore.open(folder)
    pairing = Pairing(store, SystemClock(), lambda bits: 0)
    await asyncio.gather(
        *(pairing.allow(Sender("telegram", str(1 + n), "Ada", 0)) for n in range(scale.chats))
    )
    await store.close()
    async with telegram_server() as api:
        platform = TimedPlatform(api)
        api.on_stage = platform.on_stage
        with running_process("-m", "bench.turn.fake_model") as model:
            env = {
                "OPENAI_BASE_URL": f"http://127.0.0.1:{model.port}/v1", "OPENAI_API_KEY": "none",
                "HOLDFAST_DATA": str(folder), "HOLDFAST_MODEL": MODEL,
                "TELEGRAM_BOT_TOKEN": TOKEN, "HOLDFAST_TELEGRAM_API_URL": api.url,
            }  # fmt: skip
            with running_process("-m", "holdfast", "serve", "--port", "0", env=env) as server:
                yield platform, server


async def measure(console: Console, scale: Scale) -> list[ResultLine]:
    with TemporaryDirectory(prefix="holdfast-bench-", dir=Path(".cache")) as name:
        async with running_bot(Path(name) / "data", scale) as (platform, server):
            return await run_scenarios(platform, server, scale, console)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.chats", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="100 chats, 5 s: for trying a change")
    parser.add_argument("--json", type=Path, help="leave the figures here too")
    options = parser.parse_args()
    console = Console(width=150)
    Path(".cache").mkdir(exist_ok=True)
    other_load = OtherLoad(family_cpu_s)
    lines = uvloop.run(measure(console, QUICK if options.quick else FULL))
    report(lines, "Many chats on one server", console, other_load, options.quick, options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
