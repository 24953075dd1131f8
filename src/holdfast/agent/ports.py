"""What the agent needs beside models and tools: a recorder for what a run does, and a memory.

The engine implements the recorder.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Protocol

from holdfast.domain.events.codec import UnknownFact
from holdfast.domain.events.facts import AnyFact, Delta
from holdfast.domain.events.stream_fold import OutputFold
from holdfast.domain.ids import CallId, RunId, SessionId
from holdfast.domain.state.rows import ToolRow
from holdfast.domain.state.session_state import Decide
from holdfast.domain.transcript.transcript import Transcript


class Recorder(Protocol):
    """Writes down what a run does. Everything it is told is refused once another process has the run."""

    @property
    def run_id(self) -> RunId: ...

    @property
    def session_id(self) -> SessionId: ...

    @property
    def workspace(self) -> Path: ...

    async def record(self, decide: Decide) -> Sequence[AnyFact | UnknownFact]:
        """Commit what `decide` says, after everything streamed before; returns it once it is durable.

        Raises what `decide` raises, LeaseLost, or a StoreFault.
        """

    def stream(self, delta: Delta) -> bool:
        """Hand over a delta; it is durable soon, in order. False: wait for room before the next."""

    async def wait_for_capacity(self) -> None:
        """Wait while too much of what was streamed is not durable yet."""

    def check_stopping(self) -> None:
        """To be called between steps: raises when the run is to go no further for now."""

    async def transcript(self, chars: int) -> Transcript:
        """The conversation as the model's context is made from: so much of its end, or a little more.

        For a run it is always the same number: what it is asked for first counts.
        """

    async def save_instructions(self, text: str) -> str:
        """Have what the run is told durable, under the digest that is returned. Raises StoreFault."""

    async def find_instructions(self, digest: str) -> str | None:
        """What was kept under a digest; None if it is not there."""

    async def streamed_output(self, tool: ToolRow) -> OutputFold:
        """What an earlier attempt at a call has streamed."""

    async def read_blob(self, blob: str) -> bytes | None:
        """The content of a file; None if it is no longer there."""

    async def store_blob(self, content: bytes) -> str:
        """Have `content` durable as a blob, whose name is returned. Raises StoreFault, TooLarge."""

    async def full_output(self, call_id: CallId) -> bytes | None:
        """The whole output of a call of this conversation that was too long to be shown; None: it is not."""


class AgentMemory(Protocol):
    """Memory, as someone who answers needs it. Nothing here raises, and nothing takes long."""

    async def owner(self, session_id: SessionId) -> str | None:
        """Who tells memory of what is completed in this session from now on, by the agent asked.

        Empty: nobody does yet, and it is owed all the same. None: nothing is owed.
        """

    async def recall(
        self, session_id: SessionId, text: str, already_given: Collection[str]
    ) -> tuple[str, ...]:
        """What may matter to whoever says `said`, as the model is to read it; nothing that is in `given`."""


class NullMemory:
    """Nothing is owed, and nothing is known."""

    async def owner(self, session_id: SessionId) -> str | None:
        return None

    async def recall(
        self, session_id: SessionId, text: str, already_given: Collection[str]
    ) -> tuple[str, ...]:
        return ()
