"""Keep each server's last tool list in the data folder, so that tools exist before it reconnects.

A call that a person allowed before a restart then finds its tool, and the first run has all tools.
"""

import os
from pathlib import Path

import msgspec

from holdfast.domain.mcp import McpServer
from holdfast.mcp.ports import ToolListing

_MODE = 0o600


class _CacheEntry(msgspec.Struct, frozen=True):
    """A tool list with a key that changes if another server takes the name."""

    reached: str
    listing: ToolListing


class ToolCache:
    """A cache with one file per server in `folder`; an unreadable file counts as missing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, server: McpServer) -> ToolListing:
        try:
            entry = msgspec.json.decode(self._path(server).read_bytes(), type=_CacheEntry)
        except (OSError, msgspec.DecodeError, UnicodeError, RecursionError):
            return ToolListing()
        return entry.listing if entry.reached == _cache_key(server) else ToolListing()

    def write(self, server: McpServer, listing: ToolListing) -> None:
        """Store the tools that a server listed. Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._path(server).with_suffix(f".{os.getpid()}.part")
        part.touch(_MODE)
        part.write_bytes(msgspec.json.encode(_CacheEntry(_cache_key(server), listing)))
        part.replace(self._path(server))

    def _path(self, server: McpServer) -> Path:
        return self._folder / f"{server.name}.json"


def _cache_key(server: McpServer) -> str:
    """Return a server's configuration as text, without secrets: its variables stay unresolved."""
    parts = (
        server.command,
        server.args,
        server.cwd,
        server.url,
        server.tools,
        sorted(server.effects.items()),
    )
    return msgspec.json.encode(parts).decode()
