"""Words in all conversations, and in one that is longer than what is loaded of it."""

import json
import re

from playwright.async_api import expect

from tests.browser.conftest import NewChat
from tests.support.api_client import api_client
from tests.support.browser_driver import WAIT_MS, ChatPage, SharedServer

TURNS = 150
EARLY = 7


async def test_a_search_shows_where_it_was_said_and_leads_there(chat: ChatPage) -> None:
    await chat.send("the heron stands in shallow water")
    await chat.wait_for_answers()
    there = chat.session_id
    await chat.page.get_by_role("link", name="New conversation").click()
    await chat.page.get_by_role("button", name="Search all conversations").click()
    sheet = chat.page.get_by_role("dialog", name="Search all conversations")
    await sheet.get_by_role("searchbox").fill("heron")
    hit = sheet.get_by_role("listitem").filter(has_text="shallow water").first
    await expect(hit.locator("mark")).to_have_text("heron", timeout=WAIT_MS)
    await hit.get_by_role("button").click()
    # Looked for first: it is marked for a moment only.
    await expect(chat.log.locator(".found")).to_contain_text("heron", timeout=WAIT_MS)
    await expect(sheet).to_have_count(0)
    await chat.wait_for_text("the heron stands")
    assert chat.session_id == there
    await chat.page.get_by_role("button", name="Search all conversations").click()
    await sheet.get_by_role("searchbox").fill("nobodyeversaidthis")
    await expect(sheet).to_contain_text("Nothing found.", timeout=WAIT_MS)


async def test_find_reaches_what_is_not_loaded_yet(new_chat: NewChat, shared_server: SharedServer) -> None:
    async with api_client(shared_server.server.address) as api:
        session = await api.create_session(title="A long one")
        for number in range(TURNS):
            await api.send(session, f"bittern at {number}" if number == EARLY else f"nothing at {number}")
        await api.wait_for_field(f"/api/sessions/{session}", "status", "idle")
    chat = await new_chat(at=session)
    await chat.wait_for_text(f"nothing at {TURNS - 1}")
    assert "bittern" not in (await chat.log.text_content() or "")
    await chat.message.press("Control+f")
    field = chat.page.get_by_role("searchbox", name="Find in this conversation")
    await expect(field).to_be_focused()
    await field.fill("bittern")
    await expect(chat.log.locator(".found")).to_contain_text(f"bittern at {EARLY}", timeout=WAIT_MS)
    # The question, and the answer that repeats it.
    count = chat.page.get_by_role("search").get_by_role("status")
    await expect(count).to_have_text("2 of 2", timeout=WAIT_MS)
    await expect(chat.log.get_by_text(f"bittern at {EARLY}").last).to_be_in_viewport()
    await field.press("Enter")
    await expect(count).to_have_text("1 of 2", timeout=WAIT_MS)
    await field.press("Escape")
    await expect(field).to_have_count(0)


MARKED = """name => [...(CSS.highlights.get(name) ?? [])].map(range => range.toString())"""
IN_VIEW = """() => {
    const [range] = CSS.highlights.get('found-one') ?? [];
    const log = document.querySelector('.transcript').getBoundingClientRect();
    const box = range?.getBoundingClientRect();
    return box && box.height > 0 && box.top >= log.top && box.bottom <= log.bottom && box.right <= log.right;
}"""


LIES = """() => [...CSS.highlights.get('found-one')][0].getBoundingClientRect().top
    + document.querySelector('.transcript').scrollTop"""


async def test_find_marks_the_words_and_goes_from_one_to_the_next(chat: ChatPage) -> None:
    await chat.send("one Dunlin here, dunlins there, and a DUNLIN")
    await chat.wait_for_answers()
    await chat.send("write up")
    await chat.wait_for_answers(2)
    await chat.message.press("Control+f")
    field = chat.page.get_by_role("searchbox", name="Find in this conversation")
    count = chat.page.get_by_role("search").get_by_role("status")
    await field.fill("dunlin")
    # The question and the answer that repeats it hold it three times each.
    await expect(count).to_have_text("6 of 6", timeout=WAIT_MS)
    assert await chat.page.evaluate(MARKED, "found") == ["Dunlin", "dunlin", "DUNLIN"] * 2
    assert await chat.page.evaluate(MARKED, "found-one") == ["DUNLIN"]
    drawn = await chat.log.inner_html()
    for count_text, word in (
        ("5 of 6", "dunlin"),
        ("4 of 6", "Dunlin"),
        ("3 of 6", "DUNLIN"),
    ):
        await field.press("Enter")
        await expect(count).to_have_text(count_text, timeout=WAIT_MS)
        await chat.page.wait_for_function(
            "word => [...(CSS.highlights.get('found-one') ?? [])].join() === word", arg=word
        )
    await chat.button("Next match, further down").click()
    await expect(count).to_have_text("4 of 6", timeout=WAIT_MS)
    await chat.page.wait_for_function(IN_VIEW)
    await field.press("Shift+Enter")
    await expect(count).to_have_text("5 of 6", timeout=WAIT_MS)
    # No element is made for it: what is read stays as it was drawn, and nothing is left behind.
    assert "<mark" not in drawn
    await field.press("Escape")
    await expect(field).to_have_count(0)
    await chat.page.wait_for_function("() => CSS.highlights.size === 0")


async def test_each_arrow_of_find_leads_where_it_points(chat: ChatPage) -> None:
    for turn in range(3):
        await chat.send(f"pintail {turn}")
        await chat.wait_for_answers(turn + 1)
    await chat.message.press("Control+f")
    bar = chat.page.get_by_role("search")
    await bar.get_by_role("searchbox").fill("pintail")
    await expect(bar.get_by_role("status")).to_have_text("6 of 6", timeout=WAIT_MS)

    async def lies(count_text: str) -> float:
        """How far down in the conversation the match is that is counted so."""
        await expect(bar.get_by_role("status")).to_have_text(count_text, timeout=WAIT_MS)
        await chat.page.wait_for_function(IN_VIEW)
        return float(await chat.page.evaluate(LIES))

    up, down = bar.get_by_role("button").filter(has_text="↑"), bar.get_by_role("button").filter(has_text="↓")
    await expect(up).to_have_attribute("title", re.compile("further up"))
    await expect(down).to_have_attribute("title", re.compile("further down"))
    last = await lies("6 of 6")
    await up.click()
    higher = await lies("5 of 6")
    assert higher < last
    await up.click()
    assert await lies("4 of 6") < higher
    await down.click()
    assert await lies("5 of 6") == higher


async def test_a_word_in_the_middle_of_a_long_message_is_brought_into_view(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    words = " ".join(f"plain{number}" for number in range(600))
    async with api_client(shared_server.server.address) as api:
        session = await api.create_session(title="A long message")
        await api.wait_for_run((await api.send(session, f"{words} whimbrel {words}"))["run_id"])
    chat = await new_chat(at=session)
    await chat.wait_for_answers()
    await chat.message.press("Control+f")
    await chat.page.get_by_role("searchbox").fill("whimbrel")
    await chat.page.wait_for_function(IN_VIEW)
    assert await chat.page.evaluate(MARKED, "found-one") == ["whimbrel"]


async def test_find_opens_what_hides_the_words(chat: ChatPage) -> None:
    """A call among others in one line, and far down in what it printed; and what a model thought."""
    calls = [["shell", {"command": "seq 1 200; echo cur$(echo lew)"}], ["list_files", {}]]
    await chat.send(f"uses {json.dumps(calls)}")
    await chat.allow.click()
    await chat.wait_for_answers()
    group = chat.log.locator(".tools > .fold").first
    await expect(group).to_have_attribute("aria-expanded", "false")
    await chat.message.press("Control+f")
    field = chat.page.get_by_role("searchbox", name="Find in this conversation")
    await field.fill("curlew")
    await chat.page.wait_for_function(IN_VIEW)
    await expect(group).to_have_attribute("aria-expanded", "true")
    assert await chat.page.evaluate(MARKED, "found-one") == ["curlew"]
    await chat.send("hm")
    await chat.wait_for_answers(2)
    thought = chat.log.locator("details.thinking").last
    await field.fill("hm")
    count = chat.page.get_by_role("search").get_by_role("status")
    await expect(count).to_have_text("3 of 3", timeout=WAIT_MS)
    await expect(thought).not_to_have_attribute("open", "")
    await field.press("Enter")
    await expect(thought).to_have_attribute("open", "", timeout=WAIT_MS)
    await chat.page.wait_for_function(IN_VIEW)
    assert await chat.page.evaluate(MARKED, "found-one") == ["Hm"]
