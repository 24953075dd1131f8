"""An MCP server made with the official SDK, for tests, whose tools have visible effects.

As a program it uses standard input and output; `--http PORT` lets it listen instead, and `--time` serves the
tools of the package `mcp-server-time`, which by itself only supports a pipe.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_server_time.server import create_server  # type: ignore[import-untyped]
from mcp_types import ImageContent, ToolAnnotations

LOOKS = ToolAnnotations(read_only_hint=True)
REPEATS = ToolAnnotations(idempotent_hint=True)
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def append(path: str, line: str) -> None:
    with Path(path).open("a") as file:
        file.write(f"{line}\n")


async def wait_for(path: Path) -> None:
    for _ in range(6_000):
        if await asyncio.to_thread(path.exists):
            return
        await asyncio.sleep(0.01)


def made() -> MCPServer:
    """Return a server with every tool."""
    server = MCPServer("holdfast-test")
    _acting(server)
    _answering(server)
    return server


def _acting(server: MCPServer) -> None:
    @server.tool(description="Note a line, then wait for a file.")
    async def act(effects: str, line: str, until: str = "") -> str:
        append(effects, line)
        if until:
            await wait_for(Path(until))
        return f"did {line}"

    @server.tool(description="The same, and doing it twice is as doing it once.", annotations=REPEATS)
    async def act_again(effects: str, line: str, until: str = "") -> str:
        return await act(effects, line, until)

    @server.tool(description="The same, and it only looks.", annotations=LOOKS)
    async def look(effects: str, line: str, until: str = "") -> str:
        return await act(effects, line, until)

    @server.tool(description="Note a line, and another when it is cancelled.")
    async def cancelled(effects: str) -> str:
        append(effects, "begun")
        try:
            await asyncio.sleep(60)
        except BaseException:
            append(effects, "cancelled")
            raise
        return "not cancelled"


def _answering(server: MCPServer) -> None:
    @server.tool(annotations=LOOKS)
    async def count(to: int, context: Context[Any, Any]) -> str:
        for number in range(to):
            await context.report_progress(number + 1, to, f"step {number + 1}")
        return "counted"

    @server.tool(annotations=LOOKS)
    def pid() -> str:
        return str(os.getpid())

    @server.tool(annotations=LOOKS)
    def fail(why: str) -> str:
        raise ValueError(why)

    @server.tool(annotations=LOOKS)
    def picture() -> list[Any]:
        return ["a pixel:", ImageContent(type="image", data=PIXEL, mime_type="image/png")]

    @server.tool(annotations=LOOKS)
    def long(chars: int) -> str:
        return "x" * chars

    @server.tool(annotations=LOOKS)
    async def grow(context: Context[Any, Any]) -> str:
        server.add_tool(lambda: "grown", name="grown", annotations=LOOKS)
        await context.notify_tools_changed()
        return "there is one more"


def main(words: list[str]) -> None:
    server = create_server("UTC") if "--time" in words else made()
    if "--http" in words:
        server.run("streamable-http", host="127.0.0.1", port=int(words[words.index("--http") + 1]))
    else:
        server.run("stdio")


if __name__ == "__main__":
    main(sys.argv[1:])
