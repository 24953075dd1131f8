"""One conversation through many doors: begun in Telegram, continued as the page does it, then in a terminal.

Two servers work over one data folder: one is the bot's, the other the page's and the terminal's. Whatever is
said through one door is seen through the others, and an agent that is held ready is read back only when the
other process has changed what the model is shown.
"""

import asyncio
import re
import secrets
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from tests.acceptance.conftest import Holdfast, Running, environ_of, living_in
from tests.acceptance.talking import Api, Frame, Speaker, talking, until
from tests.telegram_api import TOKEN, TelegramApi, on_a_thread

ADA = 77
CODE = re.compile(r"\b[2-9A-Z]{4}-[2-9A-Z]{4}\b")
REBUILDS = re.compile(r'holdfast_agent_cache_rebuilds_total\{why="(\w+)"\} (\d+)')
HITS = re.compile(r"holdfast_agent_cache_hits_total (\d+)")
SCRIPT_S_MAX = 60


@pytest.fixture
def telegram() -> Iterator[TelegramApi]:
    with on_a_thread() as api:
        yield api


@pytest.fixture
def home(speaker: Speaker, telegram: TelegramApi, tmp_path: Path) -> Iterator[Holdfast]:
    environ = environ_of(speaker) | {
        "TELEGRAM_BOT_TOKEN": TOKEN,
        "HOLDFAST_TELEGRAM_API_URL": telegram.url,
    }
    with living_in(tmp_path, **environ) as command:
        yield command


@pytest.fixture
def page(home: Holdfast) -> Running:
    """The server of the page and of the terminal, which looks for the one that is there longest."""
    return Holdfast(home.environ | {"HOLDFAST_TELEGRAM": "off"}, home.started).serve("--port", "0")


@pytest.fixture
def bot(page: Running, home: Holdfast) -> Running:
    """The server of the bot."""
    return home.serve("--port", "0")


async def cache(api: Api) -> tuple[int, dict[str, int]]:
    """How often a server went on with what it held ready, and how often and why it read something back."""
    text = (await api.get("/metrics")).decode()
    (hits,) = HITS.findall(text)
    return int(hits), {why: int(count) for why, count in REBUILDS.findall(text)}


async def say_in_telegram(telegram: TelegramApi, text: str) -> None:
    """Until it is answered there; the model repeats what is said to it."""
    telegram.say(ADA, text)
    await telegram.until(lambda: telegram.texts(ADA)[-1].strip() == text, 60)


async def let_in(api: Api, telegram: TelegramApi) -> None:
    telegram.say(ADA, "hello?")
    (told,) = await telegram.until(lambda: telegram.texts(ADA))
    await api.post("/api/pairing", {"code": CODE.findall(told)[0]})
    assert api.status == 200


@asynccontextmanager
async def watching(api: Api, session: str) -> AsyncIterator[list[Frame]]:
    """All that a conversation's stream sends meanwhile."""
    seen: list[Frame] = []

    async def watch() -> None:
        async with api.stream(f"/api/sessions/{session}/events?after=0") as frames:
            async for frame in frames:
                seen.append(frame)

    task = asyncio.create_task(watch())
    try:
        yield seen
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, aiohttp.ClientError):
            await task


def said(seen: list[Frame]) -> list[str]:
    """What people said, as a stream has told it."""
    return [part["text"] for frame in seen if frame.event == "turn_accepted" for part in frame.data["parts"]]


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
    async def is_idle() -> bool:
        return (await api.get(f"/api/sessions/{session}"))["status"] == "idle"

    await until(is_idle)


async def test_each_door_sees_what_is_said_through_the_others_and_an_agent_is_reused_while_that_is_right(
    page: Running, bot: Running, home: Holdfast, telegram: TelegramApi, speaker: Speaker
) -> None:
    async with talking(bot.address) as at_bot, talking(page.address) as at_page:
        await let_in(at_page, telegram)
        await say_in_telegram(telegram, "begun in telegram")
        (listed,) = (await at_page.get("/api/sessions"))["sessions"]
        session = listed["id"]
        async with watching(at_bot, session) as by_bot, watching(at_page, session) as by_page:
            # The same process again, through either of its doors: nothing is read back.
            await say_in_telegram(telegram, "more in telegram")
            receipt = await at_bot.say(session, "the bot's own page", secrets.token_hex(16))
            await at_bot.done(receipt["run_id"])
            await settled(at_bot, session)
            assert await cache(at_bot) == (2, {"new": 1})

            # A name given by the other process is nothing that the model is shown.
            await at_page.ask("PATCH", f"/api/sessions/{session}", {"title": "Many doors"})
            assert at_page.status == 200
            await say_in_telegram(telegram, "after a new name")
            assert await cache(at_bot) == (3, {"new": 1})

            # Another process goes on: it reads the conversation, and the chat shows what is said there.
            receipt = await at_page.say(session, "continued in the page", secrets.token_hex(16))
            await at_page.done(receipt["run_id"])
            await telegram.until(lambda: telegram.texts(ADA)[-1].strip() == "continued in the page", 60)
            assert "You (from the page): continued in the page" in telegram.texts(ADA)[-2]
            assert await cache(at_page) == (0, {"new": 1})
            assert await cache(at_bot) == (3, {"new": 1}), "nothing is read back before it is needed"

            # Then, and only then, the bot's process reads it back; and the model is shown what was said.
            await say_in_telegram(telegram, "back in telegram")
            assert "continued in the page" in str(speaker.asked[-1]["messages"])
            assert await cache(at_bot) == (3, {"new": 1, "foreign": 1})
            await say_in_telegram(telegram, "and again")
            assert await cache(at_bot) == (4, {"new": 1, "foreign": 1})

            # A terminal, a process of its own, has the page's server do it: that reads back what it lacks.
            assert await in_terminal(home, "last in the terminal", session) == "last in the terminal \n"
            await telegram.until(lambda: telegram.texts(ADA)[-1].strip() == "last in the terminal", 60)
            assert "(from the terminal): last in the terminal" in telegram.texts(ADA)[-2]
            assert "and again" in str(speaker.asked[-1]["messages"])
            assert await cache(at_page) == (0, {"new": 1, "foreign": 1})
            await say_in_telegram(telegram, "the end")
            assert await cache(at_bot) == (4, {"new": 1, "foreign": 2})

            # Everyone who watched was sent the same, all of it.
            everything = [
                "begun in telegram", "more in telegram", "the bot's own page", "after a new name",
                "continued in the page", "back in telegram", "and again", "last in the terminal", "the end",
            ]  # fmt: skip
            await telegram.until(lambda: said(by_bot) == everything and said(by_page) == everything)
        roles = [(role, words.strip()) for role, _, words in await at_page.read(session)]
        assert roles == [(role, text) for text in everything for role in ("user", "assistant")]
