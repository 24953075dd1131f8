"""The port through which HTTP and the CLI list memories and pending commits."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from holdfast.domain.errors import MemoryOff, NoSuchQueuedCommit
from holdfast.domain.ids import SessionId
from holdfast.domain.memories import CommitReport, Memory, MemoryOverview, MemoryPage
from holdfast.domain.state.rows import QueuedCommit

SegmentDecision = Literal["retry", "done", "drop"]
"""A person's decision on a pending segment."""


class MemoryService(Protocol):
    """Memories and pending commits.

    Methods that call the provider raise ProviderFailure if it fails or takes too long, ProviderCannot if it
    does not support the call, and MemoryOff if memory is off.
    """

    async def list_memories(self, words: str, cursor: str | None, limit: int) -> MemoryOverview:
        """Return a page of memories, the newest first; with `words`, only those that contain them all.

        The page is empty if memory is off or cannot list. Raises ProviderFailure, BadCursor.
        """

    async def add(self, text: str) -> Memory:
        """Remember `text` word for word. Also raises TooLarge."""

    async def edit(self, memory_id: str, text: str) -> Memory:
        """Replace the text of a memory. Also raises NoSuchMemory, TooLarge."""

    async def forget(self, memory_id: str) -> None:
        """Forget one memory. Also raises NoSuchMemory."""

    async def titles(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, str]:
        """Return the titles of those conversations that exist."""

    async def pending(self) -> tuple[Sequence[QueuedCommit], Sequence[QueuedCommit]]:
        """Return the entries to commit or retract and the undone ones that the provider cannot forget.

        The first are the oldest first, the second the newest first; each up to a limit.
        """

    async def commit(self, session_id: SessionId | None) -> CommitReport:
        """Commit the pending turns of one conversation, or of all, now; return after a time limit.

        Raises NoSuchSession.
        """

    async def resolve(
        self, session_id: SessionId, segment: int, decision: SegmentDecision, deleted: bool = False
    ) -> None:
        """Apply a person's decision to a pending segment of an existing or a deleted conversation.

        Raises NoSuchSession, NoSuchQueuedCommit, CommitDecisionRefused.
        """

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """Return how many `commits` and `recalls` this process made, by outcome."""


class NullMemoryService:
    """The service of a server without memory."""

    async def list_memories(self, words: str, cursor: str | None, limit: int) -> MemoryOverview:
        return MemoryOverview("off", True, "", MemoryPage(()), {}, 0, 0)

    async def add(self, text: str) -> Memory:
        raise MemoryOff()

    async def edit(self, memory_id: str, text: str) -> Memory:
        raise MemoryOff()

    async def forget(self, memory_id: str) -> None:
        raise MemoryOff()

    async def titles(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, str]:
        return {}

    async def pending(self) -> tuple[Sequence[QueuedCommit], Sequence[QueuedCommit]]:
        return (), ()

    async def commit(self, session_id: SessionId | None) -> CommitReport:
        return CommitReport("nothing")

    async def resolve(
        self, session_id: SessionId, segment: int, decision: SegmentDecision, deleted: bool = False
    ) -> None:
        raise NoSuchQueuedCommit(n=segment)

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        return {}
