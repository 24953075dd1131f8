"""Connecting a model in the settings, as somebody who has a key and an address and types both wrong first."""

from collections.abc import Iterator

import pytest
from aiohttp import web
from playwright.async_api import Locator, expect

from tests.acceptance.test_http_models import NOBODY
from tests.browser.conftest import HostServer, NewChat
from tests.support.api_client import ScriptedModelServer, scripted_model_server
from tests.support.browser_driver import WAIT_MS, ChatPage, SharedServer

RIGHT, WRONG = "sk-the-right-one-1234567890", "sk-a-wrong-one-1234567890"


class KeyCheckingModelServer(ScriptedModelServer):
    """Answers only those who have the key, and only below `/v1`."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if not request.path.startswith("/v1/"):
            return web.json_response({"error": {"message": "nothing here"}}, status=404)
        if request.headers.get("authorization") != f"Bearer {RIGHT}":
            return web.json_response({"error": {"message": "Incorrect API key provided."}}, status=401)
        if request.method == "POST" and (await request.json())["model"] != "small":
            return web.json_response({"error": {"message": "no such model"}}, status=404)
        return await super().answer(request)


@pytest.fixture(scope="module")
def doorman() -> Iterator[KeyCheckingModelServer]:
    with scripted_model_server(KeyCheckingModelServer()) as speaker:
        assert isinstance(speaker, KeyCheckingModelServer)
        yield speaker


@pytest.fixture(scope="module")
def shared_server(host_server: HostServer, doorman: KeyCheckingModelServer) -> Iterator[SharedServer]:
    """A server with nothing but its demo."""
    nothing = {"HOLDFAST_MODEL": "", "OPENAI_BASE_URL": "", **NOBODY}
    with host_server("new", doorman, **nothing) as shared_server:
        yield shared_server


async def open_form(chat: ChatPage) -> Locator:
    """The form for a model, where OpenAI is chosen."""
    await chat.page.get_by_role("button", name="Connect a model").click()
    form = chat.page.get_by_role("region", name="Model", exact=True)
    await form.get_by_label("Provider").select_option("openai", timeout=WAIT_MS)
    return form


async def test_what_is_wrong_is_said_word_for_word_until_it_is_right_and_then_it_answers(
    new_chat: NewChat, doorman: KeyCheckingModelServer
) -> None:
    chat = await new_chat()
    form = await open_form(chat)
    said, test = form.locator("form [role=status]"), form.get_by_role("button", name="Test", exact=True)
    root = doorman.url.removesuffix("/v1")
    host = root.removeprefix("http://")
    model = form.get_by_role("combobox", name="Model name")
    await model.fill("small")
    tried = (
        ("http://127.0.0.1:9/v1", RIGHT, "small", "No connection to 127.0.0.1:9: Connection refused."),
        (root, RIGHT, "small", f"There is nothing at {root}: the base URL is {doorman.url}."),
        (
            doorman.url,
            WRONG,
            "small",
            f"{host} refused the key from the settings (401): Incorrect API key provided.",
        ),
        (doorman.url, RIGHT, "smal", f"{host} does not list a model smal; it has small."),
        (doorman.url, RIGHT, "small", f"small at {host} answers."),
    )
    for url, key, name, words in tried:
        await form.get_by_label("Base URL").fill(url)
        await form.get_by_label("Key").fill(key)
        await model.fill(name)
        await test.click()
        await expect(said).to_contain_text(words, timeout=WAIT_MS)
        assert key not in await chat.page.content()
    await form.get_by_role("button", name="Use this model").click()
    await expect(form).to_contain_text("openai:small answers.", timeout=WAIT_MS)
    await chat.page.keyboard.press("Escape")
    await chat.send("hello there")
    await chat.wait_for_answers()
    await expect(chat.log.get_by_role("article", name="Assistant")).to_contain_text("hello there")
    # The key is kept, and shown to nobody.
    await chat.page.reload()
    await chat.page.get_by_role("button", name="Settings").click()
    await expect(form).to_contain_text("A key is kept here.", timeout=WAIT_MS)
    await expect(form.get_by_label("Key")).to_have_value("")
    # So are the address and the model's name, and OpenAI's own address can still be read.
    await expect(form.get_by_label("Base URL")).to_have_value(doorman.url)
    await expect(form.get_by_label("Base URL")).to_have_attribute("placeholder", "https://api.openai.com/v1")
    await expect(model).to_have_value("small")
    await test.click()
    await expect(said).to_contain_text(f"small at {host} answers.", timeout=WAIT_MS)
    # An emptied address is the provider's own; a key goes to no other server than the one it was given for.
    await form.get_by_label("Base URL").fill("")
    await test.click()
    await expect(said).to_contain_text("api.openai.com wants a key", timeout=WAIT_MS)
    await form.get_by_role("button", name="Forget OpenAI").click()
    await expect(form).to_contain_text("Scripted demo, not an AI", timeout=WAIT_MS)


async def test_a_test_without_a_key_asks_for_it_in_its_field(new_chat: NewChat) -> None:
    chat = await new_chat()
    form = await open_form(chat)
    await form.get_by_role("button", name="Test", exact=True).click()
    said = form.locator("form [role=status]")
    await expect(said).to_have_text(
        "api.openai.com wants a key, and none is given. Enter it in the Key field above.", timeout=WAIT_MS
    )


async def test_every_model_that_a_test_found_is_offered_whatever_name_is_filled_in(
    new_chat: NewChat, doorman: KeyCheckingModelServer
) -> None:
    chat = await new_chat()
    form = await open_form(chat)
    await form.get_by_label("Base URL").fill(doorman.url)
    await form.get_by_label("Key").fill(RIGHT)
    model, said = form.get_by_role("combobox", name="Model name"), form.locator("form [role=status]")
    offered = form.locator("[role=listbox] [role=option]")
    await expect(model).to_have_value("gpt-5.4-mini")
    await form.get_by_role("button", name="Test", exact=True).click()
    await expect(said).to_contain_text("does not list a model gpt-5.4-mini", timeout=WAIT_MS)
    await model.click()
    await expect(offered).to_have_count(1)
    # What is typed narrows the list; once the list is opened anew it is whole again.
    await model.fill("gpt")
    await expect(offered).to_have_count(0)
    await model.press("Enter")
    await expect(said).to_contain_text("does not list a model gpt.", timeout=WAIT_MS)
    await model.press("ArrowDown")
    await expect(offered).to_have_count(1)
    await model.fill("gpt")
    await model.click()
    await expect(offered).to_have_count(1)
    await offered.click()
    await expect(model).to_have_value("small")


async def test_an_address_may_be_left_empty_and_it_is_said_what_is_asked_then(new_chat: NewChat) -> None:
    chat = await new_chat()
    await chat.page.get_by_role("button", name="Settings").click()
    form = chat.page.get_by_role("region", name="Model", exact=True)
    for provider, url in (
        ("openai", "https://api.openai.com/v1"),
        ("anthropic", "https://api.anthropic.com/v1"),
        ("mistral", "https://api.mistral.ai/v1"),
    ):
        await form.get_by_label("Provider").select_option(provider, timeout=WAIT_MS)
        if provider != "openai":
            await form.get_by_text("Another address").click()
        await expect(form.get_by_label("Base URL")).to_have_attribute("placeholder", url)
        words = "Leave empty for OpenAI, or enter any" if provider == "openai" else f"Defaults to {url}."
        await expect(form.get_by_text(words)).to_be_visible()
