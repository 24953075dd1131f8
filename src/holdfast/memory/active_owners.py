"""Keep the active owners of conversations in a cache with least-recently-used eviction."""

import asyncio

from holdfast.domain.ids import SessionId


class ActiveOwner:
    """The owner that commits one conversation. `eviction` is set once its eviction has started."""

    def __init__(self, owner: str) -> None:
        self.owner = owner
        self.eviction: asyncio.Task[None] | None = None


class ActiveOwners:
    """Active owners by conversation. Nothing here awaits."""

    def __init__(self, owners_max: int) -> None:
        self._owners_max = owners_max
        self._owners: dict[SessionId, ActiveOwner] = {}  # Least recently used first.

    def put(self, session_id: SessionId, owner: str) -> list[SessionId]:
        """Set a conversation's owner; return the conversations to evict."""
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
        """Remove the owner; if `handle` is given, only if it is still the current one."""
        if handle is None or self._owners.get(session_id) is handle:
            self._owners.pop(session_id, None)
