"""What the rest of `mcp` needs of a connected server, whatever its transport. Knows nothing of the SDK."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from holdfast.domain.events.facts import Effect
from holdfast.tools.ports import KeepBlob, ToolResult


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool as its server lists it: bounded, and with a schema that models take."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect


class ToolListing(msgspec.Struct, frozen=True):
    """The tools of a server that can be used, and in sentences why others are left out."""

    tools: tuple[OfferedTool, ...] = ()
    left_out: tuple[str, ...] = ()


class CallNotSent(Exception):
    """A call did not reach its server; says why. Nothing has happened."""


class CallTimeout(Exception):
    """A call was sent and nothing came back in its time. It may have been carried out."""


class CallLost(Exception):
    """A call was sent, and its answer cannot come any more. It may have been carried out."""


class McpSession(Protocol):
    """One connection to a server, while it lasts."""

    @property
    def tools_changed(self) -> asyncio.Event:
        """Set when its tools are to be listed anew."""

    @property
    def close_reason(self) -> str:
        """Why it can be used no longer; empty while it can."""

    async def list_tools(self) -> ToolListing:
        """Ask for them. Raises a McpConnectionError."""

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout_s: float,
        on_progress: Callable[[str], None],
        keep: KeepBlob,
    ) -> ToolResult:
        """Call one; `say` takes lines of progress. An error that the server answers with is a result.

        Raises CallNotSent, CallTimeout, Lost. Cancelling it tells the server, and returns soon.
        """

    async def wait_closed(self) -> str:
        """Wait until it can be used no longer; returns why."""


class McpConnectionError(Exception):
    """A server cannot be reached or understood; says why."""


OpenSession = Callable[[], AbstractAsyncContextManager[McpSession]]
"""Reaches a server. Raises McpConnectionError, and whatever else goes wrong on the way; leaves nothing behind."""


def error_text(error: BaseException) -> str:
    """What an error says; of several that came together, the first."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error).strip() or type(error).__name__
