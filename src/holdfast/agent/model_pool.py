"""Pool the open models: the server's own, and those that agents or conversations have chosen.

Callers of the same model share one client. The pool closes a retired model when its last run has ended, and
keeps only a limited number of unused models open.
"""

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from holdfast.domain.limits import MODELS_OPEN_MAX
from holdfast.models.ports import Model

ModelNames = tuple[str, ...]
"""A model, followed by its fallbacks."""
OpenModel = Callable[[str, ModelNames], Awaitable[Model]]
"""Open a client of a model with fallbacks. Raises NoSuchModel, NoModelKey, BadModelUrl."""


class PooledModel:
    """A model, and the number of its users. `can_complete`: it may be asked for titles and summaries."""

    def __init__(self, model: Model, why: str, can_complete: bool) -> None:
        self.model = model
        self.why = why
        self.can_complete = can_complete
        self.users = 0
        self.is_retired = False


class ModelPool:
    """Open models by name. `default` is the server's own. Belongs to one event loop."""

    def __init__(self, default: PooledModel, open_model: OpenModel, open_max: int = MODELS_OPEN_MAX) -> None:
        self.default = default
        self._open_model = open_model
        self._open_max = open_max
        self._chosen: OrderedDict[ModelNames, PooledModel] = OrderedDict()
        self._opening = asyncio.Lock()
        self._resets = 0
        self._closing: set[asyncio.Task[None]] = set()

    def set_default(self, pooled: PooledModel) -> None:
        """Replace the server's own model, and reopen the chosen ones: keys may have changed."""
        old, self.default = self.default, pooled
        self._retire(old)
        self.reset()

    def reset(self) -> None:
        """Reopen the chosen models, from the next run on."""
        self._resets += 1
        old = list(self._chosen.values())
        self._chosen.clear()
        for pooled in old:
            self._retire(pooled)

    @asynccontextmanager
    async def acquire(self, model: str, fallbacks: ModelNames = ()) -> AsyncIterator[PooledModel]:
        """Keep a model open meanwhile; without a name the server's own. Raises as `OpenModel` does."""
        pooled = await self._get(model, fallbacks)
        pooled.users += 1
        try:
            yield pooled
        finally:
            pooled.users -= 1
            self._close_unused(pooled)

    async def close(self) -> None:
        """Close every model. No caller may use one after that."""
        for pooled in (self.default, *self._chosen.values()):
            await pooled.model.close()
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _get(self, model: str, fallbacks: ModelNames) -> PooledModel:
        # No await may come between the last lookup and the caller's increment of `users`.
        names = (model or self.default.model.name, *fallbacks)
        if names == (self.default.model.name,):
            return self.default
        async with self._opening:
            while (chosen := self._chosen.get(names)) is None:
                resets = self._resets
                client = await self._open_model(names[0], fallbacks)
                pooled = PooledModel(
                    client, f"{names[0]} was chosen.", can_complete=bool(client.profile.address)
                )
                if resets == self._resets:
                    self._chosen[names] = pooled
                else:
                    # A reset came while the client was being opened: its connection may be out of date.
                    self._retire(pooled)
            self._chosen.move_to_end(names)
        return chosen

    def _close_unused(self, pooled: PooledModel) -> None:
        if pooled.is_retired:
            self._retire(pooled)
        unused = [names for names, chosen in self._chosen.items() if not chosen.users]
        for names in unused[: max(0, len(self._chosen) - self._open_max)]:
            self._retire(self._chosen.pop(names))

    def _retire(self, pooled: PooledModel) -> None:
        pooled.is_retired = True
        if not pooled.users:
            task = asyncio.create_task(pooled.model.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
