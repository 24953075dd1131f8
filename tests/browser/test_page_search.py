"""Words in all conversations, and in one that is longer than what is loaded of it."""

from playwright.async_api import expect

from tests.acceptance.talking import talking
from tests.browser.conftest import Guest
from tests.browser.driving import WAIT_MS, Chat, Inn

TURNS = 150
EARLY = 7


async def test_a_search_shows_where_it_was_said_and_leads_there(chat: Chat) -> None:
    await chat.say("the heron stands in shallow water")
    await chat.answered()
    there = chat.session
    await chat.page.get_by_role("link", name="New conversation").click()
    await chat.page.get_by_role("button", name="Search all conversations").click()
    sheet = chat.page.get_by_role("dialog", name="Search all conversations")
    await sheet.get_by_role("searchbox").fill("heron")
    hit = sheet.get_by_role("listitem").filter(has_text="shallow water").first
    await expect(hit.locator("mark")).to_have_text("heron", timeout=WAIT_MS)
    await hit.get_by_role("button").click()
    await expect(sheet).to_have_count(0)
    await chat.reads("the heron stands")
    assert chat.session == there
    await expect(chat.log.locator(".found")).to_contain_text("heron", timeout=WAIT_MS)
    await chat.page.get_by_role("button", name="Search all conversations").click()
    await sheet.get_by_role("searchbox").fill("nobodyeversaidthis")
    await expect(sheet).to_contain_text("Nothing found.", timeout=WAIT_MS)


async def test_find_reaches_what_is_not_loaded_yet(guest: Guest, inn: Inn) -> None:
    async with talking(inn.server.address) as api:
        session = await api.begin(title="A long one")
        for number in range(TURNS):
            await api.say(session, f"bittern at {number}" if number == EARLY else f"nothing at {number}")
        await api.until(f"/api/sessions/{session}", "status", "idle")
    chat = await guest(at=session)
    await chat.reads(f"nothing at {TURNS - 1}")
    assert "bittern" not in (await chat.log.text_content() or "")
    await chat.message.press("Control+f")
    field = chat.page.get_by_role("searchbox", name="Find in this conversation")
    await expect(field).to_be_focused()
    await field.fill("bittern")
    # The question, and the answer that repeats it.
    await expect(chat.page.get_by_role("search")).to_contain_text("1 of 2", timeout=WAIT_MS)
    found = chat.log.locator(".found")
    await expect(found).to_contain_text(f"bittern at {EARLY}", timeout=WAIT_MS)
    await expect(found).to_be_in_viewport()
    await field.press("Enter")
    await expect(chat.page.get_by_role("search")).to_contain_text("2 of 2", timeout=WAIT_MS)
    await field.press("Escape")
    await expect(field).to_have_count(0)
