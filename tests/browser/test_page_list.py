"""The list of conversations: its menu by mouse and by keyboard, and what each of its lines does and keeps."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from playwright.async_api import Locator, expect

from tests.acceptance.conftest import RunningServer
from tests.browser.conftest import HostServer, NewChat
from tests.support.api_client import ApiClient, ScriptedModelServer, api_client, wait_until
from tests.support.browser_driver import (
    PHONE,
    WAIT_MS,
    BrowserUser,
    ChatPage,
    SharedServer,
    accessibility_violations,
    sign_in,
)


@pytest.fixture(scope="module")
def shared_server(host_server: HostServer, speaker: ScriptedModelServer) -> Iterator[SharedServer]:
    """A server of this module's own: nothing that others put away is in its lists."""
    with host_server("list", speaker) as shared_server:
        yield shared_server


@dataclass
class ConversationRow:
    """A conversation in the list, found by words that only its title has."""

    chat: ChatPage
    title: str

    @property
    def line(self) -> Locator:
        return self.chat.page.get_by_role("navigation").locator("li.row").filter(has_text=self.title)

    @property
    def menu_button(self) -> Locator:
        return self.line.get_by_role("button", name=f"More: {self.title}", exact=True)

    @property
    def menu(self) -> Locator:
        return self.line.get_by_role("menu")

    def item(self, name: str) -> Locator:
        return self.menu.get_by_role("menuitem", name=name, exact=True)

    async def choose(self, name: str) -> None:
        """With a mouse: what can be pressed shows when the line is pointed at."""
        await self.line.hover(timeout=WAIT_MS)
        await self.menu_button.click()
        await self.item(name).click()
        await expect(self.menu).to_have_count(0)

    async def wait_until_gone(self) -> None:
        await expect(self.line).to_have_count(0, timeout=WAIT_MS)

    async def wait_until_below(self, head: str) -> None:
        """Return once it stands below the heading `head`, as the first there or later."""
        before = self.line.locator("xpath=preceding-sibling::li[contains(@class,'head')][1]")
        await expect(before).to_have_text(head, timeout=WAIT_MS)


async def open_with_listed(
    new_chat: NewChat, shared_server: SharedServer, title: str
) -> tuple[ConversationRow, str]:
    """A page with a conversation of that title in its list, which is not open."""
    async with api_client(shared_server.server.address) as api:
        session = await api.create_session(title=title)
    row = ConversationRow(await new_chat(), title)
    await expect(row.line).to_have_count(1, timeout=WAIT_MS)
    return row, session


async def test_what_is_pinned_stays_on_top_here_and_in_other_browsers(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    row, _ = await open_with_listed(new_chat, shared_server, "Pin this one")
    other, _ = await open_with_listed(new_chat, shared_server, "A newer one")
    await row.wait_until_below("Today")
    await row.choose("Pin")
    await row.wait_until_below("Pinned")
    await ConversationRow(other.chat, row.title).wait_until_below("Pinned")
    await row.chat.page.reload()
    await row.wait_until_below("Pinned")
    await row.choose("Unpin")
    await row.wait_until_below("Today")


async def test_a_new_name_is_typed_in_the_list_or_left(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    row, session = await open_with_listed(new_chat, shared_server, "Old name here")
    patched: list[str] = []
    row.chat.page.on("request", lambda asked: patched.append(asked.url) if asked.method == "PATCH" else None)
    await row.line.get_by_role("link").click()
    await row.choose("Rename")
    field = row.chat.page.get_by_role("textbox", name="Rename")
    await expect(field).to_be_focused()
    await field.fill("Never mind")
    await field.press("Escape")
    await expect(field).to_have_count(0)
    await expect(row.line).to_have_count(1)
    assert patched == []
    # The keyboard is where it was, and can go on.
    await expect(row.menu_button).to_be_focused()
    await row.menu_button.press("Enter")
    await row.item("Rename").press("Enter")
    await field.fill("New name here")
    await field.press("Enter")
    renamed = ConversationRow(row.chat, "New name here")
    await expect(renamed.line).to_have_count(1, timeout=WAIT_MS)
    await expect(
        row.chat.page.get_by_role("main").get_by_role("heading", name="New name here")
    ).to_be_visible()
    await expect(row.chat.page).to_have_title(re.compile("New name here$"))
    await expect(renamed.menu_button).to_be_focused()
    async with api_client(shared_server.server.address) as api:
        assert (await api.get(f"/api/sessions/{session}"))["title"] == "New name here"
    assert len(patched) == 1


async def test_what_is_archived_is_out_of_sight_until_it_is_brought_back(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    row, _ = await open_with_listed(new_chat, shared_server, "Done with this")
    page = row.chat.page
    await row.choose("Archive")
    await row.wait_until_gone()
    await page.reload()
    await expect(row.chat.message).to_be_visible(timeout=WAIT_MS)
    await page.get_by_role("button", name="Show archived").click()
    await row.choose("Bring back")
    # Nothing else is put away: the others are shown again, and this one among them.
    await row.wait_until_below("Today")
    await expect(page.get_by_role("button", name="Hide archived")).to_have_count(0)


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
async def test_archiving_is_undone_from_its_notice(
    new_chat: NewChat, shared_server: SharedServer, options: dict[str, Any]
) -> None:
    async with api_client(shared_server.server.address) as api:
        session = await api.create_session(title="Put away by mistake")
        row = ConversationRow(await new_chat(**options), "Put away by mistake")
        if options:
            await row.chat.button("Conversations").first.tap()
        await row.choose("Archive")
        await row.wait_until_gone()
        await expect(row.chat.notices).to_contain_text("Conversation archived.", timeout=WAIT_MS)
        # On a phone it lies over the list.
        await row.chat.notices.get_by_role("button", name="Undo").click()
        await expect(row.line).to_have_count(1, timeout=WAIT_MS)
        assert not (await api.get(f"/api/sessions/{session}"))["archived"]
        await api.request("DELETE", f"/api/sessions/{session}")


async def test_the_name_of_the_model_has_room_beside_the_way_to_the_archive(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    row, _ = await open_with_listed(new_chat, shared_server, "Put away to stay")
    await row.choose("Archive")
    foot = row.chat.page.get_by_role("navigation").locator("footer")
    await expect(foot.get_by_role("button", name="Show archived")).to_be_visible(timeout=WAIT_MS)
    name = foot.get_by_text("openai:small", exact=True)
    assert await name.evaluate("name => name.scrollWidth <= name.clientWidth")
    await row.chat.notices.get_by_role("button", name="Undo").click()
    await expect(row.line).to_have_count(1, timeout=WAIT_MS)


async def test_the_oldest_conversations_and_those_put_away_are_reached_by_scrolling(
    visitor: BrowserUser, server: RunningServer
) -> None:
    """More of both than a page is told of when it opens."""
    async with api_client(server.address) as api:
        for number in range(230):
            await api.create_session(title=f"Conversation {number:03}.")
        shown = (await api.get("/api/sessions?limit=200"))["cursor"]
        assert shown is not None
    page = await sign_in(visitor, server.link)
    rows = page.get_by_role("navigation").locator(".rows")
    await expect(rows).to_contain_text("Conversation 229.", timeout=WAIT_MS)
    await scroll_to(rows, "Conversation 000.")
    async with api_client(server.address) as api:
        for row in (await api.get("/api/sessions?limit=130"))["sessions"]:
            await api.request("PATCH", f"/api/sessions/{row['id']}", {"archived": True})
    await page.reload()
    await page.get_by_role("button", name="Show archived").click(timeout=WAIT_MS)
    await expect(rows).to_contain_text("Conversation 229.", timeout=WAIT_MS)
    await scroll_to(rows, "Conversation 100.")
    await expect(rows).not_to_contain_text("Conversation 099.")


async def scroll_to(rows: Locator, words: str) -> None:
    """Scroll to the end, again and again, until `words` are in sight."""

    async def is_there() -> bool:
        await rows.evaluate("rows => rows.scrollTo(0, rows.scrollHeight)")
        return words in await rows.inner_text()

    await wait_until(is_there, WAIT_MS / 1000)


async def test_what_is_deleted_comes_back_while_there_is_time_and_else_is_gone(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    row, session = await open_with_listed(new_chat, shared_server, "Delete me later")
    page = row.chat.page
    await page.clock.install()
    await row.line.get_by_role("link").click()
    await expect(page.get_by_role("main").get_by_role("heading", name=row.title)).to_be_visible(
        timeout=WAIT_MS
    )
    await row.choose("Delete")
    await row.wait_until_gone()
    await expect(page).to_have_url(re.compile("#?$"))  # Nobody stays in what is deleted.
    await row.chat.notices.get_by_role("button", name="Undo").click()
    await expect(row.line).to_have_count(1, timeout=WAIT_MS)
    await expect(page).to_have_url(re.compile(f"#{session}$"))  # It is open again, as it was.
    await page.clock.fast_forward(30_000)
    async with api_client(shared_server.server.address) as api:
        assert await is_there(api, session)
        await row.choose("Delete")
        await row.wait_until_gone()
        await page.clock.fast_forward(9_000)
        await expect(row.chat.notices.get_by_role("button", name="Undo")).to_be_visible()
        assert await is_there(api, session)
        await page.clock.fast_forward(20_000)
        await wait_until(lambda: is_gone(api, session))
    await row.wait_until_gone()


async def is_there(api: ApiClient, session: str) -> bool:
    await api.get(f"/api/sessions/{session}")
    return api.status == 200


async def is_gone(api: ApiClient, session: str) -> bool:
    return not await is_there(api, session)


async def test_a_deletion_takes_effect_when_the_page_is_closed_at_once(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    row, session = await open_with_listed(new_chat, shared_server, "Delete me and leave")
    await row.choose("Delete")
    await row.wait_until_gone()
    await row.chat.page.close()
    async with api_client(shared_server.server.address) as api:
        await wait_until(lambda: is_gone(api, session), 15)


async def test_pressing_elsewhere_closes_a_menu_and_only_one_is_open(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    row, _ = await open_with_listed(new_chat, shared_server, "Menu of one")
    # A newer one stands above it, where no menu covers it.
    async with api_client(shared_server.server.address) as api:
        await api.create_session(title="Menu of another")
    another = ConversationRow(row.chat, "Menu of another")
    await expect(another.line).to_have_count(1, timeout=WAIT_MS)
    await row.menu_button.click()
    await expect(row.menu).to_be_visible()
    await another.menu_button.click()
    await expect(another.menu).to_be_visible()
    await expect(row.menu).to_have_count(0)
    await row.chat.page.get_by_role("main").click(position={"x": 300, "y": 200})
    await expect(another.menu).to_have_count(0)


async def test_a_keyboard_opens_a_menu_moves_in_it_and_leaves_it(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    row, _ = await open_with_listed(new_chat, shared_server, "By keyboard alone")
    keyboard = row.chat.page.keyboard
    await row.menu_button.focus()
    await keyboard.press("Enter")
    await expect(row.item("Rename")).to_be_focused()
    assert await accessibility_violations(row.chat.page) == []
    await keyboard.press("ArrowDown")
    await expect(row.item("Pin")).to_be_focused()
    await keyboard.press("End")
    await expect(row.item("Delete")).to_be_focused()
    await keyboard.press("ArrowDown")
    await expect(row.item("Rename")).to_be_focused()
    await keyboard.press("ArrowUp")
    await expect(row.item("Delete")).to_be_focused()
    await keyboard.press("Escape")
    await expect(row.menu).to_have_count(0)
    await expect(row.menu_button).to_be_focused()
    await keyboard.press("ArrowDown")
    await expect(row.item("Rename")).to_be_focused()
    await keyboard.press("Tab")
    await expect(row.menu).to_have_count(0)
    await row.menu_button.focus()
    await keyboard.press("Enter")
    await keyboard.press("ArrowDown")
    await keyboard.press("Enter")
    await row.wait_until_below("Pinned")


async def test_a_branch_that_needs_somebody_says_what_it_is_a_branch_of(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    async with api_client(shared_server.server.address) as api:
        parent = await api.create_session(title="A tree of plans")
        await api.wait_for_run((await api.send(parent, "hello"))["run_id"])
        branch = (await api.post(f"/api/sessions/{parent}/fork", {}))["id"]
    chat = await new_chat(branch)
    of_branch = ConversationRow(chat, "A tree of plans (branch)")
    await expect(of_branch.line).to_have_class(re.compile("depth-1"), timeout=WAIT_MS)
    await chat.send("run echo from the branch")
    await chat.wait_for_approval()
    await of_branch.wait_until_below("Needs you")
    title = of_branch.line.locator(".title")
    await expect(title).to_have_attribute("title", "Branch of A tree of plans")
    await expect(title).to_have_text("↳ A tree of plans (branch)")
    await chat.page.goto(f"{shared_server.server.address}#{parent}")
    await chat.send("run echo from the tree")
    await chat.wait_for_approval()
    # With its parent in the same part of the list it stands below it again.
    await of_branch.wait_until_below("Needs you")
    await expect(of_branch.line).to_have_class(re.compile("depth-1"), timeout=WAIT_MS)
    async with api_client(shared_server.server.address) as api:
        for each in (parent, branch):
            await api.request("DELETE", f"/api/sessions/{each}")


async def test_escape_in_a_menu_does_not_stop_the_answer(new_chat: NewChat) -> None:
    chat = await new_chat()
    await chat.send("hold on")
    await expect(chat.log.get_by_role("img", name="Writing…")).to_be_visible(timeout=WAIT_MS)
    line = chat.page.get_by_role("navigation").locator("li.row[aria-current]")
    await line.get_by_role("button").click()
    await chat.page.keyboard.press("Escape")
    await expect(line.get_by_role("menu")).to_have_count(0)
    await line.get_by_role("button").click()
    await line.get_by_role("menuitem", name="Rename").click()
    field = chat.page.get_by_role("textbox", name="Rename")
    await field.fill("")
    await field.press("Escape")
    await expect(field).to_have_count(0)
    await expect(chat.button("Stop")).to_be_visible()
    await chat.button("Stop").click()
    await chat.wait_for_text("Stopped.")
    await expect(chat.log.get_by_text("Stopped.")).to_have_count(1)


async def test_all_of_a_menu_is_in_sight_wherever_its_line_is(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    async with api_client(shared_server.server.address) as api:
        for number in range(14):
            await api.create_session(title=f"Line {number} of 14")
    chat = await new_chat(viewport={"width": 1100, "height": 320})
    rows = chat.page.get_by_role("navigation").locator("li.row").filter(has_text="of 14")
    await expect(rows).to_have_count(14, timeout=WAIT_MS)
    for at in (0, 4, 13):
        line = rows.nth(at)
        await line.scroll_into_view_if_needed()
        await line.get_by_role("button").click()
        for name in ("Rename", "Delete"):
            item = line.get_by_role("menuitem", name=name, exact=True)
            await expect(item).to_be_in_viewport(ratio=1)
            await item.click(trial=True)
        await chat.page.keyboard.press("Escape")
