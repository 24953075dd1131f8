"""Two servers on one folder: what one of them holds ready is read again when the other has changed it."""

import asyncio
import re
from pathlib import Path
from typing import Any

from tests.acceptance.conftest import environ_of, living_in
from tests.support.api_client import Api, Speaker, talking

COUNTED = re.compile(r'^holdfast_agent_cache_(\w+?)(?:_total)?(?:\{why="(\w+)"\})? (\d+)$', re.MULTILINE)


async def counted(api: Api) -> dict[str, int]:
    found = COUNTED.findall((await api.get("/metrics")).decode())
    return {why or name: int(count) for name, why, count in found}


async def answered(api: Api, session: str, text: str) -> None:
    sent = await api.say(session, text)
    await api.done(sent["run_id"])


def asked_last(speaker: Speaker) -> list[Any]:
    """What people had said, as the model was shown it; a title is asked for with other instructions."""
    answers = [body["messages"] for body in speaker.asked if body.get("tools")]
    return [message["content"] for message in answers[-1] if message["role"] == "user"]


async def test_what_another_server_took_back_is_read_again_and_counted(
    speaker: Speaker, tmp_path: Path
) -> None:
    with living_in(tmp_path, **environ_of(speaker)) as command:
        one = await asyncio.to_thread(command.serve, "--port", "0")
        other = await asyncio.to_thread(command.serve, "--port", "0")
        async with talking(one.address) as here, talking(other.address) as there:
            session = await here.begin(title="Together")
            await answered(here, session, "First")
            await answered(here, session, "Second")
            before = await counted(here)
            assert (before["hits"], before["new"], before["entries"]) == (1, 1, 1) and before["bytes"] > 0
            await there.ask("PATCH", f"/api/sessions/{session}", {"title": "Named elsewhere"})
            await answered(here, session, "Third")
            assert asked_last(speaker) == ["First", "Second", "Third"]
            await there.post(f"/api/sessions/{session}/undo", {})
            assert there.status == 200
            await answered(here, session, "Third, otherwise")
            assert asked_last(speaker) == ["First", "Second", "Third, otherwise"]
            await answered(here, session, "Fourth")
            after = await counted(here)
            assert (after["hits"], after["new"], after["foreign"]) == (3, 1, 1)
            assert "hits" in await counted(there) and (await counted(there))["entries"] == 0
