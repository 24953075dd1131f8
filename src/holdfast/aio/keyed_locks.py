"""One at a time for each conversation, in this process: whoever comes meanwhile waits for its turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from holdfast.domain.ids import SessionId


class Lanes:
    """A lock for each conversation that is being told of, and none for the others."""

    def __init__(self) -> None:
        self._locks: dict[SessionId, asyncio.Lock] = {}
        self._users: dict[SessionId, int] = {}

    @asynccontextmanager
    async def lane(self, session_id: SessionId) -> AsyncIterator[None]:
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        self._users[session_id] = self._users.get(session_id, 0) + 1
        try:
            async with lock:
                yield
        finally:
            self._users[session_id] -= 1
            if not self._users[session_id]:
                del self._users[session_id], self._locks[session_id]

    def is_taken(self, session_id: SessionId) -> bool:
        return session_id in self._users
