"""Drive a real Chromium as a person would, and record its errors, foreign requests and scripts."""

import os
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Dialog,
    Locator,
    Page,
    Request,
    StorageState,
    WebError,
    async_playwright,
    expect,
)

from tests.acceptance.conftest import RunningServer
from tools.setup import find_browser

WAIT_MS = 30_000
"""A generous timeout for anything to appear; only an overloaded machine comes close to it."""
SIGNED_OUT_TEXT = "Open the link that the server printed"
"""The console error of a page that is not signed in."""
FOREIGN_HOST = "evil.example"
"""A name of another owner that resolves to this machine, as a DNS-rebinding attack sees it."""
SERVER_GONE_PATTERNS = (r"Failed to load resource: net::ERR_",)
"""Console errors of browsers when the server is gone, by the way the connection ended."""
LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", FOREIGN_HOST})
SCREENSHOTS = Path(__file__).resolve().parents[2] / ".cache" / "browser"
AXE = SCREENSHOTS.parents[1] / "web" / "node_modules" / "axe-core" / "axe.min.js"
RUN_AXE = """async () => (await axe.run(document, { resultTypes: ["violations"] })).violations
    .flatMap(({ id, nodes }) => nodes.map((node) => `${id}: ${node.target} ${node.failureSummary}`))"""
PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
TARGET_PX = 44
CLICKABLE = "button, a, .button, summary, input:not(.visually-hidden), textarea"
FIND_SMALL_TARGETS = """([pressed, least]) => [...document.querySelectorAll(pressed)]
    .map((each) => [each.ariaLabel || each.innerText || each.title, each.getBoundingClientRect()])
    .filter(([, box]) => box.width > 1 && box.height > 1 && box.right > 0 && box.left < innerWidth)
    .filter(([, box]) => box.height < least - 0.5 || box.width < least - 0.5)
    .map(([name, box]) => `${name.trim()}: ${box.width} x ${box.height}`)"""
TABS_MAX = 200
FLAGS = (
    "--disable-gpu",
    "--disable-quic",
    "--disable-sync",
    "--disable-default-apps",
    "--disable-component-update",
    "--disable-background-networking",
    # In the second line, this browser's own guard of local addresses: others have none, ours must do alone.
    # In the third, what an address bar would show: pages of its own for every visitor, a third of the work.
    "--disable-features=OptimizationHints,MediaRouter,Translate,AutofillServerCommunication,"
    "LocalNetworkAccessChecks,LocalNetworkAccessChecksWebSockets,BlockInsecurePrivateNetworkRequests,"
    "WebUIOmniboxPopup,WebUIOmniboxAimPopup,WebUIOmniboxFullPopup,WebUIOmniboxSimplification",
    "--no-first-run",
    "--no-default-browser-check",
    # Every other name leads nowhere, so that nothing can leave the machine, whatever a page asks for.
    f"--host-resolver-rules=MAP {FOREIGN_HOST} 127.0.0.1, MAP * ~NOTFOUND, "
    "EXCLUDE 127.0.0.1, EXCLUDE localhost",
)


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start a browser with an empty profile. Its sandbox works for anybody but root."""
    expect.set_options(timeout=WAIT_MS)
    path = find_browser()
    assert path is not None, "the tests drive a browser, and none is here: make test says how to get one"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(
            executable_path=path, args=list(FLAGS), chromium_sandbox=os.geteuid() != 0, timeout=60_000
        )
        try:
            yield browser
        finally:
            await browser.close()


class BrowserUser:
    """The browser of one person, with its own cookies. It records the errors of all of its pages."""

    def __init__(self, context: BrowserContext) -> None:
        self.context = context
        self.requested_urls: list[str] = []
        """Every address that any page requested."""
        self._errors: list[str] = []
        self._expected_errors: list[str] = []
        context.set_default_timeout(WAIT_MS)
        context.on("request", self._note_request)
        context.on("console", self._note_console)
        context.on("weberror", self._note_error)
        context.on("dialog", self._note_dialog)

    def expect_errors(self, *patterns: str) -> None:
        """Allow console errors that the test provokes."""
        self._expected_errors += patterns

    @property
    def unexpected_errors(self) -> list[str]:
        """Return the errors that the test did not expect, and the requested addresses beyond this machine."""
        foreign_requests = [
            f"left this machine: {each}" for each in self.requested_urls if not _is_local(each)
        ]
        return foreign_requests + [
            each
            for each in self._errors
            if not any(re.search(pattern, each) for pattern in self._expected_errors)
        ]

    async def open_page(self, address: str = "") -> Page:
        page = await self.context.new_page()
        if address:
            await page.goto(address)
        return page

    async def take_screenshots(self, name: str) -> None:
        """Save a screenshot of every page."""
        SCREENSHOTS.mkdir(parents=True, exist_ok=True)
        for number, page in enumerate(self.context.pages):
            await page.screenshot(path=SCREENSHOTS / f"{name}-{number}.png", timeout=5_000)

    def _note_request(self, request: Request) -> None:
        self.requested_urls.append(request.url)

    def _note_console(self, message: ConsoleMessage) -> None:
        if message.type == "error":
            self._errors.append(f"console: {message.text} ({message.location['url']})")

    def _note_error(self, error: WebError) -> None:
        self._errors.append(f"error: {error.error}")

    async def _note_dialog(self, dialog: Dialog) -> None:
        self._errors.append(f"dialog: {dialog.message}")
        await dialog.dismiss()


def _is_local(address: str) -> bool:
    parts = urlsplit(address)
    return parts.scheme in ("data", "blob", "about") or parts.hostname in LOCAL_HOSTS


class ChatPage:
    """The page of a conversation, by what a person reads and presses."""

    def __init__(self, page: Page, user: BrowserUser | None = None) -> None:
        self.page = page
        self._user = user
        self.log = page.get_by_role("log")
        self.message = page.get_by_role("textbox", name="Write a message")
        self.question = page.get_by_role("region", name="Needs you")
        self.notices = page.locator(".notice")
        """The notices that the page shows for a moment."""
        self.disconnected = page.get_by_text("Disconnected. Reconnecting…")

    @property
    def user(self) -> BrowserUser:
        """The user of the page, if known."""
        assert self._user is not None, "made of a page alone"
        return self._user

    @property
    def allow(self) -> Locator:
        return self.question.get_by_role("button", name="Allow once")

    @property
    def deny(self) -> Locator:
        """Press Deny. The page asks for a reason first; a second press denies."""
        return self.question.get_by_role("button", name="Don't allow")

    async def send(self, text: str) -> None:
        await self.message.fill(text)
        await self.message.press("Enter")
        await expect(self.page).to_have_url(re.compile("#s_"), timeout=WAIT_MS)

    async def wait_for_text(self, text: str | re.Pattern[str]) -> None:
        """Return once the conversation shows `text`."""
        await expect(self.log).to_contain_text(text, timeout=WAIT_MS)

    async def wait_for_approval(self) -> None:
        """Return once exactly one approval is shown."""
        await expect(self.allow).to_have_count(1, timeout=WAIT_MS)

    async def wait_for_no_question(self) -> None:
        await expect(self.question).to_have_count(0, timeout=WAIT_MS)

    async def wait_for_answers(self, turns: int = 1) -> None:
        """Return once this many answers have ended and can be retried."""
        await expect(self.button("Try again")).to_have_count(turns, timeout=WAIT_MS)

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    @property
    def turns(self) -> Locator:
        """The turns of the conversation: a section for each user message with its answer."""
        return self.log.locator("section.turn:not(.gone)")

    @property
    def session_id(self) -> str:
        """The id of the open conversation."""
        return self.page.url.partition("#")[2]

    async def wait_for_count(self, number: int) -> None:
        """Return once a count has reached this number."""
        words = self.log.locator(".markdown").filter(has_text=re.compile(rf"\b{number}\b"))
        await expect(words).to_have_count(1, timeout=WAIT_MS)

    async def counted_numbers(self) -> list[int]:
        """Return the numbers of a count that are shown so far."""
        return [
            int(each)
            for each in re.findall(
                r"\b\d+\b", " ".join(await self.log.locator(".markdown").all_inner_texts())
            )
        ]

    async def expand_all(self) -> None:
        """Open every folded part."""
        folded = self.log.locator(".fold[aria-expanded=false]")
        for _ in range(50):
            if not await folded.count():
                break
            await folded.first.click()
        await self.log.evaluate("log => log.querySelectorAll('details').forEach(each => each.open = true)")


async def sign_in(user: BrowserUser, link: str) -> Page:
    """Sign in by a link, and return once the page is ready."""
    page = await user.open_page(link)
    await expect(ChatPage(page).message).to_be_visible(timeout=WAIT_MS)
    await expect(page).not_to_have_url(re.compile("code="), timeout=WAIT_MS)
    return page


async def sign_out(page: Page) -> None:
    await page.get_by_role("button", name="Settings").click()
    await page.get_by_role("button", name="Sign out").click()


async def focus_with_tab(page: Page, target: Locator) -> None:
    """Press Tab until the element has the focus."""
    for _ in range(TABS_MAX):
        if await target.evaluate("element => element === document.activeElement"):
            return
        await page.keyboard.press("Tab")
    raise AssertionError("the keyboard does not get there")


async def accessibility_violations(page: Page) -> list[str]:
    """Return the accessibility violations that axe finds."""
    if not await page.evaluate("typeof axe === 'object'"):
        await page.evaluate(AXE.read_text())
    found: list[str] = await page.evaluate(RUN_AXE)
    return found


async def undersized_targets(page: Page) -> list[str]:
    """Return the targets that are smaller than a fingertip."""
    found: list[str] = await page.evaluate(FIND_SMALL_TARGETS, [CLICKABLE, TARGET_PX])
    return found


@dataclass(frozen=True)
class SharedServer:
    """A server that many tests share, and the stored state of a signed-in browser."""

    server: RunningServer
    storage_state: StorageState

    async def open_chat(self, user: BrowserUser, at: str = "") -> ChatPage:
        """Open a page of this browser: empty, or with the conversation `at`."""
        chat = ChatPage(await user.open_page(self.server.address + (f"#{at}" if at else "")), user)
        await expect(chat.message).to_be_visible(timeout=WAIT_MS)
        return chat
