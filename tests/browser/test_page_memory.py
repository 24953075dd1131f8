"""What is remembered, in the page: told in one conversation, known in the next, seen, changed, forgotten."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from playwright.async_api import Route, expect

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.browser.memory_page import (
    MemoryPage,
    open_new_conversation,
    send_in_new_conversation,
    shows_waiting_without_alert,
)
from tests.support.api_client import TITLE, api_client, scripted_model_server
from tests.support.browser_driver import (
    PHONE,
    SERVER_GONE_PATTERNS,
    WAIT_MS,
    BrowserUser,
    ChatPage,
    accessibility_violations,
    focus_with_tab,
    sign_in,
    undersized_targets,
)
from tests.support.fake_llama_packages import Packages
from tests.support.memory_model_server import MemoryModelServer
from tests.witness_memory.watching import WitnessMonitor

PAGED = 60


@pytest.fixture
def model() -> Iterator[MemoryModelServer]:
    with scripted_model_server(MemoryModelServer()) as model:
        assert isinstance(model, MemoryModelServer)
        yield model


@pytest.fixture
def home(model: MemoryModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    with cli_in(tmp_path, **environ_for(model)) as command:
        yield command


async def test_the_next_conversation_knows_a_fact_until_it_is_forgotten(
    visitor: BrowserUser, server: RunningServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    memory = MemoryPage(chat.page)
    stated_in = await send_in_new_conversation(chat, "My dog is called Rex.")
    # Beginning another is what has it remembered.
    await open_new_conversation(chat.page)
    await memory.open()
    await memory.wait_for_memory("The user's dog is called Rex.")
    asked_in = await send_in_new_conversation(chat, "What is my dog called?")
    await chat.wait_for_text("You told me that your dog is called Rex.")
    async with api_client(server.address) as api:
        assert (await api.get(f"/api/sessions/{asked_in}"))["previous_session_id"] == stated_in
    # Where it comes from, and the way there.
    await memory.open()
    await memory.entry("Rex").get_by_role("link", name=TITLE).click()
    await chat.wait_for_text("My dog is called Rex.")
    assert chat.session_id == stated_in
    await memory.open()
    await memory.forget("Rex")
    await send_in_new_conversation(chat, "What is my dog called?")
    await chat.wait_for_text("I do not know your dog.")


async def test_what_is_changed_is_what_is_said_next(visitor: BrowserUser, server: RunningServer) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    memory = MemoryPage(chat.page)
    await send_in_new_conversation(chat, "I live in Lisbon.")
    await open_new_conversation(chat.page)
    await memory.open()
    await memory.wait_for_memory("The user lives in Lisbon.")
    await memory.entry("Lisbon").get_by_role("button", name="Edit").click()
    field = memory.known.get_by_role("textbox", name="Edit")
    await field.fill("The user lives in Porto.")
    await field.press("Enter")
    await memory.wait_for_memory("The user lives in Porto.")
    await expect(memory.entry("Porto")).to_contain_text("changed by you")
    await expect(memory.entry("Porto").get_by_role("button", name="Edit")).to_be_focused(timeout=WAIT_MS)
    await send_in_new_conversation(chat, "Where do I live?")
    await chat.wait_for_text("You told me that you live in Porto.")


async def test_a_person_adds_finds_and_thinks_again(visitor: BrowserUser, server: RunningServer) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    memory = MemoryPage(chat.page)
    await memory.open()
    await expect(memory.region).to_contain_text("Nothing is remembered yet.")
    await expect(memory.region).to_contain_text("Kept in notes on this server. Working.", timeout=WAIT_MS)
    field = memory.known.get_by_role("textbox", name="Add something to remember")
    for text in ("My boat is called Ida.", "My car is called Otto."):
        await field.fill(text)
        await field.press("Enter")
        await memory.wait_for_memory(text)
        await expect(field).to_have_value("", timeout=WAIT_MS)
    await expect(memory.entry("Otto")).to_contain_text("Added by you")
    found = memory.known.get_by_role("searchbox", name="Search what is known")
    await found.fill("boat")
    await expect(memory.entry("Otto")).to_have_count(0, timeout=WAIT_MS)
    await memory.wait_for_memory("Ida")
    await found.fill("submarine")
    await expect(memory.known).to_contain_text("Nothing found.", timeout=WAIT_MS)
    await found.fill("")
    await memory.wait_for_memory("Otto")
    await memory.entry("Otto").get_by_role("button", name="Forget").click()
    await expect(memory.entry("Otto")).to_have_count(0)
    await chat.notices.get_by_role("button", name="Undo").click()
    await memory.wait_for_memory("Otto")
    await memory.forget("Ida")
    await chat.page.reload()
    await memory.open()
    await memory.wait_for_memory("Otto")
    await expect(memory.entry("Ida")).to_have_count(0)
    # Whoever stays and does not think again has forgotten it a little later.
    await chat.page.clock.install()
    async with chat.page.expect_response(lambda answer: answer.request.method == "DELETE") as forgotten:
        await memory.entry("Otto").get_by_role("button", name="Forget").click()
        await chat.page.clock.fast_forward(21_000)
    assert (await forgotten.value).status == 204
    await expect(memory.known).to_contain_text("Nothing is remembered yet.", timeout=WAIT_MS)


async def test_a_long_memory_comes_in_pages(visitor: BrowserUser, server: RunningServer) -> None:
    async with api_client(server.address) as api:
        for number in range(PAGED):
            await api.post("/api/memory", {"text": f"Fact number {number}."})
            assert api.status == 201
    memory = MemoryPage(await sign_in(visitor, server.link))
    await memory.open()
    await memory.wait_for_memory(f"Fact number {PAGED - 1}.")
    items = memory.known.get_by_role("listitem")
    assert await items.count() < PAGED
    await memory.known.get_by_role("button", name="Show more").click()
    await expect(items).to_have_count(PAGED, timeout=WAIT_MS)
    await expect(memory.known.get_by_role("button", name="Show more")).to_have_count(0, timeout=WAIT_MS)


async def test_what_cannot_be_remembered_waits_says_why_and_is_remembered_later(
    visitor: BrowserUser, server: RunningServer, model: MemoryModelServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    memory = MemoryPage(chat.page)
    line = chat.page.locator(".remembered")
    model.extraction.status = 500
    await send_in_new_conversation(chat, "My dog is called Rex.")
    await shows_waiting_without_alert(chat)
    await memory.open()
    await expect(memory.waiting).to_contain_text("Waiting to be remembered", timeout=WAIT_MS)
    await memory.waiting.get_by_role("button", name=f"Remember now: {TITLE}").click()
    await expect(memory.waiting.get_by_role("status")).to_contain_text(
        "It could not be remembered", timeout=WAIT_MS
    )
    row = memory.waiting.get_by_role("listitem")
    await expect(row).to_contain_text("Couldn't save to memory; retrying", timeout=WAIT_MS)
    await expect(row.locator(".why")).not_to_be_empty()
    await row.get_by_role("link", name=TITLE).click()
    await expect(line).to_contain_text("Couldn't save to memory; retrying", timeout=WAIT_MS)
    model.extraction.status = 0
    await memory.open()
    await memory.waiting.get_by_role("button", name="Remember all now").click()
    await memory.wait_for_memory("The user's dog is called Rex.")
    await expect(memory.waiting.get_by_role("status")).to_have_text("Remembered.", timeout=WAIT_MS)
    await expect(row).to_have_count(0, timeout=WAIT_MS)


async def test_a_conversation_says_when_it_was_remembered(
    visitor: BrowserUser, server: RunningServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    line = chat.page.locator(".remembered")
    await send_in_new_conversation(chat, "My dog is called Rex.")
    await shows_waiting_without_alert(chat)
    # What waits is known to whoever comes later, too.
    await chat.page.reload()
    await shows_waiting_without_alert(chat)
    await chat.message.fill("/remember")
    await chat.message.press("Enter")
    await expect(chat.notices).to_contain_text("Remembered.", timeout=WAIT_MS)
    await expect(line).to_have_text(re.compile(r"Remembered \d"), timeout=WAIT_MS)
    await chat.page.reload()
    await expect(line).to_have_text(re.compile(r"Remembered \d"), timeout=WAIT_MS)


async def test_a_requested_commit_is_shown_while_it_waits(
    visitor: BrowserUser, server: RunningServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    line = chat.page.locator(".remembered")
    await send_in_new_conversation(chat, "My dog is called Rex.")
    await shows_waiting_without_alert(chat)
    held = asyncio.Event()

    async def hold(route: Route) -> None:
        await held.wait()
        await route.continue_()

    await chat.page.route("**/api/memory/commit", hold)
    await chat.message.fill("/remember")
    await chat.message.press("Enter")
    await expect(line).to_have_text("Waiting to be remembered", timeout=WAIT_MS)
    held.set()
    await expect(line).to_have_text(re.compile(r"Remembered \d"), timeout=WAIT_MS)
    # What is said from then on waits its turn again.
    await chat.send("My cat is called Tom.")
    await chat.wait_for_answers(2)
    await shows_waiting_without_alert(chat)


async def test_a_conversation_that_is_not_to_be_remembered_is_not(
    visitor: BrowserUser, server: RunningServer, model: MemoryModelServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    memory = MemoryPage(chat.page)
    await send_in_new_conversation(chat, "My cat is called Tom.")
    row = chat.page.get_by_role("navigation").get_by_role("listitem").filter(has_text=TITLE)
    await row.get_by_role("button", name=f"More: {TITLE}").click(timeout=WAIT_MS)
    await row.get_by_role("menuitem", name="Don't remember this conversation").click()
    await expect(chat.notices).to_contain_text("What waited to be is let go", timeout=WAIT_MS)
    await expect(chat.page.locator(".remembered")).to_have_text("Not remembered, as you chose")
    await row.get_by_role("button", name=f"More: {TITLE}").click()
    await expect(row.get_by_role("menuitem", name="Remember this conversation")).to_be_visible(
        timeout=WAIT_MS
    )
    await row.press("Escape")
    await chat.send("My dog is called Rex.")
    await chat.wait_for_answers(2)
    await memory.open()
    await expect(memory.known).to_contain_text("Nothing is remembered yet.", timeout=WAIT_MS)
    await expect(memory.waiting).to_have_count(0)
    await send_in_new_conversation(chat, "What is my dog called?")
    await chat.wait_for_text("I do not know your dog.")
    assert model.extractions == []


async def test_a_new_conversation_begins_also_when_the_one_before_it_is_gone(
    visitor: BrowserUser, server: RunningServer
) -> None:
    visitor.expect_errors("status of 404")
    chat = ChatPage(await sign_in(visitor, server.link))
    gone = await send_in_new_conversation(chat, "hello there")
    await open_new_conversation(chat.page)
    async with api_client(server.address) as api:
        await api.request("DELETE", f"/api/sessions/{gone}")
        await chat.send("hello again")
        await chat.wait_for_answers()
        assert (await api.get(f"/api/sessions/{chat.session_id}"))["previous_session_id"] is None


async def test_a_person_is_asked_about_what_may_have_been_remembered(
    visitor: BrowserUser, model: MemoryModelServer, tmp_path: Path
) -> None:
    witness = WitnessMonitor(tmp_path / "witness", takes_key=False)
    environ = environ_for(model) | witness.environ | {"HOLDFAST_MEMORY": "witness"}
    with cli_in(tmp_path / "cut off", **environ) as command:
        server = command.serve("--port", "0")
        async with api_client(server.address) as api:
            session = await api.create_session(title="Cut off")
            await api.wait_for_run((await api.send(session, "My dog is called Rex."))["run_id"])
            witness.set_order("commit", "after", "kill")
            with suppress(aiohttp.ClientError):
                await api.post("/api/memory/commit", {})
        server.process.wait(20)
        witness.clear_orders()
        chat = ChatPage(await sign_in(visitor, command.serve("--port", "0").link))
        memory = MemoryPage(chat.page)
        await memory.open()
        question = memory.waiting.get_by_role("group", name="Was it saved?")
        stopped = "The server stopped while saving this to memory."
        await expect(question).to_contain_text(stopped, timeout=WAIT_MS)
        for answer in ("Remember again", "It was saved", "Don't remember this"):
            await expect(question.get_by_role("button", name=answer)).to_be_visible()
        assert await accessibility_violations(chat.page) == []
        await question.get_by_role("link", name="Cut off").click()
        line = chat.page.locator(".remembered")
        await expect(line).to_have_text("May have been remembered already", timeout=WAIT_MS)
        await line.click()
        await question.get_by_role("button", name="It was saved").click()
        await expect(question).to_have_count(0, timeout=WAIT_MS)
        assert len(witness.stored_commits()) == 1
        await visitor.context.close()


async def test_calls_of_memory_tools_are_shown_in_words(visitor: BrowserUser, server: RunningServer) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    await chat.send("Remember that my dog is called Rex.")
    await chat.wait_for_text("Remembered: my dog is called Rex.")
    await chat.wait_for_answers()
    await chat.send("Look in memory for dog")
    await chat.wait_for_text("Looked in memory: dog")
    memory = MemoryPage(chat.page)
    await memory.open()
    await memory.wait_for_memory("my dog is called Rex.")


async def test_what_was_known_stays_in_sight_without_the_server(
    visitor: BrowserUser, server: RunningServer
) -> None:
    visitor.expect_errors(*SERVER_GONE_PATTERNS)
    async with api_client(server.address) as api:
        await api.post("/api/memory", {"text": "My boat is called Ida."})
    memory = MemoryPage(await sign_in(visitor, server.link))
    await memory.open()
    await memory.wait_for_memory("Ida")
    server.process.kill()
    server.process.wait(30)
    await expect(memory.page.get_by_text("This list may be out of date.")).to_be_visible(timeout=WAIT_MS)
    await memory.wait_for_memory("Ida")


async def test_a_memory_page_that_did_not_come_through_is_fetched_again(
    visitor: BrowserUser, server: RunningServer
) -> None:
    visitor.expect_errors(*SERVER_GONE_PATTERNS)
    page = await sign_in(visitor, server.link)
    script = re.compile(r"/page/memory_page-[\w-]+\.js")
    await page.route(script, lambda route: route.abort())
    await page.get_by_role("link", name="Memory", exact=True).click()
    await expect(page.get_by_role("alert")).to_contain_text("cannot be shown", timeout=WAIT_MS)
    await page.unroute(script)
    await page.get_by_role("button", name="Try again").click()
    await expect(page.get_by_role("region", name="Memory")).to_be_visible(timeout=WAIT_MS)


async def test_a_keyboard_is_enough_for_memory(visitor: BrowserUser, server: RunningServer) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    page, keyboard, memory = chat.page, chat.page.keyboard, MemoryPage(chat.page)
    await keyboard.press("Control+k")
    palette = page.get_by_role("dialog", name="Search commands and conversations").get_by_role("combobox")
    await expect(palette).to_be_focused(timeout=WAIT_MS)
    await keyboard.type("memory")
    await keyboard.press("Enter")
    await expect(memory.region).to_be_focused(timeout=WAIT_MS)
    await expect(memory.known).to_be_visible(timeout=WAIT_MS)
    await focus_with_tab(page, memory.known.get_by_role("textbox", name="Add something to remember"))
    for text in ("My boat is called Ida.", "My car is called Otto."):
        await keyboard.type(text)
        await keyboard.press("Enter")
        await memory.wait_for_memory(text)
    await focus_with_tab(page, memory.entry("Ida").get_by_role("button", name="Edit"))
    await keyboard.press("Enter")
    await expect(memory.known.get_by_role("textbox", name="Edit")).to_be_focused()
    await keyboard.type("My boat is called Eva.")
    await keyboard.press("Escape")
    await memory.wait_for_memory("Ida")
    await focus_with_tab(page, memory.entry("Otto").get_by_role("button", name="Forget"))
    await keyboard.press("Enter")
    await expect(memory.entry("Otto")).to_have_count(0)
    # One goes on with the next.
    await expect(memory.entry("Ida").get_by_role("button", name="Forget")).to_be_focused(timeout=WAIT_MS)
    await keyboard.press("Alt+n")
    await expect(chat.message).to_be_focused(timeout=WAIT_MS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_wrong_with_the_memory_page(
    scheme: Any, visitor: BrowserUser, server: RunningServer, model: MemoryModelServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    await chat.page.emulate_media(color_scheme=scheme)
    memory = MemoryPage(chat.page)
    await memory.open()
    found = {"empty": await accessibility_violations(chat.page)}
    model.extraction.status = 500
    await send_in_new_conversation(chat, "My dog is called Rex.")
    found["conversation"] = await accessibility_violations(chat.page)
    async with api_client(server.address) as api:
        await api.post("/api/memory", {"text": "My boat is called Ida."})
    await memory.open()
    await memory.waiting.get_by_role("button", name="Remember all now").click()
    await expect(memory.waiting).to_contain_text("Couldn't save to memory", timeout=WAIT_MS)
    await memory.wait_for_memory("Ida")
    found["full"] = await accessibility_violations(chat.page)
    await memory.entry("Ida").get_by_role("button", name="Edit").click()
    found["editing"] = await accessibility_violations(chat.page)
    assert {state: wrongs for state, wrongs in found.items() if wrongs} == {}


async def test_memory_fits_a_phone(
    visitor: BrowserUser, server: RunningServer, model: MemoryModelServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    model.extraction.status = 500
    await send_in_new_conversation(chat, "My dog is called Rex.")
    async with api_client(server.address) as api:
        await api.post("/api/memory", {"text": "My boat is called Ida. " + "It is a long story. " * 20})
        await api.post("/api/memory/commit", {})
    await chat.page.set_viewport_size(PHONE["viewport"])
    await chat.page.reload()
    await expect(chat.page.locator(".remembered")).to_be_visible(timeout=WAIT_MS)
    assert await undersized_targets(chat.page) == []
    await chat.page.get_by_role("button", name="Conversations").click()
    memory = MemoryPage(chat.page)
    await memory.open()
    await expect(chat.page.get_by_role("navigation")).not_to_be_visible()
    await memory.wait_for_memory("Ida")
    await expect(memory.waiting).to_contain_text("Couldn't save to memory", timeout=WAIT_MS)
    assert await chat.page.evaluate("document.documentElement.scrollWidth") == 390
    assert await memory.region.evaluate("box => box.scrollWidth <= box.clientWidth")
    assert await undersized_targets(chat.page) == []


async def test_memory_that_is_off_says_how_to_turn_it_on(
    visitor: BrowserUser, model: MemoryModelServer, tmp_path: Path
) -> None:
    with cli_in(tmp_path / "off", HOLDFAST_MEMORY="off", **environ_for(model)) as command:
        page = await sign_in(visitor, command.serve("--port", "0").link)
        await page.get_by_role("link", name="Memory", exact=True).click()
        region = page.get_by_role("region", name="Memory")
        await expect(region).to_contain_text("Memory is off", timeout=WAIT_MS)
        await expect(region).to_contain_text("HOLDFAST_MEMORY=notes", timeout=WAIT_MS)
        await visitor.context.close()


async def test_the_demo_says_that_it_remembers_nothing(visitor: BrowserUser, tmp_path: Path) -> None:
    with cli_in(tmp_path / "demo") as command:
        page = await sign_in(visitor, command.serve("--port", "0").link)
        await page.get_by_role("link", name="Memory", exact=True).click()
        region = page.get_by_role("region", name="Memory")
        await expect(region).to_contain_text("The scripted demo remembers nothing.", timeout=WAIT_MS)
        await region.get_by_role("button", name="Connect a model").click()
        await expect(page.get_by_role("dialog", name="Settings")).to_be_visible(timeout=WAIT_MS)
        await visitor.context.close()


async def test_the_local_model_is_said_to_be_too_small_to_remember(
    visitor: BrowserUser, tmp_path: Path
) -> None:
    packages = Packages(tmp_path)
    await packages.installed(tmp_path / "share" / "holdfast")
    with cli_in(tmp_path, HOLDFAST_MODEL="local") as command:
        page = await sign_in(visitor, command.serve("--port", "0").link)
        await page.get_by_role("link", name="Memory", exact=True).click()
        region = page.get_by_role("region", name="Memory")
        await expect(region).to_contain_text("0 of 5,000 notes", timeout=WAIT_MS)
        await expect(region).to_contain_text("The local model is too small to remember conversations.")
        await expect(region).not_to_contain_text("Working.")
        await visitor.context.close()
