"""Somebody else's site: serves the hostile page, and is told what the page could read or notice."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiohttp import web
from playwright.async_api import Page, Route

from tests.support.browser_driver import FOREIGN_HOST, BrowserUser

_PAGE = '<!doctype html><meta charset="utf-8"><title>Cats</title><body><button>More cats</button>'
_SCRIPT = Path(__file__).with_name("hostile.js")
TIMEOUT_MS = 10_000
"""How long an attempt may take to fail. Each fails at once; a machine that is busy may be late."""
WINDOW_MS = 1_500
"""How long a window that the page opened is left to load."""
REPORT_S_MAX = 90


@dataclass
class AttackResults:
    """What the page tells: (attempt, status, text) that it could read, and what each attempt showed."""

    read: list[tuple[str, int, str]]
    noticed: dict[str, str]


@dataclass
class HostileSite:
    """The site, on a port of its own. `cookies` are those that browsers brought along."""

    port: int = 0
    plan: dict[str, Any] = field(default_factory=dict)
    cookies: list[str] = field(default_factory=list)
    results: "asyncio.Queue[AttackResults]" = field(default_factory=asyncio.Queue)

    async def answer(self, request: web.Request) -> web.Response:
        self.cookies += request.headers.getall("cookie", [])
        body, kind = self.content(request.path)
        if request.path == "/told":
            found = json.loads(await request.text())
            self.results.put_nowait(AttackResults([tuple(each) for each in found["read"]], found["noticed"]))
        return web.Response(text=body, content_type=kind)

    def content(self, path: str) -> tuple[str, str]:
        if path == "/plan":
            return json.dumps(self.plan), "application/json"
        if path == "/hostile.js":
            return _SCRIPT.read_text(), "text/javascript"
        return f'{_PAGE}<script type="module" src="/hostile.js"></script>', "text/html"

    async def open_attack_page(self, visitor: BrowserUser, origin: str) -> AttackResults:
        """Have the visitor open the page under one of the site's names and press its button."""
        page = await visitor.open_page(f"{origin}/")
        await page.locator("body[data-ready]").wait_for()
        await page.get_by_role("button", name="More cats").click()
        async with asyncio.timeout(REPORT_S_MAX):
            return await self.results.get()

    async def rebind(self, visitor: BrowserUser, port: int) -> AttackResults:
        """The same under a name and port whose address then changes to the server's own.

        The page comes from the site; all else that it asks of its own origin goes to the server.
        """
        origin = f"http://{FOREIGN_HOST}:{port}"

        async def come_from_site(route: Route) -> None:
            path = route.request.url.removeprefix(origin)
            if path == "/told":
                found = json.loads(route.request.post_data or "{}")
                self.results.put_nowait(
                    AttackResults([tuple(each) for each in found["read"]], found["noticed"])
                )
            body, kind = self.content(path)
            await route.fulfill(body=body, content_type=kind)

        page: Page = await visitor.open_page()
        for path in ("/cats", "/plan", "/hostile.js", "/told"):
            await page.route(origin + path, come_from_site)
        await page.goto(f"{origin}/cats")
        await page.locator("body[data-ready]").wait_for()
        await page.get_by_role("button", name="More cats").click()
        async with asyncio.timeout(REPORT_S_MAX):
            return await self.results.get()


@asynccontextmanager
async def hostile_site() -> AsyncIterator[HostileSite]:
    site, app = HostileSite(), web.Application()
    app.router.add_route("*", "/{path:.*}", site.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        site.port = runner.addresses[0][1]
        yield site
    finally:
        await runner.cleanup()
