"""What was said is changed afterwards: edited, taken back, answered again, branched off."""

import pytest
from playwright.async_api import expect

from tests.browser.driving import WAIT_MS, Chat

NO_LONGER = "No longer part of the conversation."


async def _talk(chat: Chat) -> None:
    for number, text in enumerate(("the first thing", "the second thing"), 1):
        await chat.say(text)
        await chat.answered(number)


async def test_an_edited_message_takes_the_place_of_what_came_after(chat: Chat) -> None:
    await _talk(chat)
    await chat.turns.first.get_by_role("button", name="Edit").click()
    words = chat.log.get_by_role("textbox", name="Edit")
    await expect(words).to_have_value("the first thing")
    await words.fill("a better thing")
    await chat.button("Save and resend").click()
    await expect(chat.turns).to_have_count(1, timeout=WAIT_MS)
    await expect(chat.turns.get_by_role("article", name="Assistant")).to_contain_text(
        "a better thing", timeout=WAIT_MS
    )
    await chat.answered()
    await expect(chat.log.get_by_text(NO_LONGER)).to_have_count(2)
    before = await chat.log.inner_text()
    await chat.page.reload()
    await chat.answered()
    assert await chat.log.inner_text() == before


@pytest.mark.parametrize("keys", ["Enter", "Control+Enter"])
async def test_an_edited_message_is_sent_and_left_by_the_keys_that_the_composer_has(
    chat: Chat, keys: str
) -> None:
    await chat.say("the first thing")
    await chat.answered()
    edit = chat.turns.get_by_role("button", name="Edit")
    words = chat.log.get_by_role("textbox", name="Edit")
    await edit.click()
    await words.fill("")
    await words.press("Escape")
    await expect(words).to_have_count(0)
    await expect(chat.turns.get_by_role("article", name="You")).to_contain_text("the first thing")
    await edit.click()
    await words.fill("two")
    await words.press("Shift+Enter")
    await words.press_sequentially("lines")
    await expect(words).to_have_value("two\nlines")
    await words.press(keys)
    await expect(chat.turns.locator(".words").first).to_have_text("two\nlines")
    await chat.answered()
    await expect(chat.turns).to_have_count(1)


async def test_what_is_taken_back_stays_readable_and_is_no_longer_part_of_it(chat: Chat) -> None:
    await _talk(chat)
    await chat.turns.last.get_by_role("button", name="Take back from here").click()
    await expect(chat.turns).to_have_count(1, timeout=WAIT_MS)
    gone = chat.log.locator(".gone")
    await expect(gone).to_contain_text(NO_LONGER)
    await expect(gone).to_contain_text("the second thing")
    # Nothing can be done with it any more.
    await expect(gone.get_by_role("button")).to_have_count(0)
    await chat.say("something new")
    await chat.answered(2)
    await expect(chat.turns).to_have_count(2)


async def test_an_answer_that_is_tried_again_is_replaced(chat: Chat) -> None:
    await _talk(chat)
    await chat.turns.last.get_by_role("button", name="Try again").click()
    await expect(chat.log.get_by_text(NO_LONGER)).to_have_count(1, timeout=WAIT_MS)
    await expect(chat.turns).to_have_count(2, timeout=WAIT_MS)
    await chat.answered(2)
    await expect(chat.turns.last.get_by_role("article", name="Assistant")).to_contain_text("the second thing")


async def test_a_branch_holds_what_was_said_up_to_there_and_is_listed_under_its_parent(chat: Chat) -> None:
    await _talk(chat)
    parent = chat.session
    await chat.turns.first.get_by_role("button", name="Branch").click()
    await expect(chat.turns).to_have_count(1, timeout=WAIT_MS)
    await chat.reads("the first thing")
    assert chat.session != parent
    # What was copied can be answered again as what was not.
    await expect(chat.turns.get_by_role("button", name="Details of this answer")).to_have_count(1)
    await chat.turns.get_by_role("button", name="Try again").click()
    await expect(chat.log.get_by_text(NO_LONGER)).to_have_count(1)
    await chat.answered()
    listed = chat.page.get_by_role("navigation").get_by_role("listitem")
    at = await listed.evaluate_all(
        "(rows, id) => rows.findIndex(row => row.querySelector('a')?.hash === '#' + id)", parent
    )
    branch = listed.nth(at + 1)
    await expect(branch).to_have_attribute("aria-current", "page")
    left = "element => element.querySelector('.dot').getBoundingClientRect().left"
    assert await branch.evaluate(left) > await listed.nth(at).evaluate(left)
    await chat.say("only in the branch")
    await chat.answered(2)
    await chat.page.goto(f"{chat.page.url.partition('#')[0]}#{parent}")
    await chat.reads("the second thing")
    await expect(chat.log).not_to_contain_text("only in the branch")
