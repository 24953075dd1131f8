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
def inn(hosting: HostServer, speaker: ScriptedModelServer) -> Iterator[SharedServer]:
    """A server of this module's own: the title counts what anybody is asked there."""
    with hosting("quiet", speaker) as inn:
        yield inn


async def away(page: Page, is_away: bool = True) -> None:
    await page.evaluate("isAway => lookAway(isAway)", is_away)


async def told(page: Page) -> list[list[str]]:
    found: list[list[str]] = await page.evaluate("told")
    return found


async def tells(page: Page, *wanted: list[str]) -> None:
    """Return once these were told, and no more."""
    await page.wait_for_function("many => told.length >= many", arg=len(wanted), timeout=WAIT_MS)
    assert await told(page) == list(wanted)


async def listening(guest: NewChat, **options: Any) -> ChatPage:
    """A page of somebody who wants to be told."""
    chat = await guest(permissions=["notifications"], **options)
    await chat.user.context.add_init_script(f"({OBSERVED})()")
    await chat.page.reload()
    await chat.page.get_by_role("button", name="Settings").click()
    wants = chat.page.get_by_label("Tell me when an answer is finished or needs me")
    await expect(wants).not_to_be_checked()
    await wants.check()
    await expect(wants).to_be_checked()
    await chat.page.keyboard.press("Escape")
    return chat


async def test_whoever_looks_away_is_told_once_that_an_answer_is_finished_and_nobody_else(
    guest: NewChat, inn: SharedServer
) -> None:
    chat = await listening(guest)
    page = chat.page
    await chat.send("count 30")
    await chat.wait_for_answers()
    await expect(page).to_have_title(PLAIN)
    assert await told(page) == []
    async with api_client(inn.server.address) as api:
        await away(page)
        title = (await api.get(f"/api/sessions/{chat.session_id}"))["title"]
        await api.wait_for_run((await api.send(chat.session_id, "and this"))["run_id"])
        await tells(page, [f"{title}: finished", ""])
        await expect(page).to_have_title(TITLED, timeout=WAIT_MS)
        # It is read by coming back to it: the number goes, and the list says so too.
        await away(page, False)
        await expect(page).to_have_title(PLAIN, timeout=WAIT_MS)
        await api.wait_for_field(f"/api/sessions/{chat.session_id}", "unread", False)
        # Something else is finished meanwhile: it counts, and leads there.
        other = await api.create_session(title="Elsewhere")
        await expect(page.get_by_role("navigation")).to_contain_text("Elsewhere", timeout=WAIT_MS)
        await api.wait_for_run((await api.send(other, "hello elsewhere"))["run_id"])
        await expect(page).to_have_title(TITLED, timeout=WAIT_MS)
        assert len(await told(page)) == 1
        await away(page)
        await api.wait_for_run((await api.send(other, "again"))["run_id"])
        await tells(page, [f"{title}: finished", ""], ["Elsewhere: finished", ""])
        await page.evaluate("last.onclick()")
        await chat.wait_for_text("hello elsewhere")
        await away(page, False)
        await expect(page).to_have_title(PLAIN, timeout=WAIT_MS)


async def test_whoever_looks_away_is_told_what_needs_them(guest: NewChat, inn: SharedServer) -> None:
    chat = await listening(guest)
    page = chat.page
    async with api_client(inn.server.address) as api:
        session = await api.create_session(title="Asks")
        await expect(page.get_by_role("navigation")).to_contain_text("Asks", timeout=WAIT_MS)
        await away(page)
        receipt = await api.send(session, 'ask {"question": "Blue or green?"}')
        await api.wait_for_run(receipt["run_id"], "waiting")
        await tells(page, ["Asks: needs you", "Blue or green?"])
        await expect(page).to_have_title(TITLED, timeout=WAIT_MS)
        call = (await api.get(f"/api/sessions/{session}/messages"))["messages"][-1]["id"]
        await api.post(f"/api/runs/{receipt['run_id']}/tools/{call}", {"decision": "answer", "text": "Blue"})
        await api.wait_for_run(receipt["run_id"])
        await tells(page, ["Asks: needs you", "Blue or green?"], ["Asks: finished", ""])


async def test_a_tab_in_the_background_is_silent_while_another_is_looked_at(
    guest: NewChat, inn: SharedServer
) -> None:
    chat = await listening(guest)
    other = await inn.open_chat(chat.user)
    async with api_client(inn.server.address) as api:
        session = await api.create_session(title="Two tabs")
        for each in (chat, other):
            await expect(each.page.get_by_role("navigation")).to_contain_text("Two tabs", timeout=WAIT_MS)
        await away(chat.page)
        await api.wait_for_run((await api.send(session, "one"))["run_id"])
        for page in (chat.page, other.page):
            await expect(page).to_have_title(TITLED, timeout=WAIT_MS)
        assert await told(chat.page) == await told(other.page) == []
        await away(other.page)
        await api.wait_for_run((await api.send(session, "two"))["run_id"])
        await tells(other.page, ["Two tabs: finished", ""])


async def test_a_browser_that_does_not_allow_it_says_so(guest: NewChat) -> None:
    chat = await guest()
    await chat.page.get_by_role("button", name="Settings").click()
    wants = chat.page.get_by_label("Tell me when an answer is finished or needs me")
    await wants.click()
    await expect(chat.notices).to_contain_text("This browser blocks notifications", timeout=WAIT_MS)
    await expect(wants).not_to_be_checked()
