"""Files for a model of which nobody says what it takes: images go anyway if a person says so, PDF as text."""

from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.browser.conftest import HostServer, NewChat
from tests.browser.test_page_attaching import attached_files, file_input, last_parts, payload, png
from tests.support.api_client import ScriptedModelServer, scripted_model_server
from tests.support.browser_driver import (
    PHONE,
    TARGET_PX,
    WAIT_MS,
    ChatPage,
    SharedServer,
    accessibility_violations,
)
from tests.support.sample_files import pdf, words

NOT_KNOWN = "small isn't known to read images."


@pytest.fixture(scope="module")
def secretive() -> Iterator[ScriptedModelServer]:
    with scripted_model_server(ScriptedModelServer(lists_images=None)) as speaker:
        yield speaker


@pytest.fixture(scope="module")
def shared_server(host_server: HostServer, secretive: ScriptedModelServer) -> Iterator[SharedServer]:
    with host_server("unknown", secretive) as shared_server:
        yield shared_server


async def attach_picture(chat: ChatPage) -> Locator:
    """Attach a picture; the line that says that the model may not read it."""
    await file_input(chat).set_input_files([payload("seen.png", png(2), "image/png")])
    said = chat.page.get_by_role("alert").filter(has_text=NOT_KNOWN)
    await expect(said).to_have_text(NOT_KNOWN, timeout=WAIT_MS)
    return said


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desk", "phone"])
async def test_an_image_is_sent_anyway_by_who_says_so(
    new_chat: NewChat, secretive: ScriptedModelServer, options: dict[str, Any]
) -> None:
    chat = await new_chat(**options)
    said = await attach_picture(chat)
    await chat.message.fill("what is this")
    await chat.message.press("Enter")
    await expect(chat.button("Send")).to_be_disabled()
    await expect(chat.message).to_have_value("what is this")
    anyway = chat.button("Send anyway")
    if not options:
        assert await accessibility_violations(chat.page) == []
    else:
        for button in (anyway, chat.button("Change model")):
            box = await button.bounding_box()
            assert box is not None and box["height"] >= TARGET_PX - 0.5
            assert box["x"] >= 0 and box["x"] + box["width"] <= options["viewport"]["width"]
    await anyway.click()
    await chat.wait_for_answers()
    await expect(said).to_have_count(0)
    assert [part["type"] for part in last_parts(secretive)] == ["text", "image_url"]
    # What was said of the image holds when its message is edited.
    await chat.turns.last.get_by_role("button", name="Edit").click()
    await chat.page.get_by_role("textbox", name="Edit").fill("and now?")
    await chat.page.keyboard.press("Enter")
    await expect(chat.turns.last).to_contain_text("and now?", timeout=WAIT_MS)
    await chat.wait_for_answers()
    assert [part["type"] for part in last_parts(secretive)] == ["text", "image_url"]
    # It holds for that image alone.
    await attach_picture(chat)


async def test_what_was_said_is_kept_while_the_server_is_away(
    new_chat: NewChat, secretive: ScriptedModelServer
) -> None:
    chat = await new_chat()
    chat.user.expect_errors(r"Failed to load resource", r"ERR_INTERNET_DISCONNECTED", r"ERR_FAILED")
    await attach_picture(chat)
    await chat.message.fill("sent from afar")
    await chat.page.route("**/api/sessions**", lambda route: route.abort("internetdisconnected"))
    await chat.button("Send anyway").click()
    await expect(chat.log.get_by_role("article", name="You")).to_contain_text("sent from afar")
    await chat.page.reload()
    await chat.page.unroute("**/api/sessions**")
    await chat.wait_for_answers()
    assert [part["type"] for part in last_parts(secretive)] == ["text", "image_url"]


async def test_another_model_can_be_chosen_instead(new_chat: NewChat) -> None:
    chat = await new_chat()
    await attach_picture(chat)
    await chat.button("Change model").click()
    await expect(chat.page.get_by_role("dialog", name="Who answers here")).to_be_visible()
    await expect(attached_files(chat)).to_have_count(1)


async def test_a_pdf_file_goes_as_text_and_that_is_said_quietly(
    new_chat: NewChat, secretive: ScriptedModelServer
) -> None:
    chat = await new_chat(**PHONE)
    report = payload("report.pdf", pdf(words("Rain at noon.")), "application/pdf")
    await file_input(chat).set_input_files([report])
    said = chat.page.get_by_role("status").filter(
        has_text="small gets the text of this PDF, without pictures."
    )
    await expect(said).to_be_visible(timeout=WAIT_MS)
    await chat.send("what does it say")
    await chat.wait_for_answers()
    (part,) = last_parts(secretive)
    assert part["text"] == "what does it say\n\nFile report.pdf:\n```\n[page 1]\nRain at noon.\n```"
