"""Measure tasks by CPU time: on a busy machine wall-clock time includes what others do."""

import asyncio
from collections import defaultdict
from typing import Any

from playwright.async_api import CDPSession

END_S_MAX = 60
CATEGORIES = ("toplevel", "__metadata")


class Trace:
    """A record of every task in the browser, from `begin` to `end`."""

    def __init__(self, session: CDPSession) -> None:
        self._session = session
        self._events: list[dict[str, Any]] = []
        self._complete = asyncio.Event()
        session.on("Tracing.dataCollected", lambda found: self._events.extend(found["value"]))
        session.on("Tracing.tracingComplete", lambda _: self._complete.set())

    async def begin(self) -> None:
        wanted = {"includedCategories": list(CATEGORIES), "excludedCategories": ["*"]}
        await self._session.send("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": wanted})

    async def end(self) -> list[float]:
        """Return the milliseconds of each task on the main thread of the page that worked most."""
        await self._session.send("Tracing.end")
        async with asyncio.timeout(END_S_MAX):
            await self._complete.wait()
        mains = {
            (event["pid"], event["tid"])
            for event in self._events
            if event["name"] == "thread_name" and event["args"]["name"] == "CrRendererMain"
        }
        tasks: defaultdict[tuple[int, int], list[float]] = defaultdict(list)
        for event in self._events:
            where = event["pid"], event["tid"]
            if where in mains and event["ph"] == "X" and event["name"].endswith("::RunTask"):
                tasks[where].append(event.get("tdur", 0) / 1_000)
        return max(tasks.values(), key=sum)
