"""Who decides when a server dies: at something that a client has just been sent, or after a while."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress

from tests.support.recording_clients import Memory, Seen
from tests.support.server_process import Server

MOMENTS = (
    "text_appended", "text_appended", "text_appended", "reasoning_appended", "tool_arguments_appended",
    "tool_intended", "tool_started", "tool_started", "tool_output_appended", "tool_settled",
    "message_settled", "turn_accepted", "turn_queued", "turn_dequeued", "run_started", "run_resumed",
    "run_completed", "tool_in_doubt", "run_waiting", "tool_resolved", "",
)  # fmt: skip
"""Kinds of events at which a server is killed; the empty one stands for any time at all."""
WAIT_S_MAX = 1.0
STALLED_MAX = 2
"""A run that was resumed so often without a whole step is let alone: its budget is not what is tested."""


class Reaper:
    """Kills a server at a moment of chance's choosing."""

    def __init__(self, chance: random.Random, memories: Sequence[Memory]) -> None:
        self._chance = chance
        self._memories = memories
        self._left = 0
        self._kind = ""
        self._server: Server | None = None
        self._struck = asyncio.Event()
        for memory in memories:
            memory.watchers.append(self._watch)

    async def strike(self, server: Server) -> str:
        """Kill it, and say at what; the caller buries it."""
        self._kind, self._left = self._chance.choice(MOMENTS), self._chance.choice((1, 1, 2, 5, 20))
        wait_s = self._chance.random() * WAIT_S_MAX
        self._struck.clear()
        self._server = server
        if await is_set_within(self._struck, wait_s):
            return self._kind
        self._server = None
        while guarded := next((each for each in self._memories if _is_protected(each, server)), None):
            await guarded.until(lambda memory=guarded: not _is_protected(memory, server), "a whole step")
        server.strike()
        return "any time"

    def _watch(self, memory: Memory, seen: Seen) -> None:
        if self._server is None or seen.kind != self._kind:
            return
        self._left -= 1
        server = self._server
        if self._left <= 0 and not any(_is_protected(each, server) for each in self._memories):
            # Here and now, while the server is still busy with what comes next.
            server.strike()
            self._server = None
            self._struck.set()


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for `event`, at most so long, and return whether it is set, also if that came as time was up."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _is_protected(memory: Memory, server: Server) -> bool:
    """Whether one of its runs was cut off too often, or may have been: nothing was heard since the start."""
    if memory.stalled() >= STALLED_MAX:
        return True
    is_open = not all(memory.outcome(sent) for sent in memory.sent if sent.receipts)
    return is_open and memory.heard_at < server.ready_at


class Stopwatch:
    """How long after a moment the interrupted runs went on: to the first new word of each."""

    def __init__(self, memories: Sequence[Memory]) -> None:
        self.resumed_s: list[float] = []
        self._ready_at = time.monotonic()
        self._due: set[str] = set()
        for memory in memories:
            memory.watchers.append(self._watch)

    def restart(self, at: float) -> None:
        self._ready_at = at

    def _watch(self, memory: Memory, seen: Seen) -> None:
        run_id = seen.body.get("run_id", "")
        if seen.kind == "run_resumed" and seen.body["by"] == "policy":
            self._due.add(run_id)
        elif seen.kind in ("run_interrupted", "run_waiting"):
            self._due.discard(run_id)
        elif seen.kind == "text_appended" and run_id in self._due:
            self._due.discard(run_id)
            self.resumed_s.append(seen.at - self._ready_at)
