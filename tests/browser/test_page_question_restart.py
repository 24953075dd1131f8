"""The server is killed while a question waits and its page is open."""

import os
import signal
from pathlib import Path

from tests.acceptance.conftest import CliHarness
from tests.support.api_client import api_client
from tests.support.browser_driver import SERVER_GONE_PATTERNS, BrowserUser, ChatPage, sign_in
from tests.support.free_ports import own_port


async def test_a_question_outlives_a_kill_and_is_asked_and_answered_once(
    visitor: BrowserUser, home: CliHarness, tmp_path: Path
) -> None:
    visitor.expect_errors(*SERVER_GONE_PATTERNS)
    marker = tmp_path / "marker"
    server = home.serve("--port", str(own_port()))
    chat = ChatPage(await sign_in(visitor, server.link))
    await chat.send(f"run echo ran >> {marker}; echo outcome of it")
    await chat.wait_for_approval()
    for _ in range(2):
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(30)
        await chat.disconnected.wait_for()
        server = home.serve("--port", str(server.port))
        await chat.disconnected.wait_for(state="detached")
        await chat.wait_for_approval()
        assert not marker.exists()
    await chat.allow.click()
    await chat.wait_for_text("It said: outcome of it")
    await chat.wait_for_no_question()
    assert marker.read_text() == "ran\n"
    async with api_client(server.address) as api:
        (session,) = (await api.get("/api/sessions"))["sessions"]
        frames = await api.events_through(session["id"], 0, "run_completed")
        kinds = [frame.event for frame in frames]
        assert [kinds.count(kind) for kind in ("approval_requested", "approval_resolved")] == [1, 1]
