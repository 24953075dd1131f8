"""The conversations whose agent is at hand to commit them: the longest unused goes first."""

import asyncio

from holdfast.domain.ids import SessionId


class ActiveOwner:
    """An agent that is at hand for one conversation. `leaving` is under way once it is let go."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.eviction: asyncio.Task[None] | None = None


class ActiveOwners:
    """Handles by conversation. Plain bookkeeping: nothing here waits."""

    def __init__(self, owners_max: int) -> None:
        self._owners_max = owners_max
        self._owners: dict[SessionId, ActiveOwner] = {}  # The longest unused first.

    def put(self, session_id: SessionId, owner: str) -> list[SessionId]:
        """`owner` is at hand from now on; returns the conversations whose agents there is no room for."""
        before = self._owners.pop(session_id, None)
        is_same = before is not None and before.owner == owner and before.eviction is None
        self._owners[session_id] = before if before is not None and is_same else ActiveOwner(owner)
        if len(self._owners) <= self._owners_max:
            return []
        evictable = [each for each, handle in self._owners.items() if handle.eviction is None]
        return evictable[: max(0, len(evictable) - self._owners_max)]

    def get(self, session_id: SessionId) -> ActiveOwner | None:
        return self._owners.get(session_id)

    def remove(self, session_id: SessionId, handle: ActiveOwner | None = None) -> None:
        """Forget the handle; where one is named, only if it is still the one at hand."""
        if handle is None or self._owners.get(session_id) is handle:
            self._owners.pop(session_id, None)
