"""Many tabs of one browser: they share one connection and stay in step."""

import asyncio

from playwright.async_api import expect

from tests.browser.conftest import NewChat
from tests.support.browser_driver import WAIT_MS, BrowserUser, SharedServer

TABS = 10


async def test_ten_tabs_stay_in_step_over_one_connection_and_an_eleventh_loads(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    first = await new_chat()
    await first.send("here first")
    await first.wait_for_answers()
    visitor = BrowserUser(first.page.context)
    tabs = [
        first,
        *await asyncio.gather(*(shared_server.open_chat(visitor, first.session_id) for _ in range(TABS - 1))),
    ]
    await asyncio.gather(*(tab.wait_for_text("here first") for tab in tabs))
    visitor.requested_urls.clear()
    await tabs[-1].send("count 120")
    await asyncio.gather(*(tab.wait_for_answers(2) for tab in tabs))
    for tab in tabs:
        assert await tab.counted_numbers() == list(range(120))
    # What each of them was told came through a connection that none of them holds.
    streams = [each for each in visitor.requested_urls if "/api/stream" in each or "/events" in each]
    assert len(streams) <= 1, streams
    eleventh = await shared_server.open_chat(visitor, first.session_id)
    await eleventh.wait_for_answers(2)
    await eleventh.send("from the last")
    await first.wait_for_text("from the last")


async def test_what_is_done_in_one_tab_is_seen_in_the_other(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    one = await new_chat()
    await one.send("run echo together")
    await one.wait_for_approval()
    other = await shared_server.open_chat(BrowserUser(one.page.context), one.session_id)
    await other.wait_for_approval()
    await one.allow.click()
    for tab in (one, other):
        await tab.wait_for_text("It said: together")
        await tab.wait_for_no_question()
    await expect(other.message).to_be_visible(timeout=WAIT_MS)
    await other.send("and back")
    for tab in (one, other):
        await tab.wait_for_answers(2)
    assert await one.log.inner_text() == await other.log.inner_text()
