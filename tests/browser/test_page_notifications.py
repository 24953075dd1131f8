"""What reaches people who look elsewhere: the browser's notifications, and the number in the title."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.async_api import Page, expect

from tests.browser.conftest import HostServer, NewChat
from tests.support.api_client import ScriptedModelServer, api_client
from tests.support.browser_driver import WAIT_MS, ChatPage, SharedServer

# A browser without a screen hides no tab, so the page is told what a browser would tell it.
OBSERVED = """() => {
    window.told = [];
    const Real = window.Notification;
    window.Notification = class extends Real {
        constructor(title, options) {
            super(title, options);
            window.told.push([title, options?.body ?? ""]);
            window.last = this;
        }
    };
    let away = false;
    Object.defineProperty(document, "hidden", { get: () => away });
    window.lookAway = (isAway) => { away = isAway; document.dispatchEvent(new Event("visibilitychange")); };
}"""
TITLED = re.compile(r"^\(1\) ")
PLAIN = re.compile(r"^[^(]")


@pytest.fixture(scope="module")
def shared_server(host_server: HostServer, speaker: ScriptedModelServer) -> Iterator[SharedServer]:
    """A server of this module's own: the title counts what anybody is asked there."""
    with host_server("quiet", speaker) as shared_server:
        yield shared_server


async def set_away(page: Page, is_away: bool = True) -> None:
    await page.evaluate("isAway => lookAway(isAway)", is_away)


async def shown_notifications(page: Page) -> list[list[str]]:
    found: list[list[str]] = await page.evaluate("told")
    return found


async def wait_for_notifications(page: Page, *wanted: list[str]) -> None:
    """Return once these were told, and no more."""
    await page.wait_for_function("many => told.length >= many", arg=len(wanted), timeout=WAIT_MS)
    assert await shown_notifications(page) == list(wanted)


async def open_with_notifications(new_chat: NewChat, **options: Any) -> ChatPage:
    """A page of somebody who wants to be told."""
    chat = await new_chat(permissions=["notifications"], **options)
    await chat.user.context.add_init_script(f"({OBSERVED})()")
    await chat.page.reload()
    await chat.page.get_by_role("button", name="Settings").click()
    wants = chat.page.get_by_label("Tell me when an answer is finished or needs me")
    await expect(wants).not_to_be_checked()
    await wants.check()
    await expect(wants).to_be_checked()
    await chat.page.keyboard.press("Escape")
    return chat


async def test_only_a_hidden_page_is_notified_once_of_a_finished_answer(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await open_with_notifications(new_chat)
    page = chat.page
    await chat.send("count 30")
    await chat.wait_for_answers()
    await expect(page).to_have_title(PLAIN)
    assert await shown_notifications(page) == []
    async with api_client(shared_server.server.address) as api:
        await set_away(page)
        title = (await api.get(f"/api/sessions/{chat.session_id}"))["title"]
        await api.wait_for_run((await api.send(chat.session_id, "and this"))["run_id"])
        await wait_for_notifications(page, [f"{title}: finished", ""])
        await expect(page).to_have_title(TITLED, timeout=WAIT_MS)
        # It is read by coming back to it: the number goes, and the list says so too.
        await set_away(page, False)
        await expect(page).to_have_title(PLAIN, timeout=WAIT_MS)
        await api.wait_for_field(f"/api/sessions/{chat.session_id}", "unread", False)
        # Something else is finished meanwhile: it counts, and leads there.
        other = await api.create_session(title="Elsewhere")
        await expect(page.get_by_role("navigation")).to_contain_text("Elsewhere", timeout=WAIT_MS)
        await api.wait_for_run((await api.send(other, "hello elsewhere"))["run_id"])
        await expect(page).to_have_title(TITLED, timeout=WAIT_MS)
        assert len(await shown_notifications(page)) == 1
        await set_away(page)
        await api.wait_for_run((await api.send(other, "again"))["run_id"])
        await wait_for_notifications(page, [f"{title}: finished", ""], ["Elsewhere: finished", ""])
        await page.evaluate("last.onclick()")
        await chat.wait_for_text("hello elsewhere")
        await set_away(page, False)
        await expect(page).to_have_title(PLAIN, timeout=WAIT_MS)


async def test_a_hidden_page_is_notified_of_what_needs_an_answer(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await open_with_notifications(new_chat)
    page = chat.page
    async with api_client(shared_server.server.address) as api:
        session = await api.create_session(title="Asks")
        await expect(page.get_by_role("navigation")).to_contain_text("Asks", timeout=WAIT_MS)
        await set_away(page)
        receipt = await api.send(session, 'ask {"question": "Blue or green?"}')
        await api.wait_for_run(receipt["run_id"], "waiting")
        await wait_for_notifications(page, ["Asks: needs you", "Blue or green?"])
        await expect(page).to_have_title(TITLED, timeout=WAIT_MS)
        call = (await api.get(f"/api/sessions/{session}/messages"))["messages"][-1]["id"]
        await api.post(f"/api/runs/{receipt['run_id']}/tools/{call}", {"decision": "answer", "text": "Blue"})
        await api.wait_for_run(receipt["run_id"])
        await wait_for_notifications(page, ["Asks: needs you", "Blue or green?"], ["Asks: finished", ""])


async def test_a_tab_in_the_background_is_silent_while_another_is_looked_at(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await open_with_notifications(new_chat)
    other = await shared_server.open_chat(chat.user)
    async with api_client(shared_server.server.address) as api:
        session = await api.create_session(title="Two tabs")
        for each in (chat, other):
            await expect(each.page.get_by_role("navigation")).to_contain_text("Two tabs", timeout=WAIT_MS)
        await set_away(chat.page)
        await api.wait_for_run((await api.send(session, "one"))["run_id"])
        for page in (chat.page, other.page):
            await expect(page).to_have_title(TITLED, timeout=WAIT_MS)
        assert await shown_notifications(chat.page) == await shown_notifications(other.page) == []
        await set_away(other.page)
        await api.wait_for_run((await api.send(session, "two"))["run_id"])
        await wait_for_notifications(other.page, ["Two tabs: finished", ""])


async def test_a_browser_that_does_not_allow_it_says_so(new_chat: NewChat) -> None:
    chat = await new_chat()
    await chat.page.get_by_role("button", name="Settings").click()
    wants = chat.page.get_by_label("Tell me when an answer is finished or needs me")
    await wants.click()
    await expect(chat.notices).to_contain_text("This browser blocks notifications", timeout=WAIT_MS)
    await expect(wants).not_to_be_checked()
