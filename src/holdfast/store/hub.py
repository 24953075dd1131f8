"""Fan-out after commit, within one process: every reader of a session gets the same event objects.

Belongs to the event loop's thread. A hub only ever says what is committed, and it may forget: a reader that
falls behind its bound reads the store again from its own cursor.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.domain.events.codec import Event
from holdfast.domain.events.facts import DELTA_KINDS
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import READ_EVENTS_MAX, SUBSCRIBER_EVENTS_MAX, WATCH_SESSIONS_MAX

News = Sequence[tuple[SessionId, Event]]
QUIET_KINDS = DELTA_KINDS | {"context_prepared", "model_step_started", "model_step_retried", "tool_started"}
"""Events that change nothing a list of sessions shows."""
Read = Callable[[SessionId, Seq, int], Awaitable[Sequence[Event]]]
_POLL_S_MAX = 5.0
"""A tail looks into the store this often even if nobody tells it to."""


class Subscription:
    """One reader's events that are not read yet, at most SUBSCRIBER_EVENTS_MAX of them.

    `ring` is called for each; it must only wake the reader.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._events: deque[Event] = deque()
        self._ring = ring
        self.overrun = False
        """Set when events were dropped; the reader clears it by reading the store."""

    def offer(self, event: Event) -> None:
        if len(self._events) >= SUBSCRIBER_EVENTS_MAX:
            self._events.clear()
            self.overrun = True
        if not self.overrun:
            self._events.append(event)
        self._ring()

    def nudge(self) -> None:
        """Have the reader ask the store itself."""
        self.overrun = True
        self._ring()

    def take(self, after: Seq) -> list[Event]:
        """The waiting events past `after`; those before were read from the store already."""
        events = [event for event in self._events if event.seq > after]
        self._events.clear()
        return events

    def forget(self) -> None:
        """Drop what waits: the reader is about to read it from the store."""
        self._events.clear()
        self.overrun = False


class Watch:
    """Which sessions have changed since the watcher last asked, at most WATCH_SESSIONS_MAX of them.

    `ring` is called when there are some; it must only wake the watcher.
    """

    def __init__(self, ring: Callable[[], None]) -> None:
        self._changed: set[SessionId] = set()
        self._ring = ring
        self._overrun = False

    def offer(self, changed: frozenset[SessionId]) -> None:
        self._changed |= changed
        if len(self._changed) > WATCH_SESSIONS_MAX:
            self.nudge()
        else:
            self._ring()

    def nudge(self) -> None:
        """Have the watcher look at everything."""
        self._changed.clear()
        self._overrun = True
        self._ring()

    def take(self) -> frozenset[SessionId] | None:
        """Those that changed since the last time; None: too many to tell, look at everything."""
        changed, overrun = frozenset(self._changed), self._overrun
        self._changed.clear()
        self._overrun = False
        return None if overrun else changed


class Hub:
    """Who listens to which session, and who watches them all."""

    def __init__(self) -> None:
        self._by_session: dict[SessionId, set[Subscription]] = {}
        self._watches: set[Watch] = set()

    @contextmanager
    def subscribe(self, session_id: SessionId, ring: Callable[[], None]) -> Iterator[Subscription]:
        subscription = Subscription(ring)
        self._by_session.setdefault(session_id, set()).add(subscription)
        try:
            yield subscription
        finally:
            listeners = self._by_session[session_id]
            listeners.discard(subscription)
            if not listeners:
                del self._by_session[session_id]

    @contextmanager
    def watch(self, ring: Callable[[], None]) -> Iterator[Watch]:
        watch = Watch(ring)
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    def touch(self, changed: frozenset[SessionId]) -> None:
        """Say that these sessions stand differently, though nothing was added to them."""
        for watch in self._watches:
            watch.offer(changed)

    def wake(self) -> None:
        """Let every reader look into the store: there may be nothing more to wait for."""
        for watch in self._watches:
            watch.nudge()
        for subscriptions in self._by_session.values():
            for subscription in subscriptions:
                subscription.nudge()

    def publish(self, news: News) -> None:
        for session_id, event in news:
            for subscription in self._by_session.get(session_id, ()):
                subscription.offer(event)
        if self._watches:
            # Text comes a hundred times for everything else: it is passed over here, once for all watchers.
            changed = frozenset(name for name, event in news if event.kind not in QUIET_KINDS)
            if changed:
                self.touch(changed)


class Follower:
    """One reader's place in one session. Made by `following`."""

    def __init__(self, read: Read, subscription: Subscription, session_id: SessionId, after: Seq) -> None:
        self._read = read
        self._subscription = subscription
        self._behind = True
        self.session_id = session_id
        self.after = after

    async def take(self) -> Sequence[Event]:
        """What is new, in order, and moves past it; nothing when there is nothing yet.

        Raises NoSuchSession, or a StoreFault: the same events are there to be taken again then.
        """
        events: Sequence[Event] = ()
        if not self._behind:
            events = self._subscription.take(self.after)
            # A seq is missing: the store has it, or says that it was pruned.
            has_gap = bool(events) and events[-1].seq - self.after != len(events)
            self._behind = self._subscription.overrun or has_gap
        if self._behind:
            self._subscription.forget()
            events = await self._read(self.session_id, self.after, READ_EVENTS_MAX)
            self._behind = bool(events)
        if events:
            self.after = events[-1].seq
        return events

    def look(self) -> None:
        """Have the next `take` ask the store itself: a hint may be lost, a look may not."""
        self._behind = True


@contextmanager
def following(
    hub: Hub, read: Read, session_id: SessionId, after: Seq, ring: Callable[[], None]
) -> Iterator[Follower]:
    """A reader that is told by `ring` when there is something to take."""
    # Subscribed before the first read: an event committed between the two would otherwise stay unseen
    # until some later, unrelated one.
    with hub.subscribe(session_id, ring) as subscription:
        yield Follower(read, subscription, session_id, after)


async def tail(hub: Hub, read: Read, session_id: SessionId, after: Seq) -> AsyncIterator[Event]:
    """Every event past `after`, then each new one. Never ends by itself."""
    ready = asyncio.Event()
    with following(hub, read, session_id, after, ready.set) as follower:
        while True:
            ready.clear()
            events = await follower.take()
            for event in events:
                yield event
            if not events and not await _rung(ready):
                follower.look()


async def _rung(ready: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(_POLL_S_MAX):
            await ready.wait()
    except TimeoutError:
        return False
    return True
