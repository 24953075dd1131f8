"""Room for so many at a time, which may become more or fewer while it is used."""

import asyncio
from collections import deque
from contextlib import suppress


class Slots:
    """First come, first served. Belongs to one event loop."""

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def are_taken(self) -> bool:
        """Whether the next one has to wait."""
        return self._taken >= self._at_once or any(not each.cancelled() for each in self._waiting)

    async def take(self) -> None:
        if not self.are_taken:
            self._taken += 1
            return
        place = asyncio.get_running_loop().create_future()
        self._waiting.append(place)
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                # It was let in at the moment in which it was called off.
                self.give_back()
            with suppress(ValueError):
                self._waiting.remove(place)
            raise

    def give_back(self) -> None:
        self._taken -= 1
        self._let_in()

    def resize(self, at_once: int) -> None:
        """Nobody who has a place loses it: where there are too many, they become fewer as they end."""
        self._at_once = at_once
        self._let_in()

    def _let_in(self) -> None:
        while self._waiting and self._taken < self._at_once:
            place = self._waiting.popleft()
            if not place.cancelled():
                self._taken += 1
                place.set_result(None)
