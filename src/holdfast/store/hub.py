"""Fan-out after commit, within one process: every reader of a session gets the same event objects.

Belongs to the event loop's thread. A hub only ever says what is committed, and it may forget: a reader that
falls behind its bound reads the store again from its own cursor.
"""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from holdfast.domain.codec import Event
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import SUBSCRIBER_EVENTS_MAX

News = Sequence[tuple[SessionId, Event]]


class Subscription:
    """One reader's events that are not read yet, at most SUBSCRIBER_EVENTS_MAX of them."""

    def __init__(self) -> None:
        self._events: deque[Event] = deque()
        self._ready = asyncio.Event()
        self.overrun = False
        """Set when events were dropped; the reader clears it by reading the store."""

    def offer(self, event: Event) -> None:
        if len(self._events) >= SUBSCRIBER_EVENTS_MAX:
            self._events.clear()
            self.overrun = True
        if not self.overrun:
            self._events.append(event)
        self._ready.set()

    def take(self, after: Seq) -> list[Event]:
        """The waiting events past `after`; those before were read from the store already."""
        events = [event for event in self._events if event.seq > after]
        self._events.clear()
        self._ready.clear()
        return events

    def forget(self) -> None:
        """Drop what waits: the reader is about to read it from the store."""
        self._events.clear()
        self._ready.clear()
        self.overrun = False

    async def wait(self, timeout_s: float) -> None:
        """Return when there is news, or after `timeout_s`: a hint may be lost, a poll may not."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            return


class Hub:
    """Who listens to which session."""

    def __init__(self) -> None:
        self._by_session: dict[SessionId, set[Subscription]] = {}

    @contextmanager
    def subscribe(self, session_id: SessionId) -> Iterator[Subscription]:
        subscription = Subscription()
        self._by_session.setdefault(session_id, set()).add(subscription)
        try:
            yield subscription
        finally:
            listeners = self._by_session[session_id]
            listeners.discard(subscription)
            if not listeners:
                del self._by_session[session_id]

    def publish(self, news: News) -> None:
        for session_id, event in news:
            for subscription in self._by_session.get(session_id, ()):
                subscription.offer(event)
