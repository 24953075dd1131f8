"""A browser that is signed in at a measured server, and its tabs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import BrowserContext, CDPSession, Page, expect

from bench.page.trace import Trace
from bench.turn.processes import BenchProcess
from tests.support.browser_driver import BrowserUser, ChatPage, chromium, sign_in

WATCH = Path(__file__).with_name("watch.js")
SIZE = {"width": 1280, "height": 800}
OPEN_S_MAX = 30


@dataclass(frozen=True)
class TabRecording:
    """A tab's recording: tasks above 50 ms, times between frames, and when each mark was drawn (ms)."""

    tasks: list[float]
    frames: list[float]
    marks: dict[str, float]


class Tab:
    """One page with a conversation in it, measured from within."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.chat = ChatPage(page)
        self._metrics: CDPSession | None = None

    async def ready(self) -> None:
        """Return once the page accepts text."""
        await expect(self.chat.message).to_be_visible(timeout=OPEN_S_MAX * 1_000)

    async def busy_s(self) -> float:
        """Return the CPU seconds of the page's main thread so far."""
        if self._metrics is None:
            self._metrics = await self.page.context.new_cdp_session(self.page)
            await self._metrics.send("Performance.enable", {"timeDomain": "threadTicks"})
        found = (await self._metrics.send("Performance.getMetrics"))["metrics"]
        return next(float(each["value"]) for each in found if each["name"] == "TaskDuration")

    async def trace(self) -> Trace:
        """Begin to record the page's tasks."""
        trace = Trace(await self.page.context.new_cdp_session(self.page))
        await trace.begin()
        return trace

    async def send(self, text: str) -> None:
        await self.chat.message.fill(text)
        await self.chat.message.press("Enter")

    async def switch_ms(self, session_id: str, text: str) -> float:
        """Return the time from a click on a conversation until its end is painted."""
        found: float = await self.page.evaluate(
            "([hash, text]) => bench.goes(hash, text)", [session_id, text]
        )
        return found

    async def load_ms(self, text: str) -> float:
        """Return the time from a full navigation until the conversation's end is painted with `text`."""
        found: float = await self.page.evaluate("text => bench.shows(text)", text)
        return found

    async def watch(self) -> None:
        await self.page.evaluate("bench.commit_watch()")

    async def follow(self, seed: int) -> None:
        await self.page.evaluate("seed => bench.follow(seed)", seed)

    async def recording(self) -> TabRecording:
        found: dict[str, Any] = await self.page.evaluate("bench.ended()")
        return TabRecording([task for task, _ in found["tasks"]], found["frames"], found["marks"])

    async def read_texts(self) -> list[str]:
        found: list[str] = await self.page.evaluate("bench.reads()")
        return found

    async def wait_for_answer(self, within_s: float) -> None:
        """Return once the last answer has ended; after a new question, once its own answer has."""
        async with asyncio.timeout(within_s):
            await self.page.evaluate("bench.answered()")


class PageVisit:
    """One browser's cookies and shared worker; `tab` opens another page of it."""

    def __init__(self, context: BrowserContext, address: str, wrongs: list[str]) -> None:
        self._context = context
        self._address = address
        self.wrongs = wrongs

    async def tab(self, at: str = "") -> Tab:
        page = await self._context.new_page()
        await page.goto(f"{self._address}#{at}", wait_until="commit")
        return Tab(page)


@asynccontextmanager
async def page_visit(server: BenchProcess) -> AsyncIterator[PageVisit]:
    """Open a new browser, signed in by the printed link; each `server` can be visited once."""
    async with chromium() as browser:
        context = await browser.new_context(viewport=SIZE)  # type: ignore[arg-type]
        await context.add_init_script(path=WATCH)
        visitor = BrowserUser(context)
        context.set_default_timeout(OPEN_S_MAX * 1_000)
        page = await sign_in(visitor, server.ready_line)
        await page.close()
        yield PageVisit(context, server.ready_line.partition("#")[0], visitor.unexpected_errors)
