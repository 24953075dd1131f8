"""MCP servers for tests: real processes in a real sandbox, called by name."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from holdfast.domain.clock import SystemClock
from holdfast.domain.mcp import McpServerInfo, expand_variables, parse_servers
from holdfast.mcp.service import McpServerConfig, McpServers
from holdfast.mcp.spawn_context import McpSpawnContext
from holdfast.tools.sandbox.sandbox import NO_SANDBOX, Sandbox
from tests.support.tool_fixture import RecordedCall, ToolHarness

_HERE = Path(__file__).parent
PLAIN, SDK = str(_HERE / "mcp_plain_server.py"), str(_HERE / "mcp_sdk_server.py")
WAIT_S_MAX = 30.0


def plain_server(*arguments: str, **keys: Any) -> dict[str, Any]:
    """Return the configuration of a plain server."""
    return {"command": sys.executable, "args": ["-S", PLAIN, *arguments], **keys}


def sdk_server(*arguments: str, **keys: Any) -> dict[str, Any]:
    """Return the configuration of a server made with the SDK."""
    return {"command": sys.executable, "args": [SDK, *arguments], **keys}


class McpHarness:
    """The servers of some configurations, with a data folder of their own."""

    def __init__(
        self, folder: Path, tables: dict[str, Any], environ: dict[str, str], sandbox: Sandbox
    ) -> None:
        self.folder = folder / "store"
        self.folder.mkdir(exist_ok=True)
        self.bench = ToolHarness(folder, store=self.folder)
        configs = [
            McpServerConfig(each, expand_variables(each, environ)[0]) for each in parse_servers(tables)
        ]
        self.servers = McpServers(
            configs,
            McpSpawnContext(self.folder, environ, sandbox, "0a1b"),
            lambda tool: tool,
            SystemClock(),
            lambda: 0.0,
            str,
            "0",
        )

    def server_info(self, name: str = "s") -> McpServerInfo:
        return next(each for each in self.servers.info() if each.name == name)

    async def wait_for(self, condition: Callable[[McpServerInfo], bool], name: str = "s") -> McpServerInfo:
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                if condition(info := self.server_info(name)):
                    return info
                await asyncio.sleep(0.01)

    async def wait_until_ready(self, name: str = "s") -> McpServerInfo:
        return await self.wait_for(lambda info: info.state == "ready", name)

    async def wait_for_error(self, name: str = "s") -> McpServerInfo:
        return await self.wait_for(lambda info: bool(info.last_error), name)

    async def call(self, tool: str, **arguments: object) -> RecordedCall:
        call = self.bench.prepare(**arguments)
        call.result = await self.servers[tool].run(call.tool_run())
        return call


@asynccontextmanager
async def mcp_servers(
    folder: Path, environ: dict[str, str] | None = None, sandbox: Sandbox = NO_SANDBOX, **tables: Any
) -> AsyncIterator[McpHarness]:
    """Connect the servers, and stop them at the end."""
    default_environ = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}
    harness = McpHarness(folder, tables, default_environ | (environ or {}), sandbox)
    harness.servers.start()
    try:
        yield harness
    finally:
        await harness.servers.stop()


@contextmanager
def http_mcp_server(*arguments: str, port: int) -> "Iterator[Popen[bytes]]":
    """Run an SDK server over HTTP; it may not answer at once."""
    with Popen([sys.executable, SDK, "--http", str(port), *arguments], stderr=DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def read_effects(path: Path) -> list[str]:
    """Return the effects in order."""
    return path.read_text().splitlines() if path.exists() else []


async def wait_for_effects(effects: Path, times: int = 1) -> None:
    """Return once an effect has happened this often."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            if len(read_effects(effects)) >= times:
                return
            await asyncio.sleep(0.01)
