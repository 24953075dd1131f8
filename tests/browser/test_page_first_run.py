"""The first thing that a person sees, and what can be done from there."""

import re
from pathlib import Path

from playwright.async_api import expect

from tests.acceptance.conftest import cli_in
from tests.acceptance.test_http_models import NOBODY
from tests.support.api_client import TITLE
from tests.support.browser_driver import WAIT_MS, BrowserUser, ChatPage, sign_in

TRIES = 3


async def test_the_first_run_greets_says_which_model_answers_and_offers_three_things(chat: ChatPage) -> None:
    await expect(chat.log.get_by_role("heading", name="What can I do for you?")).to_be_visible(
        timeout=WAIT_MS
    )
    await expect(chat.log).to_contain_text("openai:small answers.", timeout=WAIT_MS)
    assert await chat.message.evaluate("area => area.scrollHeight <= area.clientHeight"), "nothing to scroll"
    await expect(chat.page.get_by_text("Scripted demo")).to_have_count(0)
    offered = chat.log.get_by_role("listitem").get_by_role("button")
    await expect(offered).to_have_count(TRIES)
    # What only the demo understands is not offered where a model answers.
    assert not {"run date", "count to 300"} & set(await offered.all_inner_texts())
    text = await offered.first.inner_text()
    await offered.first.click()
    await chat.wait_for_answers()
    # It was sent, and answered: the model repeats what it is told.
    await expect(chat.log.get_by_role("article", name="You")).to_have_text(text + "EditUndo from hereBranch")
    await expect(chat.log.get_by_role("article", name="Assistant")).to_contain_text(text)
    await expect(chat.log.get_by_role("heading", name="What can I do for you?")).to_have_count(0)
    await expect(chat.page.get_by_role("heading", name=TITLE)).to_be_visible(timeout=WAIT_MS)


async def test_nothing_is_said_of_what_the_demo_costs(visitor: BrowserUser, tmp_path: Path) -> None:
    with cli_in(tmp_path / "demo", HOLDFAST_MODEL="", **NOBODY) as command:
        chat = ChatPage(await sign_in(visitor, command.serve("--port", "0").link))
        await chat.send("read nothing.txt")
        await chat.wait_for_answers()
        await expect(chat.log.locator(".footer")).to_contain_text("demo · about", timeout=WAIT_MS)
        details = chat.page.get_by_role("complementary", name="Details")
        for button in ("Details", "Details of this answer"):
            await chat.button(button).click()
            await expect(details.get_by_text("Tokens", exact=True)).to_be_visible(timeout=WAIT_MS)
            await expect(chat.page.locator("body")).not_to_contain_text(
                re.compile("price|cost", re.IGNORECASE)
            )
        await visitor.context.close()


async def test_the_demo_says_that_it_is_none_and_how_to_connect_a_model(
    visitor: BrowserUser, tmp_path: Path
) -> None:
    with cli_in(tmp_path / "demo", HOLDFAST_MODEL="", **NOBODY) as command:
        server = command.serve("--port", "0")
        chat = ChatPage(await sign_in(visitor, server.link))
        await expect(chat.log.get_by_text("Scripted demo, not an AI")).to_be_visible(timeout=WAIT_MS)
        # Once; in a conversation it stays in sight in the list.
        listed = chat.page.get_by_role("navigation").get_by_text("Scripted demo, not an AI")
        await expect(listed).to_have_count(0)
        await expect(chat.page.get_by_role("navigation")).to_contain_text("No conversations yet.")
        await chat.send("read nothing.txt")
        await expect(listed).to_be_visible(timeout=WAIT_MS)
        await expect(chat.page.get_by_role("navigation")).not_to_contain_text("No conversations yet.")
        await chat.page.get_by_role("link", name="New conversation").click()
        widths = await chat.log.locator(".greeting li button").evaluate_all(
            "all => all.map((each) => each.getBoundingClientRect().width)"
        )
        assert len(widths) == TRIES and len(set(widths)) == 1, widths
        await expect(chat.log.get_by_role("listitem").get_by_role("button", name="run date")).to_be_visible()
        await chat.log.get_by_role("button", name="Connect a model").click()
        sheet = chat.page.get_by_role("dialog", name="Settings")
        # Why it answers, and not that one should come here.
        await expect(sheet).to_contain_text("found: the scripted demo answers.", timeout=WAIT_MS)
        await expect(sheet).not_to_contain_text("open Settings")
        await visitor.context.close()
