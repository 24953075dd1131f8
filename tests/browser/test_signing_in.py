"""Coming in by the printed link, staying in, and leaving, as a person does it."""

import re

from playwright.async_api import Page, expect

from tests.acceptance.conftest import CliHarness, RunningServer
from tests.browser.conftest import NewUser
from tests.browser.sign_in_links import new_link
from tests.support.api_client import TITLE, api_client
from tests.support.browser_driver import (
    SERVER_GONE_PATTERNS,
    SIGNED_OUT_TEXT,
    WAIT_MS,
    BrowserUser,
    ChatPage,
    sign_in,
    sign_out,
)

REFUSED = r"status of 401"


async def _expect_signed_out(page: Page) -> None:
    """Return once the page asks who it is, and shows nothing else."""
    await expect(page.get_by_text(SIGNED_OUT_TEXT)).to_be_visible(timeout=WAIT_MS)
    await expect(page.get_by_role("list")).to_have_count(0)


async def test_the_link_lets_one_browser_in_once_and_for_good(
    welcome: NewUser, home: CliHarness, server: RunningServer
) -> None:
    owner, late = await welcome(), await welcome()
    late.expect_errors(REFUSED)
    page = await sign_in(owner, server.link)
    await ChatPage(page).send("hello there")
    await ChatPage(page).wait_for_text("hello there")
    await page.reload()
    await ChatPage(page).wait_for_text("hello there")
    # Neither the address nor the history holds the code, and no script can read the cookie in its place.
    assert [each for each in await _history(page) if "code=" in each] == []
    assert await page.evaluate("[document.cookie, sessionStorage.length]") == ["", 0]
    (cookie,) = await owner.context.cookies()
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
    outside = await late.open_page(server.link)
    await _expect_signed_out(outside)
    await expect(outside.get_by_role("alert")).to_contain_text("That link has been used", timeout=WAIT_MS)
    assert await late.context.cookies() == []
    # The same link is tried again when it is opened again: its code never stays in the address.
    await outside.goto(server.link)
    await expect(outside).not_to_have_url(re.compile("code="), timeout=WAIT_MS)
    # A second link lets the other one in, in the page that is open, and puts nobody out.
    await outside.goto(new_link(home))
    await expect(outside.get_by_role("navigation")).to_contain_text(TITLE, timeout=WAIT_MS)
    await page.reload()
    await ChatPage(page).wait_for_text("hello there")


async def test_signing_out_ends_every_tab_of_that_browser_and_no_other(
    welcome: NewUser, home: CliHarness, server: RunningServer
) -> None:
    owner, other = await welcome(), await welcome()
    owner.expect_errors(REFUSED, *SERVER_GONE_PATTERNS)  # Streams are cut off at once.
    chat = ChatPage(await sign_in(owner, server.link))
    await chat.send("hello there")
    await chat.wait_for_text("hello there")
    tab = await owner.open_page(chat.page.url)
    await ChatPage(tab).wait_for_text("hello there")
    elsewhere = await sign_in(other, new_link(home))
    await sign_out(chat.page)
    await _expect_signed_out(chat.page)
    assert await owner.context.cookies() == []
    # What the other tab followed has ended; it says so as soon as it asks for anything.
    await expect(tab.get_by_text(SIGNED_OUT_TEXT)).to_be_visible(timeout=WAIT_MS)
    for page in (chat.page, tab):
        await page.reload()
        await _expect_signed_out(page)
    await elsewhere.reload()
    await expect(elsewhere.get_by_role("navigation")).to_contain_text(TITLE, timeout=WAIT_MS)


async def test_a_signed_out_visitor_sees_nothing(visitor: BrowserUser, server: RunningServer) -> None:
    visitor.expect_errors(REFUSED)
    async with api_client(server.address) as api:
        session = await api.create_session(title="Very private")
        for address in (server.address, f"{server.address}#{session}", f"{server.address}#code=made-up"):
            page = await visitor.open_page(address)
            await _expect_signed_out(page)
            assert "Very private" not in await page.content()
    asked = [each for each in visitor.requested_urls if "/api/" in each]
    assert {re.sub(r".*/api/", "", each) for each in asked} == {"me", "sign-in"}


async def test_a_link_or_its_code_can_be_pasted_where_one_is_outside(
    welcome: NewUser, home: CliHarness, server: RunningServer
) -> None:
    code = new_link(home).partition("code=")[2]
    for pasted, lets_in in ((server.link, True), (server.link, False), (code, True)):
        visitor = await welcome()
        visitor.expect_errors(REFUSED)
        page = await visitor.open_page(server.address)
        await _expect_signed_out(page)
        await expect(page.get_by_text("Lost it? Run holdfast link on the server.")).to_be_visible()
        await page.get_by_label("Sign-in link or code").fill(pasted)
        await page.get_by_role("button", name="Sign in", exact=True).click()
        used = page.get_by_text("That link has been used or is too old.")
        await expect(ChatPage(page).message if lets_in else used).to_be_visible(timeout=WAIT_MS)


async def test_a_password_is_asked_for_only_where_there_is_one(
    visitor: BrowserUser, server: RunningServer
) -> None:
    visitor.expect_errors(REFUSED)
    page = await visitor.open_page(server.address)
    await _expect_signed_out(page)
    password, enter = page.get_by_label("Password"), page.get_by_role("button", name="Sign in", exact=True)
    await expect(page.get_by_label("Sign-in link or code")).to_be_visible()
    await expect(password).to_have_count(0)
    await expect(enter).to_be_disabled()
    async with api_client(server.address) as api:
        await api.post("/api/password", {"password": "correct horse battery"})
    await page.reload()
    await password.fill("correct horse battery", timeout=WAIT_MS)
    await enter.click()
    await expect(ChatPage(page).message).to_be_visible(timeout=WAIT_MS)


async def _history(page: Page) -> list[str]:
    """Every address that the tab remembers."""
    session = await page.context.new_cdp_session(page)
    found = await session.send("Page.getNavigationHistory")
    return [entry["url"] for entry in found["entries"]]
