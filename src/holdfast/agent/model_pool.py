"""The models that are open: the server's own, and those that agents or conversations have chosen.

Whoever asks for the same one has the same client. One that was put away is let go of when the last run that
uses it has ended; of those that nobody uses for now, only so many are held open.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from holdfast.domain.limits import MODELS_OPEN_MAX
from holdfast.models.ports import Model

Names = tuple[str, ...]
"""A model, and then those that answer where it cannot."""
OpenModel = Callable[[str, Names], Awaitable[Model]]
"""Makes a client of a model, with others to fall back on. Raises NoSuchModel, NoModelKey, BadModelUrl."""


class Seat:
    """A model, and how many are at it just now. `names`: it can be asked for titles."""

    def __init__(self, model: Model, why: str, names: bool) -> None:
        self.model = model
        self.why = why
        self.names = names
        self.users = 0
        self.is_put_away = False


class Seats:
    """`first` is the server's own. Belongs to one event loop."""

    def __init__(self, first: Seat, open_model: OpenModel, most: int = MODELS_OPEN_MAX) -> None:
        self.first = first
        self._open_model = open_model
        self._most = most
        self._chosen: OrderedDict[Names, Seat] = OrderedDict()
        self._opening = asyncio.Lock()
        self._renewals = 0
        self._closing: set[asyncio.Task[None]] = set()

    def put_first(self, seat: Seat) -> None:
        """Another model is the server's own. Those that were chosen are made anew: keys may have changed."""
        left, self.first = self.first, seat
        self._put_away(left)
        self.renew()

    def renew(self) -> None:
        """Those that were chosen are made anew, from the next run on."""
        self._renewals += 1
        left = list(self._chosen.values())
        self._chosen.clear()
        for each in left:
            self._put_away(each)

    @asynccontextmanager
    async def used(self, model: str, fallbacks: Names = ()) -> AsyncIterator[Seat]:
        """A model that stays open meanwhile; with no name the server's own. Raises as `OpenModel`."""
        seat = await self._at(model, fallbacks)
        seat.users += 1
        try:
            yield seat
        finally:
            seat.users -= 1
            self._tidy(seat)

    async def close(self) -> None:
        """Let go of every model. Nothing is asked after that."""
        for seat in (self.first, *self._chosen.values()):
            await seat.model.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _at(self, model: str, fallbacks: Names) -> Seat:
        # There is no await between the last look at what is there and the caller's taking its place.
        names = (model or self.first.model.name, *fallbacks)
        if names == (self.first.model.name,):
            return self.first
        async with self._opening:
            while (known := self._chosen.get(names)) is None:
                renewals = self._renewals
                made = await self._open_model(names[0], fallbacks)
                seat = Seat(made, f"{names[0]} was chosen.", names=bool(made.profile.address))
                if renewals == self._renewals:
                    self._chosen[names] = seat
                else:
                    # How it is reached has changed while it was made.
                    self._put_away(seat)
            self._chosen.move_to_end(names)
        return known

    def _tidy(self, seat: Seat) -> None:
        if seat.is_put_away:
            self._put_away(seat)
        unused = [names for names, each in self._chosen.items() if not each.users]
        for names in unused[: max(0, len(self._chosen) - self._most)]:
            self._put_away(self._chosen.pop(names))

    def _put_away(self, seat: Seat) -> None:
        seat.is_put_away = True
        if not seat.users:
            task = asyncio.create_task(seat.model.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
