"""What the assistant asks: answered by a button, a key, several of them or in words, in any tab."""

import json
import re
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.browser.conftest import NewChat
from tests.support.api_client import api_client
from tests.support.browser_driver import (
    PHONE,
    WAIT_MS,
    ChatPage,
    SharedServer,
    accessibility_violations,
    undersized_targets,
)

COLOURS = {"question": "Which colour shall the door be?", "choices": ["Red", "Dark green", "Blue"]}
SEVERAL = COLOURS | {"multiple": True}
WHY = {"question": "Why is that?"}


async def ask_question(chat: ChatPage, question: dict[str, Any]) -> Locator:
    """Have it asked; the card once it is there."""
    await chat.send(f"ask {json.dumps(question)}")
    await expect(chat.question).to_contain_text(question["question"], timeout=WAIT_MS)
    return chat.question


def answered_question(chat: ChatPage) -> Locator:
    """What was asked and answered, in the conversation."""
    return chat.log.locator(".answered-question")


async def test_a_choice_is_made_by_its_button_and_stays_in_the_conversation(chat: ChatPage) -> None:
    card = await ask_question(chat, COLOURS)
    needy = chat.page.get_by_role("navigation").get_by_role("listitem").filter(has_text="Needs you")
    await expect(needy).to_have_count(1)
    row = chat.page.get_by_role("navigation").locator("[aria-current=page]")
    await expect(row.get_by_role("img", name="Needs you")).to_be_visible(timeout=WAIT_MS)
    await expect(chat.page).to_have_title(re.compile(r"\(\d+\)"), timeout=WAIT_MS)
    # It has no title yet: it is known by how it begins.
    await expect(row).to_contain_text("ask {")
    await expect(chat.page.get_by_role("heading", name=re.compile("^ask {"))).to_be_visible()
    await card.get_by_role("button", name="Dark green").click()
    await chat.wait_for_answers()
    await chat.wait_for_no_question()
    await chat.wait_for_text("It said: Dark green")
    for _ in range(2):
        await expect(answered_question(chat)).to_contain_text(COLOURS["question"])  # type: ignore[arg-type]
        await expect(answered_question(chat)).to_contain_text("Your answer: Dark green")
        await chat.page.reload()
        await chat.wait_for_answers()


async def test_a_choice_is_made_by_its_number(chat: ChatPage) -> None:
    await ask_question(chat, COLOURS)
    await expect(chat.question).to_be_focused(timeout=WAIT_MS)
    await chat.page.keyboard.press("3")
    await chat.wait_for_answers()
    await chat.wait_for_text("It said: Blue")


async def test_several_are_chosen_and_sent_together(chat: ChatPage) -> None:
    card = await ask_question(chat, SEVERAL)
    send = card.get_by_role("button", name="Answer", exact=True)
    await expect(send).to_be_disabled()
    await expect(card).to_be_focused(timeout=WAIT_MS)
    for key in ("1", "2", "3", "2"):
        await chat.page.keyboard.press(key)
    await expect(card.get_by_role("button", pressed=True)).to_have_count(2)
    await expect(card.get_by_role("button", name="Dark green")).to_have_attribute("aria-pressed", "false")
    await chat.page.keyboard.press("Enter")
    await chat.wait_for_answers()
    await expect(answered_question(chat)).to_contain_text(re.compile("Red.*Blue", re.DOTALL))


async def test_words_answer_what_has_no_choices(chat: ChatPage) -> None:
    await ask_question(chat, WHY)
    # There is one place to write, and it says what for.
    words = chat.page.get_by_role("main").get_by_role("textbox")
    await expect(words).to_have_count(1)
    await expect(words).to_have_accessible_name("Answer the question", timeout=WAIT_MS)
    await expect(words).to_be_focused(timeout=WAIT_MS)
    await words.press_sequentially("Because")
    await expect(chat.page.get_by_text("This answers the question above.")).to_be_visible()
    await words.press("Shift+Enter")
    await words.press_sequentially("it is 2 late")
    await words.press("Enter")
    await chat.wait_for_answers()
    await chat.wait_for_text("It said: Because it is 2 late")
    await expect(words).to_have_accessible_name("Write a message")
    await expect(words).to_have_value("")
    await expect(chat.log.get_by_role("article", name="You")).to_have_count(1)


async def test_text_of_a_question_left_unanswered_becomes_a_message(chat: ChatPage) -> None:
    card = await ask_question(chat, WHY)
    words = chat.page.get_by_role("textbox", name="Answer the question")
    await words.fill("paint nothing")
    await card.get_by_role("button", name="Don't answer").click()
    await chat.wait_for_answers()
    await expect(chat.message).to_have_value("paint nothing")
    await chat.message.press("Enter")
    await chat.wait_for_answers(2)
    await expect(chat.log.get_by_role("article", name="Assistant").last).to_contain_text("paint nothing")


async def test_a_question_is_left_unanswered_by_its_button_or_by_another_message(chat: ChatPage) -> None:
    card = await ask_question(chat, COLOURS)
    await card.get_by_role("button", name="Don't answer").click()
    await chat.wait_for_answers()
    await expect(answered_question(chat)).to_contain_text("Not answered.")
    await ask_question(chat, COLOURS)
    await chat.message.fill("paint nothing")
    note = "Sending this leaves the question above unanswered."
    await expect(chat.page.get_by_text(note)).to_be_visible()
    await chat.message.press("Enter")
    await chat.wait_for_no_question()
    await expect(answered_question(chat).last).to_contain_text("Not answered.", timeout=WAIT_MS)
    await expect(chat.log.get_by_role("article", name="Assistant").last).to_contain_text("paint nothing")


async def test_a_question_answered_through_another_channel_disappears(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await new_chat()
    await ask_question(chat, COLOURS)
    other = await new_chat(chat.session_id)
    await expect(other.question).to_contain_text("Which colour", timeout=WAIT_MS)
    async with api_client(shared_server.server.address) as api:
        entry = (await api.entries(chat.session_id))[-1]
        path = f"/api/runs/{entry['run_id']}/tools/{entry['id']}"
        await api.post(path, {"decision": "answer", "choices": ["Red"]})
        assert api.status == 200
    for each in (chat, other):
        await each.wait_for_no_question()
        await each.wait_for_answers()
        await expect(answered_question(each)).to_contain_text("Your answer: Red")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_wrong_with_a_question(scheme: Any, new_chat: NewChat) -> None:
    chat = await new_chat(color_scheme=scheme)
    card = await ask_question(chat, SEVERAL)
    await card.get_by_role("button", name="Red").click()
    found = [await accessibility_violations(chat.page)]
    await card.get_by_role("button", name="Answer", exact=True).click()
    await chat.wait_for_answers()
    await ask_question(chat, WHY)
    found.append(await accessibility_violations(chat.page))
    assert found == [[], []]


async def test_a_thumb_can_answer(new_chat: NewChat) -> None:
    chat = await new_chat(**PHONE)
    card = await ask_question(
        chat, SEVERAL | {"choices": [*COLOURS["choices"], "Something that takes rather long to say " * 2]}
    )
    assert await undersized_targets(chat.page) == []
    width = await chat.page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["viewport"]["width"]
    await card.get_by_role("button", name="Blue").tap()
    await card.get_by_role("button", name="Answer", exact=True).tap()
    await chat.wait_for_answers()
    await chat.wait_for_text("Blue")
