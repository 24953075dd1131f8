"""Give the folder, environment and sandbox of MCP servers that are child processes."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from holdfast.domain.mcp import McpServer
from holdfast.tools.sandbox.sandbox import Sandbox
from holdfast.tools.sandbox.supervised import is_finished


class McpSpawnContext(NamedTuple):
    """The data folder, and the environment and sandbox of the servers that this process starts.

    `token` distinguishes this process's servers from those of other processes on the same folder.
    """

    folder: Path
    environ: Mapping[str, str]
    sandbox: Sandbox
    token: str

    def working_folder(self, server: McpServer) -> Path:
        """Return a server's default working folder."""
        return self.folder / "mcp" / server.name

    def lock_path(self, server: McpServer) -> Path:
        """Return the lock file that a server of this process and its children hold while they live."""
        return self.folder / "calls" / f"mcp-{server.name}-{self.token}.lock"

    def is_finished(self, server: McpServer) -> bool:
        """Return whether every server of that name that another process started has ended."""
        pattern = re.compile(rf"mcp-{re.escape(server.name)}-[0-9a-f]+\.lock")
        locks = [path for path in (self.folder / "calls").glob("mcp-*.lock") if pattern.fullmatch(path.name)]
        return all(is_finished(lock) for lock in locks if lock != self.lock_path(server))
