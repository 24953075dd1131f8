"""The server is killed in the middle of an answer or of a command, and the page stays open."""

import os
import re
import signal
from pathlib import Path

import apsw
from playwright.async_api import expect

from tests.acceptance.conftest import CliHarness, RunningServer
from tests.support.api_client import ScriptedModelServer, api_client, wait_until
from tests.support.browser_driver import SERVER_GONE_PATTERNS, WAIT_MS, BrowserUser, ChatPage, sign_in
from tests.support.free_ports import own_port

COUNT = 300
CONTINUED = "Continued after restart"
MAY_HAVE_RUN = "The server stopped while this was running. Did it finish?"


def kill(server: RunningServer) -> None:
    os.kill(server.process.pid, signal.SIGKILL)
    server.process.wait(30)


async def test_an_answer_that_a_kill_cut_off_goes_on_by_itself_in_the_open_page(
    visitor: BrowserUser, home: CliHarness, speaker: ScriptedModelServer
) -> None:
    visitor.expect_errors(*SERVER_GONE_PATTERNS)
    server = home.serve("--port", str(own_port()))
    chat = ChatPage(await sign_in(visitor, server.link))
    with speaker.pausing_count(COUNT // 2):
        await chat.send(f"count {COUNT}")
        await chat.wait_for_count(40)
        kill(server)
    await chat.disconnected.wait_for()
    partial = await chat.counted_numbers()
    assert partial == list(range(len(partial)))
    assert len(partial) < COUNT
    home.serve("--port", str(server.port))
    await chat.disconnected.wait_for(state="detached")
    await chat.wait_for_count(len(partial))
    await chat.wait_for_answers()
    assert await chat.counted_numbers() == list(range(COUNT))
    await expect(chat.log.get_by_text(CONTINUED)).to_have_count(1)
    before = await chat.log.inner_text()
    # The line stands between what was there and what was added.
    assert re.search(r"\d\s+" + CONTINUED + r", [^\n]+\s+\d+ ", before)
    await chat.page.reload()
    await chat.wait_for_answers()
    assert await chat.log.inner_text() == before


async def test_the_line_of_a_restart_says_when_the_answer_went_on_and_not_when_it_ended(
    visitor: BrowserUser, home: CliHarness, speaker: ScriptedModelServer
) -> None:
    visitor.expect_errors(*SERVER_GONE_PATTERNS)
    server = home.serve("--port", str(own_port()))
    chat = ChatPage(await sign_in(visitor, server.link))
    with speaker.pausing_count(COUNT // 2):
        await chat.send(f"count {COUNT}")
        await chat.wait_for_count(40)
        kill(server)
    server = home.serve("--port", str(server.port))
    await chat.wait_for_answers()
    line = chat.log.get_by_text(CONTINUED)
    said = await line.inner_text()
    kill(server)
    # As if that answer had been written for an hour.
    with apsw.Connection(str(server.folder / "holdfast.db")) as store:
        store.execute("UPDATE events SET at = at + 3600000 WHERE kind = 'message_settled'")
        assert store.changes() > 0
    home.serve("--port", str(server.port))
    await chat.page.reload()
    await expect(line).to_have_text(said)


async def test_commands_that_a_kill_cut_off_are_put_to_the_person_who_decides_what_becomes_of_them(
    visitor: BrowserUser, home: CliHarness, tmp_path: Path
) -> None:
    visitor.expect_errors(*SERVER_GONE_PATTERNS)
    server = home.serve("--port", str(own_port()))
    page = await sign_in(visitor, server.link)
    answers = ("Run again", "It finished", "Carry on without it")
    texts = dict(
        zip(answers, ("It said: the outcome", "It said: The server stopped", "outcome unknown;"), strict=True)
    )
    marks = {name: tmp_path / name.replace(" ", "-") for name in answers}
    sessions = {}
    async with api_client(server.address) as api:
        for name, mark in marks.items():
            # The second time it ends at once.
            command = f"echo ran >> {mark}; test $(wc -l < {mark}) -gt 1 || sleep 500; echo the outcome"
            sessions[name] = await api.create_session(title=name)
            run = (await api.send(sessions[name], f"run {command}"))["run_id"]
            await api.wait_for_run(run, "waiting")
            (call,) = [each["id"] for each in await api.entries(sessions[name]) if each["role"] == "tool"]
            await api.post(f"/api/runs/{run}/tools/{call}", {"decision": "approve"})

        async def have_begun() -> bool:
            return all(mark.exists() for mark in marks.values())

        await wait_until(have_begun)
    chat = ChatPage(page)
    await page.goto(f"{server.address}#{sessions[answers[-1]]}")
    await chat.wait_for_text("running")
    kill(server)
    await chat.disconnected.wait_for()
    server = home.serve("--port", str(server.port))
    for name in reversed(answers):
        await page.goto(f"{server.address}#{sessions[name]}")
        card = chat.log.get_by_role("group", name=MAY_HAVE_RUN)
        await expect(card.get_by_role("button")).to_have_text(list(answers), timeout=WAIT_MS)
        await card.get_by_role("button", name=name).click()
        await expect(card).to_have_count(0, timeout=WAIT_MS)
        await chat.wait_for_answers()
        await chat.wait_for_text(texts[name])
    assert {name: mark.read_text().split() for name, mark in marks.items()} == {
        "Run again": ["ran", "ran"], "It finished": ["ran"], "Carry on without it": ["ran"],
    }  # fmt: skip
