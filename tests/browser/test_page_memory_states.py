"""What the page says of memory, and what can be taken back: all of it agrees, and nothing claims too much."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.async_api import Response, Route, expect

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in, environ_for
from tests.browser.memory_page import (
    MemoryPage,
    open_new_conversation,
    send_in_new_conversation,
    shows_waiting_without_alert,
)
from tests.support.api_client import TITLE, api_client, scripted_model_server, wait_until
from tests.support.browser_driver import WAIT_MS, BrowserUser, ChatPage, sign_in
from tests.support.memory_model_server import MemoryModelServer
from tests.witness_memory.watching import WitnessMonitor

UNDO_MS = 20_000


@pytest.fixture
def model() -> Iterator[MemoryModelServer]:
    with scripted_model_server(MemoryModelServer()) as model:
        assert isinstance(model, MemoryModelServer)
        yield model


@pytest.fixture
def home(model: MemoryModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    with cli_in(tmp_path, **environ_for(model)) as command:
        yield command


async def delete(chat: ChatPage) -> None:
    row = chat.page.get_by_role("navigation").get_by_role("listitem").filter(has_text=TITLE)
    await row.get_by_role("button", name=f"More: {TITLE}").click(timeout=WAIT_MS)
    await row.get_by_role("menuitem", name="Delete").click()
    await expect(row).to_have_count(0)


class DeleteRecorder:
    """The answers to every DELETE that a page sends, also to one that comes early on a slow machine."""

    def __init__(self, chat: ChatPage) -> None:
        self._chat = chat
        self._answers = asyncio.Queue[Response]()
        chat.page.on("response", self._note)

    def _note(self, answer: Response) -> None:
        if answer.request.method == "DELETE":
            self._answers.put_nowait(answer)

    async def no_longer_undo(self) -> None:
        """Let the time pass in which a deletion can be undone; the page has a clock of the test's own."""
        await self._chat.page.clock.fast_forward(UNDO_MS)
        async with asyncio.timeout(WAIT_MS / 1000):
            assert (await self._answers.get()).status == 204


async def test_a_deleted_conversation_is_not_remembered_once_there_was_time_to_undo(
    visitor: BrowserUser, server: RunningServer, model: MemoryModelServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    await chat.page.clock.install()
    await send_in_new_conversation(chat, "My dog is called Rex.")
    deletions = DeleteRecorder(chat)
    await delete(chat)
    await expect(chat.notices).to_have_text("Conversation deleted. Undo", timeout=WAIT_MS)
    async with api_client(server.address) as api:
        assert len((await api.get("/api/memory/waiting"))["waiting"]) == 1
    await deletions.no_longer_undo()
    async with api_client(server.address) as api:
        assert (await api.get("/api/memory/waiting"))["waiting"] == []
        assert (await api.post("/api/memory/commit", {}))["outcome"] == "nothing"
    assert model.extractions == []


async def delete_with_note(chat: ChatPage, server: RunningServer) -> str:
    """Have a conversation from which one note was saved, and delete it; returns its id."""
    session = await send_in_new_conversation(chat, "My dog is called Rex.")
    async with api_client(server.address) as api:
        assert (await api.post("/api/memory/commit", {}))["outcome"] == "paid"
    await delete(chat)
    await expect(chat.notices).to_contain_text("1 note was saved from it.", timeout=WAIT_MS)
    return session


async def memory_count(server: RunningServer) -> int:
    async with api_client(server.address) as api:
        return len((await api.get("/api/memory"))["memories"])


@pytest.mark.parametrize("wanted", [True, False])
async def test_the_notes_of_a_deleted_conversation_go_only_if_one_says_so(
    visitor: BrowserUser, server: RunningServer, wanted: bool
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    await chat.page.clock.install()
    deletions = DeleteRecorder(chat)
    await delete_with_note(chat, server)
    if wanted:
        await chat.notices.get_by_role("button", name="Delete the notes too").click()
        await expect(chat.notices).to_have_text("Conversation and notes deleted. Undo", timeout=WAIT_MS)
    assert await memory_count(server) == 1  # Not while it can be undone.
    await deletions.no_longer_undo()
    assert await memory_count(server) == (0 if wanted else 1)


async def test_undo_brings_back_a_conversation_whose_notes_were_to_go_too(
    visitor: BrowserUser, server: RunningServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    session, memory = await delete_with_note(chat, server), MemoryPage(chat.page)
    await chat.notices.get_by_role("button", name="Delete the notes too").click()
    await memory.open()
    await expect(memory.region).to_contain_text("Nothing is remembered yet.", timeout=WAIT_MS)
    await chat.notices.get_by_role("button", name="Undo").click(timeout=WAIT_MS)
    await expect(memory.known.get_by_role("listitem")).to_have_count(1)
    row = chat.page.get_by_role("navigation").get_by_role("listitem").filter(has_text=TITLE)
    await expect(row).to_have_count(1, timeout=WAIT_MS)
    await chat.page.goto("about:blank")  # Leaving must not delete it now.
    async with api_client(server.address) as api:
        assert (await api.get(f"/api/sessions/{session}"))["notes"] == 1


async def test_one_who_leaves_the_page_has_deleted_the_notes_too_if_that_was_chosen(
    visitor: BrowserUser, server: RunningServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    await delete_with_note(chat, server)
    await chat.notices.get_by_role("button", name="Delete the notes too").click()
    await chat.page.goto("about:blank")

    async def are_gone() -> bool:
        return await memory_count(server) == 0

    await wait_until(are_gone)


async def test_clearing_says_that_it_is_remembered_and_can_have_it_not_be(
    visitor: BrowserUser, server: RunningServer, model: MemoryModelServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    await send_in_new_conversation(chat, "My dog is called Rex.")
    await chat.message.fill("/clear")
    await chat.message.press("Enter")
    await expect(chat.notices).to_contain_text("will still be saved", timeout=WAIT_MS)
    await chat.notices.get_by_role("button", name="Cancel").click()
    await expect(chat.turns).to_have_count(1)
    await chat.message.fill("/clear")
    await chat.message.press("Enter")
    await chat.notices.get_by_role("button", name="Don't remember it").click(timeout=WAIT_MS)
    await expect(chat.turns).to_have_count(0, timeout=WAIT_MS)
    await expect(chat.page.locator(".remembered")).to_have_text(
        "Not remembered, as you chose", timeout=WAIT_MS
    )
    async with api_client(server.address) as api:
        assert (await api.post("/api/memory/commit", {}))["outcome"] == "nothing"
    assert model.extractions == []
    # What is said from now on is.
    await chat.send("My cat is called Tom.")
    await shows_waiting_without_alert(chat)


@pytest.mark.parametrize("reads_late", [False, True])
async def test_a_dropped_commit_can_be_requested_again(
    visitor: BrowserUser, server: RunningServer, model: MemoryModelServer, reads_late: bool
) -> None:
    """`reads_late`: the conversation is read only after the server has let it be."""
    chat = ChatPage(await sign_in(visitor, server.link))
    memory, line = MemoryPage(chat.page), chat.page.locator(".remembered")
    session = await send_in_new_conversation(chat, "I live in Lisbon.")
    async with api_client(server.address) as api:
        assert (await api.post("/api/memory/commit", {}))["outcome"] == "paid"
        await expect(line).to_have_text(re.compile(r"Remembered \d"), timeout=WAIT_MS)
        await chat.send("My dog is called Rex.")
        await shows_waiting_without_alert(chat)
        await memory.open()
        drop = memory.waiting.get_by_role("button", name=f"Don't remember this: {TITLE}")
        await drop.click(timeout=WAIT_MS)
        await expect(drop).to_have_count(0)
        await expect(chat.notices).to_contain_text("This will not be remembered.")
        await chat.notices.get_by_role("button", name="Undo").click()
        await expect(drop).to_be_visible(timeout=WAIT_MS)
        await drop.click()
        async with chat.page.expect_response(re.compile("/api/memory/waiting/s_")) as dropped:
            if reads_late:

                async def wait(route: Route) -> None:
                    await dropped.value
                    await route.continue_()

                await chat.page.route("**/messages?*", wait)
            await chat.page.goto(f"{chat.page.url.partition('#')[0]}#{session}")
        assert (await dropped.value).status == 204
        # What was let be is not remembered, though what came before it is.
        await expect(line).to_have_text("Not remembered, as you chose", timeout=WAIT_MS)
        assert (await api.get(f"/api/sessions/{session}"))["remembered_at"] is None
    assert len(model.extractions) == 1


async def test_working_is_said_only_where_nothing_failed_and_the_way_to_memory_is_marked(
    visitor: BrowserUser, server: RunningServer, model: MemoryModelServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    memory = MemoryPage(chat.page)
    mark = chat.page.get_by_role("navigation").locator('a[href="#memory"] .dot')
    await memory.open()
    await expect(memory.region).to_contain_text("Working.", timeout=WAIT_MS)
    await expect(mark).to_have_count(0)
    model.extraction.status = 500
    await send_in_new_conversation(chat, "My dog is called Rex.")
    async with api_client(server.address) as api:
        await api.post("/api/memory/commit", {})
    await expect(mark).to_be_visible(timeout=WAIT_MS)
    await memory.open()
    await expect(memory.region).to_contain_text(
        "Working, but 1 conversation could not be remembered yet.", timeout=WAIT_MS
    )
    model.extraction.status = 0
    await memory.waiting.get_by_role("button", name="Remember all now").click()
    await expect(memory.region).to_contain_text("Working.", timeout=WAIT_MS)
    await expect(mark).to_have_count(0, timeout=WAIT_MS)


async def test_an_answer_that_comes_late_does_not_hide_what_failed_meanwhile(
    visitor: BrowserUser, server: RunningServer, model: MemoryModelServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    mark = chat.page.get_by_role("navigation").locator('a[href="#memory"] .dot')
    await send_in_new_conversation(chat, "My dog is called Rex.")
    is_held, may_go = asyncio.Event(), asyncio.Event()

    async def hold(route: Route) -> None:
        answer = await route.fetch()
        if '"committing"' in await answer.text() and not is_held.is_set():
            is_held.set()
            await may_go.wait()
        await route.fulfill(response=answer)

    await chat.page.route("**/api/memory/waiting", hold)
    model.extraction.status, model.extraction.hangs = 500, True
    async with (
        api_client(server.address) as api,
        asyncio.timeout(WAIT_MS / 1000),
        asyncio.TaskGroup() as tasks,
    ):
        tasks.create_task(api.post("/api/memory/commit", {}))
        await is_held.wait()
        model.extraction.hangs = False
    await expect(mark).to_be_visible(timeout=WAIT_MS)
    async with chat.page.expect_response("**/api/memory/waiting") as late:
        may_go.set()
    await (await late.value).finished()
    await chat.page.evaluate("() => new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))")
    assert await mark.is_visible()


async def test_memory_that_cannot_show_what_it_knows_claims_nothing(
    visitor: BrowserUser, model: MemoryModelServer, tmp_path: Path
) -> None:
    visitor.expect_errors("status of 502")
    witness = WitnessMonitor(tmp_path / "witness")
    environ = environ_for(model) | witness.environ | {"HOLDFAST_MEMORY": "witness"}
    with cli_in(tmp_path / "unseen", **environ) as command:
        memory = MemoryPage(await sign_in(visitor, command.serve("--port", "0").link))
        await memory.open()
        await expect(memory.region).to_contain_text(
            "Kept by witness. Working. It cannot show what it knows.", timeout=WAIT_MS
        )
        await expect(memory.region.get_by_role("textbox")).to_have_count(0)
        await expect(memory.region.get_by_role("searchbox")).to_have_count(0)
        await expect(memory.region).not_to_contain_text("Nothing is remembered yet.")
        # One that fails is told of in one line.
        witness.set_order("list", "before", "fail")
        await expect(memory.region.get_by_role("alert")).to_contain_text("cannot be shown", timeout=WAIT_MS)
        await expect(memory.region).not_to_contain_text("Working")
        witness.clear_orders()
        await expect(memory.region).to_contain_text("Working.", timeout=WAIT_MS)
        await expect(memory.region.get_by_role("alert")).to_have_count(0)
        await visitor.context.close()


async def test_what_is_added_is_there_once_wherever_it_was_added(
    visitor: BrowserUser, server: RunningServer
) -> None:
    chat = ChatPage(await sign_in(visitor, server.link))
    memory = MemoryPage(chat.page)
    await memory.open()
    field = memory.known.get_by_role("textbox", name="Add something to remember")
    for _ in range(2):
        await field.fill("My boat is called Ida.")
        await field.press("Enter")
        await expect(field).to_have_value("", timeout=WAIT_MS)
    await expect(memory.known.get_by_role("listitem")).to_have_count(1, timeout=WAIT_MS)
    async with api_client(server.address) as api:
        await api.post("/api/memory", {"text": "My car is called Otto."})
    await memory.wait_for_memory("Otto")


async def test_an_answer_says_what_memory_brought_to_it(visitor: BrowserUser, server: RunningServer) -> None:
    async with api_client(server.address) as api:
        await api.post("/api/memory", {"text": "The user's dog is called Rex."})
    chat = ChatPage(await sign_in(visitor, server.link))
    await open_new_conversation(chat.page)
    await chat.send("What is my dog called?")
    await chat.wait_for_answers()
    brought = chat.log.locator(".from-memory")
    for _ in range(2):
        await expect(brought.locator("summary")).to_have_text("From memory: 1 note", timeout=WAIT_MS)
        await expect(brought.get_by_text("dog is called Rex")).not_to_be_visible()
        await brought.locator("summary").click()
        await expect(brought.get_by_text("dog is called Rex")).to_be_visible()
        await chat.page.reload()
