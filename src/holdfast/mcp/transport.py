"""What a transport to an MCP server gives, over a pipe or over HTTP, and how fast it is read."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from mcp.client._transport import TransportStreams

from holdfast.domain.limits import MCP_MESSAGES_AT_ONCE, MCP_MESSAGES_PER_S_MAX

# Codes of errors that we answer with in a server's place. Between two programs none of them is ever sent.
NOT_SENT = -41_001
"""The request never reached the server."""
REJECTED = -41_002
"""The server refused it before looking at it."""
UNREADABLE = -41_003
"""There was an answer, or the beginning of one, and nobody can say what it was."""


class McpTransport(Protocol):
    """One way to a server, to be opened once."""

    close_reason: str
    """Why it can be used no longer; empty while it can."""

    reports_lost_requests: bool
    """Whether the SDK itself says of one request that its connection was closed, while others go on."""

    def connect(self) -> AbstractAsyncContextManager[TransportStreams]:
        """What the SDK reads from and writes to. Raises McpConnectionError; leaves nothing behind."""

    async def wait_closed(self) -> str:
        """Wait until it can be used no longer; returns why."""


_WAIT_S_MIN = 0.05
"""It is not worth while to wait for less."""


class McpRateLimiter:
    """Of one server: much at once, but not for ever."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._left = float(MCP_MESSAGES_AT_ONCE)

    def wait_s(self, now: float, messages: float = 1) -> float:
        """How long to wait before so many more messages are read."""
        gained = (now - self._at) * MCP_MESSAGES_PER_S_MAX
        self._at, self._left = now, min(self._left + gained, MCP_MESSAGES_AT_ONCE) - messages
        return max(-self._left, 0.0) / MCP_MESSAGES_PER_S_MAX

    async def throttle(self, now: float, messages: float = 1) -> None:
        """Wait as long as that is, before they are read."""
        if (wait_s := self.wait_s(now, messages)) > _WAIT_S_MIN:
            await asyncio.sleep(wait_s)
