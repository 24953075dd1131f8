"""What is typed and not sent: there after a reload, in another browser, and gone once it is sent."""

import asyncio
import re
from typing import Any

from playwright.async_api import expect

from tests.browser.conftest import NewChat
from tests.browser.test_page_attaching import attached_files, file_input, payload, png
from tests.support.api_client import ApiClient, api_client
from tests.support.browser_driver import WAIT_MS, SharedServer


async def create_session(shared_server: SharedServer) -> str:
    async with api_client(shared_server.server.address) as api:
        return await api.create_session()


async def wait_for_draft(api: ApiClient, session: str, text: str) -> None:
    """Return once the server has this draft."""
    await api.wait_for_field(f"/api/sessions/{session}/draft", "text", text)


async def test_what_is_typed_is_there_after_a_reload_and_in_another_browser_until_it_is_sent(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    session = await create_session(shared_server)
    chat = await new_chat(session)
    async with api_client(shared_server.server.address) as api:
        await chat.message.fill("Half a sent")
        await wait_for_draft(api, session, "Half a sent")
        other = await new_chat(session)
        await expect(other.message).to_have_value("Half a sent", timeout=WAIT_MS)
        # At once, before it can have been kept in passing.
        await other.message.fill("Half a sentence")
        await other.page.reload()
        await expect(other.message).to_have_value("Half a sentence", timeout=WAIT_MS)
        await wait_for_draft(api, session, "Half a sentence")
        await chat.page.reload()
        await expect(chat.message).to_have_value("Half a sentence", timeout=WAIT_MS)
        await chat.send("Half a sentence, and its end")
        await chat.wait_for_answers()
        await wait_for_draft(api, session, "")
        await chat.page.reload()
        await chat.wait_for_answers()
        await expect(chat.message).to_have_value("")


async def test_each_conversation_has_its_own_and_one_that_has_not_begun_too(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    async with api_client(shared_server.server.address) as api:
        places = {title: await api.create_session(title=title) for title in ("The one", "The other")}
    places[""] = ""
    chat = await new_chat()

    async def move(title: str) -> None:
        """Go there without loading the page anew."""
        await chat.page.evaluate("at => void (location.hash = at)", places[title])
        where = chat.page.get_by_role("main").get_by_role("heading", name=title or "What can I do for you?")
        await expect(where).to_be_visible(timeout=WAIT_MS)

    for title in ("", "The one", "The other"):
        await move(title)
        await chat.message.fill(f"Draft of {title}")
    for title in ("The one", "", "The other"):
        await move(title)
        await expect(chat.message).to_have_value(f"Draft of {title}", timeout=WAIT_MS)
    await move("")
    await chat.page.reload()
    await expect(chat.message).to_have_value("Draft of ", timeout=WAIT_MS)
    await chat.send("for a new one, then")
    await chat.wait_for_answers()
    await move("")
    await expect(chat.message).to_have_value("")
    await chat.page.reload()
    await expect(chat.message).to_be_visible(timeout=WAIT_MS)
    await expect(chat.message).to_have_value("")


async def test_what_is_written_while_the_first_message_is_on_its_way_is_not_lost(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await new_chat()
    held = asyncio.Event()

    async def hold(route: Any) -> None:
        await held.wait()
        await route.continue_()

    await chat.page.route("**/api/sessions", hold)
    await chat.message.fill("first of all")
    await chat.message.press("Enter")
    await expect(chat.message).to_have_value("")
    await chat.message.press_sequentially("and second")
    await file_input(chat).set_input_files([payload("second.txt", b"With it")])
    await expect(attached_files(chat)).to_have_text(["second.txt ×"], timeout=WAIT_MS)
    held.set()
    await chat.wait_for_answers()
    await expect(chat.message).to_have_value("and second")
    await expect(attached_files(chat)).to_have_count(1)
    async with api_client(shared_server.server.address) as api:
        await wait_for_draft(api, chat.session_id, "and second")
    await chat.message.press("Enter")
    await chat.wait_for_answers(2)
    await expect(chat.turns.last.get_by_role("link", name="second.txt")).to_be_visible()


async def test_pictures_that_the_model_cannot_take_are_named_before_they_are_sent(new_chat: NewChat) -> None:
    """The model of this inn reads, and sees nothing."""
    chat = await new_chat()
    await file_input(chat).set_input_files([payload("seen.png", png(2), "image/png")])
    said = chat.page.get_by_role("alert").filter(has_text="cannot read images")
    await expect(said).to_have_text("small cannot read images.", timeout=WAIT_MS)
    await expect(chat.button("Send anyway")).to_have_count(0)
    await chat.button("Change model").click()
    await expect(chat.page.get_by_role("dialog", name="Who answers here")).to_be_visible()
    await chat.page.keyboard.press("Escape")
    # While that stands nothing is sent, by key or button.
    await chat.message.fill("what is this")
    await chat.message.press("Enter")
    await expect(chat.button("Send")).to_be_disabled()
    await expect(chat.message).to_have_value("what is this")
    await chat.page.get_by_role("button", name="Remove seen.png").click()
    await expect(said).to_have_count(0)
    await chat.message.press("Enter")
    await chat.wait_for_answers()


async def test_the_choice_of_models_can_be_left_while_it_is_still_loading(new_chat: NewChat) -> None:
    chat = await new_chat()
    held = asyncio.Event()

    async def hold(route: Any) -> None:
        await held.wait()
        await route.continue_()

    await file_input(chat).set_input_files([payload("seen.png", png(2), "image/png")])
    await chat.page.route(re.compile(r"/page/[\w-]+\.js"), hold)
    dialog = chat.page.get_by_role("dialog", name="Who answers here")
    # The page asks for the code only after it has drawn the dialog.
    async with chat.page.expect_request(re.compile(r"/page/[\w-]+\.js")):
        await chat.button("Change model").click(timeout=WAIT_MS)
    await expect(dialog).to_have_text("Loading…")
    await chat.page.keyboard.press("Escape")
    await expect(dialog).to_have_count(0)
    await chat.button("Change model").click()
    await chat.message.focus()
    await expect(dialog).to_have_count(0)
    async with chat.page.expect_response(re.compile(r"/page/[\w-]+\.js")):
        held.set()
    await chat.button("Change model").click()
    await expect(dialog.get_by_role("combobox", name="Agent")).to_be_focused(timeout=WAIT_MS)


GONE_FILE = """[["", [{"key": "k1", "id": "0000", "name": "gone.txt", "media_type": "text/plain"}]]]"""


async def test_a_message_that_was_not_taken_can_be_written_anew_with_its_files(new_chat: NewChat) -> None:
    chat = await new_chat()
    chat.user.expect_errors(r"status of 4\d\d")
    # A file that the server no longer has, and that this tab still knows.
    await chat.page.evaluate("files => sessionStorage.setItem('holdfast.files', files)", GONE_FILE)
    await chat.page.reload()
    await expect(attached_files(chat)).to_have_text(["gone.txt ×"], timeout=WAIT_MS)
    await chat.send("words worth keeping")
    refused = chat.log.get_by_role("article", name="You")
    await expect(refused.get_by_role("button", name="Remove")).to_be_visible(timeout=WAIT_MS)
    await expect(chat.message).to_have_value("")
    await refused.get_by_role("button", name="Edit").click()
    await expect(chat.message).to_have_value("words worth keeping")
    await expect(chat.message).to_be_focused()
    await expect(attached_files(chat)).to_have_text(["gone.txt ×"])
    await expect(refused).to_have_count(0)
    await chat.page.get_by_role("button", name="Remove gone.txt").click()
    await chat.message.press("Enter")
    await chat.wait_for_answers()
    await expect(chat.log.get_by_role("article", name="Assistant")).to_contain_text("words worth keeping")
