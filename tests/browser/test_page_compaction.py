"""Long conversations: older messages summarised, going on in a new conversation, what it costs and holds."""

import re
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.browser.conftest import Guest
from tests.support.api_client import TITLE, talking
from tests.support.browser_driver import PHONE, WAIT_MS, Chat, Inn, too_small, violations

SUMMARY = TITLE
"""What the speaker says to whoever asks on the side."""


async def talk(guest: Guest, inn: Inn, *said: str, **options: Any) -> Chat:
    """A conversation in which all of that was said and answered."""
    async with talking(inn.server.address) as api:
        session = await api.begin(title="Painting the door")
        for text in said:
            await api.done((await api.say(session, text))["run_id"])
    chat = await guest(session, **options)
    await chat.answered(len(said))
    return chat


def line(chat: Chat) -> Locator:
    """Where older messages were summarised."""
    return chat.log.locator("details.summarised")


async def choose(chat: Chat, words: str) -> None:
    """Do something by Ctrl+K."""
    await chat.page.keyboard.press("Control+k")
    box = chat.page.get_by_role("combobox")
    await box.fill(words)
    await box.press("Enter")


async def test_older_messages_are_summarised_and_stay_readable(guest: Guest, inn: Inn) -> None:
    chat = await talk(guest, inn, "one", "two", "three", "four")
    await choose(chat, "Summarise older")
    await expect(chat.told).to_contain_text("Older messages were summarised", timeout=WAIT_MS)
    for _ in range(2):
        await expect(line(chat)).to_have_count(1)
        # After the second of four: the last two are kept as they are.
        before = await line(chat).evaluate("each => each.previousElementSibling.innerText")
        after = await line(chat).evaluate("each => each.nextElementSibling.innerText")
        assert "two" in before and "three" in after
        await expect(line(chat).get_by_text(SUMMARY)).to_be_hidden()
        await line(chat).get_by_text("Older messages were summarised").click()
        await expect(line(chat).get_by_text(SUMMARY)).to_be_visible()
        await chat.reads("one")
        await chat.page.reload()
        await chat.answered(4)
    # Whatever stood for a message that is undone stands no more.
    await chat.turns.nth(1).get_by_role("button", name="Undo from here").click()
    await expect(line(chat)).to_have_count(0, timeout=WAIT_MS)


async def test_a_slash_and_the_menu_summarise_too(guest: Guest, inn: Inn) -> None:
    chat = await talk(guest, inn, "one", "two", "three")
    await chat.message.fill("/summarise")
    await chat.message.press("Enter")
    await expect(line(chat)).to_have_count(1, timeout=WAIT_MS)
    other = await talk(guest, inn, "one", "two", "three")
    row = other.page.get_by_role("navigation").locator("[aria-current=page]")
    await row.get_by_role("button", name="More:").click()
    await other.page.get_by_role("menuitem", name="Summarise older messages").click()
    await expect(line(other)).to_have_count(1, timeout=WAIT_MS)


async def test_there_may_be_nothing_to_summarise(guest: Guest, inn: Inn) -> None:
    chat = await talk(guest, inn, "one")
    chat.visitor.excuse(r"409 \(Conflict\)")
    await choose(chat, "Summarise older")
    await expect(chat.told).to_contain_text("nothing to summarise", timeout=WAIT_MS)
    await expect(line(chat)).to_have_count(0)


async def test_a_conversation_goes_on_in_a_new_one_and_both_say_so(guest: Guest, inn: Inn) -> None:
    chat = await talk(guest, inn, "one", "two")
    old = chat.session
    watching = await guest(old)
    await watching.answered(2)
    await choose(chat, "Continue in a new")
    await expect(chat.page).not_to_have_url(re.compile(f"#{old}$"), timeout=WAIT_MS)
    new = chat.session
    await chat.reads(SUMMARY)
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
        await each.reads("where are we?")
        await each.answered()
    # And back again, also for someone whose list does not have it any more.
    await chat.page.reload()
    await chat.answered()
    await chat.log.get_by_role("link").first.click()
    await expect(chat.page).to_have_url(re.compile(f"#{old}$"), timeout=WAIT_MS)
    await chat.reads("two")
    await expect(chat.page.get_by_role("heading", name="Painting the door")).to_be_visible(timeout=WAIT_MS)
    await expect(chat.log).not_to_contain_text("where are we?")
    there = chat.page.locator(".continuation").get_by_role("link")
    await there.click()
    await expect(chat.page).to_have_url(re.compile(f"#{new}$"), timeout=WAIT_MS)


async def test_a_conversation_that_is_worked_on_stays_where_it_is(guest: Guest, inn: Inn) -> None:
    chat = await talk(guest, inn, "one", "two")
    chat.visitor.excuse(r"409 \(Conflict\)")
    await chat.say("hold on")
    await expect(chat.log.get_by_role("img", name="Writing…")).to_be_visible(timeout=WAIT_MS)
    old = chat.session
    await choose(chat, "Continue in a new")
    await expect(chat.told).to_contain_text("An answer is under way.", timeout=WAIT_MS)
    assert chat.session == old
    await chat.button("Stop").click()
    await choose(chat, "Continue in a new")
    await expect(chat.log.get_by_text("Continued from")).to_be_visible(timeout=WAIT_MS)


async def test_a_conversation_that_only_came_after_another_does_not_say_so(chat: Chat) -> None:
    await chat.say("one")
    await chat.answered()
    await chat.page.get_by_role("link", name="New conversation").click()
    await chat.say("two")
    await chat.answered()
    await expect(chat.log).not_to_contain_text("Continued from")


async def test_the_foot_tells_how_full_the_window_is_and_what_is_known_of_the_price(
    guest: Guest, inn: Inn
) -> None:
    chat = await talk(guest, inn, "one", "two", "three")
    foot = chat.page.locator(".composer .usage")
    ring = foot.get_by_role("img", name=re.compile(r"^Context: 19 of [\d,]+ tokens \(1%\)"))
    await expect(ring).to_be_visible(timeout=WAIT_MS)
    await expect(foot).to_contain_text("free")
    footer = chat.turns.last.locator(".footer")
    await expect(footer).to_contain_text("small · 19 in (16 cached), 10 out · free")
    # What the last answer was sent says nothing about the next, once older messages are summarised.
    await choose(chat, "Summarise older")
    await expect(line(chat)).to_have_count(1, timeout=WAIT_MS)
    await expect(ring).to_have_count(0)
    await chat.say("four")
    await chat.answered(4)
    await expect(ring).to_be_visible(timeout=WAIT_MS)
    await expect(chat.turns.last.locator(".footer")).to_contain_text("(16 cached)")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_wrong_with_it(scheme: Any, guest: Guest, inn: Inn) -> None:
    chat = await talk(guest, inn, "one", "two", "three", color_scheme=scheme)
    await choose(chat, "Summarise older")
    await line(chat).get_by_text("Older messages were summarised").click()
    found = [await violations(chat.page)]
    old = chat.session
    await choose(chat, "Continue in a new")
    await expect(chat.log.get_by_text("Continued from")).to_be_visible(timeout=WAIT_MS)
    found.append(await violations(chat.page))
    await chat.page.goto(f"{chat.page.url.partition('#')[0]}#{old}")
    await expect(chat.page.locator(".continuation")).to_be_visible(timeout=WAIT_MS)
    found.append(await violations(chat.page))
    assert found == [[], [], []]


async def test_a_thumb_gets_from_one_to_the_other(guest: Guest, inn: Inn) -> None:
    chat = await talk(guest, inn, "one", "two", "three", **PHONE)
    old = chat.session
    await chat.message.fill("/summarise")
    await chat.message.press("Enter")
    await expect(line(chat)).to_have_count(1, timeout=WAIT_MS)
    assert await too_small(chat.page) == []
    await chat.message.fill("/continue")
    await chat.message.press("Enter")
    await expect(chat.log.get_by_text("Continued from")).to_be_visible(timeout=WAIT_MS)
    assert await too_small(chat.page) == []
    await chat.log.get_by_role("link").first.tap()
    await expect(chat.page).to_have_url(re.compile(f"#{old}$"), timeout=WAIT_MS)
    await expect(chat.page.locator(".continuation")).to_be_visible(timeout=WAIT_MS)
    assert await too_small(chat.page) == []
