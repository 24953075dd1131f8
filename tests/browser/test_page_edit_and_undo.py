"""A conversation is changed: edited, undone, restored, answered again, branched off."""

import re

import pytest
from playwright.async_api import Locator, expect

from tests.support.browser_driver import WAIT_MS, ChatPage


def _versions(chat: ChatPage) -> Locator:
    return chat.log.get_by_role("group", name="Versions")


def _starts_with(text: str) -> re.Pattern[str]:
    return re.compile("^" + re.escape(text))


async def _send_two_messages(chat: ChatPage) -> None:
    for number, text in enumerate(("the first thing", "the second thing"), 1):
        await chat.send(text)
        await chat.wait_for_answers(number)


async def test_an_edited_message_takes_the_place_of_what_came_after(chat: ChatPage) -> None:
    await _send_two_messages(chat)
    await chat.turns.first.get_by_role("button", name="Edit").click()
    words = chat.log.get_by_role("textbox", name="Edit")
    await expect(words).to_have_value("the first thing")
    await words.fill("a better thing")
    await chat.button("Save and resend").click()
    await expect(chat.turns).to_have_count(1, timeout=WAIT_MS)
    await expect(chat.turns.get_by_role("article", name="Assistant")).to_contain_text(
        "a better thing", timeout=WAIT_MS
    )
    await chat.wait_for_answers()
    await expect(_versions(chat)).to_have_text("‹2/2›")
    # What was replaced is behind the switch and nowhere else.
    await expect(chat.log.locator(".gone")).to_have_count(0)
    await expect(chat.log.get_by_text("the second thing")).to_have_count(0)
    before = await chat.log.inner_text()
    await chat.page.reload()
    await chat.wait_for_answers()
    assert await chat.log.inner_text() == before


@pytest.mark.parametrize("keys", ["Enter", "Control+Enter"])
async def test_an_edited_message_is_sent_and_left_by_the_keys_that_the_composer_has(
    chat: ChatPage, keys: str
) -> None:
    await chat.send("the first thing")
    await chat.wait_for_answers()
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
    await chat.wait_for_answers()
    await expect(chat.turns).to_have_count(1)


async def test_what_is_undone_stays_readable_and_is_restored_from_there(chat: ChatPage) -> None:
    await _send_two_messages(chat)
    await chat.send("the third thing")
    await chat.wait_for_answers(3)
    await chat.turns.nth(1).get_by_role("button", name="Undo from here").click()
    await expect(chat.turns).to_have_count(1, timeout=WAIT_MS)
    await expect(chat.notices).to_contain_text("Messages removed.")
    gone = chat.log.locator(".gone")
    rows = [_starts_with(f"Removed · the {which} thing") for which in ("second", "third")]
    await expect(gone).to_have_text(rows)
    # All that was removed at once comes back at once: there is one button for it.
    restore = chat.log.get_by_role("button", name="Restore")
    await expect(restore).to_have_count(1)
    await chat.send("something new")
    await chat.wait_for_answers(2)
    for _ in range(2):
        await expect(restore).to_have_count(1)
        await expect(gone).to_have_count(2)
        await chat.page.reload()
        await chat.wait_for_answers(2)
    await restore.click()
    await expect(chat.turns).to_have_count(3, timeout=WAIT_MS)
    await chat.wait_for_text("the third thing")
    # What was said instead is out of the way now, and can come back as well.
    await expect(gone).to_have_text([_starts_with("Removed · something new")])
    await restore.click()
    await expect(chat.turns).to_have_count(2, timeout=WAIT_MS)
    await expect(gone).to_have_count(2)


async def test_every_removed_message_has_one_way_back_below_the_message_that_it_followed(
    chat: ChatPage,
) -> None:
    async def say(text: str) -> None:
        count = await chat.turns.count()
        await chat.send(text)
        await chat.wait_for_answers(count + 1)

    gone = chat.log.locator(".gone")
    await say("Ant")
    await say("Bee")
    await chat.send("/undo")
    await expect(gone).to_have_text([_starts_with("Removed · Bee")])
    await say("Cow")
    await chat.turns.first.get_by_role("button", name="Try again").click()
    await expect(_versions(chat)).to_have_text("‹2/2›", timeout=WAIT_MS)
    await chat.wait_for_answers(1)
    await expect(gone).to_have_count(0)  # Bee and Cow followed the first version.
    await chat.button("Previous version").click()
    await expect(chat.turns).to_have_count(2, timeout=WAIT_MS)
    for _ in range(2):
        await chat.button("Restore").click()
        await expect(gone).to_have_text([_starts_with("Removed · Cow")], timeout=WAIT_MS)
        await chat.page.reload()
        await expect(gone).to_have_text([_starts_with("Removed · Cow")], timeout=WAIT_MS)
        await chat.button("Restore").click()
        await expect(gone).to_have_text([_starts_with("Removed · Bee")], timeout=WAIT_MS)
    # With a version of Cow between them, those that go together still have one button.
    await chat.turns.last.get_by_role("button", name="Try again").click()
    await expect(_versions(chat)).to_have_text(["‹1/2›", "‹2/2›"], timeout=WAIT_MS)
    await chat.wait_for_answers(2)
    await say("Dog")
    await chat.turns.first.get_by_role("button", name="Undo from here").click()
    await expect(gone).to_have_text(
        [_starts_with(f"Removed · {each}") for each in ("Ant", "Cow", "Dog")], timeout=WAIT_MS
    )
    await expect(chat.button("Restore")).to_have_count(1)


async def test_the_keyboard_stays_in_use_after_undo_restore_and_the_last_version(chat: ChatPage) -> None:
    await _send_two_messages(chat)
    await chat.turns.last.get_by_role("button", name="Undo from here").focus()
    await chat.page.keyboard.press("Enter")
    await expect(chat.message).to_be_focused()
    await expect(chat.notices).to_contain_text("Messages removed.", timeout=WAIT_MS)
    await chat.button("Restore").focus()
    await chat.page.keyboard.press("Enter")
    await expect(chat.message).to_be_focused()
    await expect(chat.turns).to_have_count(2, timeout=WAIT_MS)
    await expect(chat.notices).not_to_contain_text("Messages removed.")
    await chat.turns.last.get_by_role("button", name="Try again").click()
    await chat.wait_for_answers(2)
    before = chat.button("Previous version")
    await before.focus()
    await chat.page.keyboard.press("Enter")
    await expect(_versions(chat)).to_have_text("‹1/2›", timeout=WAIT_MS)
    await expect(before).to_be_focused()
    await expect(before).to_be_disabled()


async def test_the_notice_of_an_undo_goes_when_something_is_sent_or_one_goes_elsewhere(
    chat: ChatPage,
) -> None:
    """Its button would remove what was just sent, and the row has a button of its own."""
    await _send_two_messages(chat)
    await chat.send("/undo")
    await expect(chat.notices).to_contain_text("Messages removed.", timeout=WAIT_MS)
    await chat.send("something else")
    await expect(chat.notices).not_to_contain_text("Messages removed.")
    await chat.wait_for_answers(2)
    await chat.send("/undo")
    await expect(chat.notices).to_contain_text("Messages removed.", timeout=WAIT_MS)
    await chat.page.evaluate("location.hash = ''")
    await expect(chat.notices).not_to_contain_text("Messages removed.")


async def test_an_undo_is_undone_by_the_button_beside_what_is_said_of_it(chat: ChatPage) -> None:
    await _send_two_messages(chat)
    await chat.turns.first.get_by_role("button", name="Undo from here").click()
    await expect(chat.turns).to_have_count(0, timeout=WAIT_MS)
    await chat.notices.get_by_role("button", name="Undo").click()
    await expect(chat.turns).to_have_count(2, timeout=WAIT_MS)
    await expect(chat.log.locator(".gone")).to_have_count(0)


async def test_undo_and_restore_by_command(chat: ChatPage) -> None:
    await _send_two_messages(chat)
    await chat.send("/undo")
    await expect(chat.turns).to_have_count(1, timeout=WAIT_MS)
    await chat.send("/restore")
    await expect(chat.turns).to_have_count(2, timeout=WAIT_MS)
    chat.user.expect_errors("status of 404")
    await chat.send("/restore")
    await expect(chat.notices).to_contain_text("There is nothing to restore.", timeout=WAIT_MS)


async def test_an_answer_that_is_tried_again_has_versions_to_choose_from(chat: ChatPage) -> None:
    await _send_two_messages(chat)
    await chat.turns.last.get_by_role("button", name="Try again").click()
    await expect(_versions(chat)).to_have_text("‹2/2›", timeout=WAIT_MS)
    await expect(chat.turns).to_have_count(2, timeout=WAIT_MS)
    await chat.wait_for_answers(2)
    await expect(chat.turns.last.get_by_role("article", name="Assistant")).to_contain_text("the second thing")
    await chat.send("only after the second version")
    await chat.wait_for_answers(3)
    before, after = (chat.button(f"{which} version") for which in ("Previous", "Next"))
    await expect(after).to_be_disabled()
    # By keyboard, there and back.
    await before.focus()
    await before.press("Enter")
    await expect(_versions(chat)).to_have_text("‹1/2›", timeout=WAIT_MS)
    await expect(chat.turns).to_have_count(2)
    await expect(chat.log.get_by_text("only after the second version").locator("visible=true")).to_have_count(
        0
    )
    await expect(before).to_be_disabled()
    await chat.page.reload()
    await expect(_versions(chat)).to_have_text("‹1/2›", timeout=WAIT_MS)
    await after.focus()
    await after.press("Enter")
    await expect(_versions(chat)).to_have_text("‹2/2›", timeout=WAIT_MS)
    await expect(chat.turns).to_have_count(3)
    await expect(before).to_be_enabled()
    await chat.wait_for_text("only after the second version")


async def test_three_versions_are_walked_one_by_one_and_the_button_keeps_the_focus(chat: ChatPage) -> None:
    await chat.send("the first thing")
    await chat.wait_for_answers()
    for number in (2, 3):
        await chat.turns.last.get_by_role("button", name="Try again").click()
        await expect(_versions(chat)).to_have_text(f"‹{number}/{number}›", timeout=WAIT_MS)
        await chat.wait_for_answers()
    before = chat.button("Previous version")
    await before.focus()
    for number in (2, 1):
        await expect(before).to_be_focused()
        await before.press("Enter")
        await expect(_versions(chat)).to_have_text(f"‹{number}/3›", timeout=WAIT_MS)
    await expect(before).to_be_disabled()


async def test_a_branch_holds_what_was_said_up_to_there_and_is_listed_under_its_parent(
    chat: ChatPage,
) -> None:
    await _send_two_messages(chat)
    parent = chat.session_id
    await chat.turns.first.get_by_role("button", name="Branch").click()
    await expect(chat.turns).to_have_count(1, timeout=WAIT_MS)
    await chat.wait_for_text("the first thing")
    assert chat.session_id != parent
    # What was copied can be answered again as what was not.
    await expect(chat.turns.get_by_role("button", name="Details of this answer")).to_have_count(1)
    await chat.turns.get_by_role("button", name="Try again").click()
    await expect(_versions(chat)).to_have_text("‹2/2›", timeout=WAIT_MS)
    await chat.wait_for_answers()
    listed = chat.page.get_by_role("navigation").get_by_role("listitem")
    at = await listed.evaluate_all(
        "(rows, id) => rows.findIndex(row => row.querySelector('a')?.hash === '#' + id)", parent
    )
    branch = listed.nth(at + 1)
    await expect(branch).to_have_attribute("aria-current", "page")
    left = "element => element.querySelector('.dot').getBoundingClientRect().left"
    assert await branch.evaluate(left) > await listed.nth(at).evaluate(left)
    await chat.send("only in the branch")
    await chat.wait_for_answers(2)
    await chat.page.goto(f"{chat.page.url.partition('#')[0]}#{parent}")
    await chat.wait_for_text("the second thing")
    await expect(chat.log).not_to_contain_text("only in the branch")
