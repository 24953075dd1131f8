"""The browser's Back: it closes what lies over the page first, and then leads to where one was before."""

import re
from typing import Any

from playwright.async_api import Locator, expect

from tests.browser.conftest import NewChat
from tests.support.browser_driver import PHONE, WAIT_MS, ChatPage

WIDE: dict[str, Any] = {"viewport": {"width": 1440, "height": 860}}


def details_panel(chat: ChatPage) -> Locator:
    return chat.page.get_by_role("complementary", name="Details")


def conversation_list(chat: ChatPage) -> Locator:
    return chat.page.get_by_role("navigation", name="Conversations")


async def expect_conversation(chat: ChatPage, session: str) -> None:
    await expect(chat.page).to_have_url(re.compile(f"#{session}$"), timeout=WAIT_MS)
    await chat.wait_for_answers()


async def create_two_conversations(chat: ChatPage) -> tuple[str, str]:
    """Two conversations, one after the other; the second is open."""
    await chat.send("the first of them")
    await chat.wait_for_answers()
    first = chat.session_id
    await chat.message.fill("/new")
    await chat.message.press("Enter")
    await expect(chat.log).to_contain_text("What can I do for you?", timeout=WAIT_MS)
    await chat.send("the second of them")
    await chat.wait_for_answers()
    return first, chat.session_id


async def test_on_a_phone_back_closes_what_is_open_and_the_conversation_stays(new_chat: NewChat) -> None:
    chat = await new_chat(**PHONE)
    _, second = await create_two_conversations(chat)
    page = chat.page
    await chat.button("Details").tap()
    await expect(details_panel(chat)).to_be_visible(timeout=WAIT_MS)
    await page.go_back()
    await expect(details_panel(chat)).to_have_count(0)
    await expect_conversation(chat, second)
    burger = page.get_by_role("button", name="Conversations")
    await burger.tap()
    await expect(conversation_list(chat)).to_be_visible()
    await page.go_back()
    await expect(conversation_list(chat)).not_to_be_visible()
    await expect_conversation(chat, second)
    await burger.tap()
    await conversation_list(chat).get_by_role("button", name="Settings").tap()
    await expect(page.get_by_role("dialog", name="Settings")).to_be_visible(timeout=WAIT_MS)
    await page.go_back()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("dialog")).to_be_visible()
    await page.go_back()
    await expect(page.get_by_role("dialog")).to_have_count(0)
    await expect_conversation(chat, second)


async def test_what_lies_on_top_goes_before_what_it_lies_on(new_chat: NewChat) -> None:
    chat = await new_chat(**PHONE)
    _, second = await create_two_conversations(chat)
    await chat.button("Details").tap()
    await expect(details_panel(chat)).to_be_visible(timeout=WAIT_MS)
    await chat.page.keyboard.press("Control+k")
    await expect(chat.page.get_by_role("dialog")).to_be_visible()
    await chat.page.go_back()
    await expect(chat.page.get_by_role("dialog")).to_have_count(0)
    await expect(details_panel(chat)).to_be_visible()
    await chat.page.go_back()
    await expect(details_panel(chat)).to_have_count(0)
    await expect_conversation(chat, second)


async def test_what_was_closed_by_hand_or_led_elsewhere_costs_no_step_back(new_chat: NewChat) -> None:
    chat = await new_chat(**PHONE)
    first, second = await create_two_conversations(chat)
    page, burger = chat.page, chat.page.get_by_role("button", name="Conversations")
    await burger.tap()
    await conversation_list(chat).locator(f"a[href='#{first}']").tap()
    await expect_conversation(chat, first)
    await chat.button("Details").tap()
    await details_panel(chat).get_by_role("button", name="Close").tap()
    await expect(details_panel(chat)).to_have_count(0)
    await page.go_back()
    await expect_conversation(chat, second)
    # A page that is loaded anew knows the way, too.
    await chat.button("Details").tap()
    await expect(details_panel(chat)).to_be_visible(timeout=WAIT_MS)
    await page.reload()
    await chat.wait_for_answers()
    await expect(details_panel(chat)).to_have_count(0)
    await page.go_back()
    await expect(chat.log).to_contain_text("What can I do for you?", timeout=WAIT_MS)
    await page.go_back()
    await expect_conversation(chat, first)


async def test_where_details_have_a_column_of_their_own_back_leads_on_and_they_stay(
    new_chat: NewChat,
) -> None:
    chat = await new_chat(**WIDE)
    await create_two_conversations(chat)
    await chat.button("Details").click()
    await expect(details_panel(chat)).to_be_visible(timeout=WAIT_MS)
    await chat.page.go_back()
    await expect(chat.log).to_contain_text("What can I do for you?", timeout=WAIT_MS)
    await chat.page.go_forward()
    await chat.wait_for_answers()
    await expect(details_panel(chat)).to_be_visible()
