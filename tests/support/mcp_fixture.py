"""MCP servers as a server of ours has them, for tests: real processes behind real walls, called by name."""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen
from typing import Any

from holdfast.domain.clock import SystemClock
from holdfast.domain.mcp import McpTold, expanded, read_servers
from holdfast.mcp.service import McpServers, Wanted
from holdfast.mcp.spawn_context import Yard
from holdfast.tools.sandbox.sandbox import NO_WALLS, Walls
from tests.support.tool_fixture import Bench, Call

_HERE = Path(__file__).parent
PLAIN, SDK = str(_HERE / "mcp_plain_server.py"), str(_HERE / "mcp_sdk_server.py")
WAIT_S_MAX = 30.0


def plain(*words: str, **more: Any) -> dict[str, Any]:
    """The table of a plain server."""
    return {"command": sys.executable, "args": ["-S", PLAIN, *words], **more}


def sdk(*words: str, **more: Any) -> dict[str, Any]:
    """The table of one made with the SDK."""
    return {"command": sys.executable, "args": [SDK, *words], **more}


class House:
    """The servers of some tables, with a data folder of their own."""

    def __init__(self, folder: Path, tables: dict[str, Any], environ: dict[str, str], walls: Walls) -> None:
        self.folder = folder / "store"
        self.folder.mkdir(exist_ok=True)
        self.bench = Bench(folder, store=self.folder)
        wanted = [Wanted(each, expanded(each, environ)[0]) for each in read_servers(tables)]
        self.servers = McpServers(
            wanted,
            Yard(self.folder, environ, walls, "0a1b"),
            lambda tool: tool,
            SystemClock(),
            lambda: 0.0,
            str,
            "0",
        )

    def told(self, name: str = "s") -> McpTold:
        return next(each for each in self.servers.told() if each.name == name)

    async def until(self, is_so: Callable[[McpTold], bool], name: str = "s") -> McpTold:
        async with asyncio.timeout(WAIT_S_MAX):
            while True:
                if is_so(told := self.told(name)):
                    return told
                await asyncio.sleep(0.01)

    async def ready(self, name: str = "s") -> McpTold:
        return await self.until(lambda told: told.state == "ready", name)

    async def failed(self, name: str = "s") -> McpTold:
        return await self.until(lambda told: bool(told.last_error), name)

    async def call(self, tool: str, **arguments: object) -> Call:
        call = self.bench.prepare(**arguments)
        call.result = await self.servers[tool].run(call.run())
        return call


@asynccontextmanager
async def housed(
    folder: Path, environ: dict[str, str] | None = None, walls: Walls = NO_WALLS, **tables: Any
) -> AsyncIterator[House]:
    """Servers that are being reached, and are gone afterwards."""
    usual = {"PATH": "/usr/local/bin:/usr/bin:/bin", "HOME": str(folder)}
    house = House(folder, tables, usual | (environ or {}), walls)
    house.servers.start()
    try:
        yield house
    finally:
        await house.servers.stop()


@contextmanager
def listening(*words: str, port: int) -> "Iterator[Popen[bytes]]":
    """A server made with the SDK that listens; it may not answer at once."""
    with Popen([sys.executable, SDK, "--http", str(port), *words], stderr=DEVNULL) as process:
        try:
            yield process
        finally:
            process.kill()


def effects_of(path: Path) -> list[str]:
    """What was done, in order."""
    return path.read_text().splitlines() if path.exists() else []


async def done(effects: Path, times: int = 1) -> None:
    """Return once something was done so often."""
    async with asyncio.timeout(WAIT_S_MAX):
        while True:
            if len(effects_of(effects)) >= times:
                return
            await asyncio.sleep(0.01)
