"""Commands that are typed where one writes: what they answer with, and what they do."""

import re
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.browser.conftest import NewChat
from tests.support.browser_driver import WAIT_MS, ChatPage


async def type_line(chat: ChatPage, line: str) -> None:
    await chat.message.fill(line)
    await chat.message.press("Enter")


async def deny_then_approve(chat: ChatPage, folder: Path) -> None:
    """Type /deny at a first command and /approve at a second, and check that only the second one ran."""
    await chat.send(f"run echo ran > {folder}/denied")
    await chat.wait_for_approval()
    await type_line(chat, "/status")
    await expect(chat.notices).to_contain_text("Needs you", timeout=WAIT_MS)
    await type_line(chat, "/deny the disk is full")
    await chat.wait_for_answers()
    await chat.send(f"run echo ran > {folder}/allowed")
    await chat.wait_for_approval()
    await type_line(chat, "/approve")
    await chat.wait_for_answers(2)
    assert (folder / "allowed").exists() and not (folder / "denied").exists()


async def test_a_question_is_answered_by_what_is_typed(chat: ChatPage, tmp_path: Path) -> None:
    await type_line(chat, "/approve")
    await expect(chat.notices).to_contain_text("Nothing is asked here.", timeout=WAIT_MS)
    await deny_then_approve(chat, tmp_path)
    await chat.wait_for_text("the disk is full")


SEND_AFTER = """async (area, begin) => {
  const settle = async () => { for (let i = 0; i < 100; i++) await null; };
  const send = async (words) => {
    area.value = words;
    area.dispatchEvent(new InputEvent("input", { bubbles: true }));
    await settle();
    area.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter", bubbles: true, cancelable: true }));
    await settle();
  };
  if (begin === "link") document.querySelector("nav a[href='#']").click();
  else await send(begin);
  await settle();
  await send("hello again");
}"""


@pytest.mark.parametrize("begin", ["/new", "link"])
async def test_what_is_typed_right_after_new_begins_a_conversation(chat: ChatPage, begin: str) -> None:
    """The browser has no time to report the new address before the next message is sent."""
    await chat.send("hello")
    await chat.wait_for_answers()
    first = chat.session_id
    await chat.message.evaluate(SEND_AFTER, begin)
    await expect(chat.page).to_have_url(re.compile(f"#(?!{first})s_"), timeout=WAIT_MS)
    await chat.wait_for_answers()
    await expect(chat.turns).to_have_count(1)


WITHOUT_FEED = """() => {
  delete window.SharedWorker;
  const fetched = window.fetch;
  window.fetch = async (address, ...rest) => {
    const answer = await fetched(address, ...rest);
    if (!String(address).includes("api/stream?") || !answer.body) return answer;
    let kept = "";
    const drop = new TransformStream({
      transform(text, out) {
        const frames = (kept + text).split("\\n\\n");
        kept = frames.pop();
        for (const frame of frames) {
          if (frame.includes("event: feed_changed")) window.dropped = (window.dropped ?? 0) + 1;
          else out.enqueue(frame + "\\n\\n");
        }
      },
    });
    const body = answer.body.pipeThrough(new TextDecoderStream()).pipeThrough(drop);
    return new Response(body.pipeThrough(new TextEncoderStream()), answer);
  };
}"""


async def test_typed_answers_need_only_the_conversation_itself(new_chat: NewChat, tmp_path: Path) -> None:
    """The list of all conversations comes by other events. Here they never arrive."""
    chat = await new_chat()
    await chat.user.context.add_init_script(f"({WITHOUT_FEED})()")
    await chat.page.reload()
    await deny_then_approve(chat, tmp_path)
    assert await chat.page.evaluate("window.dropped") > 0


async def test_switch_finds_a_conversation_by_its_title_and_model_names_the_model(chat: ChatPage) -> None:
    await chat.send("hello")
    await chat.wait_for_answers()
    await type_line(chat, "/title About the harbour")
    await expect(chat.page.get_by_role("heading", name="About the harbour")).to_be_visible(timeout=WAIT_MS)
    first = chat.session_id
    await type_line(chat, "/model")
    await expect(chat.notices).not_to_be_empty(timeout=WAIT_MS)
    await type_line(chat, "/new")
    await chat.send("hello again")
    await chat.wait_for_answers()
    assert chat.session_id != first
    await type_line(chat, "/switch nowhere at all")
    await expect(chat.notices).to_contain_text("No conversation has", timeout=WAIT_MS)
    await type_line(chat, "/switch harbour")
    await expect(chat.page).to_have_url(re.compile(first), timeout=WAIT_MS)
    await type_line(chat, "/sessions")
    await expect(chat.page.get_by_role("dialog")).to_be_visible(timeout=WAIT_MS)
