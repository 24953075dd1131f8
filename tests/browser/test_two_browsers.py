"""One question, two browsers: it is asked in both, answered once, and both see the outcome."""

import asyncio
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.acceptance.conftest import CliHarness, RunningServer
from tests.browser.conftest import NewUser
from tests.browser.sign_in_links import new_link
from tests.support.api_client import ApiClient, api_client, wait_until
from tests.support.browser_driver import WAIT_MS, BrowserUser, ChatPage, sign_in


async def _ask(api: ApiClient, marker: Path) -> tuple[str, str]:
    """A conversation in which a command waits to be allowed; running it adds a line to `marker`."""
    session = await api.create_session()
    receipt = await api.send(session, f"run echo ran >> {marker}; echo outcome of it")
    await api.wait_for_run(receipt["run_id"], "waiting")
    return session, receipt["run_id"]


async def _two_readers(
    welcome: NewUser, home: CliHarness, server: RunningServer, session: str
) -> tuple[tuple[BrowserUser, ChatPage], tuple[BrowserUser, ChatPage]]:
    async def come(link: str) -> tuple[BrowserUser, ChatPage]:
        visitor = await welcome()
        page = await sign_in(visitor, link)
        await page.goto(f"{server.address}#{session}")
        chat = ChatPage(page)
        await chat.wait_for_approval()
        return visitor, chat

    return await come(server.link), await come(new_link(home))


@pytest.mark.parametrize("second", ["Allow", "Don't allow"])
async def test_an_answer_that_both_give_at_once_counts_once_and_both_see_it(
    second: str, welcome: NewUser, home: CliHarness, server: RunningServer, tmp_path: Path
) -> None:
    marker = tmp_path / "marker"
    async with api_client(server.address) as api:
        session, run = await _ask(api, marker)
        one, other = await _two_readers(welcome, home, server, session)
        buttons = (one[1].allow, other[1].allow if second == "Allow" else other[1].deny)
        if second != "Allow":
            await other[1].deny.click()  # Which asks why.
        for visitor, _ in (one, other):
            visitor.expect_errors(r"status of 409")
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
        async def is_reported() -> bool:
            notices = [await chat.notices.inner_text() for _, chat in (one, other)]
            return sorted(notices) == ["", "Answered elsewhere."]

        await wait_until(is_reported)
        await api.wait_for_run(run)
        ran = marker.read_text().splitlines() if marker.exists() else []
        assert ran in ([["ran"]] if second == "Allow" else [["ran"], []])
        for _, chat in (one, other):
            await chat.wait_for_no_question()
            await chat.wait_for_text("It said: outcome of it" if ran else "not allowed")
        entries = await api.entries(session)
        assert [each["outcome"] for each in entries if each["role"] == "tool"] == [
            "done" if ran else "denied"
        ]


async def test_what_one_answers_the_other_sees(
    welcome: NewUser, home: CliHarness, server: RunningServer, tmp_path: Path
) -> None:
    async with api_client(server.address) as api:
        session, run = await _ask(api, tmp_path / "marker")
        (_, one), (_, other) = await _two_readers(welcome, home, server, session)
        await one.deny.click()
        await one.deny.click()
        await api.wait_for_run(run)
        for chat in (one, other):
            await chat.wait_for_no_question()
            await chat.wait_for_text("not allowed")
            await expect(chat.notices).to_have_text("", timeout=WAIT_MS)
        assert not (tmp_path / "marker").exists()
