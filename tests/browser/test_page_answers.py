"""An answer as it is written, and the page that is loaded again in the middle of it."""

from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.conftest import NewChat
from tests.support.api_client import MARKDOWN_ANSWER, ScriptedModelServer
from tests.support.browser_driver import PHONE, WAIT_MS, ChatPage, focus_with_tab

COUNT = 300
NO_CLIPBOARD = "Object.defineProperty(navigator, 'clipboard', { value: undefined })"
"""As browsers have it for pages of another machine without encryption."""
FORMULAS = (
    r"The integral $\int e^{-x^2}\,dx$, or e^{-x^2}\,dx by itself, and \(a^2+b^2\) of \[x_1 * x_2 * x_3\]",
    "$$\na_1 \\\\\n- b_1\n$$",
    r"For $5 and **more** for $10, \*not strong\* and \_so\_.",
)


async def test_an_answer_goes_on_through_a_reload_with_nothing_missing_and_nothing_twice(
    chat: ChatPage, speaker: ScriptedModelServer
) -> None:
    with speaker.pausing_count(COUNT // 2):
        await chat.send(f"count {COUNT}")
        await chat.wait_for_count(30)
        await expect(chat.log.get_by_role("img", name="Writing…")).to_be_visible(timeout=WAIT_MS)
        before = await chat.counted_numbers()
        await chat.page.reload()
        await chat.wait_for_count(before[-1])
        again = await chat.counted_numbers()
        assert again == list(range(len(again)))
        assert len(before) <= len(again) < COUNT
    await chat.wait_for_answers()
    assert await chat.counted_numbers() == list(range(COUNT))


async def test_what_is_read_after_a_reload_is_what_was_read_before_to_the_letter(chat: ChatPage) -> None:
    await chat.send("write up")
    await chat.wait_for_answers()
    await chat.send("look 3")
    await chat.wait_for_answers(2)
    await chat.send("run sleep 1.2; echo done")
    await chat.wait_for_approval()
    await chat.allow.click()
    await chat.wait_for_answers(3)
    await chat.send("thank you")
    await chat.wait_for_answers(4)
    await expect(chat.log.get_by_role("cell", name="340")).to_be_visible(timeout=WAIT_MS)
    await chat.expand_all()
    before = await chat.log.inner_text()
    assert [
        words for words in ("third.py", "sleep 1.2", "Thinking", "Listed 3 folders") if words not in before
    ] == []
    await chat.page.reload()
    await chat.wait_for_answers(4)
    await chat.expand_all()
    assert await chat.log.inner_text() == before


async def test_formulas_keep_every_sign_and_marks_that_are_escaped_do_not_show_it(
    chat: ChatPage, tmp_path: Path
) -> None:
    (tmp_path / "formulas").write_text("\n\n".join(FORMULAS))
    await chat.send(f"run cat {tmp_path}/formulas")
    await chat.allow.click()
    await chat.wait_for_answers()
    answer = chat.turns.get_by_role("article", name="Assistant")
    for each in FORMULAS[:2]:
        assert each in await answer.inner_text()
    await expect(answer).to_contain_text("For $5 and more for $10, *not strong* and _so_.")
    await expect(answer.locator("strong")).to_have_text("more")


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desk", "phone"])
async def test_questions_and_answers_are_copied_as_they_were_written(
    new_chat: NewChat, options: dict[str, Any]
) -> None:
    chat = await new_chat(permissions=["clipboard-read", "clipboard-write"], **options)
    read = "navigator.clipboard.readText()"
    await chat.send("write up\n\n**now**")
    await chat.wait_for_answers()
    await chat.turns.get_by_role("button", name="Copy this message").click()
    await chat.page.wait_for_function(f"async () => await {read} === 'write up\\n\\n**now**'")
    copy = chat.turns.get_by_role("button", name="Copy this answer")
    await focus_with_tab(chat.page, copy)
    await chat.page.keyboard.press("Enter")
    await expect(copy.get_by_role("status")).to_have_text("Copied")
    assert await chat.page.evaluate(read) == MARKDOWN_ANSWER.strip()


async def test_an_answer_is_copied_where_the_browser_has_no_clipboard_for_the_page(new_chat: NewChat) -> None:
    chat = await new_chat()
    await chat.page.evaluate(NO_CLIPBOARD)
    await chat.send("just *these* words")
    await chat.wait_for_answers()
    copy = chat.turns.get_by_role("button", name="Copy this answer")
    await copy.click()
    await expect(copy.get_by_role("status")).to_have_text("Copied")
    await expect(copy).to_be_focused()
    await chat.message.press("Control+v")
    await expect(chat.message).to_have_value("just *these* words")


async def test_a_link_in_an_answer_leaves_the_conversation_open(chat: ChatPage) -> None:
    await chat.send("see [the notes](#notes)")
    await chat.wait_for_answers()
    before = chat.page.url
    async with chat.user.context.expect_page() as opened:
        await chat.log.get_by_role("link", name="the notes").click()
    await (await opened.value).close()
    assert chat.page.url == before
