"""The conversations whose agent is at hand to commit them: the longest unused goes first."""

import asyncio

from holdfast.domain.ids import SessionId


class Handle:
    """An agent that is at hand for one conversation. `leaving` is under way once it is let go."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.leaving: asyncio.Task[None] | None = None


class Roster:
    """Handles by conversation. Plain bookkeeping: nothing here waits."""

    def __init__(self, handles_max: int) -> None:
        self._handles_max = handles_max
        self._handles: dict[SessionId, Handle] = {}  # The longest unused first.

    def put(self, session_id: SessionId, owner: str) -> list[SessionId]:
        """`owner` is at hand from now on; returns the conversations whose agents there is no room for."""
        before = self._handles.pop(session_id, None)
        is_same = before is not None and before.owner == owner and before.leaving is None
        self._handles[session_id] = before if before is not None and is_same else Handle(owner)
        if len(self._handles) <= self._handles_max:
            return []
        staying = [each for each, handle in self._handles.items() if handle.leaving is None]
        return staying[: max(0, len(staying) - self._handles_max)]

    def get(self, session_id: SessionId) -> Handle | None:
        return self._handles.get(session_id)

    def drop(self, session_id: SessionId, handle: Handle | None = None) -> None:
        """Forget the handle; where one is named, only if it is still the one at hand."""
        if handle is None or self._handles.get(session_id) is handle:
            self._handles.pop(session_id, None)
