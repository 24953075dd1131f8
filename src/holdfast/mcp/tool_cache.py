"""The tools that a server offered last, kept in the data folder: known before it is ready again.

So a call that was allowed before a restart finds its tool, and the first answer after one has all tools.
"""

import os
from pathlib import Path

import msgspec

from holdfast.domain.mcp import McpServer
from holdfast.mcp.ports import ToolListing

_MODE = 0o600


class _CacheEntry(msgspec.Struct, frozen=True):
    """For whom it is: another server of the same name is not it."""

    reached: str
    listing: ToolListing


class ToolCache:
    """One file for each server, in `folder`. What cannot be read is as if it was not there."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, server: McpServer) -> ToolListing:
        try:
            entry = msgspec.json.decode(self._path(server).read_bytes(), type=_CacheEntry)
        except (OSError, msgspec.DecodeError, UnicodeError, RecursionError):
            return ToolListing()
        return entry.listing if entry.reached == _cache_key(server) else ToolListing()

    def write(self, server: McpServer, listing: ToolListing) -> None:
        """Raises OSError."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        part = self._path(server).with_suffix(f".{os.getpid()}.part")
        part.touch(_MODE)
        part.write_bytes(msgspec.json.encode(_CacheEntry(_cache_key(server), listing)))
        part.replace(self._path(server))

    def _path(self, server: McpServer) -> Path:
        return self._folder / f"{server.name}.json"


def _cache_key(server: McpServer) -> str:
    """How it is reached and what of it may be used, with no secret in it: variables are not put in."""
    parts = (
        server.command,
        server.args,
        server.cwd,
        server.url,
        server.tools,
        sorted(server.effects.items()),
    )
    return msgspec.json.encode(parts).decode()
