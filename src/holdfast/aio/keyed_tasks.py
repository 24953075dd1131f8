"""At most one task per key, and a way to stop them all."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

OnEnd = Callable[[str, "asyncio.Task[None]"], None]


class KeyedTasks:
    """Tasks by key. `on_end` is called with each finished task, whatever its outcome."""

    def __init__(self, name: str, on_end: OnEnd | None = None) -> None:
        self._name = name
        self._on_end = on_end
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def __contains__(self, key: str) -> bool:
        return key in self._tasks

    def start(self, key: str, work: Coroutine[Any, Any, None]) -> None:
        """Start a task for a key that has none."""
        task = asyncio.create_task(work, name=f"{self._name} {key}")
        self._tasks[key] = task
        task.add_done_callback(partial(self._on_done, key))

    async def stop(self, key: str) -> None:
        """Cancel the task of a key, if there is one, and wait for its end."""
        if key in self._tasks:
            self._tasks[key].cancel()
            await asyncio.wait([self._tasks[key]])

    async def stop_all(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_until_empty(self) -> None:
        """Return once no task is left."""
        while self._tasks:
            await asyncio.wait(list(self._tasks.values()))

    def _on_done(self, key: str, task: "asyncio.Task[None]") -> None:
        # The last step of this task, or a caller right after it, may have started the next one.
        if self._tasks.get(key) is task:
            del self._tasks[key]
        if self._on_end is not None:
            self._on_end(key, task)
