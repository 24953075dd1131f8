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

CommittedEvents = Sequence[tuple[SessionId, Event]]
UNLISTED_KINDS = DELTA_KINDS | {
    "context_prepared",
    "model_step_started",
    "model_step_retried",
    "tool_started",
}
"""Events that change nothing a list of sessions shows."""
ReadEvents = Callable[[SessionId, Seq, int], Awaitable[Sequence[Event]]]
_POLL_S_MAX = 5.0
"""A tail looks into the store this often even if nobody tells it to."""


class Subscription:
    """One reader's events that are not read yet, at most SUBSCRIBER_EVENTS_MAX of them.

    `ring` is called for each; it must only wake the reader.
    """

    def __init__(self, notify: Callable[[], None]) -> None:
        self._events: deque[Event] = deque()
        self._notify = notify
        self.overflowed = False
        """Set when events were dropped; the reader clears it by reading the store."""

    def push(self, event: Event) -> None:
        if len(self._events) >= SUBSCRIBER_EVENTS_MAX:
            self._events.clear()
            self.overflowed = True
        if not self.overflowed:
            self._events.append(event)
        self._notify()

    def resync(self) -> None:
        """Have the reader ask the store itself."""
        self.overflowed = True
        self._notify()

    def take(self, after: Seq) -> list[Event]:
        """The waiting events past `after`; those before were read from the store already."""
        events = [event for event in self._events if event.seq > after]
        self._events.clear()
        return events

    def clear(self) -> None:
        """Drop what waits: the reader is about to read it from the store."""
        self._events.clear()
        self.overflowed = False


class HubWatch:
    """Which sessions have changed since the watcher last asked, at most WATCH_SESSIONS_MAX of them.

    `ring` is called when there are some; it must only wake the watcher.
    """

    def __init__(self, notify: Callable[[], None]) -> None:
        self._changed: set[SessionId] = set()
        self._notify = notify
        self._overflowed = False

    def push(self, changed: frozenset[SessionId]) -> None:
        self._changed |= changed
        if len(self._changed) > WATCH_SESSIONS_MAX:
            self.resync()
        else:
            self._notify()

    def resync(self) -> None:
        """Have the watcher look at everything."""
        self._changed.clear()
        self._overflowed = True
        self._notify()

    def take_changed(self) -> frozenset[SessionId] | None:
        """Those that changed since the last time; None: too many to tell, look at everything."""
        changed, overflowed = frozenset(self._changed), self._overflowed
        self._changed.clear()
        self._overflowed = False
        return None if overflowed else changed


class Hub:
    """Who listens to which session, and who watches them all."""

    def __init__(self) -> None:
        self._by_session: dict[SessionId, set[Subscription]] = {}
        self._watches: set[HubWatch] = set()

    @contextmanager
    def subscribe(self, session_id: SessionId, notify: Callable[[], None]) -> Iterator[Subscription]:
        subscription = Subscription(notify)
        self._by_session.setdefault(session_id, set()).add(subscription)
        try:
            yield subscription
        finally:
            listeners = self._by_session[session_id]
            listeners.discard(subscription)
            if not listeners:
                del self._by_session[session_id]

    @contextmanager
    def watch(self, notify: Callable[[], None]) -> Iterator[HubWatch]:
        watch = HubWatch(notify)
        self._watches.add(watch)
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    def notify_changed(self, changed: frozenset[SessionId]) -> None:
        """Say that these sessions stand differently, though nothing was added to them."""
        for watch in self._watches:
            watch.push(changed)

    def resync_all(self) -> None:
        """Let every reader look into the store: there may be nothing more to wait for."""
        for watch in self._watches:
            watch.resync()
        for subscriptions in self._by_session.values():
            for subscription in subscriptions:
                subscription.resync()

    def publish(self, events: CommittedEvents) -> None:
        for session_id, event in events:
            for subscription in self._by_session.get(session_id, ()):
                subscription.push(event)
        if self._watches:
            # Text comes a hundred times for everything else: it is passed over here, once for all watchers.
            changed = frozenset(name for name, event in events if event.kind not in UNLISTED_KINDS)
            if changed:
                self.notify_changed(changed)


class HubFollower:
    """One reader's place in one session. Made by `following`."""

    def __init__(
        self, read: ReadEvents, subscription: Subscription, session_id: SessionId, after: Seq
    ) -> None:
        self._read = read
        self._subscription = subscription
        self._behind = True
        self.session_id = session_id
        self.after = after

    async def next_events(self) -> Sequence[Event]:
        """What is new, in order, and moves past it; nothing when there is nothing yet.

        Raises NoSuchSession, or a StoreFault: the same events are there to be taken again then.
        """
        events: Sequence[Event] = ()
        if not self._behind:
            events = self._subscription.take(self.after)
            # A seq is missing: the store has it, or says that it was pruned.
            has_gap = bool(events) and events[-1].seq - self.after != len(events)
            self._behind = self._subscription.overflowed or has_gap
        if self._behind:
            self._subscription.clear()
            events = await self._read(self.session_id, self.after, READ_EVENTS_MAX)
            self._behind = bool(events)
        if events:
            self.after = events[-1].seq
        return events

    def resync(self) -> None:
        """Have the next `take` ask the store itself: a hint may be lost, a look may not."""
        self._behind = True


@contextmanager
def open_follower(
    hub: Hub, read: ReadEvents, session_id: SessionId, after: Seq, notify: Callable[[], None]
) -> Iterator[HubFollower]:
    """A reader that is told by `ring` when there is something to take."""
    # Subscribed before the first read: an event committed between the two would otherwise stay unseen
    # until some later, unrelated one.
    with hub.subscribe(session_id, notify) as subscription:
        yield HubFollower(read, subscription, session_id, after)


async def tail(hub: Hub, read: ReadEvents, session_id: SessionId, after: Seq) -> AsyncIterator[Event]:
    """Every event past `after`, then each new one. Never ends by itself."""
    ready = asyncio.Event()
    with open_follower(hub, read, session_id, after, ready.set) as follower:
        while True:
            ready.clear()
            events = await follower.next_events()
            for event in events:
                yield event
            if not events and not await _is_notified(ready):
                follower.resync()


async def _is_notified(ready: asyncio.Event) -> bool:
    try:
        async with asyncio.timeout(_POLL_S_MAX):
            await ready.wait()
    except TimeoutError:
        return False
    return True
