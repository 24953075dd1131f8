"""A long conversation: it opens at its end, and what somebody reads in it stays where it stands."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import expect

from bench.turn.history import write_long_history
from tests.acceptance.conftest import CliHarness
from tests.browser.conftest import NewUser
from tests.support.browser_driver import WAIT_MS, ChatPage, sign_in

MESSAGES = 600
FROM_END = "log => log.scrollHeight - log.scrollTop - log.clientHeight"


def answer_to(turn: int) -> str:
    """Some are far larger, and some far smaller, than what the page takes an unseen turn to be."""
    return "\n\n".join(f"Number {turn}, paragraph {part}." for part in range(1 + turn % 7 * 5))


@pytest.fixture
def chat(runner: asyncio.Runner, home: CliHarness, welcome: NewUser, tmp_path: Path) -> ChatPage:
    async def enter() -> ChatPage:
        session_id = await write_long_history(tmp_path / "data", MESSAGES, answer_to)
        server = home.serve("--port", "0", "--data", str(tmp_path / "data"))
        chat = ChatPage(await sign_in(await welcome(), server.link))
        await chat.page.evaluate("id => { location.hash = id; }", session_id)
        await chat.wait_for_text(f"Number {MESSAGES // 2}, paragraph 0.")
        return chat

    return runner.run(enter())


async def frames(chat: ChatPage, count: int = 3) -> None:
    await chat.page.evaluate("async n => { while (n--) await new Promise(requestAnimationFrame); }", count)


async def test_it_opens_at_its_end_and_follows_what_is_written_there(chat: ChatPage) -> None:
    await frames(chat)
    assert await chat.log.evaluate(FROM_END) < 2
    await chat.send("count 200")
    await expect(chat.turns.last.get_by_role("button", name="Try again")).to_be_visible()
    await frames(chat)
    assert await chat.log.evaluate(FROM_END) < 2


async def test_what_is_read_stays_where_it_stands_when_earlier_messages_come(chat: ChatPage) -> None:
    await frames(chat)
    before = await chat.turns.count()
    read = chat.page.get_by_text(f"What about number {MESSAGES // 2 - 8}?").first
    await read.scroll_into_view_if_needed()
    await frames(chat)
    stood = await read.evaluate("node => node.getBoundingClientRect().top")
    await expect(chat.turns.nth(before)).to_be_attached(timeout=WAIT_MS)
    await frames(chat)
    assert abs(await read.evaluate("node => node.getBoundingClientRect().top") - stood) < 2
    assert await chat.log.evaluate(FROM_END) > 100, "nobody is taken to the end who is reading"


async def test_the_first_message_is_reached_by_scrolling_up(chat: ChatPage) -> None:
    first = chat.page.get_by_text("What about number 1?").first
    for _ in range(200):
        if await first.count():
            break
        await chat.log.evaluate("log => { log.scrollTop = 0; }")
        await frames(chat)
    await expect(first).to_be_attached(timeout=WAIT_MS)
    await expect(chat.turns).to_have_count(MESSAGES // 2, timeout=WAIT_MS)


async def test_sending_from_far_up_scrolls_to_the_message(chat: ChatPage) -> None:
    await chat.page.get_by_text(f"What about number {MESSAGES // 2 - 8}?").first.scroll_into_view_if_needed()
    await frames(chat)
    assert await chat.log.evaluate(FROM_END) > 100
    await chat.send("where is this?")
    await expect(chat.log.get_by_role("article", name="You").last).to_be_in_viewport(timeout=WAIT_MS)
    await expect(chat.turns.last.get_by_role("button", name="Try again")).to_be_visible()
    await frames(chat)
    assert await chat.log.evaluate(FROM_END) < 2
