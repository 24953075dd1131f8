"""Define a transport to an MCP server, and limit the rate at which the client reads messages."""

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from mcp.client._transport import TransportStreams

from holdfast.domain.limits import MCP_MESSAGES_AT_ONCE, MCP_MESSAGES_PER_S_MAX

# Our own error codes, which a transport answers with in the server's place; they never go over the wire.
NOT_SENT = -41_001
"""The request never reached the server."""
REJECTED = -41_002
"""The server refused the request before it processed it."""
UNREADABLE = -41_003
"""The answer, or a part of it, cannot be read; the server may have carried out the request."""


class McpTransport(Protocol):
    """A channel to a server; `connect` may be called once."""

    close_reason: str
    """The reason why the transport has closed; empty while it is open."""

    reports_lost_requests: bool
    """True if the SDK reports a lost connection for one request while others go on."""

    def connect(self) -> AbstractAsyncContextManager[TransportStreams]:
        """Open the streams for the SDK and clean up after them. Raises McpConnectionError."""

    async def wait_closed(self) -> str:
        """Wait until the transport has closed, and return the reason."""


_WAIT_S_MIN = 0.05
"""Shorter waits are skipped."""


class McpRateLimiter:
    """A token bucket for the messages of one server."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._left = float(MCP_MESSAGES_AT_ONCE)

    def take_tokens(self, now: float, messages: float = 1) -> float:
        """Take `messages` tokens and return how long to wait before reading."""
        gained = (now - self._at) * MCP_MESSAGES_PER_S_MAX
        self._at, self._left = now, min(self._left + gained, MCP_MESSAGES_AT_ONCE) - messages
        return max(-self._left, 0.0) / MCP_MESSAGES_PER_S_MAX

    async def throttle(self, now: float, messages: float = 1) -> None:
        """Take `messages` tokens and wait until they may be read."""
        if (wait_s := self.take_tokens(now, messages)) > _WAIT_S_MIN:
            await asyncio.sleep(wait_s)
