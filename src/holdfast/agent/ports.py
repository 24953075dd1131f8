"""Ports of the agent beside models and tools: a recorder for what a run does, and a memory.

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
    """Record what a run does. Every method fails once another process has the run."""

    @property
    def run_id(self) -> RunId: ...

    @property
    def session_id(self) -> SessionId: ...

    @property
    def workspace(self) -> Path: ...

    async def record(self, decide: Decide) -> Sequence[AnyFact | UnknownFact]:
        """Commit the facts that `decide` returns, after all earlier deltas; return once they are durable.

        Raises what `decide` raises, LeaseLost, or a StoreFault.
        """

    def stream(self, delta: Delta) -> bool:
        """Submit a delta, durable soon and in order. False: wait for capacity before the next."""

    async def wait_for_capacity(self) -> None:
        """Wait while too many deltas are not durable yet."""

    def check_stopping(self) -> None:
        """Raise if the server is stopping. Call this between steps."""

    async def transcript(self, chars: int) -> Transcript:
        """Return the conversation from which the agent builds the context: at least `chars` of its end.

        The first call of a run decides how much it returns.
        """

    async def save_instructions(self, text: str) -> str:
        """Save the instructions durably, and return their digest. Raises StoreFault."""

    async def find_instructions(self, digest: str) -> str | None:
        """Return the instructions with that digest, or None."""

    async def streamed_output(self, tool: ToolRow) -> OutputFold:
        """Return what an earlier attempt at a call has streamed."""

    async def read_blob(self, blob: str) -> bytes | None:
        """Return the content of a file, or None if the store no longer has it."""

    async def store_blob(self, content: bytes) -> str:
        """Store `content` durably, and return its name. Raises StoreFault, TooLarge."""

    async def full_output(self, call_id: CallId) -> bytes | None:
        """Return a call's whole output if it was too long to be shown, else None."""


class AgentMemory(Protocol):
    """Memory as an agent uses it. Nothing here raises or takes long."""

    async def register_session(self, session_id: SessionId) -> str | None:
        """Return the digest of the owner that commits this session's turns to memory.

        Empty if it is unknown: the turns are queued all the same. None: they are not queued.
        """

    async def recall(
        self, session_id: SessionId, text: str, already_given: Collection[str]
    ) -> tuple[str, ...]:
        """Return memories for `text`, as the model reads them; none of `already_given`."""


class NullMemory:
    """A memory that queues nothing and knows nothing."""

    async def register_session(self, session_id: SessionId) -> str | None:
        return None

    async def recall(
        self, session_id: SessionId, text: str, already_given: Collection[str]
    ) -> tuple[str, ...]:
        return ()
