"""What a tool of an MCP server is called here: its server's name, then its own, as every model takes it."""

import hashlib
import re

from holdfast.domain.mcp import SEPARATOR

_CHARS_MAX = 64
_ODD = re.compile(r"[^A-Za-z0-9_-]")
_DIGEST_CHARS = 6


def named(server: str, tool: str) -> str:
    """The name under which models call it. Two tools never have the same one, whatever they are called."""
    prefix = server + SEPARATOR
    plain = _ODD.sub("_", tool)
    if plain == tool and tool and len(prefix + tool) <= _CHARS_MAX:
        return prefix + tool
    # Changed or cut it may look like another: then it ends with what tells it apart.
    digest = hashlib.blake2b(tool.encode("utf-8", "replace")).hexdigest()[:_DIGEST_CHARS]
    room = _CHARS_MAX - len(prefix) - len(digest) - 1
    return f"{prefix}{plain[:room]}_{digest}"
