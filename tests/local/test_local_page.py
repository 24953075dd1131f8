"""The local model in the page's settings, with a real browser: chosen where it is installed, answering."""

import asyncio
import re
from pathlib import Path

from playwright.async_api import expect

from tests.acceptance.conftest import cli_in
from tests.local.llama_server import PLACE
from tests.support.browser_driver import BrowserUser, ChatPage, chromium, sign_in

ANSWER_MS = 180_000


async def test_the_local_model_answers_after_it_is_chosen_in_the_settings(tmp_path: Path) -> None:
    folder = tmp_path / "share" / "holdfast"
    folder.mkdir(parents=True)
    (folder / "local").symlink_to(PLACE.folder)
    with cli_in(tmp_path, HOLDFAST_MODEL="") as command:
        server = await asyncio.to_thread(command.serve, "--port", "0")
        async with chromium() as browser:
            visitor = BrowserUser(await browser.new_context())
            page = await sign_in(visitor, server.link)
            await page.get_by_role("button", name="Settings").click()
            section = page.get_by_role("region", name="Model", exact=True)
            local = section.get_by_role("group", name="A small model on this machine")
            await expect(local).to_contain_text("local:smollm2-135m · installed")
            await local.get_by_role("button", name="Use it").click()
            await expect(section).to_contain_text("local:smollm2-135m answers.")
            await expect(local.get_by_role("button", name="Remove it")).to_have_count(0)
            await page.keyboard.press("Escape")
            chat = ChatPage(page)
            await chat.send("Say hello.")
            answer = chat.log.get_by_role("article", name="Assistant").locator(".markdown")
            await expect(answer).to_have_text(re.compile(r"\w"), timeout=ANSWER_MS)
            await expect(chat.button("Try again")).to_have_count(1, timeout=ANSWER_MS)
            await page.get_by_role("button", name="Settings").click()
            await expect(local).to_contain_text("local:smollm2-135m · running")
            await visitor.context.close()
            assert visitor.unexpected_errors == []
