"""Agents in the page: their list and errors, writing one, what its model is sent, and who answers where."""

import asyncio
import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in
from tests.support.api_client import ScriptedModelServer, scripted_model_server
from tests.support.browser_driver import (
    PHONE,
    WAIT_MS,
    BrowserUser,
    ChatPage,
    accessibility_violations,
    focus_with_tab,
    sign_in,
    undersized_targets,
)

REFUSED = r"Failed to load resource: the server responded with a status of 4\d\d"
LARGE = 'description = "Thinks longer."\nmodel = "vllm:large"\nmemory = "off"\n'


class TwoModelServers:
    """A server with two servers of models, and the folder that people write into."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self.first, self.second = (
            stack.enter_context(scripted_model_server()),
            stack.enter_context(scripted_model_server()),
        )
        models = {"HOLDFAST_MODEL": "openai:small", "OPENAI_BASE_URL": self.first.url}
        models["VLLM_BASE_URL"] = self.second.url
        self.home: CliHarness = stack.enter_context(cli_in(folder, **models))
        self.data = folder / "share" / "holdfast"

    def write(self, name: str, text: str) -> Path:
        path = self.data / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def read(self, name: str) -> str:
        return (self.data / name).read_text()


@pytest.fixture
def model_servers(tmp_path: Path) -> Iterator[TwoModelServers]:
    with ExitStack() as stack:
        yield TwoModelServers(stack, tmp_path)


@pytest.fixture
def home(model_servers: TwoModelServers) -> CliHarness:
    return model_servers.home


@pytest.fixture
def server(model_servers: TwoModelServers) -> RunningServer:
    model_servers.write("agents/large.toml", LARGE)
    return model_servers.home.serve("--port", "0")


def chat_requests(speaker: ScriptedModelServer) -> list[dict[str, Any]]:
    """What a model was asked to answer; titles are asked for without tools."""
    return [each for each in speaker.requests if each.get("tools")]


async def agents_of(page: Page) -> Locator:
    await page.get_by_role("link", name="Agents", exact=True).click()
    part = page.get_by_role("region", name="Agents", exact=True)
    await expect(part.get_by_role("list", name="All agents")).to_contain_text("main", timeout=WAIT_MS)
    return part


def text_of(part: Locator) -> Locator:
    return part.locator("textarea")


async def test_an_agent_is_written_by_keyboard_used_and_deleted(
    visitor: BrowserUser, model_servers: TwoModelServers, server: RunningServer
) -> None:
    visitor.expect_errors(REFUSED)
    page = await sign_in(visitor, server.link)
    part = await agents_of(page)
    name = part.get_by_label("New agent")
    await name.fill("../evil")
    await name.press("Enter")
    await expect(part.get_by_role("status").filter(has_text="small letters")).to_be_visible()
    await name.fill("large")
    await name.press("Enter")
    await expect(part).to_contain_text("There is an agent large already.")
    await name.fill("short")
    await name.press("Enter")
    await expect(part.get_by_role("heading", name="agents/short.toml")).to_be_visible(timeout=WAIT_MS)
    text = text_of(part)
    # What is wrong is said with its line, and leads there.
    await text.fill('description = "Says little"\nmodle = "vllm:large"\n')
    await text.press("Control+s")
    wrong = part.locator("#agent-wrong")
    await expect(wrong).to_contain_text("there is no 'modle'", timeout=WAIT_MS)
    await wrong.get_by_role("button", name='Line 2: modle = "vllm:large"').press("Enter")
    assert await text.evaluate("area => area.value.slice(area.selectionStart, area.selectionEnd)") == (
        'modle = "vllm:large"'
    )
    await text.fill('description = "Says little"\nmodel = \n')
    await part.get_by_role("button", name="Save").press("Enter")
    await expect(wrong.get_by_role("button")).to_contain_text("Line 2", timeout=WAIT_MS)
    assert not (model_servers.data / "agents" / "short.toml").exists()
    right = 'more_instructions = "Be short."  # As I like it.\nmodel = "vllm:large"\n'
    await text.fill(right)
    await text.press("Control+s")
    await expect(page.locator(".notice")).to_contain_text("Saved.", timeout=WAIT_MS)
    assert model_servers.read("agents/short.toml") == right
    listed = part.get_by_role("list", name="All agents")
    await expect(listed.get_by_role("link", name=re.compile("short.*vllm:large"))).to_be_visible()
    await expect(wrong).to_be_empty()

    # The exact prompt.
    shown = part.get_by_role("button", name="What the model is sent")
    await shown.press("Enter")
    await expect(part.get_by_role("region", name="Instructions")).to_contain_text(
        "Be short.", timeout=WAIT_MS
    )
    await expect(part).to_contain_text(re.compile(r"vllm:large · about [\d,]+ of [\d,]+ tokens"))
    await part.locator("summary").filter(has_text="read_file").click()
    await expect(part.get_by_role("region", name="read_file")).to_contain_text('"parameters"')

    # Deleted, with a moment to think again.
    await part.get_by_role("button", name="Delete short").press("Enter")
    await page.locator(".notice").get_by_role("button", name="Cancel").click()
    assert model_servers.read("agents/short.toml") == right
    await part.get_by_role("button", name="Delete short").press("Enter")
    await page.locator(".notice").get_by_role("button", name="Delete").click()
    await expect(page.locator(".notice")).to_contain_text("short is deleted", timeout=WAIT_MS)
    await expect(listed.get_by_role("listitem")).to_have_count(2, timeout=WAIT_MS)
    assert not (model_servers.data / "agents" / "short.toml").exists()


async def test_a_change_made_elsewhere_is_shown_and_never_written_over(
    visitor: BrowserUser, model_servers: TwoModelServers, server: RunningServer
) -> None:
    visitor.expect_errors(REFUSED)
    page = await sign_in(visitor, server.link)
    part = await agents_of(page)
    await part.get_by_role("link", name=re.compile("large")).click()
    text = text_of(part)
    await expect(text).to_have_value(LARGE, timeout=WAIT_MS)
    # Whoever has written nothing just sees it.
    theirs = LARGE.replace("longer", "much longer")
    model_servers.write("agents/large.toml", theirs)
    await expect(text).to_have_value(theirs, timeout=WAIT_MS)
    mine = theirs + 'resume = "ask"\n'
    await text.fill(mine)
    other = LARGE.replace("longer", "even longer")
    model_servers.write("agents/large.toml", other)
    await text.press("Control+s")
    card = part.get_by_role("alert").filter(has_text="changed elsewhere")
    await expect(card).to_contain_text("even longer", timeout=WAIT_MS)
    await expect(text).to_have_value(mine)
    assert model_servers.read("agents/large.toml") == other
    # It stays so while one looks at another.
    await part.get_by_role("link", name=re.compile("main")).click()
    await expect(text).to_have_value("", timeout=WAIT_MS)
    await part.get_by_role("link", name=re.compile("large")).click()
    await expect(text).to_have_value(mine, timeout=WAIT_MS)
    await expect(card).to_contain_text("even longer", timeout=WAIT_MS)
    await card.get_by_role("button", name="Save mine instead").click()
    await expect(page.locator(".notice")).to_contain_text("Saved.", timeout=WAIT_MS)
    assert model_servers.read("agents/large.toml") == mine
    await text.fill(mine + "# more\n")
    model_servers.write("agents/large.toml", other)
    await expect(card).to_contain_text("even longer", timeout=WAIT_MS)
    await card.get_by_role("button", name="Take that").click()
    await expect(text).to_have_value(other)
    assert model_servers.read("agents/large.toml") == other


async def test_an_agent_whose_file_is_wrong_says_so_and_a_file_that_is_none_too(
    visitor: BrowserUser, model_servers: TwoModelServers, server: RunningServer
) -> None:
    model_servers.write("agents/broken.toml", 'tools = ["fly"]\n')
    model_servers.write("agents/Not A Name.toml", "")
    page = await sign_in(visitor, server.link)
    part = await agents_of(page)
    await expect(part).to_contain_text("Not A Name.toml", timeout=WAIT_MS)
    await part.get_by_role("link", name=re.compile("broken")).click()
    await expect(part.get_by_role("region", name=re.compile("broken"))).to_contain_text(
        re.compile("cannot answer:.*tools names 'fly'"), timeout=WAIT_MS
    )
    await expect(part.get_by_role("button", name="What the model is sent")).to_have_count(0)
    # The one that every server has answers all the same, and was never as its file says.
    model_servers.write("agents/main.toml", 'tools = ["fly"]\n')
    await part.get_by_role("link", name=re.compile("^main")).click()
    await page.reload()
    await expect(part.get_by_role("region", name=re.compile("main"))).to_contain_text(
        re.compile("what it says does not hold:.*tools names 'fly'"), timeout=WAIT_MS
    )


async def test_the_agent_and_the_model_of_a_conversation_are_chosen_and_changed(
    visitor: BrowserUser, model_servers: TwoModelServers, server: RunningServer
) -> None:
    visitor.expect_errors(REFUSED)
    page = await sign_in(visitor, server.link)
    chat = ChatPage(page)
    chooser = page.get_by_role("button", name="Who answers here")
    await expect(chooser).to_contain_text("openai:small", timeout=WAIT_MS)
    # By keyboard: from the message to what answers it.
    await chat.message.focus()
    await focus_with_tab(page, chooser)
    await page.keyboard.press("Enter")
    box = page.get_by_role("dialog", name="Who answers here")
    agent = box.get_by_role("combobox", name="Agent")
    await expect(agent).to_be_focused(timeout=WAIT_MS)
    await agent.select_option("large")
    await expect(box).to_contain_text("Thinks longer.", timeout=WAIT_MS)
    await page.keyboard.press("Escape")
    await expect(box).to_have_count(0)
    await expect(chooser).to_be_focused()
    await expect(chooser).to_contain_text("largevllm:large")
    await chat.send("hello there")
    await chat.wait_for_answers()
    assert [each["model"] for each in chat_requests(model_servers.second)] == ["large"]
    assert chat_requests(model_servers.first) == []
    await expect(chooser).to_contain_text("largevllm:large")
    # For one that has begun it is changed from the next message on.
    await chooser.click()
    model = box.get_by_role("combobox", name="Model")
    for name, key in (("nobody:knows", "Enter"), ("nobody:else", "Tab")):
        await model.fill(name)
        await model.press(key)
        await expect(box.get_by_role("status")).to_contain_text(name, timeout=WAIT_MS)
    await model.fill("openai:sm")
    await box.locator("[role=option]").filter(has_text="openai:small").click()
    await expect(chooser).to_contain_text("largeopenai:small", timeout=WAIT_MS)
    await chat.log.click(position={"x": 5, "y": 5})
    await expect(box).to_have_count(0)
    await chat.send("and again")
    await chat.wait_for_answers(2)
    assert [each["model"] for each in chat_requests(model_servers.first)] == ["small"]
    await chooser.click()
    await box.get_by_role("button", name="Use the agent's default").click()
    await expect(chooser).to_contain_text("largevllm:large", timeout=WAIT_MS)
    await agent.select_option("main")
    await expect(chooser).to_have_text(re.compile("openai:small$"), timeout=WAIT_MS)
    await chat.send("once more")
    await chat.wait_for_answers(3)
    assert [each["model"] for each in chat_requests(model_servers.first)] == ["small", "small"]
    # A new one is without a choice.
    await page.get_by_role("link", name="New conversation").click()
    await expect(chooser).to_have_text(re.compile("openai:small$"), timeout=WAIT_MS)


async def test_prompts_are_completed_and_called(
    visitor: BrowserUser, model_servers: TwoModelServers, server: RunningServer
) -> None:
    model_servers.write("prompts/re-view.md", "# Look closely at $ARGUMENTS, please.\n")
    page = await sign_in(visitor, server.link)
    chat = ChatPage(page)
    await chat.message.press_sequentially("/re")
    listed = page.get_by_role("listbox")
    await expect(listed.get_by_role("option")).to_have_text(
        [
            *map(re.compile, ("/restore", "/retry", "/remember")),
            "/re-view Look closely at $ARGUMENTS, please.",
        ],
        timeout=WAIT_MS,
    )
    await chat.message.press("ArrowUp")
    await chat.message.press("Enter")
    await expect(chat.message).to_have_value("/re-view ")
    await chat.message.press_sequentially("the harbour")
    await chat.message.press("Enter")
    await chat.wait_for_answers()
    await expect(chat.log.get_by_role("article", name="You")).to_contain_text(
        "Look closely at the harbour, please."
    )
    # One that was written a moment ago is known, too; what is none is not sent, and a path is just said.
    model_servers.write("prompts/fresh.md", "Something fresh.\n")
    await chat.message.fill("/fresh")
    await chat.message.press("Enter")
    await chat.wait_for_answers(2)
    await chat.wait_for_text("Something fresh.")
    await chat.message.fill("/nothing at all")
    await chat.message.press("Enter")
    await expect(chat.notices).to_contain_text("There is no command /nothing.", timeout=WAIT_MS)
    await expect(chat.message).to_have_value("/nothing at all")
    await chat.send("/usr/bin is full")
    await chat.wait_for_answers(3)
    await chat.wait_for_text("/usr/bin is full")
    await chat.message.fill("/help")
    await chat.message.press("Enter")
    sheet = page.get_by_role("dialog", name="Keyboard and commands")
    for line in ("Ctrl K", "/undoUndo the last message", "/re-viewLook closely at $ARGUMENTS, please."):
        await expect(sheet).to_contain_text(line, timeout=WAIT_MS)


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_in_agents(
    scheme: Any, browser: Browser, model_servers: TwoModelServers, server: RunningServer
) -> None:
    model_servers.write("agents/broken.toml", 'tools = ["fly"]\n')
    visitor = BrowserUser(
        await browser.new_context(color_scheme=scheme, viewport={"width": 1080, "height": 900})
    )
    visitor.expect_errors(REFUSED)
    page = await sign_in(visitor, server.link)
    await page.get_by_role("button", name="Who answers here").click()
    box = page.get_by_role("dialog", name="Who answers here")
    await box.get_by_role("combobox", name="Agent").select_option("large")
    await box.get_by_role("combobox", name="Model").click()
    await expect(box.locator("[role=option]").first).to_be_visible(timeout=WAIT_MS)
    found = {"choosing": await accessibility_violations(page)}
    await visitor.take_screenshots(f"choosing-{scheme}")
    await page.keyboard.press("Escape")
    await page.keyboard.press("Escape")
    await ChatPage(page).message.fill("/re")
    await ChatPage(page).message.press("ArrowDown")
    found["commands"] = await accessibility_violations(page)
    await visitor.take_screenshots(f"commands-{scheme}")
    part = await agents_of(page)
    await part.get_by_role("link", name=re.compile("large")).click()
    await expect(text_of(part)).to_have_value(LARGE, timeout=WAIT_MS)
    await text_of(part).fill(LARGE + "x =\n")
    model_servers.write("agents/large.toml", LARGE + "# Theirs.\n")
    await expect(part.get_by_role("alert").filter(has_text="elsewhere")).to_be_visible(timeout=WAIT_MS)
    await part.get_by_role("button", name="Save mine instead").click()
    await expect(part.locator("#agent-wrong")).to_contain_text("Line 4", timeout=WAIT_MS)
    await part.get_by_role("button", name="What the model is sent").click()
    await expect(part.get_by_role("region", name="Instructions")).to_be_visible(timeout=WAIT_MS)
    await part.locator("summary").filter(has_text="shell").click()
    found["editing"] = await accessibility_violations(page)
    await visitor.take_screenshots(f"agents-{scheme}")
    await visitor.context.close()
    assert {state: wrongs for state, wrongs in found.items() if wrongs} == {}
    assert visitor.unexpected_errors == []


async def test_agents_fit_a_phone(browser: Browser, server: RunningServer) -> None:
    visitor = BrowserUser(await browser.new_context(**PHONE))
    page = await sign_in(visitor, server.link)
    await page.get_by_role("button", name="Who answers here").tap()
    box = page.get_by_role("dialog", name="Who answers here")
    await expect(box.get_by_role("combobox", name="Agent")).to_be_in_viewport(ratio=1, timeout=WAIT_MS)
    assert await undersized_targets(page) == []
    await visitor.take_screenshots("choosing-phone")
    await box.get_by_role("link", name="About this agent").tap()
    part = page.get_by_role("region", name="Agents", exact=True)
    await part.get_by_role("link", name=re.compile("large")).tap()
    await expect(text_of(part)).to_have_value(LARGE, timeout=WAIT_MS)
    await part.get_by_role("button", name="What the model is sent").tap()
    await expect(part.get_by_role("region", name="Instructions")).to_be_visible(timeout=WAIT_MS)
    assert await page.evaluate("document.documentElement.scrollWidth") == 390
    assert await part.evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    assert await undersized_targets(page) == []
    await visitor.take_screenshots("agents-phone")
    await visitor.context.close()
    assert visitor.unexpected_errors == []


async def test_a_message_that_waits_keeps_who_was_to_answer(
    visitor: BrowserUser, model_servers: TwoModelServers, server: RunningServer
) -> None:
    """Chosen, and sent while the server is away: it begins with that agent once the server is back."""
    visitor.expect_errors(r"Failed to load resource: net::ERR_", REFUSED)
    page = await sign_in(visitor, server.link)
    chat = ChatPage(page)
    await page.get_by_role("button", name="Who answers here").click()
    box = page.get_by_role("dialog", name="Who answers here")
    await box.get_by_role("combobox", name="Agent").select_option("large")
    await page.keyboard.press("Escape")
    server.process.kill()
    await asyncio.to_thread(server.process.wait)
    await chat.message.fill("good evening")
    await chat.message.press("Enter")
    await chat.wait_for_text("Not saved yet")
    await asyncio.to_thread(model_servers.home.serve, "--port", str(server.port))
    await expect(page).to_have_url(re.compile("#s_"), timeout=WAIT_MS)
    await chat.wait_for_answers()
    assert [each["model"] for each in chat_requests(model_servers.second)] == ["large"]


async def test_the_page_names_the_model_that_main_has_where_that_is_not_the_servers(
    visitor: BrowserUser, model_servers: TwoModelServers
) -> None:
    model_servers.write("agents/main.toml", 'model = "vllm:large"\nfallbacks = ["groq:nobody"]\n')
    model_servers.write("agents/plain.toml", 'description = "Has the model that the server has."\n')
    page = await sign_in(visitor, model_servers.home.serve("--port", "0").link)
    chooser = page.get_by_role("button", name="Who answers here")
    await expect(chooser).to_have_text(re.compile("vllm:large$"), timeout=WAIT_MS)
    await expect(page.locator("nav.list footer")).to_contain_text("vllm:large")
    await chooser.click()
    box = page.get_by_role("dialog", name="Who answers here")
    await box.get_by_role("combobox", name="Agent").select_option("plain")
    await expect(chooser).to_contain_text("plainopenai:small", timeout=WAIT_MS)
    await page.goto(page.url.partition("#")[0] + "#agents")
    agents = page.get_by_role("list", name="All agents")
    await expect(agents).to_contain_text("groq:nobody cannot be asked", timeout=WAIT_MS)
