"""Where the chat finds its server once that has gone: when it does the work itself, and when it must not."""

from contextlib import AsyncExitStack
from pathlib import Path

import aiohttp
import pytest

from holdfast.app import build_dependencies
from holdfast.cli.chat.client import ServerEndpoint
from holdfast.cli.chat.server_locator import ServerFinder
from holdfast.cli.command_context import CommandContext


async def locate_twice(
    folder: Path, before: str, environ: dict[str, str]
) -> tuple[ServerEndpoint | None, list[str]]:
    """What is found, asked twice, by a chat whose server answered with `before` and did not come back."""
    dependencies, said = build_dependencies(environ), list[str]()
    command = CommandContext(dependencies, dependencies.settings(data=folder), as_json=False)
    async with aiohttp.ClientSession() as http, AsyncExitStack() as parts:
        finder = ServerFinder(command, http, parts, said.append, takeover_delay_s=0.0)
        finder.last_model = before
        endpoint = await finder()
        assert await finder() == endpoint
        return endpoint, said


async def test_the_demo_never_takes_over_from_a_real_model(tmp_path: Path) -> None:
    endpoint, said = await locate_twice(tmp_path, "openai:small", {"HOLDFAST_MODEL": "demo"})
    assert endpoint is None
    assert len(said) == 1 and "openai:small is not known here" in said[0], "it is said once"


@pytest.mark.parametrize("before", ["", "demo"])
async def test_chat_takes_over_from_a_lost_demo_server(tmp_path: Path, before: str) -> None:
    endpoint, said = await locate_twice(tmp_path, before, {"HOLDFAST_MODEL": "demo"})
    assert endpoint is not None and endpoint.is_own and said == []


async def test_chat_takes_over_when_a_model_is_configured(tmp_path: Path) -> None:
    environ = {"OPENAI_BASE_URL": "http://127.0.0.1:9/v1", "HOLDFAST_MODEL": "openai:small"}
    endpoint, _ = await locate_twice(tmp_path, "openai:small", environ)
    assert endpoint is not None and endpoint.is_own
