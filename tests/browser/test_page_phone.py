"""The page on a small screen, and in the dark."""

from pathlib import Path

from playwright.async_api import Locator, expect

from tests.browser.conftest import NewChat
from tests.support.browser_driver import PHONE, WAIT_MS, undersized_targets

COVERED = """pre => {
    const button = (pre.closest(".code") ?? pre).querySelector("button").getBoundingClientRect();
    const lines = pre.querySelector("code").getClientRects()[0];
    const shown = Math.min(lines.right, pre.getBoundingClientRect().right);
    return button.left < shown && button.top < lines.bottom && button.bottom > lines.top;
}"""
ONE_LINE = "```sh\n{}\n```"
SCROLLS_DOWN = "pre => pre.scrollHeight > pre.clientHeight || pre.offsetHeight - pre.clientHeight > 1"
# Browsers without a screen have no bars of their own.
BARS = """() => {
    const style = new CSSStyleSheet();
    style.replaceSync("::-webkit-scrollbar { width: 15px; height: 15px; background: gray }");
    document.adoptedStyleSheets = [style];
}"""
EDGES = "part => [part.getBoundingClientRect().left, part.getBoundingClientRect().right]"


async def _width(part: Locator) -> float:
    box = await part.bounding_box()
    assert box is not None
    return box["width"]


async def _top(part: Locator) -> float:
    box = await part.bounding_box()
    assert box is not None
    return box["y"]


async def test_a_phone_shows_one_column_and_the_list_opens_and_closes(new_chat: NewChat) -> None:
    chat = await new_chat(**PHONE)
    await chat.send("hello there")
    await chat.wait_for_answers()
    page = chat.page
    listed = page.get_by_role("navigation", name="Conversations")
    await expect(listed).not_to_be_visible()
    assert await _width(page.get_by_role("main")) == 390
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    again, more = chat.button("Try again"), chat.button("Details of this answer")
    assert await _top(again) == await _top(more), "side by side"
    assert await _top(page.get_by_role("main").get_by_role("heading").first) >= 4
    assert await undersized_targets(chat.page) == []
    await page.get_by_role("link", name="New conversation").tap()
    await expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible()
    await page.go_back()
    await chat.wait_for_answers()
    burger = page.get_by_role("button", name="Conversations")
    await burger.tap()
    await expect(listed).to_be_visible()
    assert await undersized_targets(chat.page) == []
    # Pressed beside it, it closes; so it does when a conversation is chosen.
    await page.touchscreen.tap(385, 400)
    await expect(listed).not_to_be_visible()
    await burger.tap()
    await listed.get_by_role("link", name="A fitting title").first.tap()
    await expect(listed).not_to_be_visible()


async def test_a_question_is_within_reach_of_a_thumb(new_chat: NewChat) -> None:
    chat = await new_chat(**PHONE)
    await chat.send("write up")
    await chat.wait_for_answers()
    await chat.send("run echo from the phone")
    await chat.wait_for_approval()
    await expect(chat.allow).to_be_in_viewport(ratio=1)
    await expect(chat.question.locator("kbd").first).to_be_hidden()
    await expect(chat.deny).to_be_in_viewport(ratio=1)
    await expect(chat.message).to_be_in_viewport(ratio=1)
    assert await undersized_targets(chat.page) == []
    box = await chat.allow.bounding_box()
    assert box is not None
    assert box["y"] > 844 / 2
    await chat.allow.tap()
    await chat.wait_for_text("It said: from the phone")
    await chat.send("count 3000")
    stop = chat.button("Stop")
    await expect(stop).to_be_in_viewport(ratio=1, timeout=WAIT_MS)
    await stop.tap()
    await chat.wait_for_text("Stopped.")


async def test_the_button_that_copies_code_covers_none_of_it(new_chat: NewChat, tmp_path: Path) -> None:
    chat = await new_chat(**PHONE)
    (tmp_path / "code").write_text(
        "this:\n\n" + ONE_LINE.format("x") + "\n\n" + ONE_LINE.format("word " * 40) + "\n\n"
    )
    await chat.send(f"run cat {tmp_path}/code")
    await chat.allow.click()
    await chat.wait_for_answers()
    blocks = chat.log.locator(".markdown pre")
    await expect(blocks).to_have_count(2)
    for block in await blocks.all():
        assert not await block.evaluate(COVERED)
    assert not await blocks.first.evaluate(SCROLLS_DOWN)
    assert await undersized_targets(chat.page) == []


async def test_messages_and_composer_line_up_beside_a_scroll_bar(new_chat: NewChat) -> None:
    chat = await new_chat(viewport={"width": 1280, "height": 400})
    await chat.page.evaluate(BARS)
    await chat.send("hello there")
    await chat.wait_for_answers()
    before = await chat.turns.first.evaluate(EDGES)
    await chat.send("count 400")
    await chat.wait_for_answers(2)
    assert await chat.log.evaluate(
        "log => log.scrollHeight > log.clientHeight && log.offsetWidth > log.clientWidth"
    )
    assert await chat.turns.first.evaluate(EDGES) == before
    assert await chat.message.evaluate(EDGES) == before


async def test_the_page_is_dark_where_the_system_is(new_chat: NewChat) -> None:
    shades = {}
    for scheme in ("light", "dark"):
        chat = await new_chat(color_scheme=scheme)
        shades[scheme] = await chat.page.evaluate(
            "['backgroundColor', 'color'].map(name => "
            "Math.max(...getComputedStyle(document.body)[name].match(/\\d+/g).slice(0, 3)))"
        )
    (light_back, light_text), (dark_back, dark_text) = shades["light"], shades["dark"]
    assert light_back > 230 > 60 > light_text
    assert dark_back < 60 < 200 < dark_text
