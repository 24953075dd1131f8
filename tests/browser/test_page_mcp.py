"""MCP servers in the page's settings: how they fare, what they bring, and connecting one anew."""

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.acceptance.conftest import CliHarness, cli_in, environ_for
from tests.acceptance.test_mcp import table, time_table, write_config
from tests.support.api_client import ScriptedModelServer
from tests.support.browser_driver import TARGET_PX, BrowserUser, accessibility_violations, sign_in

READY_MS = 30_000
"""A server in Python takes a while to come up on a busy machine."""
SIZES: dict[str, Any] = {
    "light": {"color_scheme": "light"},
    "dark": {"color_scheme": "dark"},
    "phone": {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True},
}


@pytest.fixture
def home(speaker: ScriptedModelServer, tmp_path: Path) -> Iterator[CliHarness]:
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        broken = table("broken", command=sys.executable, args=["-c", "raise SystemExit(3)"])
        write_config(command, time_table(), broken)
        yield command


async def open_mcp_settings(visitor: BrowserUser, home: CliHarness) -> tuple[Page, Locator]:
    server = await asyncio.to_thread(home.serve, "--port", "0")
    page = await sign_in(visitor, server.link)
    burger = page.get_by_role("button", name="Conversations", exact=True)
    if await burger.is_visible():
        await burger.click()
    await page.get_by_role("button", name="Settings").click()
    return page, page.get_by_role("region", name="MCP servers")


@pytest.mark.parametrize("how", ["light", "dark", "phone"])
async def test_servers_are_shown_with_their_tools_and_errors_and_connected_anew(
    how: str, browser: Browser, home: CliHarness
) -> None:
    visitor = BrowserUser(await browser.new_context(**SIZES[how]))
    page, section = await open_mcp_settings(visitor, home)
    time, broken = (section.get_by_role("group", name=name) for name in ("time", "broken"))
    await expect(time).to_contain_text("connected · a program on this machine", timeout=READY_MS)
    await time.get_by_text("2 tools").click()
    await expect(time).to_contain_text("time__convert_time")
    await expect(broken.locator(".wrong")).not_to_be_empty(timeout=READY_MS)
    await expect(broken).to_contain_text("not connected", timeout=READY_MS)
    again = time.get_by_role("button", name="Reconnect time")
    await again.press("Enter")
    await expect(time).to_contain_text("connected · a program on this machine", timeout=READY_MS)
    await section.scroll_into_view_if_needed()
    assert await accessibility_violations(page) == []
    assert await page.get_by_role("dialog").evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    if how == "phone":
        box = await again.bounding_box()
        assert box is not None and box["height"] >= TARGET_PX
    await visitor.take_screenshots(f"mcp-{how}")
    await visitor.context.close()
    assert visitor.unexpected_errors == []


async def test_without_any_the_page_says_how_to_have_one(
    visitor: BrowserUser, speaker: ScriptedModelServer, tmp_path: Path
) -> None:
    with cli_in(tmp_path / "without", **environ_for(speaker)) as command:
        _, section = await open_mcp_settings(visitor, command)
        await expect(section).to_contain_text("Put a table [mcp.NAME] into holdfast.toml")
        await visitor.context.close()
