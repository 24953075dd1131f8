"""Everything without a mouse: from signing in to stopping an answer."""

from pathlib import Path

from playwright.async_api import expect

from tests.acceptance.conftest import CliHarness
from tests.support.browser_driver import WAIT_MS, BrowserUser, ChatPage, focus_with_tab

PASSWORD = "a long enough secret"
PRESSED = """async (key) => {
    const pressed = { key, ctrlKey: true, bubbles: true, cancelable: true };
    document.activeElement.dispatchEvent(new KeyboardEvent('keydown', pressed));
    for (let step = 0; step < 100; step++) await null;
    return document.activeElement.role ?? document.activeElement.type;
}"""
"""Who has the keyboard when all is done that is done at once."""


async def test_a_keyboard_is_enough(visitor: BrowserUser, home: CliHarness, tmp_path: Path) -> None:
    visitor.expect_errors("status of 401")
    server = home.serve("--port", "0")
    server.request(
        "/api/password", "POST", f'{{"password": "{PASSWORD}"}}', **{"content-type": "application/json"}
    )
    page = await visitor.open_page(server.address)
    keyboard, chat = page.keyboard, ChatPage(page)
    await focus_with_tab(page, page.get_by_label("Password"))
    await keyboard.type(PASSWORD)
    await keyboard.press("Enter")
    # One can write at once.
    await expect(chat.message).to_be_focused(timeout=WAIT_MS)
    await keyboard.type(f"run echo ran > {tmp_path}/marker; echo allowed by A")
    await keyboard.press("Enter")
    await chat.wait_for_approval()
    await expect(chat.question).to_be_focused()
    # Where one writes, letters are letters.
    await focus_with_tab(page, chat.message)
    await keyboard.type("a")
    await expect(chat.message).to_have_value("a")
    await keyboard.press("Backspace")
    assert not (tmp_path / "marker").exists()
    # What waits for a person is not stopped by a key that closes things: it is still asked, and runs.
    await keyboard.press("Escape")
    await focus_with_tab(page, chat.allow)
    await keyboard.press("Escape")
    await keyboard.press("a")
    await chat.wait_for_text("It said: allowed by A")
    await keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Search commands and conversations")
    await expect(palette.get_by_role("combobox")).to_be_focused()
    await keyboard.type("keyboard")
    await keyboard.press("Enter")
    sheet = page.get_by_role("dialog", name="Keyboard")
    await expect(sheet).to_be_visible()
    await keyboard.press("Escape")
    await expect(sheet).to_have_count(0)
    await focus_with_tab(page, chat.message)
    await keyboard.type("count 3000")
    await keyboard.press("Enter")
    await chat.wait_for_count(10)
    await keyboard.press("Escape")
    await chat.wait_for_text("Stopped.")
    await keyboard.press("ArrowUp")
    await expect(chat.message).to_have_value("count 3000")


async def test_after_an_answer_by_keyboard_the_message_field_has_the_focus(chat: ChatPage) -> None:
    keyboard = chat.page.keyboard
    await chat.send("run echo one")
    await chat.wait_for_approval()
    await focus_with_tab(chat.page, chat.allow)
    await keyboard.press("Enter")
    await chat.wait_for_answers()
    await expect(chat.message).to_be_focused()
    await chat.send("run echo two")
    await chat.wait_for_approval()
    await expect(chat.question).to_be_focused()
    await keyboard.press("d")
    why = chat.question.get_by_role("textbox")
    await expect(why).to_be_focused()
    await keyboard.press("Escape")
    # Not yet: the question has the keyboard back.
    await expect(chat.question).to_be_focused()
    await keyboard.press("d")
    await expect(why).to_be_focused()
    await keyboard.press("Enter")
    await chat.wait_for_answers(2)
    await expect(chat.message).to_be_focused()
    # One question after the other is answered by its key.
    await chat.send('uses [["shell", {"command": "echo three"}], ["shell", {"command": "echo four"}]]')
    await chat.wait_for_approval()
    await expect(chat.question).to_be_focused()
    await keyboard.press("a")
    await expect(chat.question.locator(".command")).to_have_text("echo four", timeout=WAIT_MS)
    await expect(chat.question).to_be_focused()
    await keyboard.press("a")
    await chat.wait_for_answers(3)
    await expect(chat.message).to_be_focused()


async def test_find_gives_the_keyboard_back_to_who_had_it(chat: ChatPage) -> None:
    keyboard = chat.page.keyboard
    await chat.send("hello there")
    await chat.wait_for_answers()
    field = chat.page.get_by_role("searchbox", name="Find in this conversation")
    for before in (chat.message, chat.button("Details of this answer")):
        await before.focus()
        await keyboard.press("Control+f")
        await expect(field).to_be_focused()
        await keyboard.press("Escape")
        await expect(field).to_have_count(0)
        await expect(before).to_be_focused()
    await chat.page.evaluate("document.activeElement.blur()")
    assert await chat.page.evaluate(PRESSED, "f") == "search", "before the next picture is drawn"
    await expect(field).to_be_focused()
    await keyboard.press("Escape")
    await expect(chat.message).to_be_focused()


async def test_what_is_typed_after_ctrl_k_is_typed_there_and_what_nothing_fits_says_so(
    chat: ChatPage,
) -> None:
    await expect(chat.message).to_be_focused(timeout=WAIT_MS)
    assert await chat.page.evaluate(PRESSED, "k") == "combobox", "before the next picture is drawn"
    found = chat.page.get_by_role("dialog", name="Search commands and conversations")
    await chat.page.keyboard.type("zzz")
    await expect(found.get_by_role("combobox")).to_have_value("zzz")
    await expect(found.get_by_role("option")).to_have_count(0)
    await expect(found.get_by_role("status").first).to_have_text("Nothing found.")
    await expect(chat.message).to_have_value("")
    # Nobody knows a conversation by its id, so letters that are in one find nothing.
    await found.get_by_role("combobox").fill("s_")
    await expect(found.get_by_role("option")).to_have_count(0)
    await found.get_by_role("combobox").fill("settings")
    await expect(found.get_by_role("option")).to_have_count(1)
    await expect(found.get_by_text("Nothing found.")).to_have_count(0)
