"""Several servers over one data folder, one of them a bot's: what tests start, do and count there."""

import asyncio
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.conftest import Holdfast, Running, environ_of, living_in
from tests.support.api_client import Api, Speaker
from tests.support.telegram_api import TOKEN, TelegramApi

ADA = 77
TOLD_S_MAX = 60
SCRIPT_S_MAX = 60
_CODE = re.compile(r"\b[2-9A-Z]{4}-[2-9A-Z]{4}\b")
_REBUILDS = re.compile(r'holdfast_agent_cache_rebuilds_total\{why="(\w+)"\} (\d+)')
_HITS = re.compile(r"holdfast_agent_cache_hits_total (\d+)")

Counts = tuple[int, dict[str, int]]
"""How often a server went on with what it held ready, and how often and why it read something back."""


@contextmanager
def living_with_a_bot(folder: Path, speaker: Speaker, telegram: TelegramApi) -> Iterator[Holdfast]:
    """The command, in a home in which a bot is connected."""
    bot = {"TELEGRAM_BOT_TOKEN": TOKEN, "HOLDFAST_TELEGRAM_API_URL": telegram.url}
    with living_in(folder, **environ_of(speaker), **bot) as command:
        yield command


def serve_without_bot(home: Holdfast) -> Running:
    """A server that leaves the bot to another. Of all servers, a terminal goes to the one started first."""
    return Holdfast(home.environ | {"HOLDFAST_TELEGRAM": "off"}, home.started).serve("--port", "0")


async def cache(api: Api) -> Counts:
    text = (await api.get("/metrics")).decode()
    (hits,) = _HITS.findall(text)
    return int(hits), {why: int(count) for why, count in _REBUILDS.findall(text)}


class Readings:
    """Checks after each turn that the server which answered it read the conversation back when, and only
    when, another had answered since. Mostly that is the server that was asked; any may be faster."""

    def __init__(self, *servers: Api) -> None:
        self._servers = servers
        self._before: list[Counts] = [(0, {}) for _ in servers]
        self._last = -1
        self.answered: list[int] = []
        """Which server answered each turn."""

    async def check(self) -> None:
        """One more turn has been answered."""
        now = [await cache(each) for each in self._servers]
        (who,) = [n for n, counts in enumerate(now) if counts != self._before[n]]
        hits, why = self._before[who]
        reason = "foreign" if why else "new"
        read = hits, why | {reason: why.get(reason, 0) + 1}
        assert now[who] == ((hits + 1, why) if who == self._last else read)
        self._before, self._last = now, who
        self.answered.append(who)


async def let_in(api: Api, telegram: TelegramApi) -> None:
    """Ada may write to the bot."""
    telegram.say(ADA, "hello?")
    (told,) = await telegram.until(lambda: telegram.texts(ADA), TOLD_S_MAX)
    await api.post("/api/pairing", {"code": _CODE.findall(told)[0]})
    assert api.status == 200


async def told_in_telegram(telegram: TelegramApi, text: str) -> None:
    """Return once the last thing in the chat is `text`."""
    await telegram.until(lambda: telegram.texts(ADA)[-1].strip() == text, TOLD_S_MAX)


async def in_terminal(home: Holdfast, text: str, session: str) -> str:
    """What a script in a terminal prints: a process of its own."""
    words = [sys.executable, "-P", "-m", "holdfast", "chat", "-p", text, session]
    done = await asyncio.to_thread(
        subprocess.run, words, env=home.environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        timeout=SCRIPT_S_MAX,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return str(done.stdout)


async def settled(api: Api, session: str) -> None:
    """Return once nothing is under way: a chat may show all of an answer before its end is written down."""
    await api.until(f"/api/sessions/{session}", "status", "idle")
