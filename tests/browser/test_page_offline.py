"""The server is away: what is written meanwhile is kept and sent once, and missing code is fetched again."""

import re
from typing import Any

import pytest
from playwright.async_api import expect

from tests.acceptance.conftest import CliHarness
from tests.browser.test_page_restart import kill
from tests.support.api_client import ScriptedModelServer, api_client
from tests.support.browser_driver import SERVER_GONE_PATTERNS, WAIT_MS, BrowserUser, ChatPage, sign_in
from tests.support.free_ports import own_port

NOT_SAVED = "Not saved yet"
WATCH = """words => {
    window.seen = [];
    const look = () => {
        const asked = [...document.querySelectorAll("article.user-message")];
        const shown = asked.filter((each) => each.innerText.includes(words));
        const now = [shown.length, Boolean(document.querySelector(".banner"))].join();
        if (window.seen.at(-1) !== now) window.seen.push(now);
    };
    new MutationObserver(look).observe(document.body, { childList: true, subtree: true });
    look();
}"""
CODE = re.compile(r"/page/[\w-]+\.js")


async def fail_scripts(chat: ChatPage) -> None:
    """Have every script fail that the page fetches from now on."""
    chat.user.expect_errors(*SERVER_GONE_PATTERNS)
    await chat.page.route(CODE, lambda route: route.abort())


async def test_what_is_written_while_the_server_is_away_is_sent_once_when_it_is_back(
    visitor: BrowserUser, home: CliHarness
) -> None:
    visitor.expect_errors(*SERVER_GONE_PATTERNS)
    server = home.serve("--port", str(own_port()))
    chat = ChatPage(await sign_in(visitor, server.link))
    await chat.send("before it went")
    await chat.wait_for_answers()
    kill(server)
    await chat.disconnected.wait_for()
    for text in ("while it was away", "and one more"):
        await chat.message.fill(text)
        await chat.message.press("Enter")
        await expect(chat.message).to_have_value("")
    await expect(chat.log.get_by_text(NOT_SAVED)).to_have_count(2, timeout=WAIT_MS)
    await expect(chat.log.get_by_role("article", name="You")).to_have_count(3)
    home.serve("--port", str(server.port))
    await chat.wait_for_answers(3)
    await expect(chat.log.get_by_text(NOT_SAVED)).to_have_count(0)
    await expect(chat.disconnected).to_have_count(0)
    async with api_client(server.address) as api:
        asked = [words for role, _, words in await api.message_texts(chat.session_id) if role == "user"]
    assert asked == ["before it went", "while it was away", "and one more"]
    await expect(chat.log.get_by_role("article", name="You").locator(".words")).to_have_text(asked)


async def test_what_is_written_while_the_server_is_away_stays_in_view_until_its_turn_is_there(
    visitor: BrowserUser, home: CliHarness, speaker: ScriptedModelServer
) -> None:
    visitor.expect_errors(*SERVER_GONE_PATTERNS)
    server = home.serve("--port", str(own_port()))
    chat = ChatPage(await sign_in(visitor, server.link))
    with speaker.pausing_count(40):
        await chat.send("count 80")
        await chat.wait_for_count(39)
        kill(server)
        await chat.disconnected.wait_for()
        # Nothing can be stopped before it is back.
        await expect(chat.button("Stop")).to_be_disabled()
        await chat.message.fill("written meanwhile")
        await chat.message.press("Enter")
        await expect(chat.log.get_by_text(NOT_SAVED)).to_have_count(1)
        await chat.page.evaluate(WATCH, "written meanwhile")
        # Several attempts fail first.
        for _ in range(3):
            await chat.page.wait_for_event("requestfailed", lambda request: "/turns" in request.url)
        home.serve("--port", str(server.port))
        await expect(chat.disconnected).to_have_count(0)
        await expect(chat.button("Stop")).to_be_enabled()
        await expect(chat.log.get_by_text(NOT_SAVED)).to_have_count(0)
    await chat.wait_for_answers(2)
    # In view once at every moment, and the banner went once, when the connection was back.
    assert await chat.page.evaluate("seen") == ["1,true", "1,false"]


@pytest.mark.parametrize(
    ("role", "name", "shown"),
    [
        ("link", "Agents", ("region", "Agents")),
        ("button", "Settings", ("dialog", "Settings")),
        ("button", "Details", ("complementary", "Details")),
    ],
)
async def test_a_part_of_the_page_that_did_not_come_through_is_fetched_again(
    chat: ChatPage, role: Any, name: str, shown: Any
) -> None:
    await chat.send("a word")
    await chat.wait_for_answers()
    await fail_scripts(chat)
    missing = chat.page.get_by_role("alert").filter(has_text="This part of the page cannot be loaded.")
    again = missing.get_by_role("button", name="Try again")
    async with chat.page.expect_event("requestfailed"):
        await chat.page.get_by_role(role, name=name, exact=True).click()
    async with chat.page.expect_event("requestfailed"):
        await again.click()
    await expect(again).to_be_visible()
    await chat.page.unroute(CODE)
    await again.click()
    wanted, called = shown
    await expect(chat.page.get_by_role(wanted, name=called, exact=True)).to_be_visible()
    await expect(missing).to_have_count(0)


async def test_code_is_coloured_once_the_colours_come_through(chat: ChatPage) -> None:
    await fail_scripts(chat)
    async with chat.page.expect_event("requestfailed"):
        await chat.send("write up")
    await chat.wait_for_answers()
    await chat.page.unroute(CODE)
    await chat.send("write up once more")
    await chat.wait_for_answers(2)
    await expect(chat.turns.last.locator(".hljs-keyword").first).to_be_visible()
    await expect(chat.turns.first.locator(".hljs-keyword")).to_have_count(0)


async def test_typing_on_finds_words_once_the_code_for_it_comes_through(chat: ChatPage) -> None:
    await chat.send("herons and hens")
    await chat.wait_for_answers()
    await fail_scripts(chat)
    await chat.message.press("Control+f")
    field = chat.page.get_by_role("searchbox", name="Find in this conversation")
    async with chat.page.expect_event("requestfailed"):
        await field.fill("her")
    await chat.page.unroute(CODE)
    await field.fill("herons")
    await expect(chat.page.get_by_role("search")).to_contain_text("2 of 2")
