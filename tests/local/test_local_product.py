"""Holdfast with the local model: a whole turn, a kill in the middle of it, and choosing it while it runs."""

import asyncio
import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.acceptance.conftest import CliHarness, RunningServer, cli_in
from tests.local.llama_server import PLACE
from tests.support.api_client import ApiClient, api_client, wait_until

WAIT_S = 180
STORY = "Tell me a very long story about a ship, its captain and the sea."


@pytest.fixture
def home(tmp_path: Path) -> Iterator[CliHarness]:
    """The command with the local model in its data folder."""
    folder = tmp_path / "share" / "holdfast"
    folder.mkdir(parents=True)
    (folder / "local").symlink_to(PLACE.folder)
    with cli_in(tmp_path) as command:
        yield command


def children_of(pid: int) -> list[int]:
    return [int(each) for each in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def is_gone(pid: int) -> bool:
    """Whether a process has ended; one that nobody has taken leave of yet has too."""
    try:
        return ") Z " in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return True


async def wait_for_text(api: ApiClient, session: str, chars: int) -> str:
    """What a client was sent of the answer, once that is so much."""
    text = ""
    url = f"{api.address}/api/sessions/{session}/events"
    async with asyncio.timeout(WAIT_S), api.session.get(url, timeout=aiohttp.ClientTimeout(None)) as events:
        async for line in events.content:
            if line.startswith(b"data: ") and b'"text_appended"' in line:
                text += json.loads(line[6:])["text"]
                if len(text) >= chars:
                    return text
    raise AssertionError("the stream ended")


async def finished(api: ApiClient, run_id: str) -> dict[str, Any]:
    found: dict[str, Any] = await api.wait_for_field(
        f"/api/runs/{run_id}", "status", "completed", "failed", "cancelled", timeout_s=WAIT_S
    )
    return found


def kill(server: RunningServer) -> None:
    server.process.kill()
    server.process.wait()


async def test_a_killed_turn_continues_and_keeps_the_text_already_shown(home: CliHarness) -> None:
    home.environ["HOLDFAST_MODEL"] = "local"
    server = home.serve("--port", "0")
    async with api_client(server.address) as api:
        session = await api.create_session()
        receipt = await api.send(session, STORY)
        seen = await wait_for_text(api, session, 60)
        children = children_of(server.process.pid)
        assert children
        kill(server)

        async def are_gone() -> bool:
            return all(map(is_gone, children))

        await wait_until(are_gone, 20)
    server = home.serve("--port", "0")
    async with api_client(server.address) as api:
        run = await finished(api, receipt["run_id"])
        assert run["status"] == "completed", run
        answers = [words for role, _, words in await api.message_texts(session) if role == "assistant"]
        assert "".join(answers).startswith(seen)
        assert len("".join(answers)) > len(seen)
        models = await api.get("/api/models")
        assert models["models"][0]["name"] == "local:smollm2-135m"


async def test_the_local_model_is_chosen_answers_and_is_released_at_run_time(home: CliHarness) -> None:
    del home.environ["HOLDFAST_MODEL"]
    server = home.serve("--port", "0")
    async with api_client(server.address) as api:
        assert (await api.get("/api/models/local"))["state"] == "installed"
        tried = await api.post("/api/models/test", {"provider": "local"})
        assert tried["ok"], tried
        reply = await api.post("/api/models/connect", {"provider": "local"})
        assert api.status == 200, reply
        assert reply["models"][0]["name"] == "local:smollm2-135m"
        assert (await api.request("DELETE", "/api/models/local"))["code"] == "local_in_use"
        session = await api.create_session()
        run = await finished(api, (await api.send(session, "Say hello."))["run_id"])
        assert run["status"] == "completed", run
        assert (await api.get("/api/models/local"))["running"]
        (child,) = children_of(server.process.pid)
        await api.post("/api/models/disconnect")
        assert api.status == 200

        async def is_gone_now() -> bool:
            return is_gone(child)

        await wait_until(is_gone_now, 20)
        assert not (await api.get("/api/models/local"))["running"]
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(30) == 0
    assert PLACE.is_installed
