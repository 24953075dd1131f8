"""Choose when a server dies: at an event that a client has just received, or after a while."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import suppress

from tests.support.recording_clients import ReceivedEvent, SessionRecorder
from tests.support.server_process import ServerProcess

KILL_EVENTS = (
    "text_appended", "text_appended", "text_appended", "reasoning_appended", "tool_arguments_appended",
    "tool_intended", "tool_started", "tool_started", "tool_output_appended", "tool_settled",
    "message_settled", "turn_accepted", "turn_queued", "turn_dequeued", "run_started", "run_resumed",
    "run_completed", "tool_in_doubt", "run_waiting", "tool_resolved", "",
)  # fmt: skip
"""Kinds of events at which a server is killed; the empty one stands for any time."""
WAIT_S_MAX = 1.0
RESUMES_MAX = 2
"""The most resumes without a whole step before a run is spared: its budget is not what these tests check."""


class RandomKiller:
    """Kill a server at a random moment."""

    def __init__(self, rng: random.Random, recorders: Sequence[SessionRecorder]) -> None:
        self._rng = rng
        self._recorders = recorders
        self._events_left = 0
        self._kind = ""
        self._server: ServerProcess | None = None
        self._killed = asyncio.Event()
        for recorder in recorders:
            recorder.watchers.append(self._on_event)

    async def kill(self, server: ServerProcess) -> str:
        """Kill the server, and return the moment; the caller waits for its end."""
        self._kind, self._events_left = self._rng.choice(KILL_EVENTS), self._rng.choice((1, 1, 2, 5, 20))
        wait_s = self._rng.random() * WAIT_S_MAX
        self._killed.clear()
        self._server = server
        if await is_set_within(self._killed, wait_s):
            return self._kind
        self._server = None
        while guarded := next((each for each in self._recorders if _is_protected(each, server)), None):
            await guarded.wait_until(lambda memory=guarded: not _is_protected(memory, server), "a whole step")
        server.send_kill()
        return "any time"

    def _on_event(self, recorder: SessionRecorder, seen: ReceivedEvent) -> None:
        if self._server is None or seen.kind != self._kind:
            return
        self._events_left -= 1
        server = self._server
        if self._events_left <= 0 and not any(_is_protected(each, server) for each in self._recorders):
            # Here and now, while the server is still busy with what comes next.
            server.send_kill()
            self._server = None
            self._killed.set()


async def is_set_within(event: asyncio.Event, seconds: float) -> bool:
    """Wait for `event` at most this long, and return whether it is set, also at the very end."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
    return event.is_set()


def _is_protected(recorder: SessionRecorder, server: ServerProcess) -> bool:
    """Return whether a run was interrupted too often, or may have been, as nothing was received yet."""
    if recorder.resumes_without_progress() >= RESUMES_MAX:
        return True
    is_open = not all(recorder.outcome(sent) for sent in recorder.sent if sent.receipts)
    return is_open and recorder.last_event_at < server.ready_at


class ResumeTimer:
    """Measure the time from a moment to the first new word of each interrupted run."""

    def __init__(self, recorders: Sequence[SessionRecorder]) -> None:
        self.resumed_s: list[float] = []
        self._ready_at = time.monotonic()
        self._awaiting_text: set[str] = set()
        for recorder in recorders:
            recorder.watchers.append(self._on_event)

    def restart(self, at: float) -> None:
        self._ready_at = at

    def _on_event(self, recorder: SessionRecorder, seen: ReceivedEvent) -> None:
        run_id = seen.body.get("run_id", "")
        if seen.kind == "run_resumed" and seen.body["by"] == "policy":
            self._awaiting_text.add(run_id)
        elif seen.kind in ("run_interrupted", "run_waiting"):
            self._awaiting_text.discard(run_id)
        elif seen.kind == "text_appended" and run_id in self._awaiting_text:
            self._awaiting_text.discard(run_id)
            self.resumed_s.append(seen.at - self._ready_at)
