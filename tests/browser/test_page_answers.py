"""An answer as it is written, and the page that is loaded again in the middle of it."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.conftest import Guest
from tests.support.api_client import WRITTEN_UP, Speaker
from tests.support.browser_driver import PHONE, WAIT_MS, Chat, tab_to

COUNT = 300
NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', { value: undefined })"
"""As browsers have it for pages of another machine without encryption."""
FORMULAS = (
    r"The integral $\int e^{-x^2}\,dx$, or e^{-x^2}\,dx by itself, and \(a^2+b^2\) of \[x_1 * x_2 * x_3\]",
    "$$\na_1 \\\\\n- b_1\n$$",
    r"For $5 and **more** for $10, \*not strong\* and \_so\_.",
)


async def test_an_answer_goes_on_through_a_reload_with_nothing_missing_and_nothing_twice(
    chat: Chat, speaker: Speaker
) -> None:
    with speaker.pausing(COUNT // 2):
        await chat.say(f"count {COUNT}")
        await chat.counts_to(30)
        await expect(chat.log.get_by_role("img", name="Writing…")).to_be_visible(timeout=WAIT_MS)
        before = await chat.counted()
        await chat.page.reload()
        await chat.counts_to(before[-1])
        again = await chat.counted()
        assert again == list(range(len(again)))
        assert len(before) <= len(again) < COUNT
    await chat.answered()
    assert await chat.counted() == list(range(COUNT))


async def test_what_is_read_after_a_reload_is_what_was_read_before_to_the_letter(chat: Chat) -> None:
    await chat.say("write up")
    await chat.answered()
    await chat.say("look 3")
    await chat.answered(2)
    await chat.say("run sleep 1.2; echo done")
    await chat.asks()
    await chat.allow.click()
    await chat.answered(3)
    await chat.say("thank you")
    await chat.answered(4)
    await expect(chat.log.get_by_role("cell", name="340")).to_be_visible(timeout=WAIT_MS)
    await chat.unfold()
    before = await chat.log.inner_text()
    assert [
        words for words in ("third.py", "sleep 1.2", "Thinking", "Listed 3 folders") if words not in before
    ] == []
    await chat.page.reload()
    await chat.answered(4)
    await chat.unfold()
    assert await chat.log.inner_text() == before


async def test_formulas_keep_every_sign_and_marks_that_are_escaped_do_not_show_it(
    chat: Chat, tmp_path: Path
) -> None:
    (tmp_path / "formulas").write_text("\n\n".join(FORMULAS))
    await chat.say(f"run cat {tmp_path}/formulas")
    await chat.allow.click()
    await chat.answered()
    answer = chat.turns.get_by_role("article", name="Assistant")
    for each in FORMULAS[:2]:
        assert each in await answer.inner_text()
    await expect(answer).to_contain_text("For $5 and more for $10, *not strong* and _so_.")
    await expect(answer.locator("strong")).to_have_text("more")


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desk", "phone"])
async def test_questions_and_answers_are_copied_as_they_were_written(
    guest: Guest, options: dict[str, Any]
) -> None:
    chat = await guest(permissions=["clipboard-read", "clipboard-write"], **options)
    read = "navigator.clipboard.readText()"
    await chat.say("write up\n\n**now**")
    await chat.answered()
    await chat.turns.get_by_role("button", name="Copy this message").click()
    await chat.page.wait_for_function(f"async () => await {read} === 'write up\\n\\n**now**'")
    copy = chat.turns.get_by_role("button", name="Copy this answer")
    await tab_to(chat.page, copy)
    await chat.page.keyboard.press("Enter")
    await expect(copy.get_by_role("status")).to_have_text("Copied")
    assert await chat.page.evaluate(read) == WRITTEN_UP.strip()


async def test_an_answer_is_copied_where_the_browser_has_no_clipboard_for_the_page(guest: Guest) -> None:
    chat = await guest()
    await chat.page.evaluate(NO_CLIPBOARD)
    await chat.say("just *these* words")
    await chat.answered()
    copy = chat.turns.get_by_role("button", name="Copy this answer")
    await copy.click()
    await expect(copy.get_by_role("status")).to_have_text("Copied")
    await expect(copy).to_be_focused()
    await chat.message.press("Control+v")
    await expect(chat.message).to_have_value("just *these* words")


async def test_a_link_in_an_answer_leaves_the_conversation_open(chat: Chat) -> None:
    await chat.say("see [the notes](#notes)")
    await chat.answered()
    before = chat.page.url
    async with chat.visitor.context.expect_page() as opened:
        await chat.log.get_by_role("link", name="the notes").click()
    await (await opened.value).close()
    assert chat.page.url == before
