"""The server is away while somebody writes: what was written is kept, shown as not saved, and sent once."""

from playwright.async_api import expect

from tests.acceptance.conftest import Holdfast
from tests.acceptance.talking import talking
from tests.browser.driving import GONE, WAIT_MS, Chat, Visitor, sign_in
from tests.browser.test_page_restart import kill
from tests.ports import own_port

NOT_SAVED = "Not saved yet"


async def test_what_is_written_while_the_server_is_away_is_sent_once_when_it_is_back(
    visitor: Visitor, home: Holdfast
) -> None:
    visitor.excuse(*GONE)
    server = home.serve("--port", str(own_port()))
    chat = Chat(await sign_in(visitor, server.link))
    await chat.say("before it went")
    await chat.answered()
    kill(server)
    await chat.lost.wait_for()
    for text in ("while it was away", "and one more"):
        await chat.message.fill(text)
        await chat.message.press("Enter")
        await expect(chat.message).to_have_value("")
    await expect(chat.log.get_by_text(NOT_SAVED)).to_have_count(2, timeout=WAIT_MS)
    await expect(chat.log.get_by_role("article", name="You")).to_have_count(3)
    home.serve("--port", str(server.port))
    await chat.answered(3)
    await expect(chat.log.get_by_text(NOT_SAVED)).to_have_count(0)
    await expect(chat.lost).to_have_count(0)
    async with talking(server.address) as api:
        asked = [words for role, _, words in await api.read(chat.session) if role == "user"]
    assert asked == ["before it went", "while it was away", "and one more"]
    await expect(chat.log.get_by_role("article", name="You").locator(".words")).to_have_text(asked)
