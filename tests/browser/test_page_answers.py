"""An answer as it is written, and the page that is loaded again in the middle of it."""

from playwright.async_api import expect

from tests.acceptance.talking import Speaker
from tests.browser.driving import WAIT_MS, Chat

COUNT = 300


async def test_an_answer_goes_on_through_a_reload_with_nothing_missing_and_nothing_twice(
    chat: Chat, speaker: Speaker
) -> None:
    with speaker.pausing(COUNT // 2):
        await chat.say(f"count {COUNT}")
        await chat.counts_to(30)
        await expect(chat.log.get_by_role("img", name="Writing…")).to_be_visible(timeout=WAIT_MS)
        before = await chat.counted()
        await chat.page.reload()
        await chat.counts_to(before[-1])
        again = await chat.counted()
        assert again == list(range(len(again)))
        assert len(before) <= len(again) < COUNT
    await chat.answered()
    assert await chat.counted() == list(range(COUNT))


async def test_what_is_read_after_a_reload_is_what_was_read_before_to_the_letter(chat: Chat) -> None:
    await chat.say("write up")
    await chat.answered()
    await chat.say("look 3")
    await chat.answered(2)
    await chat.say("run sleep 1.2; echo done")
    await chat.asks()
    await chat.allow.click()
    await chat.answered(3)
    await chat.say("thank you")
    await chat.answered(4)
    await expect(chat.log.get_by_role("cell", name="340")).to_be_visible(timeout=WAIT_MS)
    await chat.unfold()
    before = await chat.log.inner_text()
    assert [
        words for words in ("third.py", "sleep 1.2", "Thinking", "Listed 3 folders") if words not in before
    ] == []
    await chat.page.reload()
    await chat.answered(4)
    await chat.unfold()
    assert await chat.log.inner_text() == before
