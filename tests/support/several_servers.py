"""Several servers over one data folder, one of them a bot's: what tests start, do and count there."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.support.api_client import ApiClient, ScriptedModelServer
from tests.support.telegram_api import TOKEN, TelegramApi

ADA = 77
DELIVERY_S_MAX = 60
SCRIPT_S_MAX = 60
_CODE = re.compile(r"\b[2-9A-Z]{4}-[2-9A-Z]{4}\b")
_REBUILDS = re.compile(r'holdfast_agent_cache_rebuilds_total\{why="(\w+)"\} (\d+)')
_HITS = re.compile(r"holdfast_agent_cache_hits_total (\d+)")

Counts = tuple[int, dict[str, int]]
"""How often a server went on with what it held ready, and how often and why it read something back."""


@contextmanager
def cli_with_bot(
    folder: Path, model_server: ScriptedModelServer, telegram: TelegramApi
) -> Iterator[CliHarness]:
    """The command, in a home in which a bot is connected."""
    bot = {"TELEGRAM_BOT_TOKEN": TOKEN, "HOLDFAST_TELEGRAM_API_URL": telegram.url}
    with cli_in(folder, **environ_for(model_server), **bot) as command:
        yield command


def serve_without_bot(home: CliHarness) -> RunningServer:
    """A server that leaves the bot to another. Of all servers, a terminal goes to the one started first."""
    return CliHarness(home.environ | {"HOLDFAST_TELEGRAM": "off"}, home.started).serve("--port", "0")


async def cache_counts(api: ApiClient) -> Counts:
    text = (await api.get("/metrics")).decode()
    (hits,) = _HITS.findall(text)
    return int(hits), {why: int(count) for why, count in _REBUILDS.findall(text)}


class CacheChecker:
    """Checks after each turn that the server which answered it read the conversation back when, and only
    when, another had answered since. Mostly that is the server that was asked; any may be faster."""

    def __init__(self, *servers: ApiClient) -> None:
        self._servers = servers
        self._before: list[Counts] = [(0, {}) for _ in servers]
        self._last = -1
        self.answering_servers: list[int] = []
        """Which server answered each turn."""

    async def check(self) -> None:
        """One more turn has been answered."""
        now = [await cache_counts(each) for each in self._servers]
        (who,) = [n for n, counts in enumerate(now) if counts != self._before[n]]
        hits, why = self._before[who]
        reason = "foreign" if why else "new"
        read = hits, why | {reason: why.get(reason, 0) + 1}
        assert now[who] == ((hits + 1, why) if who == self._last else read)
        self._before, self._last = now, who
        self.answering_servers.append(who)


async def pair_chat(api: ApiClient, telegram: TelegramApi) -> None:
    """Ada may write to the bot."""
    telegram.post_message(ADA, "hello?")
    (told,) = await telegram.wait_until(lambda: telegram.texts(ADA), DELIVERY_S_MAX)
    await api.post("/api/pairing", {"code": _CODE.findall(told)[0]})
    assert api.status == 200


async def wait_for_telegram_text(telegram: TelegramApi, text: str) -> None:
    """Return once the last thing in the chat is `text`."""
    await telegram.wait_until(lambda: telegram.texts(ADA)[-1].strip() == text, DELIVERY_S_MAX)


async def run_chat_command(home: CliHarness, text: str, session: str) -> str:
    """What a script in a terminal prints: a process of its own."""
    command = [sys.executable, "-P", "-m", "holdfast", "chat", "-p", text, session]
    done = await asyncio.to_thread(
        subprocess.run, command, env=home.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=SCRIPT_S_MAX,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


async def wait_until_idle(api: ApiClient, session: str) -> None:
    """Return once nothing is under way: a chat may show all of an answer before its end is written down."""
    await api.wait_for_field(f"/api/sessions/{session}", "status", "idle")
