"""Settings: each does what it says, at once and after a reload; what cannot be done cannot be pressed."""

import asyncio
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Locator, Page, Route, expect

from holdfast import __version__
from holdfast.domain.limits import PASSWORD_CHARS_MIN
from holdfast.store.sqlite.bodies import decompress
from tests.browser.conftest import HostServer, NewChat
from tests.support.api_client import ScriptedModelServer, api_client, wait_until
from tests.support.browser_driver import PHONE, SERVER_GONE_PATTERNS, WAIT_MS, BrowserUser, SharedServer

PASSWORD, OTHER = "correct horse", "battery staple"
DESKTOP = {"viewport": {"width": 1280, "height": 800}}
REFUSED = r"status of 40[0139]"
ON_TOP = """node => {
    const { x, y, width, height } = node.getBoundingClientRect();
    return node.contains(document.elementFromPoint(x + width / 2, y + height / 2));
}"""
BACKGROUND = "getComputedStyle(document.body).backgroundColor"


@pytest.fixture(scope="module")
def shared_server(host_server: HostServer, speaker: ScriptedModelServer) -> Iterator[SharedServer]:
    """A server of this module's own: what is set here holds for everybody."""
    with host_server("office", speaker) as shared_server:
        yield shared_server


async def open_section(page: Page, name: str) -> Locator:
    """A part of the settings, which are opened if they are not."""
    if not await page.get_by_role("dialog", name="Settings").count():
        await page.get_by_role("navigation").get_by_role("button", name="Settings").click()
    found = page.get_by_role("region", name=name, exact=True)
    await expect(found).to_be_visible(timeout=WAIT_MS)
    return found


async def open_sheet(new_chat: NewChat, options: dict[str, Any]) -> Locator:
    """The settings, opened in a browser of that kind."""
    chat = await new_chat(**options)
    if options is PHONE:
        await chat.button("Conversations").first.tap()
    await open_section(chat.page, "About")
    return chat.page.get_by_role("dialog", name="Settings")


async def sign_in_with_password(page: Page, password: str) -> None:
    await page.get_by_label("Password").fill(password)
    await page.get_by_role("button", name="Sign in", exact=True).click()


async def test_a_password_lets_in_is_changed_and_is_removed_only_where_there_is_one(
    new_chat: NewChat, shared_server: SharedServer, browser: Browser
) -> None:
    chat, other = await new_chat(), BrowserUser(await browser.new_context())
    chat.user.expect_errors(REFUSED)
    other.expect_errors(REFUSED, *SERVER_GONE_PATTERNS)  # Streams are cut off at once.
    entry = await open_section(chat.page, "Sign-in and access")
    remove = entry.get_by_role("button", name="Remove password")
    await expect(entry.get_by_label("New password")).to_be_visible(timeout=WAIT_MS)
    await expect(remove).to_have_count(0)
    await entry.get_by_label("New password").fill("short")
    await entry.get_by_role("button", name="Set password").click()
    await expect(chat.notices).to_contain_text(f"has {PASSWORD_CHARS_MIN} to", timeout=WAIT_MS)
    assert await chat.notices.locator("p").evaluate(ON_TOP)  # Nothing hides or clips it.
    await expect(remove).to_have_count(0)
    await entry.get_by_label("New password").fill(PASSWORD)
    await entry.get_by_label("New password").press("Enter")
    await expect(chat.notices).to_have_text("The password is set.", timeout=WAIT_MS)
    await expect(entry.get_by_label("New password")).to_have_value("")
    await chat.page.reload()
    entry = await open_section(chat.page, "Sign-in and access")
    await expect(remove).to_be_enabled(timeout=WAIT_MS)
    # Whoever comes by an address is led there.
    async with api_client(shared_server.server.address) as api:
        session = await api.create_session(title="Where one was going")
    page = await other.open_page(f"{shared_server.server.address}#{session}")
    await sign_in_with_password(page, OTHER)
    await expect(page.get_by_role("alert")).to_contain_text("password", timeout=WAIT_MS)
    await sign_in_with_password(page, PASSWORD)
    titled = page.get_by_role("heading", name="Where one was going")
    await expect(titled).to_be_visible(timeout=WAIT_MS)
    await entry.get_by_label("New password").fill(OTHER)
    await entry.get_by_role("button", name="Set password").click()
    await expect(chat.notices).to_contain_text("Every other browser has to sign in again.", timeout=WAIT_MS)
    await expect(page.get_by_role("button", name="Sign in", exact=True)).to_be_visible(timeout=WAIT_MS)
    await sign_in_with_password(page, PASSWORD)
    await expect(page.get_by_role("alert")).to_be_visible(timeout=WAIT_MS)
    await sign_in_with_password(page, OTHER)
    await expect(titled).to_be_visible(timeout=WAIT_MS)
    await remove.click()
    await expect(chat.notices).to_contain_text("The password is removed.", timeout=WAIT_MS)
    await expect(remove).to_have_count(0)
    # Whoever is put out by that is asked for none.
    await expect(page.get_by_label("Password")).to_have_count(0, timeout=WAIT_MS)
    await expect(page.get_by_label("Sign-in link or code")).to_be_visible()
    await other.context.close()
    assert other.unexpected_errors == []


async def is_used(shared_server: SharedServer, name: str) -> bool:
    """Whether the server has noted that: it does once in a while."""
    async with api_client(shared_server.server.address) as api:
        tokens = (await api.get("/api/tokens"))["tokens"]
    return any(each["name"] == name and each["last_used_at"] for each in tokens)


async def test_a_token_is_shown_once_does_what_it_may_and_is_revoked(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await new_chat(permissions=["clipboard-read", "clipboard-write"])
    entry = await open_section(chat.page, "Sign-in and access")
    make = entry.get_by_role("button", name="Make a token")
    await expect(make).to_be_disabled()
    await entry.get_by_label("What it is for").fill("the clock")
    await entry.get_by_label("send and change").uncheck()
    await make.click()
    made = entry.get_by_role("status").locator("code")
    secret = await made.inner_text(timeout=WAIT_MS)
    await entry.get_by_role("button", name="Copy").click()
    await expect(chat.notices).to_have_text("Copied", timeout=WAIT_MS)
    assert await chat.page.evaluate("navigator.clipboard.readText()") == secret
    line = entry.get_by_role("listitem").filter(has_text="the clock")
    await expect(line).to_contain_text("read · never used")
    async with api_client(shared_server.server.address, secret) as api:
        await api.get("/api/sessions")
        assert api.status == 200
        await api.post("/api/sessions", {})
        assert api.status == 403
        await wait_until(lambda: is_used(shared_server, "the clock"))
        await chat.page.reload()
        entry = await open_section(chat.page, "Sign-in and access")
        await expect(line).to_contain_text("read · used just now", timeout=WAIT_MS)
        assert secret not in await chat.page.content()
        await entry.get_by_role("button", name="Revoke the clock").click()
        await expect(line).to_have_count(0, timeout=WAIT_MS)
        await api.get("/api/sessions")
        assert api.status == 401


async def test_what_is_always_allowed_is_listed_and_revoked(new_chat: NewChat) -> None:
    chat = await new_chat()
    may = await open_section(chat.page, "What it may do")
    await expect(may).to_contain_text("Nothing: every command asks first.", timeout=WAIT_MS)
    await chat.page.keyboard.press("Escape")
    for number, (command, name) in enumerate(
        (("echo here", "Allow in this conversation"), ("echo anywhere", "Always allow")), 1
    ):
        await chat.send(f"run {command}")
        await chat.wait_for_approval()
        await chat.question.get_by_role("button", name=name).click()
        await chat.wait_for_answers(number)
    may = await open_section(chat.page, "What it may do")
    rules = may.get_by_role("listitem")
    await expect(rules).to_have_text(
        [re.compile("echo here.*in one conversation"), re.compile("echo anywhere.*in every conversation")],
        timeout=WAIT_MS,
    )
    await may.get_by_role("button", name="Revoke echo anywhere").click()
    await expect(rules).to_have_count(1, timeout=WAIT_MS)
    await chat.page.keyboard.press("Escape")
    await chat.send("run echo here")
    await chat.wait_for_answers(3)
    await chat.send("run echo anywhere")
    await chat.wait_for_approval()
    await chat.deny.click()
    await chat.deny.click()
    await chat.wait_for_answers(4)


async def test_what_it_may_do_and_what_a_restart_does_are_changed_here_and_hold_at_once(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await new_chat()
    chat.user.expect_errors(REFUSED)
    may = await open_section(chat.page, "What it may do")
    # What can be typed is told without its marks.
    await expect(may.locator("code").first).to_have_text("*", timeout=WAIT_MS)
    await expect(chat.page.get_by_role("dialog")).not_to_contain_text("`")
    async with api_client(shared_server.server.address) as api:

        async def settled(name: str, value: object) -> None:
            async def is_so() -> bool:
                rows = (await api.get("/api/settings"))["settings"]
                return [each["value"] for each in rows if each["name"] == name] == [value]

            await wait_until(is_so, WAIT_MS / 1000)

        await may.get_by_label("After a restart").select_option("never")
        await settled("resume", "never")
        await may.get_by_label("Before an action").select_option("allow")
        await settled("approvals", "allow")
        steps = may.get_by_label("Steps in one answer")
        usual = await steps.input_value()
        await steps.fill("some")
        await steps.press("Enter")
        # A refusal stands at its field, in the page's words, until what was typed is mended.
        line = may.locator(".setting").filter(has_text="Steps in one answer")
        await expect(line.get_by_role("status")).to_have_text(
            "Must be a whole number from 1 to 10000.", timeout=WAIT_MS
        )
        await expect(steps).to_have_attribute("aria-invalid", "true")
        await expect(steps).to_have_value("some")
        await expect(chat.notices).to_be_empty()
        await steps.fill("7")
        await steps.press("Enter")
        await settled("run_steps_max", 7)
        await expect(line.get_by_role("status")).to_have_text("Saved", timeout=WAIT_MS)
        await expect(steps).not_to_have_attribute("aria-invalid", "true")
        await chat.page.reload()
        may = await open_section(chat.page, "What it may do")
        await expect(steps).to_have_value("7", timeout=WAIT_MS)
        await expect(may.get_by_label("After a restart")).to_have_value("never")
        # Nothing typed is what it is by itself.
        await steps.fill("")
        await steps.press("Enter")
        await expect(steps).to_have_value(usual, timeout=WAIT_MS)
        await chat.page.keyboard.press("Escape")
        await chat.send("run echo unasked")
        await chat.wait_for_text("It said: unasked")
        await open_section(chat.page, "What it may do")
        await may.get_by_label("Before an action").select_option("ask")
        await settled("approvals", "ask")
        await may.get_by_label("After a restart").select_option("auto")
        await settled("resume", "auto")


async def test_saving_one_setting_keeps_what_is_typed_into_another(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat, typed = await new_chat(), asyncio.Event()

    async def answer_later(route: Route) -> None:
        if route.request.method == "PATCH":
            await typed.wait()
        await route.continue_()

    may = await open_section(chat.page, "What it may do")
    steps, tokens = may.get_by_label("Steps in one answer"), may.get_by_label("Tokens in one answer")
    await expect(steps).to_be_visible(timeout=WAIT_MS)
    await chat.page.route("**/api/settings", answer_later)
    await steps.fill("8")
    await tokens.fill("9000")  # Leaving the first field saves it.
    typed.set()
    saved = may.locator(".setting").filter(has_text="Steps in one answer").get_by_role("status")
    await expect(saved).to_have_text("Saved", timeout=WAIT_MS)
    await expect(tokens).to_have_value("9000")
    await tokens.press("Enter")
    async with api_client(shared_server.server.address) as api:

        async def both_are_saved() -> bool:
            rows = (await api.get("/api/settings"))["settings"]
            return {"run_steps_max": 8, "run_tokens_max": 9000}.items() <= {
                each["name"]: each["value"] for each in rows if not isinstance(each["value"], list)
            }.items()

        await wait_until(both_are_saved, WAIT_MS / 1000)
        await api.request("PATCH", "/api/settings", {"run_steps_max": None, "run_tokens_max": None})


async def test_an_answer_that_came_to_its_limit_says_which_one_also_after_a_reload(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await new_chat()
    async with api_client(shared_server.server.address) as api:
        await api.request("PATCH", "/api/settings", {"run_steps_max": 1, "approvals": "allow"})
        try:
            await chat.send("run echo further")
            for _ in range(2):
                await chat.wait_for_text("Paused at its limit: 1 step.")
                await chat.page.reload()
            await chat.button("Continue").click(timeout=WAIT_MS)
            await chat.wait_for_text("It said: further")
        finally:
            await api.request("PATCH", "/api/settings", {"run_steps_max": None, "approvals": "ask"})


async def test_a_backup_is_made_listed_and_downloaded_whole(new_chat: NewChat, tmp_path: Path) -> None:
    chat = await new_chat()
    await chat.send("kept in a copy")
    await chat.wait_for_answers()
    backups = await open_section(chat.page, "Backups")
    await backups.get_by_role("button", name="Back up now").click()
    line = backups.get_by_role("listitem")
    await expect(line).to_have_count(1, timeout=WAIT_MS)
    await expect(line).to_contain_text(re.compile(r"\d\.\d MB"))
    await expect(backups).to_contain_text("stop the server and run:")
    async with chat.page.expect_download() as download:
        await line.get_by_role("button", name="Download").click()
    saved = await download.value
    await expect(line).to_contain_text(saved.suggested_filename)
    copy = tmp_path / "copy"
    await saved.save_as(copy)
    with sqlite3.connect(copy) as store:
        assert store.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        bodies = [decompress(body) for (body,) in store.execute("SELECT body FROM events")]
    assert any(b"kept in a copy" in body for body in bodies)
    store.close()


async def test_colours_are_chosen_at_once_and_for_good(new_chat: NewChat) -> None:
    chat = await new_chat(color_scheme="light")
    looks = await open_section(chat.page, "Appearance and notifications")
    colours = {}
    for name in ("Dark", "Light", "As the system"):
        await looks.get_by_label("Colours").select_option(name)
        colours[name] = await chat.page.evaluate(BACKGROUND)
        await chat.page.reload()
        await expect(chat.message).to_be_visible(timeout=WAIT_MS)
        assert await chat.page.evaluate(BACKGROUND) == colours[name]
        looks = await open_section(chat.page, "Appearance and notifications")
        chosen = looks.get_by_label("Colours").locator("option:checked")
        await expect(chosen).to_have_text(name)
    assert colours["Light"] == colours["As the system"] != colours["Dark"]
    await chat.page.emulate_media(color_scheme="dark")
    assert await chat.page.evaluate(BACKGROUND) == colours["Dark"]


async def test_about_shows_version_folder_and_protections(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    chat = await new_chat()
    about = await open_section(chat.page, "About")
    await expect(about).to_contain_text(f"Holdfast {__version__}", timeout=WAIT_MS)
    await expect(about.locator("code")).to_have_text(str(shared_server.server.folder))
    async with api_client(shared_server.server.address) as api:
        info = await api.get("/api/about")
    await expect(about).to_contain_text(info["confinement"])
    for each in info["unprotected"]:
        await expect(about).to_contain_text(each)
    if not info["unprotected"]:
        await expect(about).to_contain_text("Everything that can be protected on this machine is.")


async def test_every_section_is_reached_from_the_top_of_the_settings(new_chat: NewChat) -> None:
    for options in (DESKTOP, PHONE):
        sheet = await open_sheet(new_chat, options)
        for name in ("Backups", "Sign-in and access", "Model"):
            await sheet.get_by_role("group", name="Sections").get_by_role("button", name=name).click()
            head = sheet.get_by_role("region", name=name, exact=True).get_by_role("heading").first
            await expect(head).to_be_in_viewport(ratio=1)
            await expect(head).to_be_focused()


async def test_a_section_stays_in_view_while_others_are_still_loading(new_chat: NewChat) -> None:
    chat, clicked = await new_chat(), asyncio.Event()

    async def answer_later(route: Route) -> None:
        await clicked.wait()
        await route.continue_()

    await chat.page.route(re.compile(r"/api/(?!sessions|stream|me)"), answer_later)
    await open_section(chat.page, "About")
    sheet = chat.page.get_by_role("dialog", name="Settings")
    await sheet.get_by_role("group", name="Sections").get_by_role("button", name="Backups").click()
    head = sheet.get_by_role("region", name="Backups", exact=True).get_by_role("heading").first
    await expect(head).to_be_in_viewport(ratio=1)
    clicked.set()
    await expect(sheet.get_by_label("Steps in one answer")).to_have_count(1, timeout=WAIT_MS)
    await chat.page.unroute_all(behavior="wait")
    await expect(head).to_be_in_viewport(ratio=1)
    await expect(sheet.get_by_label("Provider")).not_to_be_in_viewport()


async def test_the_way_out_of_a_long_sheet_stays_in_sight(new_chat: NewChat) -> None:
    for options in (DESKTOP, PHONE):
        sheet = await open_sheet(new_chat, options)
        await sheet.get_by_role("button", name="Sign out").scroll_into_view_if_needed()
        await expect(sheet.get_by_label("Provider")).not_to_be_in_viewport()
        await expect(sheet.get_by_role("button", name="Close")).to_be_in_viewport(ratio=1)
        await expect(sheet.get_by_role("heading", name="Settings", exact=True)).to_be_in_viewport(ratio=1)


async def test_what_a_token_may_do_stands_in_one_line(new_chat: NewChat) -> None:
    chat = await new_chat(viewport={"width": 1280, "height": 800})
    entry = await open_section(chat.page, "Sign-in and access")
    rights = entry.get_by_role("group", name="What it may do").get_by_role("checkbox")
    await expect(rights).to_have_count(4, timeout=WAIT_MS)
    tops = await rights.evaluate_all("all => all.map((each) => each.getBoundingClientRect().top)")
    assert len(set(tops)) == 1, tops
