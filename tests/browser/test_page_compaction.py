"""Long conversations: older messages summarised, going on in a new conversation, what it costs and holds."""

import re
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.browser.conftest import NewChat
from tests.support.api_client import TITLE, api_client
from tests.support.browser_driver import (
    PHONE,
    WAIT_MS,
    ChatPage,
    SharedServer,
    accessibility_violations,
    undersized_targets,
)

SUMMARY = TITLE
"""What the speaker says to whoever asks on the side."""


async def open_conversation(
    new_chat: NewChat, shared_server: SharedServer, *said: str, **options: Any
) -> ChatPage:
    """A conversation in which all of that was said and answered."""
    async with api_client(shared_server.server.address) as api:
        session = await api.create_session(title="Painting the door")
        for text in said:
            await api.wait_for_run((await api.send(session, text))["run_id"])
    chat = await new_chat(session, **options)
    await chat.wait_for_answers(len(said))
    return chat


def summary_block(chat: ChatPage) -> Locator:
    """Where older messages were summarised."""
    return chat.log.locator("details.summarised")


async def run_command(chat: ChatPage, words: str) -> None:
    """Do something by Ctrl+K."""
    await chat.page.keyboard.press("Control+k")
    box = chat.page.get_by_role("combobox")
    await box.fill(words)
    await box.press("Enter")


async def test_older_messages_are_summarised_and_stay_readable(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await open_conversation(new_chat, shared_server, "one", "two", "three", "four")
    await run_command(chat, "Summarise older")
    await expect(chat.notices).to_contain_text("Older messages were summarised", timeout=WAIT_MS)
    for _ in range(2):
        await expect(summary_block(chat)).to_have_count(1)
        # After the second of four: the last two are kept as they are.
        before = await summary_block(chat).evaluate("each => each.previousElementSibling.innerText")
        after = await summary_block(chat).evaluate("each => each.nextElementSibling.innerText")
        assert "two" in before and "three" in after
        await expect(summary_block(chat).get_by_text(SUMMARY)).to_be_hidden()
        await summary_block(chat).get_by_text("Older messages were summarised").click()
        await expect(summary_block(chat).get_by_text(SUMMARY)).to_be_visible()
        await chat.wait_for_text("one")
        await chat.page.reload()
        await chat.wait_for_answers(4)
    # Whatever stood for a message that is undone stands no more.
    await chat.turns.nth(1).get_by_role("button", name="Undo from here").click()
    await expect(summary_block(chat)).to_have_count(0, timeout=WAIT_MS)


async def test_a_slash_and_the_menu_summarise_too(new_chat: NewChat, shared_server: SharedServer) -> None:
    chat = await open_conversation(new_chat, shared_server, "one", "two", "three")
    await chat.message.fill("/summarise")
    await chat.message.press("Enter")
    await expect(summary_block(chat)).to_have_count(1, timeout=WAIT_MS)
    other = await open_conversation(new_chat, shared_server, "one", "two", "three")
    row = other.page.get_by_role("navigation").locator("[aria-current=page]")
    await row.get_by_role("button", name="More:").click()
    await other.page.get_by_role("menuitem", name="Summarise older messages").click()
    await expect(summary_block(other)).to_have_count(1, timeout=WAIT_MS)


async def test_there_may_be_nothing_to_summarise(new_chat: NewChat, shared_server: SharedServer) -> None:
    chat = await open_conversation(new_chat, shared_server, "one")
    chat.user.expect_errors(r"409 \(Conflict\)")
    await run_command(chat, "Summarise older")
    await expect(chat.notices).to_contain_text("nothing to summarise", timeout=WAIT_MS)
    await expect(summary_block(chat)).to_have_count(0)


async def test_a_conversation_goes_on_in_a_new_one_and_both_say_so(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await open_conversation(new_chat, shared_server, "one", "two")
    old = chat.session_id
    watching = await new_chat(old)
    await watching.wait_for_answers(2)
    await run_command(chat, "Continue in a new")
    await expect(chat.page).not_to_have_url(re.compile(f"#{old}$"), timeout=WAIT_MS)
    new = chat.session_id
    await chat.wait_for_text(SUMMARY)
    await expect(chat.log.get_by_text("Continued from")).to_be_visible(timeout=WAIT_MS)
    edges = "all => all.map(each => each.getBoundingClientRect()).map(({ left, right }) => [left, right])"
    line, turn = await chat.log.locator(".hairline, .turn").evaluate_all(edges)
    assert line == turn, "in the column of what was said"
    # Whoever has the old one open is told, and what they send there is answered in the new one.
    await expect(watching.page.get_by_text("This conversation goes on in")).to_be_visible(timeout=WAIT_MS)
    await watching.message.fill("where are we?")
    await watching.message.press("Enter")
    await expect(watching.page).to_have_url(re.compile(f"#{new}$"), timeout=WAIT_MS)
    for each in (chat, watching):
        await each.wait_for_text("where are we?")
        await each.wait_for_answers()
    # And back again, also for someone whose list does not have it any more.
    await chat.page.reload()
    await chat.wait_for_answers()
    await chat.log.get_by_role("link").first.click()
    await expect(chat.page).to_have_url(re.compile(f"#{old}$"), timeout=WAIT_MS)
    await chat.wait_for_text("two")
    await expect(chat.page.get_by_role("heading", name="Painting the door")).to_be_visible(timeout=WAIT_MS)
    await expect(chat.log).not_to_contain_text("where are we?")
    there = chat.page.locator(".continuation").get_by_role("link")
    await there.click()
    await expect(chat.page).to_have_url(re.compile(f"#{new}$"), timeout=WAIT_MS)


async def test_a_conversation_that_is_worked_on_stays_where_it_is(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await open_conversation(new_chat, shared_server, "one", "two")
    chat.user.expect_errors(r"409 \(Conflict\)")
    await chat.send("hold on")
    await expect(chat.log.get_by_role("img", name="Writing…")).to_be_visible(timeout=WAIT_MS)
    old = chat.session_id
    await run_command(chat, "Continue in a new")
    await expect(chat.notices).to_contain_text("An answer is under way.", timeout=WAIT_MS)
    assert chat.session_id == old
    await chat.button("Stop").click()
    await run_command(chat, "Continue in a new")
    await expect(chat.log.get_by_text("Continued from")).to_be_visible(timeout=WAIT_MS)


async def test_a_conversation_that_only_came_after_another_does_not_say_so(chat: ChatPage) -> None:
    await chat.send("one")
    await chat.wait_for_answers()
    await chat.page.get_by_role("link", name="New conversation").click()
    await chat.send("two")
    await chat.wait_for_answers()
    await expect(chat.log).not_to_contain_text("Continued from")


async def test_the_foot_tells_how_full_the_window_is_and_what_is_known_of_the_price(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await open_conversation(new_chat, shared_server, "one", "two", "three")
    foot = chat.page.locator(".composer .usage")
    ring = foot.get_by_role("img", name=re.compile(r"^Context: 19 of [\d,]+ tokens \(1%\)"))
    await expect(ring).to_be_visible(timeout=WAIT_MS)
    await expect(foot).to_contain_text("free")
    footer = chat.turns.last.locator(".footer")
    await expect(footer).to_contain_text("small · 19 in (16 cached), 10 out · free")
    # What the last answer was sent says nothing about the next, once older messages are summarised.
    await run_command(chat, "Summarise older")
    await expect(summary_block(chat)).to_have_count(1, timeout=WAIT_MS)
    await expect(ring).to_have_count(0)
    await chat.send("four")
    await chat.wait_for_answers(4)
    await expect(ring).to_be_visible(timeout=WAIT_MS)
    await expect(chat.turns.last.locator(".footer")).to_contain_text("(16 cached)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_wrong_with_it(
    scheme: Any, new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await open_conversation(new_chat, shared_server, "one", "two", "three", color_scheme=scheme)
    await run_command(chat, "Summarise older")
    await summary_block(chat).get_by_text("Older messages were summarised").click()
    found = [await accessibility_violations(chat.page)]
    old = chat.session_id
    await run_command(chat, "Continue in a new")
    await expect(chat.log.get_by_text("Continued from")).to_be_visible(timeout=WAIT_MS)
    found.append(await accessibility_violations(chat.page))
    await chat.page.goto(f"{chat.page.url.partition('#')[0]}#{old}")
    await expect(chat.page.locator(".continuation")).to_be_visible(timeout=WAIT_MS)
    found.append(await accessibility_violations(chat.page))
    assert found == [[], [], []]


async def test_a_thumb_gets_from_one_to_the_other(new_chat: NewChat, shared_server: SharedServer) -> None:
    chat = await open_conversation(new_chat, shared_server, "one", "two", "three", **PHONE)
    old = chat.session_id
    await chat.message.fill("/summarise")
    await chat.message.press("Enter")
    await expect(summary_block(chat)).to_have_count(1, timeout=WAIT_MS)
    assert await undersized_targets(chat.page) == []
    await chat.message.fill("/continue")
    await chat.message.press("Enter")
    await expect(chat.log.get_by_text("Continued from")).to_be_visible(timeout=WAIT_MS)
    assert await undersized_targets(chat.page) == []
    await chat.log.get_by_role("link").first.tap()
    await expect(chat.page).to_have_url(re.compile(f"#{old}$"), timeout=WAIT_MS)
    await expect(chat.page.locator(".continuation")).to_be_visible(timeout=WAIT_MS)
    assert await undersized_targets(chat.page) == []
