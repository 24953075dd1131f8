"""Which right each request needs, in one table."""

import re

from holdfast.domain.credentials import Right

_READ_METHODS = frozenset({"GET", "HEAD"})
_PUBLIC = re.compile(r"/|/page/[^/]+|/health/live")
"""What is there for everyone who may reach the server: it holds nothing of anybody's."""
_SELF_AUTHENTICATED = frozenset({"/api/sign-in", "/api/channels/telegram", "/api/channels/webhook"})
"""Where what is sent shows by itself who sends it."""


def required_right(method: str, path: str) -> Right | None:
    """The right that a request needs; None where it needs none."""
    if (method in _READ_METHODS and _PUBLIC.fullmatch(path)) or (
        method == "POST" and path in _SELF_AUTHENTICATED
    ):
        return None
    # As routes read a path: empty steps count for nothing.
    match [step for step in path.split("/") if step]:
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
