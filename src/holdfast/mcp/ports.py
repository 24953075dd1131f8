"""Define a session with an MCP server, independent of its transport and of the SDK."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol

import msgspec

from holdfast.domain.events.facts import Effect
from holdfast.tools.ports import KeepBlob, ToolResult


class OfferedTool(msgspec.Struct, frozen=True):
    """A tool that a server lists, with bounded texts and a schema that models accept."""

    name: str
    description: str
    parameters: dict[str, Any]
    effect: Effect


class ToolListing(msgspec.Struct, frozen=True):
    """The usable tools of a server, and one sentence for each group of tools that is left out."""

    tools: tuple[OfferedTool, ...] = ()
    left_out: tuple[str, ...] = ()


class CallNotSent(Exception):
    """A call did not reach its server, so it had no effect; the message says why."""


class CallTimeout(Exception):
    """The server did not answer a call in time; it may have carried it out."""


class CallLost(Exception):
    """The answer to a sent call can no longer arrive; the server may have carried it out."""


class McpSession(Protocol):
    """One open connection to a server."""

    @property
    def tools_changed(self) -> asyncio.Event:
        """An event that is set when the caller must list the tools again."""

    @property
    def close_reason(self) -> str:
        """The reason why the session has closed; empty while it is open."""

    async def list_tools(self) -> ToolListing:
        """Return the server's tools. Raises McpConnectionError."""

    async def call(
        self,
        name: str,
        arguments: Mapping[str, Any],
        timeout_s: float,
        on_progress: Callable[[str], None],
        keep: KeepBlob,
    ) -> ToolResult:
        """Call a tool and return its result, which may be the server's error.

        `on_progress` receives lines of progress. Cancelling notifies the server and returns soon.
        Raises CallNotSent, CallTimeout, CallLost.
        """

    async def wait_closed(self) -> str:
        """Wait until the session has closed, and return the reason."""


class McpConnectionError(Exception):
    """The client cannot connect to a server or understand it; the message says why."""


OpenSession = Callable[[], AbstractAsyncContextManager[McpSession]]
"""Open a session and clean up after it. Raises McpConnectionError, and any error of the transport."""


def error_text(error: BaseException) -> str:
    """Return an error's message; for a group, that of its first error."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return str(error).strip() or type(error).__name__
