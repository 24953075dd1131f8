"""Files with a message: chosen, pasted and dropped; what cannot be sent is said before anything is."""

import asyncio
import base64
import re
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.async_api import FilePayload, Locator, Route, expect

from holdfast.domain.limits import ATTACHMENTS_MAX, FILE_BYTES_MAX, TEXT_FILE_BYTES_MAX
from tests.browser.conftest import HostServer, NewChat
from tests.support.api_client import ScriptedModelServer, api_client, scripted_model_server
from tests.support.browser_driver import PHONE, WAIT_MS, ChatPage, SharedServer, accessibility_violations

CARRY = """({ name, type, base64, where }) => {
    const bytes = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
    const given = new DataTransfer();
    given.items.add(new File([bytes], name, { type }));
    const target = document.querySelector(where);
    const over = new DragEvent("dragover", { dataTransfer: given, bubbles: true, cancelable: true });
    target.dispatchEvent(over);
    const drop = new DragEvent("drop", { dataTransfer: given, bubbles: true, cancelable: true });
    return [over, target.dispatchEvent(drop)].map((each) => each === over ? over.defaultPrevented : !each);
}"""
"""Drop a file: what Chromium does when one is let go of over the page. Whether the page took it in."""
COPY = """async (base64) => {
    const bytes = Uint8Array.from(atob(base64), (each) => each.charCodeAt(0));
    const image = new Blob([bytes], { type: "image/png" });
    await navigator.clipboard.write([new ClipboardItem({ "image/png": image })]);
}"""


def png(side: int) -> bytes:
    """A square picture, as black as can be."""

    def piece(name: bytes, content: bytes) -> bytes:
        return (
            struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))
        )

    rows = (b"\0" + b"\0" * side) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 0, 0, 0, 0)
    pieces = piece(b"IHDR", head) + piece(b"IDAT", zlib.compress(rows)) + piece(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + pieces


def payload(name: str, content: bytes, kind: str = "text/plain") -> FilePayload:
    return {"name": name, "mimeType": kind, "buffer": content}


class VisionModelServer(ScriptedModelServer):
    """Looks at pictures, and has room for several."""

    async def answer(self, request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            return await super().answer(request)
        takes = {"input_modalities": ["text", "image"]}
        model = {"id": "small", "context_length": 64_000, "architecture": takes}
        return web.json_response({"object": "list", "data": [model]})


@pytest.fixture(scope="module")
def painter() -> Iterator[ScriptedModelServer]:
    with scripted_model_server(VisionModelServer()) as speaker:
        yield speaker


@pytest.fixture(scope="module")
def shared_server(host_server: HostServer, painter: ScriptedModelServer) -> Iterator[SharedServer]:
    with host_server("studio", painter) as shared_server:
        yield shared_server


def last_parts(painter: ScriptedModelServer) -> list[dict[str, Any]]:
    """What the model was given with the last message."""
    asked = [each for each in painter.requests if each.get("tools")][-1]["messages"][-1]["content"]
    return asked if isinstance(asked, list) else [{"type": "text", "text": asked}]


def attached_files(chat: ChatPage) -> Locator:
    """The files that are to go with the message."""
    return chat.page.get_by_role("list", name="Attached files").get_by_role("listitem")


def file_input(chat: ChatPage) -> Locator:
    return chat.page.get_by_label("Attach a file")


async def drop(chat: ChatPage, where: str, name: str, kind: str, content: bytes) -> None:
    carried = {"name": name, "type": kind, "base64": base64.b64encode(content).decode(), "where": where}
    assert await chat.page.evaluate(CARRY, carried) == [True, True], "the browser would have left the page"


async def pictures(within: Locator) -> list[tuple[str, int]]:
    """Every picture that is shown, by its name and how wide it really is."""
    found: list[tuple[str, int]] = [
        (each[0], each[1])
        for each in await within.locator("img").evaluate_all(
            "all => Promise.all(all.map((each) => (each.loading = 'eager', each.decode()).then(() =>"
            " [each.alt, each.naturalWidth])))"
        )
    ]
    return found


async def test_pictures_and_text_come_in_all_three_ways_reach_the_model_and_stay(
    new_chat: NewChat, shared_server: SharedServer, painter: ScriptedModelServer
) -> None:
    chat = await new_chat(permissions=["clipboard-read", "clipboard-write"])
    await file_input(chat).set_input_files([payload("chosen.png", png(3), "image/png")])
    await chat.page.evaluate(COPY, base64.b64encode(png(5)).decode())
    await chat.message.focus()
    await chat.page.keyboard.press("Control+v")
    await expect(attached_files(chat)).to_have_count(2, timeout=WAIT_MS)
    # Dropped where the conversation is, not where one writes.
    await drop(chat, "main", "dropped.txt", "text/plain", b"Words in a file\n")
    await expect(attached_files(chat)).to_have_text(
        ["chosen.png ×", "image.png ×", "dropped.txt ×"], timeout=WAIT_MS
    )
    await expect(attached_files(chat).get_by_role("status")).to_have_count(0, timeout=WAIT_MS)
    assert await accessibility_violations(chat.page) == []
    await chat.send("what is this")
    await chat.wait_for_answers()
    await expect(attached_files(chat)).to_have_count(0)
    given = last_parts(painter)
    assert sum(each["type"] == "image_url" for each in given) == 2, given
    assert "Words in a file" in str(given)
    for _ in range(2):
        asked = chat.log.get_by_role("article", name="You")
        await expect(asked.get_by_role("link", name="dropped.txt")).to_be_visible(timeout=WAIT_MS)
        assert [width for _, width in await pictures(asked)] == [3, 5]
        await chat.page.reload()
        await chat.wait_for_answers()
    async with chat.page.expect_download() as download:
        await chat.log.get_by_role("link", name="dropped.txt").click()
    assert (await (await download.value).path()).read_bytes() == b"Words in a file\n"


async def test_a_message_whose_words_are_changed_keeps_its_files(
    new_chat: NewChat, painter: ScriptedModelServer
) -> None:
    chat = await new_chat()
    await file_input(chat).set_input_files([payload("kept.png", png(7), "image/png")])
    await expect(attached_files(chat)).to_have_text(["kept.png ×"], timeout=WAIT_MS)
    await chat.send("first words")
    await chat.wait_for_answers()
    asked = chat.turns.get_by_role("article", name="You")
    await asked.hover()
    await asked.get_by_role("button", name="Edit").click()
    await chat.log.get_by_role("textbox", name="Edit").fill("other words")
    await chat.button("Save and resend").click()
    await expect(asked).to_contain_text("other words", timeout=WAIT_MS)
    await chat.wait_for_answers()
    assert await pictures(asked) == [("kept.png", 7)]
    assert [each["type"] for each in last_parts(painter)].count("image_url") == 1


async def test_what_is_not_taken_is_said_at_once_by_its_name_and_the_rest_is_sent(
    new_chat: NewChat, shared_server: SharedServer, tmp_path: Path
) -> None:
    chat = await new_chat()
    chat.user.expect_errors(r"status of 4(13|15)")
    huge = tmp_path / "huge.bin"
    with huge.open("wb") as file:
        file.truncate(FILE_BYTES_MAX + 1)
    await file_input(chat).set_input_files([
        payload("program.exe", b"MZ\0\0\1\2", "application/octet-stream"),
        payload("long.txt", b"x" * (TEXT_FILE_BYTES_MAX + 1)),
        payload("fine.txt", b"Fine words"),
        payload("empty.txt", b""),
    ])  # fmt: skip
    await file_input(chat).set_input_files(huge)
    wrong = chat.page.get_by_role("list", name="Attached files").get_by_role("alert")
    await expect(wrong).to_have_count(4, timeout=WAIT_MS)
    for name, why in (
        ("program.exe", "This file is not taken"), ("long.txt", "1,000,000 bytes"),
        ("empty.txt", "it is empty"), ("huge.bin", "It has 20.0 MB"),
    ):  # fmt: skip
        await expect(wrong.filter(has_text=name)).to_contain_text(why)
    for name in ("huge.bin", "empty.txt"):
        await chat.page.get_by_role("button", name=f"Remove {name}").click()
    await expect(wrong).to_have_count(2)
    # What is not taken is never left out in silence: whoever sends is told, and sends again.
    await chat.message.fill("only the fine one")
    await chat.message.press("Enter")
    await expect(chat.notices).to_contain_text("Not sent: program.exe, long.txt were not taken.")
    await expect(chat.message).to_have_value("only the fine one")
    await expect(attached_files(chat)).to_have_text(["fine.txt ×"])
    await expect(wrong).to_have_count(2)
    await expect(chat.log.get_by_role("article", name="You")).to_have_count(0)
    await chat.message.press("Enter")
    await chat.wait_for_answers()
    asked = chat.log.get_by_role("article", name="You")
    await expect(asked.get_by_role("link")).to_have_text(["fine.txt"])
    await expect(attached_files(chat).or_(wrong)).to_have_count(0)


async def test_one_file_more_than_a_message_takes_waits_for_the_next(new_chat: NewChat) -> None:
    chat = await new_chat()
    many = [payload(f"{number}.txt", f"words {number}".encode()) for number in range(ATTACHMENTS_MAX + 1)]
    await file_input(chat).set_input_files(many)
    wrong = chat.page.get_by_role("alert").filter(has_text=f"A message takes {ATTACHMENTS_MAX} files.")
    await expect(wrong).to_have_count(1)
    await expect(wrong).to_contain_text(f"{ATTACHMENTS_MAX}.txt")
    await expect(attached_files(chat).get_by_role("status")).to_have_count(0, timeout=WAIT_MS)
    await chat.button(f"Remove {ATTACHMENTS_MAX}.txt").click()
    await expect(wrong).to_have_count(0)
    await chat.send("here they are")
    await chat.wait_for_answers()
    await expect(chat.log.get_by_role("article", name="You").get_by_role("link")).to_have_count(
        ATTACHMENTS_MAX
    )


async def test_files_alone_are_a_message_also_while_an_answer_is_written(new_chat: NewChat) -> None:
    chat = await new_chat()
    await chat.send("hold on")
    await expect(chat.log.get_by_role("img", name="Writing…")).to_be_visible(timeout=WAIT_MS)
    await file_input(chat).set_input_files([payload("alone.txt", b"Nothing else")])
    await chat.button("Interrupt").click(timeout=WAIT_MS)
    await expect(chat.turns.last.get_by_role("link", name="alone.txt")).to_be_visible(timeout=WAIT_MS)
    await chat.wait_for_answers(2)


async def test_what_is_left_behind_with_a_conversation_does_not_come_along(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    async with api_client(shared_server.server.address) as api:
        one, other = await api.create_session(title="Files here"), await api.create_session(title="Not here")
    chat = await new_chat(one)
    held = asyncio.Event()

    async def hold(route: Any) -> None:
        await held.wait()
        await route.continue_()

    await chat.page.route("**/api/files?*", hold)
    await file_input(chat).set_input_files([payload("slow.txt", b"On its way")])
    await expect(attached_files(chat)).to_contain_text("Uploading…")
    await chat.page.goto(f"{shared_server.server.address}#{other}")
    await expect(attached_files(chat)).to_have_count(0)
    async with chat.page.expect_response("**/api/files?*"):
        held.set()
    await chat.send("no files")
    await chat.wait_for_answers()
    await expect(chat.log.get_by_role("article", name="You").get_by_role("link")).to_have_count(0)
    # It has come through where it was given, and is still there, also after a reload.
    await chat.page.goto(f"{shared_server.server.address}#{one}")
    await expect(attached_files(chat)).to_have_text(["slow.txt ×"], timeout=WAIT_MS)
    await chat.page.reload()
    await expect(attached_files(chat)).to_have_text(["slow.txt ×"], timeout=WAIT_MS)
    await chat.send("with the file")
    await chat.wait_for_answers()
    await expect(chat.log.get_by_role("link", name="slow.txt")).to_be_visible()
    await expect(attached_files(chat)).to_have_count(0)


async def hold_uploads(chat: ChatPage, *names: str) -> asyncio.Event:
    """Give files that are on their way until what is returned is set."""
    held = asyncio.Event()

    async def hold(route: Route) -> None:
        await held.wait()
        await route.continue_()

    await chat.page.route("**/api/files?*", hold)
    files = [payload(name, b"MZ\0\1" if name.endswith(".exe") else name.encode()) for name in names]
    await file_input(chat).set_input_files(files)
    await expect(attached_files(chat).get_by_role("status")).to_have_count(len(names), timeout=WAIT_MS)
    return held


SOON = "Sends when the file is there."


async def test_a_message_goes_out_by_itself_once_its_file_is_there(new_chat: NewChat) -> None:
    chat = await new_chat()
    held = await hold_uploads(chat, "slow.txt")
    await chat.message.fill("what is in it")
    await chat.message.press("Enter")
    await expect(chat.page.get_by_text(SOON)).to_be_visible(timeout=WAIT_MS)
    await expect(chat.message).to_have_value("what is in it")
    await expect(chat.button("Send")).to_be_disabled()
    assert await accessibility_violations(chat.page) == []
    held.set()
    await chat.wait_for_answers()
    asked = chat.log.get_by_role("article", name="You")
    await expect(asked).to_have_count(1)
    await expect(asked).to_contain_text("what is in it")
    await expect(asked.get_by_role("link", name="slow.txt")).to_be_visible()
    await expect(chat.message).to_have_value("")
    await expect(chat.page.get_by_text(SOON)).to_have_count(0)


async def test_on_a_phone_a_file_can_be_removed_beside_its_name(new_chat: NewChat) -> None:
    chat = await new_chat(**PHONE)
    name = "a rather long name of a report.txt"
    held = await hold_uploads(chat, name)
    removing = chat.button(f"Remove {name}")
    named, pressed = await attached_files(chat).bounding_box(), await removing.bounding_box()
    assert named is not None and pressed is not None
    assert named["height"] < 1.5 * pressed["height"], "in its line, not below it"
    await removing.tap()
    await expect(attached_files(chat)).to_have_count(0)
    held.set()


@pytest.mark.parametrize("how", ["button", "Escape", "writing", "removing"])
async def test_a_send_cancelled_before_the_upload_ends_sends_nothing(how: str, new_chat: NewChat) -> None:
    chat = await new_chat()
    held = await hold_uploads(chat, "slow.txt", "other.txt")
    await chat.message.fill("too soon")
    await chat.button("Send").click()
    soon = chat.page.get_by_text("Sends when the files are there.")
    await expect(soon).to_be_visible(timeout=WAIT_MS)
    if how == "button":
        await chat.button("Don't send yet").click()
    elif how == "removing":
        await chat.button("Remove other.txt").click()
    else:
        await chat.message.press("Escape" if how == "Escape" else "!")
    await expect(soon).to_have_count(0, timeout=WAIT_MS)
    held.set()
    await expect(attached_files(chat).get_by_role("status")).to_have_count(0, timeout=WAIT_MS)
    await expect(attached_files(chat).first).to_be_visible()
    await expect(chat.message).to_have_value(re.compile("too soon"))
    await expect(chat.log.get_by_role("article", name="You")).to_have_count(0)


async def test_a_message_whose_file_is_not_taken_waits_for_its_writer(new_chat: NewChat) -> None:
    chat = await new_chat()
    chat.user.expect_errors(r"status of 415")
    held = await hold_uploads(chat, "program.exe")
    await chat.message.fill("look at it")
    await chat.message.press("Enter")
    await expect(chat.page.get_by_text(SOON)).to_be_visible(timeout=WAIT_MS)
    held.set()
    await expect(chat.page.get_by_role("alert")).to_contain_text("program.exe", timeout=WAIT_MS)
    await expect(chat.page.get_by_text(SOON)).to_have_count(0)
    await expect(chat.message).to_have_value("look at it")
    await expect(chat.log.get_by_role("article", name="You")).to_have_count(0)


async def test_leaving_during_an_upload_shows_a_notice_and_keeps_the_message(
    new_chat: NewChat, shared_server: SharedServer
) -> None:
    async with api_client(shared_server.server.address) as api:
        one, other = (
            await api.create_session(title="Files on their way"),
            await api.create_session(title="Elsewhere"),
        )
    chat = await new_chat(one)
    held = await hold_uploads(chat, "slow.txt")
    await chat.message.fill("what is in it")
    await chat.message.press("Enter")
    await expect(chat.page.get_by_text(SOON)).to_be_visible(timeout=WAIT_MS)
    for elsewhere in (other, "memory"):
        await chat.page.goto(f"{shared_server.server.address}#{elsewhere}")
        await expect(chat.notices).to_contain_text("Your message is not sent", timeout=WAIT_MS)
        await chat.page.goto(f"{shared_server.server.address}#{one}")
        await expect(chat.message).to_have_value("what is in it", timeout=WAIT_MS)
        await expect(attached_files(chat)).to_contain_text("slow.txt")
        await chat.message.press("Enter")
        await expect(chat.page.get_by_text(SOON)).to_be_visible(timeout=WAIT_MS)
    held.set()
    await chat.wait_for_answers()
    await expect(chat.log.get_by_role("link", name="slow.txt")).to_be_visible(timeout=WAIT_MS)


async def test_a_command_leaves_files_for_the_message_that_they_are_meant_for(new_chat: NewChat) -> None:
    chat = await new_chat()
    await file_input(chat).set_input_files([payload("meant.txt", b"For a message")])
    await expect(attached_files(chat)).to_have_text(["meant.txt ×"], timeout=WAIT_MS)
    await chat.message.fill("/model")
    await chat.message.press("Enter")
    await expect(chat.notices).to_contain_text("small", timeout=WAIT_MS)
    await expect(chat.message).to_have_value("")
    await expect(attached_files(chat)).to_have_text(["meant.txt ×"])
