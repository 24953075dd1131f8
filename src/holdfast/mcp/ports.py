"""What the rest of `mcp` needs of a connected server, whatever its transport. Knows nothing of the SDK."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from holdfast.domain.events.facts import Effect
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
