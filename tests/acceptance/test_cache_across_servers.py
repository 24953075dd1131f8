"""Two servers on one folder: what one of them holds ready is read again when the other has changed it."""

import asyncio
import re
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import cli_in, environ_for
from tests.support.api_client import ApiClient, ScriptedModelServer, api_client

COUNTED = re.compile(r'^holdfast_agent_cache_(\w+?)(?:_total)?(?:\{why="(\w+)"\})? (\d+)$', re.MULTILINE)


async def cache_counters(api: ApiClient) -> dict[str, int]:
    found = COUNTED.findall((await api.get("/metrics")).decode())
    return {why or name: int(count) for name, why, count in found}


async def send_and_wait(api: ApiClient, session: str, text: str) -> None:
    sent = await api.send(session, text)
    await api.wait_for_run(sent["run_id"])


def asked_last(speaker: ScriptedModelServer) -> list[Any]:
    """What people had said, as the model was shown it; a title is asked for with other instructions."""
    answers = [body["messages"] for body in speaker.requests if body.get("tools")]
    return [message["content"] for message in answers[-1] if message["role"] == "user"]


async def test_an_undo_by_another_server_rebuilds_the_cached_context(
    speaker: ScriptedModelServer, tmp_path: Path
) -> None:
    with cli_in(tmp_path, **environ_for(speaker)) as command:
        one = await asyncio.to_thread(command.serve, "--port", "0")
        other = await asyncio.to_thread(command.serve, "--port", "0")
        async with api_client(one.address) as here, api_client(other.address) as there:
            session = await here.create_session(title="Together")
            await send_and_wait(here, session, "First")
            await send_and_wait(here, session, "Second")
            before = await cache_counters(here)
            assert (before["hits"], before["new"], before["entries"]) == (1, 1, 1) and before["bytes"] > 0
            await there.request("PATCH", f"/api/sessions/{session}", {"title": "Named elsewhere"})
            await send_and_wait(here, session, "Third")
            assert asked_last(speaker) == ["First", "Second", "Third"]
            await there.post(f"/api/sessions/{session}/undo", {})
            assert there.status == 200
            await send_and_wait(here, session, "Third, otherwise")
            assert asked_last(speaker) == ["First", "Second", "Third, otherwise"]
            await send_and_wait(here, session, "Fourth")
            after = await cache_counters(here)
            assert (after["hits"], after["new"], after["foreign"]) == (3, 1, 1)
            assert "hits" in await cache_counters(there) and (await cache_counters(there))["entries"] == 0
