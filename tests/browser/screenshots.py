"""Takes the pictures in docs/images: `.venv/bin/python -m tests.browser.screenshots`, with the page built.

The answers are the test suite's own model's, so that the pictures stay the same until the page changes.
"""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, expect

from tests.acceptance.conftest import cli_in, environ_for
from tests.support.api_client import ApiClient, api_client, scripted_model_server
from tests.support.browser_driver import BrowserUser, ChatPage, SharedServer, chromium, sign_in
from tests.support.memory_model_server import MemoryModelServer

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
IMAGE_BYTES_MAX = 80_000
DESKTOP: dict[str, Any] = {"viewport": {"width": 1080, "height": 660}}
WIDE: dict[str, Any] = {"viewport": {"width": 1200, "height": 640}}
PHONE: dict[str, Any] = {
    "viewport": {"width": 390, "height": 844}, "device_scale_factor": 1, "has_touch": True, "is_mobile": True,
}  # fmt: skip
TITLES = ("Why the third file is slow", "Notes for the talk", "Move the photos", "Compare two mirrors")
MESSAGES = {
    "Notes for the talk": "My talk is about slow files, and my editor is Nina.",
    "Move the photos": "My photos are in the folder Pictures, and I live in Lisbon.",
}

Screenshot = Callable[[ChatPage], Awaitable[None]]


async def _create_content(api: ApiClient) -> str:
    """Conversations to be in the list; the one to be opened has an answer, tools and code."""
    for title in reversed(TITLES[1:]):
        session = await api.create_session(title=title)
        await api.wait_for_run((await api.send(session, MESSAGES.get(title, "thank you")))["run_id"])
    await api.post("/api/memory/commit", {})
    session = await api.create_session(title=TITLES[0])
    await api.wait_for_run((await api.send(session, "look 3 times, and write up what is slow"))["run_id"])
    return session


async def _answer(chat: ChatPage) -> None:
    await expect(chat.log.locator(".hljs-keyword").first).to_be_visible()


async def _question(chat: ChatPage) -> None:
    await chat.send("run python third.py --check")
    await chat.wait_for_approval()


async def _details(chat: ChatPage) -> None:
    await chat.page.evaluate("location.hash = ''")
    await chat.send("look 3 times at what is here")
    await chat.wait_for_answers()
    await chat.button("Details of this answer").click()
    await expect(chat.page.get_by_role("heading", name="Steps")).to_be_visible()


async def _settings(chat: ChatPage) -> None:
    await chat.page.get_by_role("button", name="Settings").click()
    await expect(chat.page.get_by_role("dialog", name="Settings")).to_be_visible()


async def _memory(chat: ChatPage) -> None:
    await chat.page.get_by_role("link", name="Memory", exact=True).click()
    await expect(chat.page.get_by_text("Nina")).to_be_visible()


SCREENSHOTS: tuple[tuple[str, str, dict[str, Any], Screenshot], ...] = (
    ("answer-light", "light", DESKTOP, _answer),
    ("answer-dark", "dark", DESKTOP, _answer),
    ("settings-light", "light", DESKTOP, _settings),
    ("phone-answer-dark", "dark", PHONE, _answer),
    ("question-dark", "dark", DESKTOP, _question),
    ("phone-question-light", "light", PHONE, _question),
    ("memory-light", "light", DESKTOP, _memory),
    ("details-dark", "dark", WIDE, _details),
)


async def _take_screenshot(browser: Browser, shared_server: SharedServer, session: str) -> None:
    for name, scheme, options, scene in SCREENSHOTS:
        context = await browser.new_context(
            storage_state=shared_server.storage_state,
            color_scheme="dark" if scheme == "dark" else "light",
            **options,
        )
        visitor = BrowserUser(context)
        chat = await shared_server.open_chat(visitor, session)
        await scene(chat)
        await chat.page.wait_for_timeout(300)  # Until the scrolling and the colours have come to rest.
        path = IMAGES / f"{name}.png"
        await chat.page.screenshot(path=path, animations="disabled", caret="hide")
        size = path.stat().st_size
        assert size <= IMAGE_BYTES_MAX, f"{path.name} has {size} bytes"
        print(f"{path.relative_to(ROOT)}: {size // 1000} kB")
        if scene is _question:
            await chat.deny.click()
            await chat.deny.click()
            await chat.wait_for_no_question()
        await context.close()


async def main() -> None:
    """Take every picture anew."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    with (
        scripted_model_server(MemoryModelServer()) as speaker,
        tempfile.TemporaryDirectory() as folder,
        cli_in(Path(folder), **environ_for(speaker)) as command,
    ):
        server = command.serve("--port", "0")
        async with chromium() as browser, api_client(server.address) as api:
            visitor = BrowserUser(await browser.new_context())
            await sign_in(visitor, server.link)
            shared_server = SharedServer(server, await visitor.context.storage_state())
            await _take_screenshot(browser, shared_server, await _create_content(api))


if __name__ == "__main__":
    asyncio.run(main())
