"""The right that each request needs, in one table."""

import re

from holdfast.domain.credentials import Right

_READ_METHODS = frozenset({"GET", "HEAD"})
_PUBLIC = re.compile(r"/|/page/[^/]+|/health/live")
"""The paths that need no sign-in: they hold no private data."""
_SELF_AUTHENTICATED = frozenset({"/api/sign-in", "/api/channels/telegram", "/api/channels/webhook"})
"""The paths whose request body or headers authenticate the sender."""


def required_right(method: str, path: str) -> Right | None:
    """Return the right that a request needs; None if it is public."""
    if (method in _READ_METHODS and _PUBLIC.fullmatch(path)) or (
        method == "POST" and path in _SELF_AUTHENTICATED
    ):
        return None
    # The router ignores empty path segments, so this must too.
    match [segment for segment in path.split("/") if segment]:
        case ["api", "tokens" | "password" | "sign-ins" | "backup" | "backups", *_]:
            return "admin"
        case ["api", "channels" | "pairing" | "senders", *_]:
            return "admin"
        case ["api", "settings" | "models" | "agents" | "mcp", *_] if method not in _READ_METHODS:
            return "admin"
        case ["api", "runs", _, "tools" | "changes", *_] | ["api", "rules", *_] if (
            method not in _READ_METHODS
        ):
            return "approve"
        case _:
            return "read" if method in _READ_METHODS or method == "OPTIONS" else "write"
