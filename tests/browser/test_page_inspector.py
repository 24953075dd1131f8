"""Beside a conversation: more about it, an answer or a call, in a column, or in a sheet without room."""

import json
import re
from typing import Any

import pytest
from playwright.async_api import FloatRect, Locator, expect

from tests.browser.conftest import NewChat
from tests.support.browser_driver import (
    PHONE,
    WAIT_MS,
    ChatPage,
    accessibility_violations,
    focus_with_tab,
    undersized_targets,
)

WIDE: dict[str, Any] = {"viewport": {"width": 1440, "height": 860}}
NARROW: dict[str, Any] = {"viewport": {"width": 1000, "height": 700}}
WATCH = """aside => {
    window.drawn = 0;
    new MutationObserver(all => { window.drawn += all.length; })
        .observe(aside, { childList: true, subtree: true, characterData: true, attributes: true });
}"""


def details_panel(chat: ChatPage) -> Locator:
    return chat.page.get_by_role("complementary", name="Details")


def details_section(chat: ChatPage, title: str) -> Locator:
    """A part of what is told, by its heading."""
    heading = chat.page.get_by_role("heading", name=title, exact=True)
    return details_panel(chat).locator("section").filter(has=heading)


async def open_details(chat: ChatPage) -> Locator:
    await chat.button("Details").click()
    await expect(details_panel(chat)).to_be_visible(timeout=WAIT_MS)
    return details_panel(chat)


async def bounding_box(node: Locator) -> FloatRect:
    box = await node.bounding_box()
    assert box is not None
    return box


async def test_it_is_a_third_column_that_this_browser_remembers(new_chat: NewChat) -> None:
    chat = await new_chat(**WIDE)
    await expect(chat.button("Details")).to_have_count(0)
    await chat.send("hello there")
    await chat.wait_for_answers()
    assert not any("inspector-" in each for each in chat.user.requested_urls), (
        "nothing of it is loaded before"
    )
    await open_details(chat)
    its, reading = await bounding_box(details_panel(chat)), await bounding_box(chat.page.get_by_role("main"))
    assert its["width"] == 380
    assert its["x"] == reading["x"] + reading["width"]
    await expect(details_section(chat, "Who answers")).to_contain_text("openai:small")
    await expect(details_section(chat, "Used so far")).to_contain_text(re.compile(r"\d+ in.*\d+ out"))
    await chat.page.reload()
    await expect(details_panel(chat)).to_be_visible(timeout=WAIT_MS)
    await details_panel(chat).get_by_role("button", name="Close").click()
    await expect(details_panel(chat)).to_have_count(0)
    await chat.page.reload()
    await chat.wait_for_answers()
    await expect(details_panel(chat)).to_have_count(0)


async def test_a_failed_command_says_its_exit_code_here_too(new_chat: NewChat) -> None:
    chat = await new_chat(**WIDE)
    await chat.send("run exit 3")
    await chat.wait_for_approval()
    await chat.allow.click()
    await chat.wait_for_answers()
    await chat.button("Details of this answer").click()
    call = details_section(chat, "Steps").get_by_role("button")
    await expect(call).to_contain_text("failed: exit code 3", timeout=WAIT_MS)
    await call.click()
    await expect(details_panel(chat)).to_contain_text("failed: exit code 3", timeout=WAIT_MS)


async def test_keys_are_enough_to_open_it_to_look_around_and_to_close_it(new_chat: NewChat) -> None:
    chat = await new_chat(**WIDE)
    await chat.send("look 2")
    await chat.wait_for_answers()
    keyboard = chat.page.keyboard
    await keyboard.press("Control+i")
    await expect(details_panel(chat)).to_be_visible(timeout=WAIT_MS)
    await expect(chat.message).to_be_focused()
    await focus_with_tab(chat.page, chat.button("Details of this answer"))
    await keyboard.press("Enter")
    await expect(details_section(chat, "What was asked")).to_contain_text("look 2")
    await focus_with_tab(chat.page, details_section(chat, "Steps").get_by_role("button").first)
    await keyboard.press("Enter")
    await expect(details_section(chat, "Asked for")).to_be_visible()
    await keyboard.press("Control+i")
    await expect(details_panel(chat)).to_have_count(0)
    await keyboard.press("Control+k")
    await expect(chat.page.get_by_role("combobox")).to_be_focused()
    await keyboard.type("hide the details")
    await keyboard.press("Enter")
    await expect(details_panel(chat)).to_be_visible()
    await chat.page.evaluate("document.activeElement.blur()")
    await keyboard.press("?")
    sheet = chat.page.get_by_role("dialog", name="Keyboard")
    await expect(sheet).to_contain_text("Ctrl I")


async def test_a_call_shows_its_arguments_and_its_whole_output(new_chat: NewChat) -> None:
    chat = await new_chat(**WIDE)
    await chat.send("run seq 1 40000")
    await chat.allow.click()
    await chat.wait_for_answers()
    await open_details(chat)
    await chat.log.locator(".tool .fold").click()
    await expect(details_section(chat, "Asked for")).to_contain_text("seq 1 40000")
    await expect(details_section(chat, "Output").locator("pre")).to_contain_text("40000")
    await expect(details_panel(chat)).to_contain_text(re.compile(r"Took\s*[\d.]+ m?s"))
    await expect(details_panel(chat).locator(".facts")).to_contain_text("Asked with")
    await details_panel(chat).get_by_role("button", name="Open all of it").click()
    whole = details_section(chat, "All of the output").locator("pre")
    await expect(whole).to_contain_text("\n20000\n", timeout=WAIT_MS)
    await details_panel(chat).get_by_role("button", name="Answer").click()
    await expect(details_section(chat, "Answer")).to_contain_text("openai:small")
    await expect(details_section(chat, "Steps").get_by_role("button")).to_contain_text("seq 1 40000")
    await details_panel(chat).get_by_role("button", name="Conversation").click()
    await expect(details_section(chat, "Who answers")).to_be_visible()
    await expect(details_section(chat, "Changed files")).to_have_text(
        "Changed filesFiles that commands change are not listed."
    )


async def test_text_before_a_call_is_not_shown_as_the_reason_for_its_failure(
    new_chat: NewChat,
) -> None:
    chat = await new_chat(**WIDE)
    await chat.send("run false")
    await chat.allow.click()
    await chat.wait_for_answers()
    await open_details(chat)
    await chat.log.locator(".tool .fold").click()
    await expect(details_panel(chat).locator(".facts")).to_contain_text("failed")
    await expect(details_panel(chat).locator(".facts")).not_to_contain_text("Asked with")


async def test_one_goes_from_one_call_of_an_answer_to_the_next(new_chat: NewChat) -> None:
    chat = await new_chat(**WIDE)
    await chat.send("look 3")
    await chat.wait_for_answers()
    await chat.button("Details of this answer").click()
    await details_section(chat, "Steps").get_by_role("button").nth(1).click()
    await expect(details_panel(chat)).to_contain_text("2 of 3")
    await chat.button("Next step").click()
    await expect(details_panel(chat)).to_contain_text("3 of 3")
    await expect(chat.button("Next step")).to_be_disabled()
    await chat.button("Previous step").click()
    await expect(details_panel(chat)).to_contain_text("2 of 3")


async def test_a_conversation_shows_its_files_and_what_waits(new_chat: NewChat) -> None:
    chat = await new_chat(**WIDE)
    written = json.dumps({"path": "beside.py", "content": "one = 1\ntwo = 2\n"})
    await chat.page.set_input_files(
        "input[type=file]", {"name": "plan.txt", "mimeType": "text/plain", "buffer": b"a plan"}
    )
    # Stored, not only on its way: nothing is sent before.
    attached = chat.page.get_by_role("list", name="Attached files")
    await expect(attached.get_by_role("listitem")).to_have_text(["plan.txt ×"], timeout=WAIT_MS)
    await chat.send("this is the plan")
    await chat.wait_for_answers()
    await chat.send(f"use write_file {written}")
    await chat.allow.click()
    await chat.wait_for_answers(2)
    await open_details(chat)
    await expect(details_section(chat, "Attached files").get_by_role("link", name="plan.txt")).to_be_visible()
    # The message is a heading; the files that it changed are listed below.
    heading = details_section(chat, "Changed files").get_by_role("heading", level=4)
    await expect(heading).to_contain_text("use write_file")
    listed = details_section(chat, "Changed files").locator(".changes")
    await listed.get_by_role("listitem").get_by_role("button", name=re.compile("^beside.py")).click()
    await expect(listed.locator(".diff .plus").first).to_have_text("+one = 1\n")
    await expect(listed.get_by_role("button", name=re.compile("^beside.py"))).to_be_focused()
    await chat.send("hold")
    await expect(details_section(chat, "Now")).to_contain_text("Writing the answer.", timeout=WAIT_MS)
    await expect(details_section(chat, "Now")).to_contain_text("Begun just now")
    await chat.send("and then this")
    await expect(details_section(chat, "Waiting to be answered")).to_contain_text(
        "and then this", timeout=WAIT_MS
    )
    await chat.button("Stop").click()
    await chat.button("Answer it now").click()
    await chat.wait_for_answers(4)
    await expect(details_section(chat, "Waiting to be answered")).to_have_count(0)
    await expect(details_section(chat, "Now")).to_have_count(0)


async def test_a_running_call_shows_its_output_and_its_end(new_chat: NewChat) -> None:
    chat = await new_chat(**WIDE)
    await chat.send("run echo first; sleep 30")
    await chat.allow.click()
    await open_details(chat)
    await expect(details_section(chat, "Now").locator("pre")).to_have_text("first", timeout=WAIT_MS)
    await details_section(chat, "Now").get_by_role("button", name=re.compile("shell")).click()
    await expect(details_panel(chat).locator(".facts")).to_contain_text("running")
    await expect(details_section(chat, "Output").locator("pre")).to_have_text("first\n")
    await chat.button("Stop").click()
    await chat.wait_for_text("Stopped.")
    await expect(details_panel(chat).locator(".facts")).not_to_contain_text("running", timeout=WAIT_MS)


async def test_it_is_not_drawn_again_with_every_word(new_chat: NewChat) -> None:
    chat = await new_chat(**WIDE)
    await chat.send("count 2000")
    await open_details(chat)
    await expect(details_section(chat, "Now")).to_be_visible(timeout=WAIT_MS)
    await chat.wait_for_count(20)
    await details_panel(chat).evaluate(WATCH)
    await chat.wait_for_count(100)
    assert await chat.page.evaluate("window.drawn") == 0
    await chat.button("Stop").click()
    await expect(details_section(chat, "Now")).to_have_count(0, timeout=WAIT_MS)
    assert await chat.page.evaluate("window.drawn") > 0, "what happens is drawn"


async def test_without_room_it_is_a_sheet_that_leaves_free_where_one_writes(new_chat: NewChat) -> None:
    chat = await new_chat(**NARROW)
    await chat.send("hold")
    await expect(chat.button("Stop")).to_be_visible(timeout=WAIT_MS)
    before = await bounding_box(chat.page.get_by_role("main"))
    await open_details(chat)
    await expect(details_panel(chat).get_by_role("group")).to_be_focused()
    assert await bounding_box(chat.page.get_by_role("main")) == before
    await chat.button("Stop").hover()  # Fails where something lies over it.
    its, log = await bounding_box(details_panel(chat)), await bounding_box(chat.log)
    assert its["width"] == pytest.approx(380, abs=1)
    assert log["y"] <= its["y"] + 1
    assert its["y"] + its["height"] <= log["y"] + log["height"] + 1
    await chat.page.keyboard.press("Escape")
    await expect(details_panel(chat)).to_have_count(0)
    await expect(chat.button("Details")).to_be_focused()
    await expect(chat.button("Stop")).to_be_visible()
    await chat.button("Stop").click()
    await chat.wait_for_text("Stopped.")
    await open_details(chat)
    await chat.page.reload()
    await chat.wait_for_text("Stopped.")
    await expect(details_panel(chat)).to_have_count(0)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", [WIDE, PHONE], ids=["wide", "phone"])
async def test_axe_finds_no_violation_in_it(scheme: Any, size: dict[str, Any], new_chat: NewChat) -> None:
    chat = await new_chat(color_scheme=scheme, **size)
    await chat.send("look 2 and write up")
    await chat.wait_for_answers()
    await open_details(chat)
    await expect(details_section(chat, "Used so far")).to_contain_text("out")
    found = {"conversation": await accessibility_violations(chat.page)}
    small = await undersized_targets(chat.page) if size is PHONE else []
    await details_panel(chat).get_by_role("button", name="Close").click()
    await chat.button("Details of this answer").click()
    await expect(details_section(chat, "Steps")).to_be_visible()
    found["answer"] = await accessibility_violations(chat.page)
    small += await undersized_targets(chat.page) if size is PHONE else []
    await details_section(chat, "Steps").get_by_role("button").first.click()
    await expect(details_section(chat, "Output")).to_be_visible()
    found["call"] = await accessibility_violations(chat.page)
    small += await undersized_targets(chat.page) if size is PHONE else []
    assert {state: wrongs for state, wrongs in found.items() if wrongs} == {}
    assert small == []
