"""What is written stays where it was written: a slow answer of the server takes it nowhere else."""

import asyncio
import re

from playwright.async_api import Locator, Route, expect

from tests.browser.conftest import NewChat
from tests.browser.test_page_attaching import SOON, attached_files, file_input, hold_uploads, payload
from tests.browser.test_page_drafts import wait_for_draft
from tests.browser.test_page_questions import WHY, ask_question
from tests.support.api_client import api_client
from tests.support.browser_driver import SERVER_GONE_PATTERNS, WAIT_MS, ChatPage, SharedServer

FRAME = "() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))"
"""Lets the page do what it does about what has just come."""


class HeldRequests:
    """Requests that wait until they are let go."""

    def __init__(self) -> None:
        self.has_request = asyncio.Event()
        self.may_continue = asyncio.Event()

    async def hold_route(self, route: Route) -> None:
        self.has_request.set()
        async with asyncio.timeout(WAIT_MS / 1000):
            await self.may_continue.wait()
        await route.continue_()

    async def wait_for_request(self) -> None:
        async with asyncio.timeout(WAIT_MS / 1000):
            await self.has_request.wait()

    def release(self) -> None:
        self.may_continue.set()


async def hold_requests(chat: ChatPage, address: str, method: str) -> HeldRequests:
    """Have what asks for this wait."""
    requests = HeldRequests()

    async def answer(route: Route) -> None:
        await (requests.hold_route(route) if route.request.method == method else route.continue_())

    await chat.page.route(re.compile(address), answer)
    return requests


def composer(chat: ChatPage) -> Locator:
    """Where one writes, whatever for."""
    return chat.page.locator(".composer textarea")


def user_messages(chat: ChatPage) -> Locator:
    return chat.log.get_by_role("article", name="You")


async def open_conversation(chat: ChatPage, at: str, text: str) -> None:
    """Open a conversation without loading the page anew, and wait for what it shows."""
    await chat.page.evaluate("at => void (location.hash = at)", at)
    await expect(chat.page.get_by_role("main")).to_contain_text(text, timeout=WAIT_MS)


async def open_new_conversation(chat: ChatPage) -> None:
    await open_conversation(chat, "", "What can I do for you?")


async def test_a_draft_for_a_new_conversation_does_not_move_into_one_that_was_begun_before(
    new_chat: NewChat,
) -> None:
    chat = await new_chat()
    await chat.send("hello beta")
    await chat.wait_for_answers()
    beta = chat.session_id
    await open_new_conversation(chat)
    await chat.message.fill("only for a new one")
    await open_conversation(chat, beta, "hello beta")
    await expect(chat.message).to_have_value("")
    await open_new_conversation(chat)
    await expect(chat.message).to_have_value("only for a new one", timeout=WAIT_MS)


async def test_a_new_message_whose_file_is_on_its_way_is_not_sent_into_one_that_was_begun_before(
    new_chat: NewChat,
) -> None:
    chat = await new_chat()
    await chat.send("hello gamma")
    await chat.wait_for_answers()
    gamma = chat.session_id
    await open_new_conversation(chat)
    held = await hold_uploads(chat, "slow.txt")
    await chat.message.fill("not for gamma")
    await chat.message.press("Enter")
    await expect(chat.page.get_by_text(SOON)).to_be_visible(timeout=WAIT_MS)
    await open_conversation(chat, gamma, "hello gamma")
    await expect(chat.notices).to_contain_text("Your message is not sent", timeout=WAIT_MS)
    async with chat.page.expect_response("**/api/files?*"):
        held.set()
    await expect(chat.message).to_have_value("")
    await expect(attached_files(chat)).to_have_count(0)
    await open_new_conversation(chat)
    await expect(chat.message).to_have_value("not for gamma", timeout=WAIT_MS)
    await expect(attached_files(chat)).to_have_text(["slow.txt ×"], timeout=WAIT_MS)
    await open_conversation(chat, gamma, "hello gamma")
    await expect(user_messages(chat)).to_have_count(1)


async def test_a_new_conversation_is_not_replaced_by_one_that_was_sent_before_leaving(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    async with api_client(shared_server.server.address) as api:
        other = await api.create_session(title="Somewhere else")
    chat = await new_chat()
    held = await hold_requests(chat, r"/api/sessions$", "POST")
    await chat.message.fill("slow to begin")
    await chat.message.press("Enter")
    await held.wait_for_request()
    await open_conversation(chat, other, "Somewhere else")
    await open_conversation(chat, "", "Not saved yet")
    await chat.message.fill("for yet another one")
    held.release()
    await expect(chat.log.get_by_text("Not saved yet")).to_have_count(0, timeout=WAIT_MS)
    await chat.page.evaluate(FRAME)
    await chat.message.press("Enter")
    await chat.wait_for_answers()
    await expect(user_messages(chat)).to_have_count(1)
    await expect(user_messages(chat)).to_contain_text("for yet another one")


async def test_words_that_may_call_a_prompt_are_sent_only_where_and_as_they_were_written(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await new_chat()
    await chat.send("conversation A")
    await chat.wait_for_answers()
    one = chat.session_id
    async with api_client(shared_server.server.address) as api:
        other = await api.create_session(title="Conversation B")
    free = asyncio.Event()
    met = asyncio.Event()

    async def bring(route: Route) -> None:
        """The prompts, with one that this page has not heard of."""
        met.set()
        async with asyncio.timeout(WAIT_MS / 1000):
            await free.wait()
        got = await route.fetch()
        reply = await got.json()
        reply["prompts"].append({"name": "fresh", "about": "New here", "path": ""})
        await route.fulfill(response=got, json=reply)

    await chat.page.route(re.compile(r"/api/prompts"), bring)
    await chat.message.fill("/fresh words for A")
    await chat.message.press("Enter")
    async with asyncio.timeout(WAIT_MS / 1000):
        await met.wait()
    looks = chat.page.get_by_text("Looking for /fresh…")
    await expect(looks).to_be_visible()
    await open_conversation(chat, other, "Conversation B")
    await expect(looks).to_have_count(0)
    await chat.message.fill("a draft in B")
    free.set()
    await expect(chat.notices).to_contain_text("Your message is not sent", timeout=WAIT_MS)
    await expect(chat.message).to_have_value("a draft in B")
    await expect(user_messages(chat)).to_have_count(0)
    await open_conversation(chat, one, "conversation A")
    await expect(chat.message).to_have_value("/fresh words for A", timeout=WAIT_MS)
    await expect(user_messages(chat)).to_have_count(1)
    # The page may ask for prompts again: nothing is left to be answered when it closes.
    await chat.page.unroute_all(behavior="wait")


async def test_waiting_for_a_prompt_is_shown_and_the_message_is_sent_once_it_is_known(
    new_chat: NewChat,
) -> None:
    chat = await new_chat()
    held = await hold_requests(chat, r"/api/prompts", "GET")
    await chat.message.fill("/nothing like it")
    await chat.message.press("Enter")
    await held.wait_for_request()
    looks = chat.page.get_by_text("Looking for /nothing…")
    await expect(looks).to_be_visible()
    await expect(chat.button("Send")).to_be_disabled()
    await chat.message.press("Enter")
    held.release()
    await expect(chat.notices).to_contain_text("There is no command /nothing.", timeout=WAIT_MS)
    await expect(looks).to_have_count(0)
    await expect(chat.button("Send")).to_be_enabled()
    # Where the server cannot be asked, nobody says that there is none.
    chat.user.expect_errors(*SERVER_GONE_PATTERNS)
    await chat.page.unroute_all()
    await chat.page.route(re.compile(r"/api/prompts"), lambda route: route.abort())
    await chat.message.press("Enter")
    await expect(chat.notices).to_contain_text("cannot be asked for /nothing now", timeout=WAIT_MS)
    await expect(chat.message).to_have_value("/nothing like it")


async def test_an_answer_on_its_way_takes_nothing_from_another_conversation(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    async with api_client(shared_server.server.address) as api:
        other = await api.create_session(title="Conversation C")
    chat = await new_chat()
    await ask_question(chat, WHY)
    held = await hold_requests(chat, r"/api/runs/.*/tools/", "POST")
    await composer(chat).fill("because")
    await composer(chat).press("Enter")
    await held.wait_for_request()
    await open_conversation(chat, other, "Conversation C")
    await file_input(chat).set_input_files([payload("c.txt", b"A file in C")])
    await expect(attached_files(chat)).to_have_text(["c.txt ×"], timeout=WAIT_MS)
    await chat.message.fill("a long draft in C")
    async with api_client(shared_server.server.address) as api:
        await wait_for_draft(api, other, "a long draft in C")
        async with chat.page.expect_response(re.compile(r"/api/runs/.*/tools/")):
            held.release()
        await chat.page.evaluate(FRAME)
        await expect(chat.message).to_have_value("a long draft in C")
        await expect(attached_files(chat)).to_have_text(["c.txt ×"])


async def test_what_is_written_while_an_answer_is_on_its_way_stays(chat: ChatPage) -> None:
    await ask_question(chat, WHY)
    held = await hold_requests(chat, r"/api/runs/.*/tools/", "POST")
    await composer(chat).fill("because")
    await composer(chat).press("Enter")
    await held.wait_for_request()
    await composer(chat).press_sequentially(", and then some")
    held.release()
    await chat.wait_for_answers()
    await chat.wait_for_text("It said: because")
    await expect(composer(chat)).to_have_value("because, and then some")


async def test_a_file_sent_before_an_old_draft_has_loaded_is_reported_as_not_sent(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    async with api_client(shared_server.server.address) as api:
        session = await api.create_session(title="An old draft")
        await api.post(f"/api/sessions/{session}/draft", {"text": "an old draft"})
    chat = await new_chat()
    drafts = await hold_requests(chat, r"/draft$", "GET")
    await open_conversation(chat, session, "An old draft")
    await drafts.wait_for_request()
    held = await hold_uploads(chat, "alone.txt")
    await chat.message.press("Enter")
    await expect(chat.page.get_by_text(SOON)).to_be_visible(timeout=WAIT_MS)
    drafts.release()
    await expect(chat.message).to_have_value("an old draft", timeout=WAIT_MS)
    await expect(chat.notices).to_contain_text("Your message is not sent", timeout=WAIT_MS)
    await expect(chat.page.get_by_text(SOON)).to_have_count(0)
    held.set()
    await expect(attached_files(chat)).to_have_text(["alone.txt ×"], timeout=WAIT_MS)
    await expect(user_messages(chat)).to_have_count(0)
    await chat.message.press("Enter")
    await chat.wait_for_answers()
    await expect(user_messages(chat)).to_contain_text("an old draft")
