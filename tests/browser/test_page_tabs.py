"""Many tabs of one browser: they share one connection and stay in step."""

import asyncio

from playwright.async_api import expect

from tests.browser.conftest import Guest
from tests.support.browser_driver import WAIT_MS, Inn, Visitor

TABS = 10


async def test_ten_tabs_stay_in_step_over_one_connection_and_an_eleventh_loads(
    guest: Guest, inn: Inn
) -> None:
    first = await guest()
    await first.say("here first")
    await first.answered()
    visitor = Visitor(first.page.context)
    tabs = [first, *await asyncio.gather(*(inn.open(visitor, first.session) for _ in range(TABS - 1)))]
    await asyncio.gather(*(tab.reads("here first") for tab in tabs))
    visitor.asked.clear()
    await tabs[-1].say("count 120")
    await asyncio.gather(*(tab.answered(2) for tab in tabs))
    for tab in tabs:
        assert await tab.counted() == list(range(120))
    # What each of them was told came through a connection that none of them holds.
    streams = [each for each in visitor.asked if "/api/stream" in each or "/events" in each]
    assert len(streams) <= 1, streams
    eleventh = await inn.open(visitor, first.session)
    await eleventh.answered(2)
    await eleventh.say("from the last")
    await first.reads("from the last")


async def test_what_is_done_in_one_tab_is_seen_in_the_other(guest: Guest, inn: Inn) -> None:
    one = await guest()
    await one.say("run echo together")
    await one.asks()
    other = await inn.open(Visitor(one.page.context), one.session)
    await other.asks()
    await one.allow.click()
    for tab in (one, other):
        await tab.reads("It said: together")
        await tab.asks_nothing()
    await expect(other.message).to_be_visible(timeout=WAIT_MS)
    await other.say("and back")
    for tab in (one, other):
        await tab.answered(2)
    assert await one.log.inner_text() == await other.log.inner_text()
