"""One question, two browsers: it is asked in both, answered once, and both see the outcome."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.acceptance.conftest import Holdfast, Running
from tests.browser.conftest import Welcome
from tests.browser.sign_in_links import new_link
from tests.support.api_client import Api, talking, until
from tests.support.browser_driver import WAIT_MS, Chat, Visitor, sign_in


async def _ask(api: Api, marker: Path) -> tuple[str, str]:
    """A conversation in which a command waits to be allowed; running it adds a line to `marker`."""
    session = await api.begin()
    receipt = await api.say(session, f"run echo ran >> {marker}; echo outcome of it")
    await api.done(receipt["run_id"], "waiting")
    return session, receipt["run_id"]


async def _two_readers(
    welcome: Welcome, home: Holdfast, server: Running, session: str
) -> tuple[tuple[Visitor, Chat], tuple[Visitor, Chat]]:
    async def come(link: str) -> tuple[Visitor, Chat]:
        visitor = await welcome()
        page = await sign_in(visitor, link)
        await page.goto(f"{server.address}#{session}")
        chat = Chat(page)
        await chat.asks()
        return visitor, chat

    return await come(server.link), await come(new_link(home))


@pytest.mark.parametrize("second", ["Allow", "Don't allow"])
async def test_an_answer_that_both_give_at_once_counts_once_and_both_see_it(
    second: str, welcome: Welcome, home: Holdfast, server: Running, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    async with talking(server.address) as api:
        session, run = await _ask(api, marker)
        one, other = await _two_readers(welcome, home, server, session)
        buttons = (one[1].allow, other[1].allow if second == "Allow" else other[1].deny)
        if second != "Allow":
            await other[1].deny.click()  # Which asks why.
        for visitor, _ in (one, other):
            visitor.excuse(r"status of 409")
        # Held back until both have been pressed: neither page can know of the other's answer.
        gate = asyncio.Event()
        sent = 0

        async def hold(route: object) -> None:
            nonlocal sent
            sent += 1
            if sent == 2:
                gate.set()
            await gate.wait()
            await route.continue_()  # type: ignore[attr-defined]

        for visitor, _ in (one, other):
            await visitor.context.route("**/api/runs/*/tools/*", hold)
        await asyncio.gather(*(button.click() for button in buttons))

        # The one who came second is told so in words, for a moment; the other is told nothing.
        async def is_told() -> bool:
            told = [await chat.told.inner_text() for _, chat in (one, other)]
            return sorted(told) == ["", "Answered elsewhere."]

        await until(is_told)
        await api.done(run)
        ran = marker.read_text().splitlines() if marker.exists() else []
        assert ran in ([["ran"]] if second == "Allow" else [["ran"], []])
        for _, chat in (one, other):
            await chat.asks_nothing()
            await chat.reads("It said: outcome of it" if ran else "not allowed")
        entries = await api.entries(session)
        assert [each["outcome"] for each in entries if each["role"] == "tool"] == [
            "done" if ran else "denied"
        ]


async def test_what_one_answers_the_other_sees(
    welcome: Welcome, home: Holdfast, server: Running, tmp_path: Path
) -> None:
    async with talking(server.address) as api:
        session, run = await _ask(api, tmp_path / "marker")
        (_, one), (_, other) = await _two_readers(welcome, home, server, session)
        await one.deny.click()
        await one.deny.click()
        await api.done(run)
        for chat in (one, other):
            await chat.asks_nothing()
            await chat.reads("not allowed")
            await expect(chat.told).to_have_text("", timeout=WAIT_MS)
        assert not (tmp_path / "marker").exists()
