"""Where MCP servers run that are processes of this one."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.domain.mcp import McpServer
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.sandbox.supervised import is_finished


class McpSpawnContext(NamedTuple):
    """The data folder, what servers may know of the environment, the walls around them.

    `token` tells the servers of this process from those of any other that has the folder.
    """

    folder: Path
    environ: Mapping[str, str]
    sandbox: Sandbox
    token: str

    def working_folder(self, server: McpServer) -> Path:
        """The folder that a server works in where its table names none."""
        return self.folder / "mcp" / server.name

    def lock_path(self, server: McpServer) -> Path:
        """Held while a server of this process is there, or anything that it has started."""
        return self.folder / "calls" / f"mcp-{server.name}-{self.token}.lock"

    def is_finished(self, server: McpServer) -> bool:
        """Whether no server of that name is left that another process has started."""
        pattern = re.compile(rf"mcp-{re.escape(server.name)}-[0-9a-f]+\.lock")
        locks = [each for each in (self.folder / "calls").glob("mcp-*.lock") if pattern.fullmatch(each.name)]
        return all(is_finished(lock) for lock in locks if lock != self.lock_path(server))
