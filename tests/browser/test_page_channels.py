"""Chat apps in the page's settings: connecting a bot, what is wrong with it, letting people in and out."""

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.acceptance.conftest import CliHarness, cli_in, environ_for
from tests.support.api_client import ScriptedModelServer
from tests.support.browser_driver import WAIT_MS, BrowserUser, accessibility_violations, sign_in
from tests.support.telegram_api import TOKEN, TelegramApi, telegram_server_in_thread

ADA = 77
CODE = re.compile(r"\b[2-9A-Z]{4}-[2-9A-Z]{4}\b")
REFUSED = r"Failed to load resource: the server responded with a status of 4\d\d"
WRONG = "123456:AAwrongTOKENwrongTOKENwrongTOKENwr00"


@pytest.fixture
def platform() -> Iterator[TelegramApi]:
    with telegram_server_in_thread() as api:
        yield api


@pytest.fixture
def home(speaker: ScriptedModelServer, platform: TelegramApi, tmp_path: Path) -> Iterator[CliHarness]:
    environ = environ_for(speaker) | {"HOLDFAST_TELEGRAM_API_URL": platform.url}
    with cli_in(tmp_path, **environ) as command:
        yield command


async def _open_channel_settings(visitor: BrowserUser, home: CliHarness) -> tuple[Page, Locator]:
    """The settings, and the part of them that is about channels."""
    server = await asyncio.to_thread(home.serve, "--port", "0")
    page = await sign_in(visitor, server.link)
    await page.get_by_role("button", name="Settings").click()
    section = page.get_by_role("region", name="Channels")
    await expect(section.get_by_role("group", name="Telegram")).to_contain_text("not connected")
    return page, section


async def test_a_bot_is_connected_by_keyboard_and_people_are_let_in_and_out(
    visitor: BrowserUser, home: CliHarness, platform: TelegramApi
) -> None:
    visitor.expect_errors(REFUSED)
    page, section = await _open_channel_settings(visitor, home)
    telegram = section.get_by_role("group", name="Telegram")
    # What is wrong is said where it was asked.
    await telegram.get_by_label("Bot token").fill("nonsense")
    await page.keyboard.press("Enter")
    await expect(telegram.get_by_role("status")).to_contain_text("not a bot's token", timeout=WAIT_MS)
    await telegram.get_by_label("Bot token").fill(WRONG)
    await page.keyboard.press("Enter")
    await expect(telegram.get_by_role("status")).to_contain_text(
        re.compile("cannot be connected.*(Unauthorized|token)", re.I), timeout=WAIT_MS
    )
    await expect(telegram.get_by_role("status")).not_to_contain_text(WRONG)
    await telegram.get_by_label("Bot token").fill(TOKEN)
    await page.keyboard.press("Enter")
    await expect(telegram.get_by_label("Bot token")).to_have_count(0, timeout=WAIT_MS)
    await telegram.get_by_role("button", name="Test Telegram").press("Enter")
    await expect(telegram.get_by_role("status")).to_have_text("It works: @holdfast_test_bot", timeout=WAIT_MS)
    assert TOKEN not in await page.content()

    platform.post_message(ADA, "let me in")
    (message,) = await platform.wait_until(lambda: platform.texts(ADA))
    waiting = section.get_by_role("list", name="Waiting to be let in")
    await expect(waiting).to_contain_text("Ada", timeout=WAIT_MS)
    await section.get_by_label("Code").fill("2222-2222")
    await page.keyboard.press("Enter")
    await expect(section).to_contain_text("Nobody waits with this code", timeout=WAIT_MS)
    await section.get_by_label("Code").fill(CODE.findall(message)[0].lower())
    await page.keyboard.press("Enter")
    people = section.get_by_role("list", name="People who may write")
    await expect(people).to_contain_text("Ada", timeout=WAIT_MS)
    await expect(waiting.get_by_role("listitem")).to_have_count(0)
    platform.post_message(ADA, "good day")
    await platform.wait_until(lambda: platform.texts(ADA)[-1].strip() == "good day")
    await people.get_by_role("button", name="Remove Ada").press("Enter")
    await expect(people.get_by_role("listitem")).to_have_count(0, timeout=WAIT_MS)
    await telegram.get_by_role("button", name="Disconnect Telegram").press("Enter")
    await expect(telegram).to_contain_text("not connected", timeout=WAIT_MS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_in_channels(
    scheme: Any, browser: Browser, home: CliHarness, platform: TelegramApi
) -> None:
    visitor = BrowserUser(await browser.new_context(color_scheme=scheme))
    visitor.expect_errors(REFUSED)
    page, section = await _open_channel_settings(visitor, home)
    telegram = section.get_by_role("group", name="Telegram")
    await telegram.get_by_label("Bot token").fill("nonsense")
    await page.keyboard.press("Enter")
    await expect(telegram.get_by_role("status")).to_contain_text("not a bot's token", timeout=WAIT_MS)
    found = {"wrong": await accessibility_violations(page)}
    await telegram.get_by_label("Bot token").fill(TOKEN)
    await page.keyboard.press("Enter")
    await telegram.get_by_role("button", name="Test Telegram").click()
    await expect(telegram.get_by_role("status")).to_contain_text("It works", timeout=WAIT_MS)
    platform.post_message(ADA, "let me in")
    (message,) = await platform.wait_until(lambda: platform.texts(ADA))
    await expect(section).to_contain_text("Ada", timeout=WAIT_MS)
    found["waiting"] = await accessibility_violations(page)
    await section.get_by_label("Code").fill(CODE.findall(message)[0])
    await page.keyboard.press("Enter")
    await expect(section.get_by_role("button", name="Remove Ada")).to_be_visible(timeout=WAIT_MS)
    found["let in"] = await accessibility_violations(page)
    await visitor.take_screenshots(f"channels-{scheme}")
    await visitor.context.close()
    assert {state: wrongs for state, wrongs in found.items() if wrongs} == {}
    assert visitor.unexpected_errors == []


async def test_channels_fit_a_phone(browser: Browser, home: CliHarness, platform: TelegramApi) -> None:
    size: Any = {"width": 360, "height": 740}
    visitor = BrowserUser(await browser.new_context(viewport=size, has_touch=True, is_mobile=True))
    server = await asyncio.to_thread(home.serve, "--port", "0")
    page = await sign_in(visitor, server.link)
    await page.get_by_role("button", name="Conversations").first.click()
    await page.get_by_role("button", name="Settings").click()
    section = page.get_by_role("region", name="Channels")
    token = section.get_by_label("Bot token")
    await token.fill(TOKEN)
    await section.get_by_role("button", name="Connect Telegram").tap()
    await expect(section.get_by_role("button", name="Test Telegram")).to_be_visible(timeout=WAIT_MS)
    platform.post_message(ADA, "hello", name="Ada Augusta King, Countess of Lovelace")
    await expect(section).to_contain_text("Countess", timeout=WAIT_MS)
    await section.scroll_into_view_if_needed()
    await visitor.take_screenshots("channels-phone")
    wide = await page.get_by_role("dialog").evaluate("box => box.scrollWidth - box.clientWidth")
    assert wide <= 0
    for button in await section.get_by_role("button").all():
        box = await button.bounding_box()
        assert box is not None and box["height"] >= 44 and box["width"] >= 44
    await visitor.context.close()
    assert visitor.unexpected_errors == []
