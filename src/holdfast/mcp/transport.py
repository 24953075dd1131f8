"""What a way to an MCP server gives, over a pipe or over HTTP, and how it says what became of a request."""

from contextlib import AbstractAsyncContextManager
from typing import Protocol

from mcp.client._transport import TransportStreams

# Codes of errors that we answer with in a server's place. Between two programs none of them is ever sent.
NOT_SENT = -41_001
"""The request never reached the server."""
NOT_TAKEN = -41_002
"""The server refused it before looking at it."""
UNREADABLE = -41_003
"""There was an answer, or the beginning of one, and nobody can say what it was."""


class Transport(Protocol):
    """One way to a server, to be opened once."""

    why: str
    """Why it can be used no longer; empty while it can."""

    says_closed: bool
    """Whether the SDK itself says of one request that its connection was closed, while others go on."""

    def opened(self) -> AbstractAsyncContextManager[TransportStreams]:
        """What the SDK reads from and writes to. Raises LinkBroken; leaves nothing behind."""

    async def broken(self) -> str:
        """Wait until it can be used no longer; returns why."""
