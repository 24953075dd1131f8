"""Questions above the composer: changed before it is allowed, refused with a reason, allowed from now on."""

from pathlib import Path

from playwright.async_api import expect

from tests.browser.conftest import NewChat
from tests.support.browser_driver import WAIT_MS, ChatPage


async def test_what_was_edited_is_what_runs(chat: ChatPage, tmp_path: Path) -> None:
    await chat.send(f"run echo first > {tmp_path}/marker")
    await chat.wait_for_approval()
    await expect(chat.question.locator(".command")).to_have_text(f"echo first > {tmp_path}/marker")
    await expect(chat.question).to_contain_text("Or reply below to decline")
    await chat.question.get_by_role("button", name="Edit").click()
    command = chat.question.get_by_role("textbox", name="Edit")
    await expect(command).to_be_focused()
    await command.fill(f"echo second > {tmp_path}/marker; cat {tmp_path}/marker")
    await chat.question.get_by_role("button", name="Allow", exact=True).click()
    await chat.wait_for_text("second exit code 0")
    await chat.wait_for_no_question()
    assert (tmp_path / "marker").read_text() == "second\n"
    await chat.expand_all()
    await chat.wait_for_text("You changed this before it ran")
    await chat.page.reload()
    await chat.wait_for_answers()
    await chat.expand_all()
    await chat.wait_for_text("You changed this before it ran")
    await chat.wait_for_text("echo second")


async def test_a_refusal_reaches_the_model_with_its_reason(chat: ChatPage, tmp_path: Path) -> None:
    await chat.send(f"run echo ran > {tmp_path}/marker")
    await chat.wait_for_approval()
    await chat.deny.click()
    why = chat.question.get_by_role("textbox", name="Reason (optional, sent to the assistant)")
    await expect(why).to_be_focused()
    await why.fill("the disk is full")
    await why.press("Enter")
    await chat.wait_for_answers()
    # The model repeats what it was told.
    await expect(chat.log.get_by_role("article", name="Assistant")).to_contain_text("the disk is full")
    await chat.wait_for_text("not allowed")
    await chat.wait_for_no_question()
    assert not (tmp_path / "marker").exists()


async def test_what_is_allowed_in_a_conversation_is_not_asked_again_there_but_elsewhere(
    chat: ChatPage,
) -> None:
    await chat.send("run echo fine")
    await chat.wait_for_approval()
    await chat.question.get_by_role("button", name="Allow in this conversation").click()
    await expect(chat.notices).to_contain_text("Allowed in this conversation: echo fine.")
    await chat.wait_for_answers()
    await chat.send("run echo fine")
    await chat.wait_for_answers(2)
    await expect(chat.log.get_by_text("It said: fine")).to_have_count(2, timeout=WAIT_MS)
    await chat.send("run echo other")
    await chat.wait_for_approval()
    await chat.page.get_by_role("link", name="New conversation").click()
    await expect(chat.log.get_by_text("It said: fine")).to_have_count(0, timeout=WAIT_MS)
    await chat.send("run echo fine")
    await chat.wait_for_approval()


async def test_what_is_to_be_written_is_shown_without_a_line_after_its_last(chat: ChatPage) -> None:
    await chat.send('use write_file {"path": "two.txt", "content": "hello\\nworld\\n"}')
    await chat.wait_for_approval()
    await expect(chat.question.get_by_role("heading")).to_have_text("Write two.txt?")
    lines = chat.question.get_by_label("Changes of two.txt")
    await expect(lines.locator(".plus")).to_have_text(["+hello\n", "+world\n"])
    assert await lines.text_content() == "+hello\n+world\n"
    await chat.wait_for_text("Write two.txt · not run yet")
    await chat.allow.click()
    await chat.wait_for_answers()
    await expect(chat.log.locator(".tool .counts").first).to_contain_text("2 lines added")


async def test_a_command_of_several_says_why_it_is_not_allowed_for_good(chat: ChatPage) -> None:
    await chat.send("run echo one; echo two")
    await chat.wait_for_approval()
    await expect(chat.question).to_contain_text("are allowed one at a time")
    await expect(chat.question.get_by_role("button", name="Always allow")).to_have_count(0)
    await chat.allow.click()
    await chat.wait_for_answers()
    await chat.send("run echo three")
    await chat.wait_for_approval()
    await expect(chat.question.get_by_role("button", name="Always allow")).to_be_visible()
    await expect(chat.question).not_to_contain_text("one at a time")
    # What was said on the first card is not repeated; where it works is information.
    await expect(chat.question.locator(".risk")).to_have_count(0)
    await expect(chat.question).to_contain_text("In this conversation's folder")


async def test_a_failed_command_says_its_exit_code_and_shows_its_end(chat: ChatPage) -> None:
    await chat.send("run seq 1 100; exit 3")
    await chat.wait_for_approval()
    await chat.allow.click()
    await chat.wait_for_answers()
    line = chat.log.get_by_role("button", name="Run seq 1 100")
    await expect(line).to_contain_text("· failed: exit code 3")
    await line.click()
    shown = chat.log.get_by_label("Output")
    await expect(shown).to_contain_text("exit code 3")
    assert await shown.evaluate("pre => pre.scrollTop + pre.clientHeight >= pre.scrollHeight - 1")
    assert await shown.evaluate("pre => pre.scrollTop > 0")


async def test_what_is_asked_keeps_off_the_edges_and_its_buttons_together(new_chat: NewChat) -> None:
    chat = await new_chat(viewport={"width": 1280, "height": 800})
    await chat.send("run echo hello")
    await chat.wait_for_approval()
    await chat.button("Details").click()
    await expect(chat.page.get_by_role("complementary", name="Details")).to_be_visible(timeout=WAIT_MS)
    main, box = await chat.page.locator("main").bounding_box(), await chat.question.bounding_box()
    assert main is not None and box is not None
    assert box["x"] - main["x"] >= 8 and main["x"] + main["width"] - box["x"] - box["width"] >= 8
    lasting = [chat.question.get_by_role("button", name=name) for name in ("in this conversation", "Always")]
    tops = {(await each.bounding_box() or {"y": None})["y"] for each in lasting}
    assert len(tops) == 1, tops
    await chat.button("Stop").click()
    await chat.wait_for_no_question()
