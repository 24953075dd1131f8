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

ModelNames = tuple[str, ...]
"""A model, and then those that answer where it cannot."""
OpenModel = Callable[[str, ModelNames], Awaitable[Model]]
"""Makes a client of a model, with others to fall back on. Raises NoSuchModel, NoModelKey, BadModelUrl."""


class PooledModel:
    """A model, and how many are at it just now. `names`: it can be asked for titles."""

    def __init__(self, model: Model, why: str, can_title: bool) -> None:
        self.model = model
        self.why = why
        self.can_title = can_title
        self.users = 0
        self.is_retired = False


class ModelPool:
    """`first` is the server's own. Belongs to one event loop."""

    def __init__(self, default: PooledModel, open_model: OpenModel, open_max: int = MODELS_OPEN_MAX) -> None:
        self.default = default
        self._open_model = open_model
        self._open_max = open_max
        self._chosen: OrderedDict[ModelNames, PooledModel] = OrderedDict()
        self._opening = asyncio.Lock()
        self._resets = 0
        self._closing: set[asyncio.Task[None]] = set()

    def set_default(self, pooled: PooledModel) -> None:
        """Another model is the server's own. Those that were chosen are made anew: keys may have changed."""
        old, self.default = self.default, pooled
        self._retire(old)
        self.reset()

    def reset(self) -> None:
        """Those that were chosen are made anew, from the next run on."""
        self._resets += 1
        old = list(self._chosen.values())
        self._chosen.clear()
        for each in old:
            self._retire(each)

    @asynccontextmanager
    async def acquire(self, model: str, fallbacks: ModelNames = ()) -> AsyncIterator[PooledModel]:
        """A model that stays open meanwhile; with no name the server's own. Raises as `OpenModel`."""
        pooled = await self._get(model, fallbacks)
        pooled.users += 1
        try:
            yield pooled
        finally:
            pooled.users -= 1
            self._close_unused(pooled)

    async def close(self) -> None:
        """Let go of every model. Nothing is asked after that."""
        for pooled in (self.default, *self._chosen.values()):
            await pooled.model.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _get(self, model: str, fallbacks: ModelNames) -> PooledModel:
        # There is no await between the last look at what is there and the caller's taking its place.
        names = (model or self.default.model.name, *fallbacks)
        if names == (self.default.model.name,):
            return self.default
        async with self._opening:
            while (known := self._chosen.get(names)) is None:
                resets = self._resets
                client = await self._open_model(names[0], fallbacks)
                pooled = PooledModel(
                    client, f"{names[0]} was chosen.", can_title=bool(client.profile.address)
                )
                if resets == self._resets:
                    self._chosen[names] = pooled
                else:
                    # How it is reached has changed while it was made.
                    self._retire(pooled)
            self._chosen.move_to_end(names)
        return known

    def _close_unused(self, pooled: PooledModel) -> None:
        if pooled.is_retired:
            self._retire(pooled)
        unused = [names for names, each in self._chosen.items() if not each.users]
        for names in unused[: max(0, len(self._chosen) - self._open_max)]:
            self._retire(self._chosen.pop(names))

    def _retire(self, pooled: PooledModel) -> None:
        pooled.is_retired = True
        if not pooled.users:
            task = asyncio.create_task(pooled.model.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
