"""Settings: what cannot be done cannot be pressed, and what is typed reads as such."""

from playwright.async_api import expect

from tests.acceptance.conftest import Running
from tests.browser.driving import WAIT_MS, Visitor, sign_in


async def test_a_password_is_removed_only_where_there_is_one(visitor: Visitor, server: Running) -> None:
    page = await sign_in(visitor, server.link)
    await page.get_by_role("button", name="Settings").click()
    entry = page.get_by_role("region", name="Coming in")
    remove = entry.get_by_role("button", name="Remove password")
    await expect(remove).to_be_disabled()
    await entry.get_by_label("New password").fill("correct horse")
    await entry.get_by_role("button", name="Set password").click()
    await expect(remove).to_be_enabled(timeout=WAIT_MS)
    await page.reload()
    await page.get_by_role("button", name="Settings").click()
    await expect(remove).to_be_enabled(timeout=WAIT_MS)
    await remove.click()
    await expect(remove).to_be_disabled(timeout=WAIT_MS)


async def test_what_can_be_typed_is_told_without_its_marks(visitor: Visitor, server: Running) -> None:
    page = await sign_in(visitor, server.link)
    await page.get_by_role("button", name="Settings").click()
    may = page.get_by_role("region", name="What it may do")
    await expect(may.locator("code").first).to_have_text("ask", timeout=WAIT_MS)
    await expect(page.get_by_role("dialog")).not_to_contain_text("`")
