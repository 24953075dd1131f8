"""What the engine needs of an agent: someone who carries out a run and says how that went."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from holdfast.domain.changes import Change
from holdfast.domain.ids import CallId, SessionId
from holdfast.domain.parts import AnyPart
from holdfast.domain.rows import SessionRow
from holdfast.engine.recorder import Context, RunRecorder


class Worker(Protocol):
    """Carries out one run by what the journal says of it; may be called again for the same run."""

    @property
    def context_chars(self) -> int:
        """How much of a conversation's end it can make use of."""

    async def check_files(self, parts: Sequence[AnyPart]) -> None:
        """Be sure that the files among `parts` can be shown to the model. Raises ModelCannotTake."""

    async def is_gone(self, tool: str, call_id: CallId) -> bool:
        """Whether nothing of an earlier try at a call is still at work."""

    async def carry_out(self, recorder: RunRecorder) -> Literal["completed", "waiting"]: ...


class Contexts(Protocol):
    """Conversations that are held ready for the next run. Counts how often that was of use."""

    def note(self, change: Change) -> None:
        """Told of every change that this process makes, in order."""

    def hold(self, session_id: SessionId) -> Context: ...

    async def sweep(self) -> None:
        """Let go of what nobody has used for a while."""

    async def close(self, within_s: float) -> None:
        """Give everything back, at most so long after."""

    @property
    def hits(self) -> int: ...

    @property
    def rebuilds(self) -> Mapping[str, int]:
        """How often something was built anew, by why it was."""

    @property
    def entries(self) -> int: ...

    @property
    def size_bytes(self) -> int: ...


Workers = Callable[[SessionRow], Worker]
"""Who answers in a session."""
