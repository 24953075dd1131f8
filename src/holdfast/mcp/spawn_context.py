"""Where MCP servers run that are processes of this one."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.domain.mcp import McpServer
from holdfast.tools.sandbox.sandbox import Walls
from holdfast.tools.sandbox.supervised import is_over


class Yard(NamedTuple):
    """The data folder, what servers may know of the environment, the walls around them.

    `token` tells the servers of this process from those of any other that has the folder.
    """

    folder: Path
    environ: Mapping[str, str]
    walls: Walls
    token: str

    def own(self, server: McpServer) -> Path:
        """The folder that a server works in where its table names none."""
        return self.folder / "mcp" / server.name

    def lock(self, server: McpServer) -> Path:
        """Held while a server of this process is there, or anything that it has started."""
        return self.folder / "calls" / f"mcp-{server.name}-{self.token}.lock"

    def is_over(self, server: McpServer) -> bool:
        """Whether no server of that name is left that another process has started."""
        named = re.compile(rf"mcp-{re.escape(server.name)}-[0-9a-f]+\.lock")
        locks = [each for each in (self.folder / "calls").glob("mcp-*.lock") if named.fullmatch(each.name)]
        return all(is_over(lock) for lock in locks if lock != self.lock(server))
