"""Everything without a mouse: from signing in to stopping an answer."""

from pathlib import Path

from playwright.async_api import expect

from tests.acceptance.conftest import Holdfast
from tests.browser.driving import WAIT_MS, Chat, Visitor, tab_to

PASSWORD = "a long enough secret"


async def test_a_keyboard_is_enough(visitor: Visitor, home: Holdfast, tmp_path: Path) -> None:
    visitor.excuse("status of 401")
    server = home.serve("--port", "0")
    server.ask(
        "/api/password", "POST", f'{{"password": "{PASSWORD}"}}', **{"content-type": "application/json"}
    )
    page = await visitor.page(server.address)
    keyboard, chat = page.keyboard, Chat(page)
    await tab_to(page, page.get_by_label("Password"))
    await keyboard.type(PASSWORD)
    await keyboard.press("Enter")
    # One can write at once.
    await expect(chat.message).to_be_focused(timeout=WAIT_MS)
    await keyboard.type(f"run echo ran > {tmp_path}/marker; echo allowed by A")
    await keyboard.press("Enter")
    await chat.asks()
    await expect(chat.question).to_be_focused()
    # Where one writes, letters are letters.
    await tab_to(page, chat.message)
    await keyboard.type("a")
    await expect(chat.message).to_have_value("a")
    await keyboard.press("Backspace")
    assert not (tmp_path / "marker").exists()
    # What waits for a person is not stopped by a key that closes things: it is still asked, and runs.
    await keyboard.press("Escape")
    await tab_to(page, chat.allow)
    await keyboard.press("Escape")
    await keyboard.press("a")
    await chat.reads("It said: allowed by A")
    await keyboard.press("Control+k")
    await expect(page.get_by_role("dialog", name="Do something…").get_by_role("combobox")).to_be_focused()
    await keyboard.type("keyboard")
    await keyboard.press("Enter")
    sheet = page.get_by_role("dialog", name="Keyboard")
    await expect(sheet).to_be_visible()
    await keyboard.press("Escape")
    await expect(sheet).to_have_count(0)
    await tab_to(page, chat.message)
    await keyboard.type("count 3000")
    await keyboard.press("Enter")
    await chat.counts_to(10)
    await keyboard.press("Escape")
    await chat.reads("Stopped.")
    await keyboard.press("ArrowUp")
    await expect(chat.message).to_have_value("count 3000")
