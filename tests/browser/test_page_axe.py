"""axe finds nothing wrong in any of the page's main states, in the light and in the dark."""

from typing import Any

import pytest
from playwright.async_api import Browser, expect

from tests.browser.conftest import NewChat
from tests.support.browser_driver import (
    SIGNED_OUT_TEXT,
    WAIT_MS,
    BrowserUser,
    ChatPage,
    SharedServer,
    accessibility_violations,
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation(
    scheme: Any, new_chat: NewChat, browser: Browser, shared_server: SharedServer
) -> None:
    outside = BrowserUser(await browser.new_context(color_scheme=scheme))
    page = await outside.open_page(shared_server.server.address)
    await expect(page.get_by_text(SIGNED_OUT_TEXT)).to_be_visible(timeout=WAIT_MS)
    found = {"sign-in": await accessibility_violations(page)}
    await outside.context.close()
    chat = await new_chat(color_scheme=scheme)
    page = chat.page
    found["empty"] = await accessibility_violations(page)
    await chat.send("write up")
    await chat.wait_for_answers()
    await chat.send("look 2")
    await chat.wait_for_answers(2)
    await chat.expand_all()
    await expect(chat.log.locator(".hljs-keyword").first).to_be_visible(timeout=WAIT_MS)
    found["conversation"] = await accessibility_violations(page)
    await chat.send("run echo hello")
    await chat.wait_for_approval()
    found["question"] = await accessibility_violations(page)
    await page.get_by_role("button", name="Settings").click()
    await expect(page.get_by_role("dialog", name="Settings")).to_be_visible()
    found["settings"] = await accessibility_violations(page)
    await page.keyboard.press("Escape")
    await page.get_by_role("button", name="Search all conversations").click()
    await page.get_by_role("searchbox").fill("fine")
    await expect(page.get_by_role("dialog").locator("mark").first).to_be_visible(timeout=WAIT_MS)
    found["search"] = await accessibility_violations(page)
    await page.keyboard.press("Escape")
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox")).to_be_focused()
    found["palette"] = await accessibility_violations(page)
    assert {state: wrongs for state, wrongs in found.items() if wrongs} == {}


async def test_the_list_and_the_messages_have_names_of_their_own(chat: ChatPage) -> None:
    for role, name in (("navigation", "Conversations"), ("log", "Messages")):
        named = chat.page.get_by_role(role, name=name, exact=True)  # type: ignore[arg-type]
        await expect(named).to_have_count(1, timeout=WAIT_MS)
    await expect(chat.page.get_by_role("log")).to_have_count(1)
