"""What is remembered and what memory is owed: the port of who tells it and asks it."""

from collections.abc import Mapping, Sequence
from typing import Literal, Protocol

from holdfast.domain.errors import MemoryOff, NoSuchQueuedCommit
from holdfast.domain.ids import SessionId
from holdfast.domain.memories import CommitReport, Memory, MemoryOverview, MemoryPage
from holdfast.domain.state.rows import QueuedCommit

SegmentDecision = Literal["retry", "done", "drop"]
"""What is to become of something that memory is owed."""


class MemoryService(Protocol):
    """What is remembered, and what memory is owed. Whatever asks the provider raises ProviderFailure where it
    fails or takes too long, ProviderCannot where it has no way, and MemoryOff where there is none.
    """

    async def list_memories(self, words: str, cursor: str | None, limit: int) -> MemoryOverview:
        """A page of what is remembered, the newest first; with `words`, what has them all.

        Nothing where memory is off or cannot show what it knows. Raises ProviderFailure, BadCursor.
        """

    async def add(self, text: str) -> Memory:
        """Remember something, word for word. Raises TooLarge too."""

    async def edit(self, memory_id: str, text: str) -> Memory:
        """Raises NoSuchMemory, TooLarge too."""

    async def forget(self, memory_id: str) -> None:
        """Raises NoSuchMemory too."""

    async def titles(self, session_ids: Sequence[SessionId]) -> Mapping[SessionId, str]:
        """Those of conversations that are there."""

    async def pending(self) -> tuple[Sequence[QueuedCommit], Sequence[QueuedCommit]]:
        """Return what memory is still to be given or to forget, the oldest first; and what it has and cannot
        forget although it was undone, the newest first. As many of each as may be shown.
        """

    async def commit(self, session_id: SessionId | None) -> CommitReport:
        """Tell memory now what one conversation owes it, or all of them; returns after a while at most.

        Raises NoSuchSession.
        """

    async def resolve(
        self, session_id: SessionId, segment: int, decision: SegmentDecision, deleted: bool = False
    ) -> None:
        """A person's word on something that memory is owed, by a deleted conversation or one that is there.

        Raises NoSuchSession, NoSuchQueuedCommit, CommitDecisionRefused.
        """

    def counts(self) -> Mapping[str, Mapping[str, int]]:
        """How often memory was told (`commits`) and asked (`recalls`) by this process, by what came of it."""


class NullMemoryService:
    """The desk of a server that remembers nothing and owes nothing."""

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
