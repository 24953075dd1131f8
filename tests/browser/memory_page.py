"""What is remembered, as a person comes to it in the page."""

from playwright.async_api import Locator, Page, expect

from tests.support.browser_driver import WAIT_MS, ChatPage


class MemoryPage:
    """The memory page, by what a person reads and presses."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.region = page.get_by_role("region", name="Memory")
        self.known = self.region.get_by_role("region", name="What is known")
        self.waiting = self.region.get_by_role("region", name="Waiting", exact=True)

    async def open(self) -> None:
        await self.page.get_by_role("link", name="Memory", exact=True).click()
        await expect(self.region).to_be_visible(timeout=WAIT_MS)

    def entry(self, text: str) -> Locator:
        return self.known.get_by_role("listitem").filter(has_text=text)

    async def wait_for_memory(self, text: str) -> None:
        await expect(self.entry(text)).to_be_visible(timeout=WAIT_MS)

    async def forget(self, text: str) -> None:
        """Forget it, and leave at once: then nobody thinks again."""
        await self.entry(text).get_by_role("button", name="Forget").click()
        await expect(self.entry(text)).to_have_count(0)
        async with self.page.expect_response(lambda answer: answer.request.method == "DELETE") as forgotten:
            await open_new_conversation(self.page)
        assert (await forgotten.value).status == 204


async def open_new_conversation(page: Page) -> None:
    await page.get_by_role("link", name="New conversation").click()
    await expect(page.get_by_role("heading", name="What can I do for you?")).to_be_visible(timeout=WAIT_MS)


async def send_in_new_conversation(chat: ChatPage, text: str) -> str:
    """Say it in a conversation of its own, which is returned."""
    await open_new_conversation(chat.page)
    await chat.send(text)
    await chat.wait_for_answers()
    return chat.session_id


async def shows_waiting_without_alert(chat: ChatPage) -> None:
    """Return once the details say that the conversation waits to be remembered; its header says nothing."""
    details = chat.page.get_by_role("complementary", name="Details")
    if await chat.button("Details").get_attribute("aria-expanded") == "false":
        await chat.button("Details").click()
    await expect(details.get_by_role("link", name="Waiting to be remembered")).to_be_visible(timeout=WAIT_MS)
    await expect(chat.page.locator(".remembered")).to_have_count(0)
