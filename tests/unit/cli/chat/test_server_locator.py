"""Where the chat finds its server once that has gone: when it does the work itself, and when it must not."""

from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from holdfast.app import wire
from holdfast.cli.chat.client import Place
from holdfast.cli.chat.server_locator import Finding
from holdfast.cli.command_context import Desk


async def found(folder: Path, before: str, environ: dict[str, str]) -> tuple[Place | None, list[str]]:
    """What is found, asked twice, by a chat whose server answered with `before` and did not come back."""
    wiring, said = wire(environ), list[str]()
    desk = Desk(wiring, wiring.settings(data=folder), as_json=False)
    async with aiohttp.ClientSession() as http, AsyncExitStack() as parts:
        finding = Finding(desk, http, parts, said.append, alone_s=0.0)
        finding.before = before
        place = await finding()
        assert await finding() == place
        return place, said


async def test_the_scripted_demo_never_goes_on_with_what_a_model_has_begun(tmp_path: Path) -> None:
    place, said = await found(tmp_path, "openai:small", {"HOLDFAST_MODEL": "demo"})
    assert place is None
    assert len(said) == 1 and "openai:small is not known here" in said[0], "it is said once"


@pytest.mark.parametrize("before", ["", "demo"])
async def test_where_it_was_the_demo_before_the_chat_does_the_work_itself(
    tmp_path: Path, before: str
) -> None:
    place, said = await found(tmp_path, before, {"HOLDFAST_MODEL": "demo"})
    assert place is not None and place.is_own and said == []


async def test_where_a_model_is_known_here_the_chat_does_the_work_itself(tmp_path: Path) -> None:
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "HOLDFAST_MODEL": "openai:small"}
    place, _ = await found(tmp_path, "openai:small", environ)
    assert place is not None and place.is_own
