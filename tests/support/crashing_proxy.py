"""Proxies that stop working at a chosen step, as a killed process does."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

STORE_STEPS = frozenset(
    {"receive", "received", "assign", "finish", "route", "plan", "due", "begin_delivery", "settle_delivery"}
    | {"append", "put_item", "item", "head", "session"}
)
ENGINE_STEPS = frozenset({"create", "send", "replace", "cancel", "resolve", "answer", "resume"})
CHANNEL_STEPS = frozenset({"send", "edit"})


class CrashPoint:
    """The moment of the crash: before or after the `at`th step."""

    def __init__(self, at: int, is_after: bool) -> None:
        self.at = at
        self.is_after = is_after
        self.steps: list[str] = []
        self.has_crashed = asyncio.Event()
        self._is_released = asyncio.Event()

    def release(self) -> None:
        """Release every waiting task, including those that cannot be cancelled."""
        self._is_released.set()

    async def run_step(self, name: str, action: Callable[[], Awaitable[Any]]) -> Any:
        await self._stop_if_crashed()
        self.steps.append(name)
        is_last = len(self.steps) == self.at
        if is_last and not self.is_after:
            self.has_crashed.set()
        await self._stop_if_crashed()
        result = await action()
        if is_last:
            self.has_crashed.set()
        await self._stop_if_crashed()
        return result

    async def _stop_if_crashed(self) -> None:
        if self.has_crashed.is_set():
            await self._is_released.wait()
        if self._is_released.is_set():
            raise asyncio.CancelledError


class CrashingProxy:
    """Pass calls on to `part` until the crash point. `steps` are the methods that count as a step."""

    def __init__(self, part: Any, crash_point: CrashPoint, steps: frozenset[str]) -> None:
        assert all(hasattr(part, step) for step in steps), "a step that the part does not have never counts"
        self._part = part
        self._crash_point = crash_point
        self._steps = steps

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._part, name)
        if name == "commands":
            return CrashingProxy(
                found, self._crash_point, frozenset({"undo", "rename", "accept", "has_message"})
            )
        if name == "release":
            return self._ignore_release
        if name not in self._steps:
            return found
        return lambda *args, **more: self._crash_point.run_step(name, lambda: found(*args, **more))

    async def _ignore_release(self, *args: object) -> None:
        """Do nothing: a dead process releases nothing."""
