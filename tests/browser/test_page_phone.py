"""The page on a small screen, and in the dark."""

from playwright.async_api import Locator, expect

from tests.browser.conftest import Guest
from tests.browser.driving import PHONE, WAIT_MS, too_small


async def _width(part: Locator) -> float:
    box = await part.bounding_box()
    assert box is not None
    return box["width"]


async def _top(part: Locator) -> float:
    box = await part.bounding_box()
    assert box is not None
    return box["y"]


async def test_a_phone_shows_one_column_and_the_list_opens_and_closes(guest: Guest) -> None:
    chat = await guest(**PHONE)
    await chat.say("hello there")
    await chat.answered()
    page = chat.page
    listed = page.get_by_role("navigation", name="Conversations")
    await expect(listed).not_to_be_visible()
    assert await _width(page.get_by_role("main")) == 390
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    again, more = chat.button("Try again"), chat.button("Details of this answer")
    assert await _top(again) == await _top(more), "side by side"
    assert await _top(page.get_by_role("main").get_by_role("heading").first) >= 4
    assert await too_small(chat.page) == []
    burger = page.get_by_role("button", name="Conversations")
    await burger.tap()
    await expect(listed).to_be_visible()
    assert await too_small(chat.page) == []
    # Pressed beside it, it closes; so it does when a conversation is chosen.
    await page.touchscreen.tap(385, 400)
    await expect(listed).not_to_be_visible()
    await burger.tap()
    await listed.get_by_role("link", name="A fitting title").first.tap()
    await expect(listed).not_to_be_visible()


async def test_a_question_is_within_reach_of_a_thumb(guest: Guest) -> None:
    chat = await guest(**PHONE)
    await chat.say("write up")
    await chat.answered()
    await chat.say("run echo from the phone")
    await chat.asks()
    await expect(chat.allow).to_be_in_viewport(ratio=1)
    await expect(chat.question.locator("kbd").first).to_be_hidden()
    await expect(chat.deny).to_be_in_viewport(ratio=1)
    await expect(chat.message).to_be_in_viewport(ratio=1)
    assert await too_small(chat.page) == []
    box = await chat.allow.bounding_box()
    assert box is not None
    assert box["y"] > 844 / 2
    await chat.allow.tap()
    await chat.reads("It said: from the phone")
    await chat.say("count 3000")
    stop = chat.button("Stop")
    await expect(stop).to_be_in_viewport(ratio=1, timeout=WAIT_MS)
    await stop.tap()
    await chat.reads("Stopped.")


async def test_the_page_is_dark_where_the_system_is(guest: Guest) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        chat = await guest(color_scheme=scheme)
        shades[scheme] = await chat.page.evaluate(
            "['backgroundColor', 'color'].map(name => "
            "Math.max(...getComputedStyle(document.body)[name].match(/\\d+/g).slice(0, 3)))"
        )
    (light_back, light_text), (dark_back, dark_text) = shades["light"], shades["dark"]
    assert light_back > 230 > 60 > light_text
    assert dark_back < 60 < 200 < dark_text
