"""Parts that die at a chosen step, as a process does: from then on nothing they are asked for is done."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

STORE_STEPS = frozenset(
    {"receive", "received", "assign", "finish", "route", "plan", "due", "begin_delivery", "settle_delivery"}
    | {"append", "put_item", "item", "head", "session"}
)
ENGINE_STEPS = frozenset({"create", "send", "replace", "cancel", "resolve", "answer", "resume"})
CHANNEL_STEPS = frozenset({"send", "edit"})


class Fate:
    """When it is over: before or after the `at`th step."""

    def __init__(self, at: int, is_after: bool) -> None:
        self.at = at
        self.is_after = is_after
        self.steps: list[str] = []
        self.is_over = asyncio.Event()
        self._buried = asyncio.Event()

    def bury(self) -> None:
        """Nothing of it waits any more, not even what nobody could call off."""
        self._buried.set()

    async def meet(self, name: str, work: Callable[[], Awaitable[Any]]) -> Any:
        await self._halt_if_over()
        self.steps.append(name)
        is_last = len(self.steps) == self.at
        if is_last and not self.is_after:
            self.is_over.set()
        await self._halt_if_over()
        result = await work()
        if is_last:
            self.is_over.set()
        await self._halt_if_over()
        return result

    async def _halt_if_over(self) -> None:
        if self.is_over.is_set():
            await self._buried.wait()
        if self._buried.is_set():
            raise asyncio.CancelledError


class Mortal:
    """Another part, until its fate is met. `steps` are the names of what counts as one."""

    def __init__(self, part: Any, fate: Fate, steps: frozenset[str]) -> None:
        self._part = part
        self._fate = fate
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name == "verbs":
            return Mortal(found, self._fate, frozenset({"undo", "rename", "accept", "is_kept"}))
        if name == "release":
            return self._never
        if name not in self._steps:
            return found
        return lambda *args, **more: self._fate.meet(name, lambda: found(*args, **more))

    async def _never(self, *args: object) -> None:
        """The dead let go of nothing."""
