"""The server is killed while a question waits and its page is open."""

import os
import signal
from pathlib import Path

from tests.acceptance.conftest import Holdfast
from tests.support.api_client import talking
from tests.support.browser_driver import GONE, Chat, Visitor, sign_in
from tests.support.free_ports import own_port


async def test_a_question_outlives_a_kill_and_is_asked_and_answered_once(
    visitor: Visitor, home: Holdfast, tmp_path: Path
) -> None:
    visitor.excuse(*GONE)
    marker = tmp_path / "marker"
    server = home.serve("--port", str(own_port()))
    chat = Chat(await sign_in(visitor, server.link))
    await chat.say(f"run echo ran >> {marker}; echo outcome of it")
    await chat.asks()
    for _ in range(2):
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait(30)
        await chat.lost.wait_for()
        server = home.serve("--port", str(server.port))
        await chat.lost.wait_for(state="detached")
        await chat.asks()
        assert not marker.exists()
    await chat.allow.click()
    await chat.reads("It said: outcome of it")
    await chat.asks_nothing()
    assert marker.read_text() == "ran\n"
    async with talking(server.address) as api:
        (session,) = (await api.get("/api/sessions"))["sessions"]
        frames = await api.follow(session["id"], 0, "run_completed")
        kinds = [frame.event for frame in frames]
        assert [kinds.count(kind) for kind in ("approval_requested", "approval_resolved")] == [1, 1]
