"""Models in the page's settings: setting a provider up, what is wrong with it, who answers."""

import asyncio
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, expect

from tests.acceptance.conftest import CliHarness, cli_in
from tests.acceptance.test_http_models import KEY, NOBODY, ListingModelServer
from tests.support.api_client import scripted_model_server
from tests.support.browser_driver import (
    PHONE,
    TARGET_PX,
    WAIT_MS,
    BrowserUser,
    ChatPage,
    accessibility_violations,
    sign_in,
)
from tests.support.ollama_port import ollama_port

REFUSED = r"Failed to load resource: the server responded with a status of 4\d\d"
NOWHERE = "http://127.0.0.1:9/v1"
PIP = {"PIP_NO_INDEX": "0", "PIP_RETRIES": "0"}
"""A test's own registry is asked, which is on this machine."""


class TwoModelServers:
    """Two servers of models, and a server that finds the first by itself."""

    def __init__(self, stack: ExitStack, folder: Path, **environ: str) -> None:
        self.first, self.second = ListingModelServer(), ListingModelServer()
        stack.enter_context(scripted_model_server(self.first))
        stack.enter_context(scripted_model_server(self.second))
        known = {"HOLDFAST_MODEL": "", "OPENAI_BASE_URL": self.first.url, **NOBODY}
        self.home: CliHarness = stack.enter_context(cli_in(folder, **(known | environ)))


@pytest.fixture
def models(tmp_path: Path) -> Iterator[TwoModelServers]:
    with ExitStack() as stack:
        yield TwoModelServers(stack, tmp_path)


@pytest.fixture
def home(models: TwoModelServers) -> CliHarness:
    return models.home


async def open_model_settings(visitor: BrowserUser, home: CliHarness) -> tuple[Page, Locator]:
    """The settings, and the part of them that is about models."""
    server = await asyncio.to_thread(home.serve, "--port", "0")
    page = await sign_in(visitor, server.link)
    return page, await settings(page)


async def settings(page: Page) -> Locator:
    await page.get_by_role("button", name="Settings").click()
    section = page.get_by_role("region", name="Model", exact=True)
    await expect(section.get_by_label("Provider")).to_be_visible(timeout=WAIT_MS)
    return section


def connection_result(section: Locator) -> Locator:
    """What a test of a connection said."""
    return section.locator("form [role=status]")


def suggested_models(section: Locator) -> Locator:
    """The models that can be chosen where one is typed."""
    return section.locator("[role=listbox] [role=option]")


async def test_a_provider_is_set_up_by_keyboard_and_its_model_answers(
    visitor: BrowserUser, models: TwoModelServers, home: CliHarness
) -> None:
    visitor.expect_errors(REFUSED)
    page, section = await open_model_settings(visitor, home)
    await expect(section).to_contain_text("openai:small answers.", timeout=WAIT_MS)
    await expect(section).to_contain_text("OPENAI_BASE_URL", timeout=WAIT_MS)  # It says why.
    await section.get_by_label("Provider").select_option("groq")
    # Without a key the provider cannot be asked; at a wrong address nobody answers.
    model = section.get_by_role("combobox", name="Model name")
    await model.fill("small")
    await model.press("Enter")
    await expect(connection_result(section)).to_contain_text("key", timeout=WAIT_MS)
    await section.get_by_text("Another address").click()
    await section.get_by_label("Base URL").fill(NOWHERE)
    await section.get_by_label("Key").fill(KEY)
    await page.keyboard.press("Enter")
    await expect(connection_result(section)).to_contain_text("Connection refused", timeout=WAIT_MS)
    await section.get_by_label("Base URL").fill(models.second.url)
    await page.keyboard.press("Enter")
    await expect(connection_result(section)).to_contain_text("answers.", timeout=WAIT_MS)
    # What there is can be chosen with the keyboard, and has its window and price.
    await model.fill("")
    await model.press("ArrowDown")
    await expect(suggested_models(section)).to_have_count(2, timeout=WAIT_MS)
    await section.get_by_role("button", name="Keep for later").press("Enter")
    await expect(page.locator(".notice")).to_contain_text("Groq is set up", timeout=WAIT_MS)
    await expect(section.get_by_label("Provider")).to_contain_text("Groq (set up here)")
    await expect(section).to_contain_text("openai:small answers.")
    await model.fill("sm")
    await expect(suggested_models(section)).to_have_text(
        re.compile(r"small.*64,000 tokens.*\$2 in, \$4 out"), timeout=WAIT_MS
    )
    await model.press("ArrowDown")
    await model.press("Enter")
    await expect(model).to_have_value("small")
    await section.get_by_role("button", name="Use this model").press("Enter")
    await expect(section).to_contain_text("groq:small answers.", timeout=WAIT_MS)
    assert KEY not in await page.content()
    await page.keyboard.press("Escape")
    chat = ChatPage(page)
    await chat.send("hello there")
    await chat.wait_for_answers()
    assert [each["model"] for each in models.second.requests if each.get("tools")] == ["small"]
    section = await settings(page)
    await expect(section.get_by_label("Provider")).to_have_value("groq")
    await section.get_by_role("button", name="Forget Groq").press("Enter")
    await expect(section).to_contain_text("openai:small answers.", timeout=WAIT_MS)


async def test_a_model_of_this_machine_costs_nothing_is_chosen_and_let_go_again(
    visitor: BrowserUser, models: TwoModelServers, home: CliHarness
) -> None:
    page, section = await open_model_settings(visitor, home)
    model = section.get_by_role("combobox", name="Model name")
    await model.click()
    await suggested_models(section).filter(has_text="plain").click()
    await expect(model).to_have_value("plain")
    await expect(section.locator(".note").filter(has_text=re.compile(r"\bfree$"))).to_be_visible()
    await section.get_by_role("button", name="Use this model").click()
    await expect(section).to_contain_text("openai:plain answers.", timeout=WAIT_MS)
    # What is said in passing is not hidden by what lies over the page.
    await page.locator(".notice p").filter(has_text="from the next message on").click(trial=True)
    await section.get_by_role("button", name="Back to what is found").click()
    await expect(section).to_contain_text("openai:small answers.", timeout=WAIT_MS)
    await expect(section.get_by_role("button", name="Back to what is found")).to_have_count(0)


@pytest.mark.parametrize(("provider", "cost"), [("ollama", "free"), ("groq", "")])
async def test_nobody_says_that_a_price_is_unknown_before_it_was_looked_for(
    provider: str, cost: str, visitor: BrowserUser, models: TwoModelServers, home: CliHarness
) -> None:
    """What runs models on this machine is free, and says the same as once it is connected."""
    _, section = await open_model_settings(visitor, home)
    await section.get_by_label("Provider").select_option(provider)
    if not cost:
        await section.get_by_text("Another address").click()
        await section.get_by_label("Key").fill(KEY)
    await section.get_by_label("Base URL").fill(models.second.url)
    model = section.get_by_role("combobox", name="Model name")
    await model.fill("plain")
    await section.get_by_role("button", name="Test").click()
    await expect(connection_result(section)).to_contain_text("answers.", timeout=WAIT_MS)
    await model.click()
    await model.press("ArrowDown")
    await expect(suggested_models(section).filter(has_text="plain")).to_have_text(f"plain {cost}")
    await expect(section).not_to_contain_text("price unknown")


async def test_another_model_answers_where_the_first_cannot(
    visitor: BrowserUser, models: TwoModelServers, home: CliHarness
) -> None:
    visitor.expect_errors(REFUSED)
    page, section = await open_model_settings(visitor, home)
    instead = section.get_by_role("list", name="Fallback models")
    add = section.get_by_role("combobox", name="Add a model")
    await add.fill("groq:plain")
    await add.press("Tab")
    await expect(section).to_contain_text("This cannot be connected", timeout=WAIT_MS)
    await expect(instead.get_by_role("listitem")).to_have_count(0)
    await section.get_by_label("Provider").select_option("groq")
    await section.get_by_label("Key").fill(KEY)
    await section.get_by_text("Another address").click()
    await section.get_by_label("Base URL").fill(models.second.url)
    await section.get_by_role("button", name="Keep for later").click()
    await expect(page.locator(".notice")).to_contain_text("Groq is set up", timeout=WAIT_MS)
    await add.fill("groq")
    await suggested_models(section).filter(has_text="groq:plain").click()
    await expect(instead).to_contain_text("groq:plain", timeout=WAIT_MS)
    await expect(section).to_contain_text("Where it fails, groq:plain is asked", timeout=WAIT_MS)
    models.first.refuses = 401
    await page.keyboard.press("Escape")
    chat = ChatPage(page)
    await chat.send("hello there")
    await chat.wait_for_answers()
    await chat.wait_for_text("hello there")
    assert [each["model"] for each in models.second.requests if each.get("tools")] == ["plain"]
    section = await settings(page)
    await section.get_by_role("button", name="Remove groq:plain").click()
    await expect(section).to_contain_text("Fallback modelsNone.", timeout=WAIT_MS)


async def test_a_server_of_models_on_this_machine_is_offered(visitor: BrowserUser, tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = stack.enter_context(ollama_port())
        assert port is not None, "something else answers at Ollama's port on this machine"
        stack.enter_context(scripted_model_server(ListingModelServer(), port=port))
        others = {name: url for name, url in NOBODY.items() if name != "OLLAMA_BASE_URL"}
        home = stack.enter_context(cli_in(tmp_path / "found", HOLDFAST_MODEL="demo", **others))
        _, section = await open_model_settings(visitor, home)
        await expect(section).to_contain_text("Scripted demo, not an AI")
        await expect(section).to_contain_text("Ollama runs on this machine, with 2 models.", timeout=WAIT_MS)
        await expect(section.locator("p").first).to_have_text("Scripted demo, not an AI ")
        await section.get_by_role("button", name="Choose Ollama").click()
        await expect(section.get_by_label("Provider")).to_have_value("ollama")
        await expect(section.get_by_label("Base URL")).to_have_attribute("placeholder", re.compile("11434"))
        await visitor.context.close()


@pytest.fixture
def index() -> Iterator[str]:
    """A registry of packages that takes every request, and answers none."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=16)) as held:
        yield f"http://127.0.0.1:{held.getsockname()[1]}/simple"


async def test_installing_the_local_model_is_shown_left_off_and_fails_in_words(
    visitor: BrowserUser, tmp_path: Path, index: str
) -> None:
    with ExitStack() as stack:
        home = TwoModelServers(stack, tmp_path / "first", PIP_INDEX_URL=index, PIP_TIMEOUT="60", **PIP).home
        _, section = await open_model_settings(visitor, home)
        local = section.get_by_role("group", name="A small model on this machine")
        await local.get_by_role("button", name="Install it").click()
        await expect(local.get_by_role("progressbar")).to_be_visible(timeout=WAIT_MS)
        await local.get_by_role("button", name="Cancel").click()
        await expect(local.get_by_role("button", name="Install it")).to_be_enabled(timeout=WAIT_MS)
        await expect(local.get_by_role("progressbar")).to_have_count(0)
        await visitor.context.close()


async def test_an_installation_without_a_network_says_so_and_can_be_tried_again(
    visitor: BrowserUser, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        home = TwoModelServers(stack, tmp_path / "second", PIP_INDEX_URL=NOWHERE, **PIP).home
        _, section = await open_model_settings(visitor, home)
        local = section.get_by_role("group", name="A small model on this machine")
        await local.get_by_role("button", name="Install it").click()
        await expect(local.get_by_role("alert")).to_contain_text("could not be installed", timeout=WAIT_MS)
        await expect(local.get_by_role("button", name="Try again")).to_be_enabled(timeout=WAIT_MS)
        await visitor.context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_no_violation_in_models(
    scheme: Any, browser: Browser, models: TwoModelServers, home: CliHarness
) -> None:
    visitor = BrowserUser(
        await browser.new_context(color_scheme=scheme, viewport={"width": 1080, "height": 900})
    )
    page, section = await open_model_settings(visitor, home)
    model = section.get_by_role("combobox", name="Model name")
    await model.click()
    await model.press("ArrowDown")
    await expect(suggested_models(section).first).to_be_visible()
    found = {"choosing": await accessibility_violations(page)}
    await visitor.take_screenshots(f"models-{scheme}")
    await model.press("Enter")
    await section.get_by_label("Base URL").fill(NOWHERE)
    await section.get_by_role("button", name="Test").click()
    await expect(connection_result(section)).to_contain_text("Connection refused", timeout=WAIT_MS)
    found["wrong"] = await accessibility_violations(page)
    await visitor.take_screenshots(f"models-wrong-{scheme}")
    await visitor.context.close()
    assert {state: wrongs for state, wrongs in found.items() if wrongs} == {}
    assert visitor.unexpected_errors == []


async def test_models_fit_a_phone(browser: Browser, models: TwoModelServers, home: CliHarness) -> None:
    visitor = BrowserUser(await browser.new_context(**PHONE))
    server = await asyncio.to_thread(home.serve, "--port", "0")
    page = await sign_in(visitor, server.link)
    await page.get_by_role("button", name="Conversations").first.tap()
    section = await settings(page)
    model = section.get_by_role("combobox", name="Model name")
    await model.tap()
    option = suggested_models(section).first
    await expect(option).to_be_visible(timeout=WAIT_MS)
    box = await option.bounding_box()
    assert box is not None and box["height"] >= TARGET_PX
    await expect(option).to_be_in_viewport(ratio=1)
    await visitor.take_screenshots("models-phone")
    await option.tap()
    assert await page.get_by_role("dialog").evaluate("box => box.scrollWidth - box.clientWidth") <= 0
    for each in await section.locator("button, input, select, summary").all():
        size = await each.bounding_box()
        assert size is not None and size["height"] >= TARGET_PX, await each.evaluate("each => each.outerHTML")
    await visitor.context.close()
    assert visitor.unexpected_errors == []
