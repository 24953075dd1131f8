"""What the agent needs of a tool: its description, carrying out a call, and what the call gave."""

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
    """Memory, as tools reach it. Raises a HoldfastError that says what is wrong."""

    async def remember(self, text: str, session_id: SessionId, turn: int, key: str) -> str:
        """Remember one thing, once for a key; returns it as it is remembered."""

    async def search(self, query: str, session_id: SessionId) -> Sequence[RecalledMemory]:
        """What is remembered that may have to do with `query`, the best first; only so many."""


Emit = Callable[[str, Literal["stdout", "stderr"]], None]
"""Takes a piece of output as it comes."""
KeepBlob = Callable[[bytes], Awaitable[str | None]]
"""Has what a file holds durable, and says under which name; None: it holds a secret, and is not kept."""
ReadOutput = Callable[[CallId], Awaitable[bytes | None]]
"""Gives the whole output of an earlier call of the same conversation, where that was too long to be shown."""


async def keep_nothing(content: bytes) -> str | None:
    return None


async def read_no_output(call_id: CallId) -> bytes | None:
    return None


class ToolRun(msgspec.Struct, frozen=True):
    """One call to carry out: its arguments as the model wrote them, where it may work, where it was made."""

    call_id: CallId
    arguments: str
    workspace: Path
    emit: Emit
    session_id: SessionId = SessionId("")
    turn: int = 0
    keep: KeepBlob = keep_nothing
    read_output: ReadOutput = read_no_output


class ToolResult(msgspec.Struct, frozen=True):
    """What goes back to the model. With no parts, it is what was emitted. Once durable, `settled` is told.

    `unknown`: it was begun, and nobody can say whether it was done. Unless that does no harm, it is not ended
    by this but put to a person, with what it has emitted.
    """

    outcome: Literal["done", "failed", "unknown"]
    parts: tuple[AnyPart, ...] | None = None
    on_settled: Callable[[], None] | None = None


class Tool(Protocol):
    """Something the agent can do. Cancelling `run` stops it, children included, before it returns."""

    @property
    def spec(self) -> ToolSpec: ...

    @property
    def effect(self) -> Effect: ...

    @property
    def needs_approval(self) -> bool:
        """Whether a call is put to a person first, where calls are.

        One that only looks is not; nor is one whose effect stays in sight and can be taken back at any time.
        """

    def validate(self, arguments: str) -> str:
        """Why a call with these arguments can only fail, in a sentence; empty where it may be carried out.

        Such a call is put to nobody, and not made. Looks at nothing but the arguments.
        """

    async def run(self, call: ToolRun) -> ToolResult:
        """Carry out one call. Bad arguments and failures are results, not exceptions."""

    async def is_finished(self, call_id: CallId) -> bool:
        """Whether nothing of an earlier run of this call, by any process, is still at work."""


@runtime_checkable
class Preflight(Protocol):
    """A tool that can tell whether a call would fail as things are now."""

    async def preflight(self, arguments: str, workspace: Path) -> str:
        """Why a call would fail, in a sentence; empty where it may be carried out. Changes nothing.

        A call that would is put to nobody, and not made. What it looked at may change before another call is
        made: whoever makes that looks again.
        """
