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

from tests.acceptance.conftest import CliHarness, RunningServer
from tests.support.api_client import ApiClient, ScriptedModelServer, SseFrame, api_client
from tests.support.several_servers import (
    ADA,
    CacheChecker,
    cli_with_bot,
    pair_chat,
    run_chat_command,
    serve_without_bot,
    wait_for_telegram_text,
    wait_until_idle,
)
from tests.support.telegram_api import TelegramApi, telegram_server_in_thread


@pytest.fixture
def telegram() -> Iterator[TelegramApi]:
    with telegram_server_in_thread() as api:
        yield api


@pytest.fixture
def home(speaker: ScriptedModelServer, telegram: TelegramApi, tmp_path: Path) -> Iterator[CliHarness]:
    with cli_with_bot(tmp_path, speaker, telegram) as command:
        yield command


@pytest.fixture
def page(home: CliHarness) -> RunningServer:
    """The server of the page and of the terminal, which looks for the one that is there longest."""
    return serve_without_bot(home)


@pytest.fixture
def bot(page: RunningServer, home: CliHarness) -> RunningServer:
    """The server of the bot."""
    return home.serve("--port", "0")


async def say_in_telegram(telegram: TelegramApi, text: str) -> None:
    """Until it is answered there; the model repeats what is said to it."""
    telegram.post_message(ADA, text)
    await wait_for_telegram_text(telegram, text)


@asynccontextmanager
async def collect_frames(api: ApiClient, session: str) -> AsyncIterator[list[SseFrame]]:
    """All that a conversation's stream sends meanwhile."""
    seen: list[SseFrame] = []

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


def user_texts(seen: list[SseFrame]) -> list[str]:
    """What people said, as a stream has told it."""
    return [part["text"] for frame in seen if frame.event == "turn_accepted" for part in frame.data["parts"]]


async def test_every_client_sees_messages_of_the_others_and_the_cached_agent_is_reused(
    page: RunningServer, bot: RunningServer, home: CliHarness, telegram: TelegramApi,
    speaker: ScriptedModelServer,
) -> None:  # fmt: skip
    async with api_client(bot.address) as at_bot, api_client(page.address) as at_page:
        await pair_chat(at_page, telegram)
        await say_in_telegram(telegram, "begun in telegram")
        (listed,) = (await at_page.get("/api/sessions"))["sessions"]
        session, readings = listed["id"], CacheChecker(at_bot, at_page)
        await readings.check()
        async with collect_frames(at_bot, session) as by_bot, collect_frames(at_page, session) as by_page:
            # The same process again, through either of its doors: nothing is read back.
            await say_in_telegram(telegram, "more in telegram")
            await readings.check()
            receipt = await at_bot.send(session, "the bot's own page", secrets.token_hex(16))
            await at_bot.wait_for_run(receipt["run_id"])
            await wait_until_idle(at_bot, session)
            await readings.check()

            # A name given by the other process is nothing that the model is shown.
            await at_page.request("PATCH", f"/api/sessions/{session}", {"title": "Many doors"})
            assert at_page.status == 200
            await say_in_telegram(telegram, "after a new name")
            await readings.check()
            await wait_until_idle(at_bot, session)

            # Another process goes on: it reads the conversation, and the chat shows what is said there.
            receipt = await at_page.send(session, "continued in the page", secrets.token_hex(16))
            await at_page.wait_for_run(receipt["run_id"])
            await wait_for_telegram_text(telegram, "continued in the page")
            assert "You (from the page): continued in the page" in telegram.texts(ADA)[-2]
            await readings.check()

            # The bot's process reads it back when it needs it; and the model is shown what was said.
            await say_in_telegram(telegram, "back in telegram")
            assert "continued in the page" in str(speaker.requests[-1]["messages"])
            await readings.check()
            await say_in_telegram(telegram, "and again")
            await readings.check()
            await wait_until_idle(at_bot, session)

            # A terminal, a process of its own, has the page's server do it: that reads back what it lacks.
            assert await run_chat_command(home, "last in the terminal", session) == "last in the terminal \n"
            await wait_for_telegram_text(telegram, "last in the terminal")
            assert "(from the terminal): last in the terminal" in telegram.texts(ADA)[-2]
            assert "and again" in str(speaker.requests[-1]["messages"])
            await readings.check()
            await say_in_telegram(telegram, "the end")
            await readings.check()
            assert len(readings.answering_servers) == 9 and set(readings.answering_servers) == {0, 1}

            # Everyone who watched was sent the same, all of it.
            everything = [
                "begun in telegram", "more in telegram", "the bot's own page", "after a new name",
                "continued in the page", "back in telegram", "and again", "last in the terminal", "the end",
            ]  # fmt: skip
            await telegram.wait_until(lambda: user_texts(by_bot) == user_texts(by_page) == everything)
        roles = [(role, words.strip()) for role, _, words in await at_page.message_texts(session)]
        assert roles == [(role, text) for text in everything for role in ("user", "assistant")]
