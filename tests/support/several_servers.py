"""Helpers for tests of several servers over one data folder, one of which serves a bot."""

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
"""Cache hits of a server, and its loads from the store by reason."""


@contextmanager
def cli_with_bot(
    folder: Path, model_server: ScriptedModelServer, telegram: TelegramApi
) -> Iterator[CliHarness]:
    """Return the command in a home with a connected bot."""
    bot = {"TELEGRAM_BOT_TOKEN": TOKEN, "HOLDFAST_TELEGRAM_API_URL": telegram.url}
    with cli_in(folder, **environ_for(model_server), **bot) as command:
        yield command


def serve_without_bot(home: CliHarness) -> RunningServer:
    """Start a server that leaves the bot to another. A terminal connects to the first server."""
    return CliHarness(home.environ | {"HOLDFAST_TELEGRAM": "off"}, home.started).serve("--port", "0")


async def cache_counts(api: ApiClient) -> Counts:
    text = (await api.get("/metrics")).decode()
    (hits,) = _HITS.findall(text)
    return int(hits), {why: int(count) for why, count in _REBUILDS.findall(text)}


class CacheChecker:
    """Check after each turn that the answering server loaded the conversation if and only if another one had
    answered since. Mostly it is the server that received the message; any may be faster.
    """

    def __init__(self, *servers: ApiClient) -> None:
        self._servers = servers
        self._before: list[Counts] = [(0, {}) for _ in servers]
        self._last = -1
        self.answering_servers: list[int] = []
        """The server that answered each turn."""

    async def check(self) -> None:
        """Check one more answered turn."""
        now = [await cache_counts(each) for each in self._servers]
        (who,) = [n for n, counts in enumerate(now) if counts != self._before[n]]
        hits, why = self._before[who]
        reason = "foreign" if why else "new"
        read = hits, why | {reason: why.get(reason, 0) + 1}
        assert now[who] == ((hits + 1, why) if who == self._last else read)
        self._before, self._last = now, who
        self.answering_servers.append(who)


async def pair_chat(api: ApiClient, telegram: TelegramApi) -> None:
    """Pair Ada's chat with the bot."""
    telegram.post_message(ADA, "hello?")
    (message,) = await telegram.wait_until(lambda: telegram.texts(ADA), DELIVERY_S_MAX)
    await api.post("/api/pairing", {"code": _CODE.findall(message)[0]})
    assert api.status == 200


async def wait_for_telegram_text(telegram: TelegramApi, text: str) -> None:
    """Return once the last message in the chat is `text`."""
    await telegram.wait_until(lambda: telegram.texts(ADA)[-1].strip() == text, DELIVERY_S_MAX)


async def run_chat_command(home: CliHarness, text: str, session: str) -> str:
    """Return the output of a `holdfast chat` script, in a process of its own."""
    command = [sys.executable, "-P", "-m", "holdfast", "chat", "-p", text, session]
    done = await asyncio.to_thread(
        subprocess.run, command, env=home.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=SCRIPT_S_MAX,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


async def wait_until_idle(api: ApiClient, session: str) -> None:
    """Return once nothing is running: a chat may show a whole answer before its end is stored."""
    await api.wait_for_field(f"/api/sessions/{session}", "status", "idle")
