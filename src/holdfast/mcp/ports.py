"""What the rest of `mcp` needs of a connected server, whatever its transport. Knows nothing of the SDK."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec
from mcp.client._transport import TransportStreams

from holdfast.domain.events.facts import Effect
from holdfast.domain.limits import MCP_MESSAGES_AT_ONCE, MCP_MESSAGES_PER_S_MAX
from holdfast.tools.ports import Keep, ToolResult


class Offered(msgspec.Struct, frozen=True):
    """A tool as its server lists it: bounded, and with a schema that models take."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect


class Listing(msgspec.Struct, frozen=True):
    """The tools of a server that can be used, and in sentences why others are left out."""

    tools: tuple[Offered, ...] = ()
    left_out: tuple[str, ...] = ()


class NotSent(Exception):
    """A call did not reach its server; says why. Nothing has happened."""


class NoAnswer(Exception):
    """A call was sent and nothing came back in its time. It may have been carried out."""


class Lost(Exception):
    """A call was sent, and its answer cannot come any more. It may have been carried out."""


class Link(Protocol):
    """One connection to a server, while it lasts."""

    @property
    def changed(self) -> asyncio.Event:
        """Set when its tools are to be listed anew."""

    @property
    def why(self) -> str:
        """Why it can be used no longer; empty while it can."""

    async def tools(self) -> Listing:
        """Ask for them. Raises a LinkBroken."""

    async def call(
        self, name: str, arguments: Mapping[str, Any], within_s: float, say: Callable[[str], None], keep: Keep
    ) -> ToolResult:
        """Call one; `say` takes lines of progress. An error that the server answers with is a result.

        Raises NotSent, NoAnswer, Lost. Cancelling it tells the server, and returns soon.
        """

    async def broken(self) -> str:
        """Wait until it can be used no longer; returns why."""


class LinkBroken(Exception):
    """A server cannot be reached or understood; says why."""


OpenLink = Callable[[], AbstractAsyncContextManager[Link]]
"""Reaches a server. Raises LinkBroken, and whatever else goes wrong on the way; leaves nothing behind."""


def said_of(error: BaseException) -> str:
    """What an error says; of several that came together, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error).strip() or type(error).__name__


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


_BREATH_S = 0.05
"""It is not worth while to wait for less."""


class Pace:
    """Of one server: much at once, but not for ever."""

    def __init__(self, now: float) -> None:
        self._at = now
        self._left = float(MCP_MESSAGES_AT_ONCE)

    def wait_s(self, now: float, messages: float = 1) -> float:
        """How long to wait before so many more messages are read."""
        gained = (now - self._at) * MCP_MESSAGES_PER_S_MAX
        self._at, self._left = now, min(self._left + gained, MCP_MESSAGES_AT_ONCE) - messages
        return max(-self._left, 0.0) / MCP_MESSAGES_PER_S_MAX

    async def keep(self, now: float, messages: float = 1) -> None:
        """Wait as long as that is, before they are read."""
        if (wait_s := self.wait_s(now, messages)) > _BREATH_S:
            await asyncio.sleep(wait_s)
