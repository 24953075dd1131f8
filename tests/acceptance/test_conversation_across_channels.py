"""One conversation through many doors: begun in Telegram, continued as the page does it, then in a terminal.

Two servers work over one data folder: one is the bot's, the other the page's and the terminal's. Whatever is
said through one door is seen through the others, and an agent that is held ready is read back only when the
other process has changed what the model is shown.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp
import pytest

from tests.acceptance.conftest import Holdfast, Running
from tests.support.api_client import Api, Frame, Speaker, talking
from tests.support.several_servers import (
    ADA,
    Readings,
    in_terminal,
    let_in,
    living_with_a_bot,
    serve_without_bot,
    settled,
    told_in_telegram,
)
from tests.support.telegram_api import TelegramApi, on_a_thread


@pytest.fixture
def telegram() -> Iterator[TelegramApi]:
    with on_a_thread() as api:
        yield api


@pytest.fixture
def home(speaker: Speaker, telegram: TelegramApi, tmp_path: Path) -> Iterator[Holdfast]:
    with living_with_a_bot(tmp_path, speaker, telegram) as command:
        yield command


@pytest.fixture
def page(home: Holdfast) -> Running:
    """The server of the page and of the terminal, which looks for the one that is there longest."""
    return serve_without_bot(home)


@pytest.fixture
def bot(page: Running, home: Holdfast) -> Running:
    """The server of the bot."""
    return home.serve("--port", "0")


async def say_in_telegram(telegram: TelegramApi, text: str) -> None:
    """Until it is answered there; the model repeats what is said to it."""
    telegram.say(ADA, text)
    await told_in_telegram(telegram, text)


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


async def test_each_door_sees_what_is_said_through_the_others_and_an_agent_is_reused_while_that_is_right(
    page: Running, bot: Running, home: Holdfast, telegram: TelegramApi, speaker: Speaker
) -> None:
    async with talking(bot.address) as at_bot, talking(page.address) as at_page:
        await let_in(at_page, telegram)
        await say_in_telegram(telegram, "begun in telegram")
        (listed,) = (await at_page.get("/api/sessions"))["sessions"]
        session, readings = listed["id"], Readings(at_bot, at_page)
        await readings.check()
        async with watching(at_bot, session) as by_bot, watching(at_page, session) as by_page:
            # The same process again, through either of its doors: nothing is read back.
            await say_in_telegram(telegram, "more in telegram")
            await readings.check()
            receipt = await at_bot.say(session, "the bot's own page", secrets.token_hex(16))
            await at_bot.done(receipt["run_id"])
            await settled(at_bot, session)
            await readings.check()

            # A name given by the other process is nothing that the model is shown.
            await at_page.ask("PATCH", f"/api/sessions/{session}", {"title": "Many doors"})
            assert at_page.status == 200
            await say_in_telegram(telegram, "after a new name")
            await readings.check()
            await settled(at_bot, session)

            # Another process goes on: it reads the conversation, and the chat shows what is said there.
            receipt = await at_page.say(session, "continued in the page", secrets.token_hex(16))
            await at_page.done(receipt["run_id"])
            await told_in_telegram(telegram, "continued in the page")
            assert "You (from the page): continued in the page" in telegram.texts(ADA)[-2]
            await readings.check()

            # The bot's process reads it back when it needs it; and the model is shown what was said.
            await say_in_telegram(telegram, "back in telegram")
            assert "continued in the page" in str(speaker.asked[-1]["messages"])
            await readings.check()
            await say_in_telegram(telegram, "and again")
            await readings.check()
            await settled(at_bot, session)

            # A terminal, a process of its own, has the page's server do it: that reads back what it lacks.
            assert await in_terminal(home, "last in the terminal", session) == "last in the terminal \n"
            await told_in_telegram(telegram, "last in the terminal")
            assert "(from the terminal): last in the terminal" in telegram.texts(ADA)[-2]
            assert "and again" in str(speaker.asked[-1]["messages"])
            await readings.check()
            await say_in_telegram(telegram, "the end")
            await readings.check()
            assert len(readings.answered) == 9 and set(readings.answered) == {0, 1}

            # Everyone who watched was sent the same, all of it.
            everything = [
                "begun in telegram", "more in telegram", "the bot's own page", "after a new name",
                "continued in the page", "back in telegram", "and again", "last in the terminal", "the end",
            ]  # fmt: skip
            await telegram.until(lambda: said(by_bot) == everything and said(by_page) == everything)
        roles = [(role, words.strip()) for role, _, words in await at_page.read(session)]
        assert roles == [(role, text) for text in everything for role in ("user", "assistant")]
