"""Files that an answer changed: what changed, line by line, and putting it back; output too long to show."""

import json
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.conftest import NewChat
from tests.support.api_client import ApiClient, api_client
from tests.support.browser_driver import (
    PHONE,
    WAIT_MS,
    ChatPage,
    SharedServer,
    accessibility_violations,
    undersized_targets,
)

NOTES = "Tidy up\nand rest\n"
NEVER_LATE = """() => {
    const real = setTimeout;
    window.setTimeout = (run, ms, ...given) => (ms >= 5000 ? 0 : real(run, ms, ...given));
}"""
"""Keep on the page what would go after some seconds, so that no test has to be quick."""
GAP = "(note, question) => question.getBoundingClientRect().top - note.getBoundingClientRect().bottom"


async def run_approved_tool(chat: ChatPage, tool: str, turns: int, **arguments: str) -> None:
    """Have the assistant use a tool, allow it, and wait for the answer."""
    await chat.send(f"use {tool} {json.dumps(arguments)}")
    await chat.wait_for_approval()
    await chat.allow.click()
    await chat.wait_for_answers(turns)


async def open_in_folder(
    new_chat: NewChat, shared_server: SharedServer, folder: Path, **options: Any
) -> ChatPage:
    """A conversation that works in `folder`, where some notes are."""
    (folder / "notes.md").write_text(NOTES)
    async with api_client(shared_server.server.address) as api:
        session = await api.create_session(workspace=str(folder))
    return await new_chat(session, **options)


def file_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


async def open_with_edit(
    new_chat: NewChat, shared_server: SharedServer, folder: Path, **options: Any
) -> ChatPage:
    chat = await open_in_folder(new_chat, shared_server, folder, **options)
    await run_approved_tool(
        chat, "edit_file", 1, path="notes.md", old_text="Tidy up\n", new_text="Tidied\nup\n"
    )
    assert (folder / "notes.md").read_text() == "Tidied\nup\nand rest\n"
    return chat


async def test_an_edit_is_asked_about_line_by_line(
    new_chat: NewChat, shared_server: SharedServer, tmp_path: Path
) -> None:
    chat = await open_in_folder(new_chat, shared_server, tmp_path)
    arguments = {"path": "notes.md", "old_text": "Tidy up", "new_text": "Tidied up"}
    await chat.send(f"use edit_file {json.dumps(arguments)}")
    await chat.wait_for_approval()
    await expect(chat.question.locator(".diff .minus")).to_have_text("-Tidy up\n")
    await expect(chat.question.locator(".diff .plus")).to_have_text("+Tidied up\n")


async def test_a_file_change_is_summarised_in_its_line_and_shown_inside(
    new_chat: NewChat, shared_server: SharedServer, tmp_path: Path
) -> None:
    chat = await open_with_edit(new_chat, shared_server, tmp_path)
    for _ in range(2):
        line = chat.log.get_by_role("button", name="Changed notes.md")
        await expect(line).to_contain_text("+2")
        await expect(line).to_contain_text("−1")
        await line.click()
        diff = chat.log.get_by_label("Changes of notes.md")
        await expect(diff.locator(".plus")).to_have_text(["+Tidied\n", "+up\n"])
        await expect(diff.locator(".minus")).to_have_text(["-Tidy up\n"])
        await chat.page.reload()
        await chat.wait_for_answers()


async def test_files_are_put_back_one_by_one_or_all(
    new_chat: NewChat, shared_server: SharedServer, tmp_path: Path
) -> None:
    chat = await open_with_edit(new_chat, shared_server, tmp_path)
    await run_approved_tool(chat, "write_file", 2, path="new.txt", content="made\n")
    first, second = chat.turns.first, chat.turns.last
    await second.get_by_role("button", name="Changed 1 file").click()
    await expect(second.locator(".changes").get_by_role("button", name="new.txt")).to_contain_text("· new")
    await second.get_by_role("button", name="Put back as it was").click()
    await expect(second.get_by_role("group")).to_contain_text("Revert new.txt to before this answer?")
    await second.get_by_role("button", name="Cancel").click()
    assert (tmp_path / "new.txt").exists()
    await second.get_by_role("button", name="Put back as it was").click()
    await chat.button("Revert").click()
    await expect(chat.notices).to_contain_text(" reverted.", timeout=WAIT_MS)
    await expect(second.get_by_role("button", name="Changed 1 file")).to_contain_text("put back")
    await expect(second.get_by_role("button", name="Put back as it was")).to_have_count(0)
    assert not (tmp_path / "new.txt").exists()
    assert (tmp_path / "notes.md").read_text() != NOTES
    await first.get_by_role("button", name="Changed 1 file").click()
    await first.get_by_role("button", name="Put back as it was").click()
    await chat.button("Revert").click()
    await expect(first.get_by_role("button", name="Changed 1 file")).to_contain_text("put back")
    assert (tmp_path / "notes.md").read_text() == NOTES


async def test_an_edit_that_lacks_its_words_shows_why_it_failed_and_no_empty_lines(
    new_chat: NewChat, shared_server: SharedServer, tmp_path: Path
) -> None:
    chat = await open_in_folder(new_chat, shared_server, tmp_path)
    await chat.send('use edit_file {"path": "notes.md"}')
    await chat.wait_for_answers()
    await chat.expand_all()
    await expect(chat.log.locator(".tool.failed .inside")).to_contain_text("notes.md")
    await expect(chat.log.locator(".tool.failed .diff")).to_have_count(0)


async def test_the_question_before_files_are_put_back_stays_beside_its_button_until_it_is_answered(
    new_chat: NewChat, shared_server: SharedServer, tmp_path: Path
) -> None:
    chat = await open_in_folder(new_chat, shared_server, tmp_path, viewport={"width": 1200, "height": 850})
    await chat.page.clock.install()
    await run_approved_tool(chat, "write_file", 1, path="new.txt", content="made\n")
    await chat.log.get_by_role("button", name="Changed 1 file").click()
    back = chat.log.get_by_role("button", name="Put back as it was")
    await back.click()
    asked = chat.log.get_by_role("group").get_by_text("Revert new.txt to before")
    await expect(asked).to_be_visible()
    await expect(chat.button("Revert")).to_be_focused()
    await expect(back).to_have_count(0)
    await chat.page.clock.fast_forward(600_000)
    await expect(asked).to_be_visible()
    await chat.button("Cancel").click()
    await expect(asked).to_have_count(0)
    await expect(back).to_be_focused()
    assert (tmp_path / "new.txt").exists()


async def test_what_is_said_in_passing_lies_over_nothing_and_stays_behind_with_its_place(
    new_chat: NewChat, shared_server: SharedServer, tmp_path: Path
) -> None:
    chat = await open_in_folder(new_chat, shared_server, tmp_path, viewport={"width": 1200, "height": 850})
    await chat.page.evaluate(NEVER_LATE)
    await run_approved_tool(chat, "write_file", 1, path="new.txt", content="made\n")
    await chat.log.get_by_role("button", name="Changed 1 file").click()
    await chat.log.get_by_role("button", name="Put back as it was").click()
    await chat.button("Revert").click()
    said = chat.notices.get_by_text(" reverted.")
    await expect(said).to_be_visible()
    await chat.send("run echo on it goes")
    await chat.wait_for_approval()
    # Both at one moment: what is below them still grows while the question arrives.
    assert await said.evaluate(GAP, await chat.question.element_handle()) >= 0
    await chat.page.get_by_role("link", name="Agents", exact=True).click()
    await expect(chat.page.get_by_role("heading", name="Agents").first).to_be_visible(timeout=WAIT_MS)
    await expect(said).to_have_count(0)


async def test_what_was_changed_since_is_named_and_left_alone(
    new_chat: NewChat, shared_server: SharedServer, tmp_path: Path
) -> None:
    chat = await open_with_edit(new_chat, shared_server, tmp_path)
    (tmp_path / "notes.md").write_text("by hand\n")
    chat.user.expect_errors(r"409 \(Conflict\)")
    await chat.log.get_by_role("button", name="Changed 1 file").click()
    await chat.log.get_by_role("button", name="Put back as it was").click()
    await chat.button("Revert").click()
    await expect(chat.log.get_by_role("alert")).to_contain_text("notes.md", timeout=WAIT_MS)
    assert (tmp_path / "notes.md").read_text() == "by hand\n"
    await expect(chat.log.get_by_role("button", name="Put back as it was")).to_be_enabled()


async def test_nothing_is_put_back_while_an_answer_is_under_way(
    new_chat: NewChat, shared_server: SharedServer, tmp_path: Path
) -> None:
    chat = await open_with_edit(new_chat, shared_server, tmp_path)
    chat.user.expect_errors(r"409 \(Conflict\)")
    await chat.send("hold on")
    await expect(chat.log.get_by_role("img", name="Writing…")).to_be_visible(timeout=WAIT_MS)
    await chat.log.get_by_role("button", name="Changed 1 file").click()
    await chat.log.get_by_role("button", name="Put back as it was").click()
    await chat.button("Revert").click()
    await expect(chat.log.get_by_role("alert")).to_contain_text("An answer is under way.", timeout=WAIT_MS)
    await chat.button("Stop").click()
    await expect(chat.log.get_by_text("Stopped.")).to_be_visible(timeout=WAIT_MS)
    await chat.log.get_by_role("button", name="Put back as it was").click()
    await chat.button("Revert").click()
    await expect(chat.notices).to_contain_text(" reverted.", timeout=WAIT_MS)
    assert (tmp_path / "notes.md").read_text() == NOTES


async def test_several_files_of_one_answer_are_listed(
    new_chat: NewChat, shared_server: SharedServer, tmp_path: Path
) -> None:
    """What one answer changed in three files, of which one is put back by itself and then the others."""
    chat = await open_in_folder(new_chat, shared_server, tmp_path)
    async with api_client(shared_server.server.address) as api:
        await _write_three(api, chat.session_id)
    await chat.wait_for_answers()
    await chat.log.get_by_role("button", name="Changed 3 files").click()
    listed = chat.log.locator(".changes > li")
    await expect(listed).to_have_count(3, timeout=WAIT_MS)
    await chat.log.get_by_role("button", name="Put back as it was: b.txt").click()
    await chat.button("Revert").click()
    await expect(listed.nth(1)).to_contain_text("put back", timeout=WAIT_MS)
    assert file_names(tmp_path) == ["a.txt", "c.txt", "notes.md"]
    await chat.button("Put all back as they were").click()
    await chat.button("Revert").click()
    await expect(chat.notices).to_contain_text("2 files reverted.", timeout=WAIT_MS)
    assert file_names(tmp_path) == ["notes.md"]


async def _write_three(api: ApiClient, session: str) -> None:
    """One run that writes three files: each call is allowed as it is asked about."""
    calls = [["write_file", {"path": f"{name}.txt", "content": f"{name}\n"}] for name in "abc"]
    run = (await api.send(session, f"uses {json.dumps(calls)}"))["run_id"]
    await api.wait_for_run(run, "waiting")
    for entry in [each for each in await api.entries(session) if each.get("approval") == "requested"]:
        await api.post(f"/api/runs/{run}/tools/{entry['id']}", {"decision": "approve"})
    await api.wait_for_run(run)


async def test_long_output_is_opened_whole_and_as_text(chat: ChatPage) -> None:
    script = "<img src=x onerror=alert(1)>"
    await chat.send(f"run seq 1 30000; echo '{script}'")
    await chat.wait_for_approval()
    await chat.allow.click()
    await chat.wait_for_answers()
    await chat.log.get_by_role("button", name="Ran seq").click()
    shown = chat.log.get_by_label("Output")
    await expect(shown).to_contain_text("30000")
    await expect(shown).not_to_contain_text("\n15000\n")
    await chat.button("Open all of it").click()
    sheet = chat.page.get_by_role("dialog", name="All of the output")
    whole = sheet.get_by_label("Output")
    await expect(whole).to_contain_text("\n15000\n", use_inner_text=True, timeout=WAIT_MS)
    await expect(whole).to_contain_text(script)
    await expect(sheet.locator("img")).to_have_count(0)
    assert await accessibility_violations(chat.page) == []
    async with chat.page.expect_download() as download:
        await sheet.get_by_role("link", name="Save as a file").click()
    saved = await (await download.value).path()
    assert saved.read_text().startswith("1\n2\n3\n") and script in saved.read_text()
    await chat.page.keyboard.press("Escape")
    await expect(sheet).to_have_count(0)
    await expect(chat.button("Open all of it")).to_be_focused()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_axe_finds_nothing_wrong_with_changes(
    scheme: Any, new_chat: NewChat, shared_server: SharedServer, tmp_path: Path
) -> None:
    chat = await open_with_edit(new_chat, shared_server, tmp_path, color_scheme=scheme)
    await chat.expand_all()
    await expect(chat.log.locator(".changes > li")).to_have_count(1, timeout=WAIT_MS)
    await chat.expand_all()
    await expect(chat.log.locator(".diff")).to_have_count(2)
    assert await accessibility_violations(chat.page) == []


async def test_changes_fit_a_phone(new_chat: NewChat, shared_server: SharedServer, tmp_path: Path) -> None:
    chat = await open_with_edit(new_chat, shared_server, tmp_path, **PHONE)
    await chat.expand_all()
    await expect(chat.log.locator(".changes > li")).to_have_count(1, timeout=WAIT_MS)
    await chat.expand_all()
    assert await undersized_targets(chat.page) == []
    width = await chat.page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["viewport"]["width"]
