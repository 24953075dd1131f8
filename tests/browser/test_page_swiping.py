"""On a phone a finger brings the list and the details, and whatever else a finger does still does that."""

import json
import re
import time

from playwright.async_api import Locator, Page, expect

from tests.browser.conftest import NewChat
from tests.support.browser_driver import PHONE, WAIT_MS, ChatPage

MOVES = 6
STEP_S = 0.02
LONG_LINE = f"words = '{'many words ' * 20}'"


async def swipe(page: Page, start: tuple[float, float], end: tuple[float, float]) -> None:
    """Move a finger from `start` to `end` in MOVES * STEP_S by the page's clock, however long that takes."""
    line = await page.context.new_cdp_session(page)
    (x, y), (to_x, to_y) = start, end
    began_s = time.time()

    async def touch(kind: str, step: int, *points: dict[str, float]) -> None:
        at_s = began_s + step * STEP_S
        event = {"type": kind, "touchPoints": list(points), "timestamp": at_s}
        await line.send("Input.dispatchTouchEvent", event)

    await touch("touchStart", 0, {"x": x, "y": y})
    for step in range(1, MOVES + 1):
        share = step / MOVES
        await touch("touchMove", step, {"x": x + (to_x - x) * share, "y": y + (to_y - y) * share})
    await touch("touchEnd", MOVES)
    await line.detach()


async def swipe_right(page: Page, y: float = 300) -> None:
    await swipe(page, (90, y), (300, y + 10))


async def swipe_left(page: Page, y: float = 300) -> None:
    await swipe(page, (300, y), (90, y + 10))


def conversation_list(chat: ChatPage) -> Locator:
    return chat.page.get_by_role("navigation", name="Conversations")


def details_panel(chat: ChatPage) -> Locator:
    return chat.page.get_by_role("complementary", name="Details")


async def test_the_list_lies_to_the_left_and_the_details_to_the_right(new_chat: NewChat) -> None:
    chat = await new_chat(**PHONE)
    await chat.send("hello there")
    await chat.wait_for_answers()
    await swipe_right(chat.page)
    await expect(conversation_list(chat)).to_be_visible()
    await swipe_left(chat.page)
    await expect(conversation_list(chat)).not_to_be_visible()
    await swipe_left(chat.page)
    await expect(details_panel(chat)).to_be_visible(timeout=WAIT_MS)
    await swipe_right(chat.page)
    await expect(details_panel(chat)).to_have_count(0)
    await expect(conversation_list(chat)).not_to_be_visible()
    # The same by buttons, and beside it is the way back.
    await chat.button("Details").tap()
    await expect(details_panel(chat)).to_be_visible()
    await chat.page.touchscreen.tap(15, 400)
    await expect(details_panel(chat)).to_have_count(0)
    # A new conversation has no details yet, and still a list.
    await chat.page.evaluate("location.hash = ''")
    await expect(chat.button("Details")).to_have_count(0)
    await swipe_left(chat.page)
    await swipe_right(chat.page)
    await expect(conversation_list(chat)).to_be_visible()
    await expect(details_panel(chat)).to_have_count(0)


async def test_scrolling_selecting_and_writing_bring_nothing(new_chat: NewChat) -> None:
    chat = await new_chat(**PHONE)
    await chat.send("hello there")
    await chat.wait_for_answers()
    page = chat.page
    await swipe(page, (200, 200), (290, 420))
    await swipe(page, (4, 300), (250, 300))
    box = await chat.message.bounding_box()
    assert box is not None
    await swipe_right(page, box["y"] + 20)
    await chat.log.get_by_role("article", name="Assistant").evaluate(
        "node => getSelection().selectAllChildren(node)"
    )
    await swipe_right(page)
    await swipe_left(page)
    await page.evaluate("new Promise(requestAnimationFrame)")
    await expect(conversation_list(chat)).not_to_be_visible()
    await expect(details_panel(chat)).to_have_count(0)
    await page.evaluate("getSelection().removeAllRanges()")
    await swipe_right(page)
    await expect(conversation_list(chat)).to_be_visible()


async def test_what_scrolls_sideways_scrolls(new_chat: NewChat) -> None:
    chat = await new_chat(**PHONE)
    await chat.send(f"use write_file {json.dumps({'path': 'swiped.py', 'content': LONG_LINE})}")
    await chat.allow.tap()
    await chat.wait_for_answers()
    await chat.button("Details of this answer").tap()
    await details_panel(chat).get_by_role("button", name=re.compile("write_file")).tap()
    code = details_panel(chat).locator(".diff")
    await expect(code).to_be_visible(timeout=WAIT_MS)
    box = await code.bounding_box()
    assert box is not None
    y = box["y"] + box["height"] / 2
    await swipe(chat.page, (300, y), (120, y))
    await expect(code).to_have_js_property("scrollTop", 0)
    await chat.page.wait_for_function("() => document.querySelector('.inspector .diff').scrollLeft > 50")
    await swipe(chat.page, (120, y), (340, y))
    await chat.page.wait_for_function("() => document.querySelector('.inspector .diff').scrollLeft < 50")
    await expect(details_panel(chat)).to_be_visible()
    await swipe_right(chat.page, 700)
    await expect(details_panel(chat)).to_have_count(0)


async def test_nothing_slides_for_those_who_do_not_want_it(new_chat: NewChat) -> None:
    names = {}
    for motion in ("no-preference", "reduce"):
        chat = await new_chat(reduced_motion=motion, **PHONE)
        await chat.send("hello there")
        await chat.wait_for_answers()
        await chat.button("Details").tap()
        await expect(details_panel(chat)).to_be_visible(timeout=WAIT_MS)
        names[motion] = await details_panel(chat).evaluate("node => getComputedStyle(node).animationName")
    assert names == {"no-preference": "from-right", "reduce": "none"}
