"""Define a tool as the agent sees it, a call to run, and its result."""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import msgspec

from holdfast.domain.events.facts import Effect
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.ids import CallId, SessionId
from holdfast.domain.memories import RecalledMemory
from holdfast.models.ports import ToolSpec


class MemoryAccess(Protocol):
    """Access to memory for tools. Methods raise a HoldfastError with the problem."""

    async def remember(self, text: str, session_id: SessionId, turn: int, key: str) -> str:
        """Store one memory, once per key, and return its stored text."""

    async def search(self, query: str, session_id: SessionId) -> Sequence[RecalledMemory]:
        """Return a bounded number of memories related to `query`, best first."""


Emit = Callable[[str, Literal["stdout", "stderr"]], None]
"""Receive a piece of output as it arrives."""
KeepBlob = Callable[[bytes], Awaitable[str | None]]
"""Store a file's content durably and return its name, or None if it holds a secret and is not stored."""
ReadOutput = Callable[[CallId], Awaitable[bytes | None]]
"""Return the whole output of an earlier call of the conversation, or None if it was not stored as a file."""


async def keep_nothing(content: bytes) -> str | None:
    return None


async def read_no_output(call_id: CallId) -> bytes | None:
    return None


class ToolRun(msgspec.Struct, frozen=True):
    """One call to run: its arguments as the model wrote them, its workspace, its session and turn."""

    call_id: CallId
    arguments: str
    workspace: Path
    emit: Emit
    session_id: SessionId = SessionId("")
    turn: int = 0
    keep: KeepBlob = keep_nothing
    read_output: ReadOutput = read_no_output


class ToolResult(msgspec.Struct, frozen=True):
    """The result of a call for the model. Without `parts`, the emitted output is the result.

    The caller calls `on_settled` once the result is durable. The outcome is `unknown` if nobody can say
    whether the call took effect: a person then decides, unless repeating the call is safe.
    """

    outcome: Literal["done", "failed", "unknown"]
    parts: tuple[AnyPart, ...] | None = None
    on_settled: Callable[[], None] | None = None


class Tool(Protocol):
    """A tool of the agent. Cancelling `run` stops the call and its child processes before it returns."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def effect(self) -> Effect: ...

    @property
    def needs_approval(self) -> bool:
        """True if a person must approve a call, where the permissions ask for approval.

        A tool that only reads needs none, nor does one whose effect is visible and can be undone at any time.
        """

    def validate(self, arguments: str) -> str:
        """Return one sentence on why a call with these arguments must fail, or an empty text.

        The agent neither asks a person about such a call nor runs it. Looks only at the arguments.
        """

    async def run(self, call: ToolRun) -> ToolResult:
        """Run one call. Bad arguments and failures are results, not exceptions."""

    async def is_finished(self, call_id: CallId) -> bool:
        """Return whether no process still works on an earlier run of this call."""


@runtime_checkable
class Preflight(Protocol):
    """A tool that can predict whether a call would fail in the current state."""

    async def preflight(self, arguments: str, workspace: Path) -> str:
        """Return one sentence on why a call would fail now, or an empty text. Changes nothing.

        The agent neither asks a person about such a call nor runs it. The state may change before a call
        runs, so the call checks again.
        """
