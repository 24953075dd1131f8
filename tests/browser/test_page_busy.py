"""What can be said and done while an answer is being written."""

from pathlib import Path

from playwright.async_api import expect

from tests.support.api_client import ScriptedModelServer
from tests.support.browser_driver import WAIT_MS, ChatPage


async def _start_counting(chat: ChatPage) -> None:
    await chat.send("count 3000")
    await chat.wait_for_count(10)


async def _press(chat: ChatPage, text: str, name: str) -> None:
    await chat.message.fill(text)
    await chat.button(name).click()
    await expect(chat.message).to_have_value("", timeout=WAIT_MS)


async def test_what_is_sent_after_waits_for_the_answer_under_way(
    chat: ChatPage, speaker: ScriptedModelServer
) -> None:
    with speaker.pausing_count(60):
        await chat.send("count 120")
        await chat.wait_for_count(10)
        await _press(chat, "and then this", "Queue")
        await chat.wait_for_text("Queued.")
    await chat.wait_for_answers(2)
    assert await chat.counted_numbers() == list(range(120))
    await expect(chat.turns).to_have_count(2)
    await expect(chat.turns.last.get_by_role("article", name="Assistant")).to_contain_text("and then this")
    await expect(chat.log.get_by_text("Queued.")).to_have_count(0)


async def test_a_steering_message_reaches_the_next_step_of_the_same_answer(
    chat: ChatPage, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    await chat.send(f"run until [ -e {go} ]; do sleep 0.05; done; echo outcome")
    await chat.wait_for_approval()
    await chat.allow.click()
    await chat.wait_for_text("running")
    await _press(chat, "listen to this", "Add now")
    # Once it is accepted: before that, the command could end first, and this would be a turn of its own.
    await chat.wait_for_text("listen to this")
    await expect(chat.log.get_by_text("Not saved yet")).to_have_count(0, timeout=WAIT_MS)
    go.touch()
    await chat.wait_for_answers()
    # One turn: the command, what was told meanwhile, and the answer to that.
    await expect(chat.turns).to_have_count(1, timeout=WAIT_MS)
    await expect(chat.turns.get_by_role("article", name="You").last).to_have_text("listen to this")
    await expect(chat.turns.get_by_role("article", name="Assistant")).to_contain_text("listen to this")


async def test_stop_and_send_ends_the_answer_and_begins_the_next(chat: ChatPage) -> None:
    await _start_counting(chat)
    await _press(chat, "something else", "Interrupt")
    await chat.wait_for_text("Stopped.")
    await expect(chat.turns.last.get_by_role("article", name="Assistant")).to_contain_text(
        "something else", timeout=WAIT_MS
    )
    await expect(chat.turns.first).to_contain_text(" 10 ")


async def test_stop_ends_the_answer_and_keeps_what_was_said(chat: ChatPage) -> None:
    await _start_counting(chat)
    await chat.button("Stop").click()
    await chat.wait_for_text("Stopped.")
    await expect(chat.button("Stop")).to_have_count(0)
    await expect(chat.button("Send")).to_be_visible()
    await expect(chat.log.get_by_role("img", name="Writing…")).to_have_count(0)
    before = await chat.log.inner_text()
    counted = await chat.counted_numbers()
    assert counted == list(range(len(counted)))
    await chat.page.reload()
    await chat.wait_for_text("Stopped.")
    assert await chat.log.inner_text() == before


async def test_a_queued_message_waits_for_the_person_once_the_answer_before_it_is_stopped(
    chat: ChatPage,
) -> None:
    await _start_counting(chat)
    await _press(chat, "and then this", "Queue")
    await _press(chat, "and this", "Queue")
    queued = chat.log.get_by_text("Queued.")
    await expect(queued).to_have_count(2)
    await chat.button("Stop").click()
    await expect(chat.turns.nth(1)).to_contain_text("Not answered yet. Answer it now")
    await expect(queued).to_have_count(1)
    await chat.button("Answer it now").click()
    await chat.wait_for_answers(3)
    await expect(queued).to_have_count(0)


async def test_a_waiting_steering_message_reads_the_same_after_a_reload(chat: ChatPage) -> None:
    await chat.send("hold on")
    await expect(chat.log.get_by_role("img", name="Writing…")).to_be_visible(timeout=WAIT_MS)
    await _press(chat, "listen to this", "Add now")
    for _ in range(2):
        await chat.wait_for_text("It will see this before its next step.")
        await expect(chat.log.get_by_text("Queued.")).to_have_count(0)
        await chat.page.reload()
    await chat.button("Stop").click(timeout=WAIT_MS)
    await chat.wait_for_text("Stopped.")
