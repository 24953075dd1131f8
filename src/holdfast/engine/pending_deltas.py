"""Track the streamed deltas of a run until the journal has them.

A spool holds them while the store is stalled; if the run is lost, recovery delivers them late.
"""

import asyncio
import time
from collections import deque
from typing import Any

import msgspec

from holdfast.domain.decisions.late_output import UnsavedDeltas
from holdfast.domain.events.facts import AnyFact, Delta, MessageSettled, ModelStepStarted
from holdfast.domain.events.tool_facts import ToolOutputAppended, ToolSettled


class _Group(msgspec.Struct):
    """Deltas of one message that one commit makes durable."""

    future: "asyncio.Future[Any]"
    name: str
    since_s: float
    deltas: list[Delta]

    @property
    def chars(self) -> int:
        return sum(len(delta.text) for delta in self.deltas)


class PendingDeltas:
    """Follow each delta from its submission to its commit, at a cost independent of the history."""

    def __init__(self) -> None:
        self._places: dict[str, tuple[int, int]] = {}
        self._saved_chars: dict[str, int] = {}
        self._groups: deque[_Group] = deque()
        self._refused: list[_Group] = []
        self.spooled = False

    def open(self, name: str, turn: int, place: int) -> None:
        """Allow deltas for `name`, a message or a call, from here on."""
        self._places[name] = (turn, place)

    def add(self, delta: Delta, future: "asyncio.Future[Any]") -> None:
        last = self._groups[-1] if self._groups else None
        if last is not None and last.future is future:
            last.deltas.append(delta)
            return
        self._drop_settled()
        name = delta.call_id if isinstance(delta, ToolOutputAppended) else delta.message_id
        self._groups.append(_Group(future, name, time.monotonic(), [delta]))

    def on_committed(self, fact: AnyFact) -> None:
        """Drop the deltas of a message or call that a committed fact now contains."""
        match fact:
            case ModelStepStarted():
                self.open(fact.message_id, fact.turn, fact.place)
            case MessageSettled():
                self._discard(fact.message_id)
            case ToolSettled():
                self._discard(fact.call_id)

    def stalled_s(self) -> float:
        """Return how long the oldest delta has been waiting."""
        self._drop_settled()
        return time.monotonic() - self._groups[0].since_s if self._groups else 0.0

    def remaining(self) -> list[UnsavedDeltas]:
        """Return all deltas that may not be saved, by message, in order."""
        self._drop_settled()
        deltas: dict[str, list[Delta]] = {}
        for group in (*self._refused, *self._groups):
            deltas.setdefault(group.name, []).extend(group.deltas)
        return [
            UnsavedDeltas(*self._places[name], self._saved_chars.get(name, 0), tuple(pending))
            for name, pending in deltas.items()
            if name in self._places
        ]

    async def wait_settled(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` until the result of every delta's commit is known."""
        if self._groups:
            await asyncio.wait([group.future for group in self._groups], timeout=timeout_s)

    def _discard(self, name: str) -> None:
        self._places.pop(name, None)
        self._saved_chars.pop(name, None)
        self._refused = [group for group in self._refused if group.name != name]

    def _drop_settled(self) -> None:
        while self._groups and self._groups[0].future.done():
            group = self._groups.popleft()
            if group.future.cancelled() or group.future.exception() is not None:
                self._refused.append(group)
            elif group.name in self._places:
                saved = self._saved_chars.get(group.name, 0)
                self._saved_chars[group.name] = saved + group.chars
