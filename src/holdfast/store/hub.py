"""Fan-out after commit, within one process: every reader of a session gets the same event objects.

Belongs to the event loop's thread. A hub publishes only committed events, and it may drop some: a reader that
falls behind its limit reads the store again from its own cursor.
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
"""Event kinds that change nothing in a list of sessions."""
ReadEvents = Callable[[SessionId, Seq, int], Awaitable[Sequence[Event]]]
_POLL_S_MAX = 5.0
"""A tail polls the store this often even without a notification."""


class Subscription:
    """One reader's unread events, at most SUBSCRIBER_EVENTS_MAX of them.

    The hub calls `notify` for each event; it must only wake the reader.
    """

    def __init__(self, notify: Callable[[], None]) -> None:
        self._events: deque[Event] = deque()
        self._notify = notify
        self.overflowed = False
        """Set when the hub dropped events; the reader clears it by reading the store."""

    def push(self, event: Event) -> None:
        if len(self._events) >= SUBSCRIBER_EVENTS_MAX:
            self._events.clear()
            self.overflowed = True
        if not self.overflowed:
            self._events.append(event)
        self._notify()

    def resync(self) -> None:
        """Make the reader read the store."""
        self.overflowed = True
        self._notify()

    def take(self, after: Seq) -> list[Event]:
        """Return the waiting events past `after`; the reader has read the earlier ones from the store."""
        events = [event for event in self._events if event.seq > after]
        self._events.clear()
        return events

    def clear(self) -> None:
        """Drop the waiting events: the reader is about to read them from the store."""
        self._events.clear()
        self.overflowed = False


class HubWatch:
    """The sessions that changed since the watcher last asked, at most WATCH_SESSIONS_MAX of them.

    The hub calls `notify` on each change; it must only wake the watcher.
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
        """Make the watcher reload everything."""
        self._changed.clear()
        self._overflowed = True
        self._notify()

    def take_changed(self) -> frozenset[SessionId] | None:
        """Return the sessions that changed since the last call; None if too many changed to list."""
        changed, overflowed = frozenset(self._changed), self._overflowed
        self._changed.clear()
        self._overflowed = False
        return None if overflowed else changed


class Hub:
    """The subscribers of each session and the watchers of all sessions."""

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
        """Notify watchers that the status of these sessions changed without a new event."""
        for watch in self._watches:
            watch.push(changed)

    def resync_all(self) -> None:
        """Make every reader read the store: no further notification may come."""
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
            # Text deltas are by far the most events: filter them here, once for all watchers.
            changed = frozenset(name for name, event in events if event.kind not in UNLISTED_KINDS)
            if changed:
                self.notify_changed(changed)


class HubFollower:
    """A cursor that follows one session. Create it with `open_follower`."""

    def __init__(
        self, read: ReadEvents, subscription: Subscription, session_id: SessionId, after: Seq
    ) -> None:
        self._read = read
        self._subscription = subscription
        self._behind = True
        self.session_id = session_id
        self.after = after

    async def next_events(self) -> Sequence[Event]:
        """Return the next new events in order and move past them; return nothing if there are none.

        Raises NoSuchSession or a StoreFault. The cursor does not move then, so a retry returns the same
        events.
        """
        events: Sequence[Event] = ()
        if not self._behind:
            events = self._subscription.take(self.after)
            # A seq is missing: the store has it or has pruned it.
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
    """Yield a follower; the hub calls `notify` when it may have new events."""
    # Subscribed before the first read: an event committed between the two would otherwise stay unseen
    # until some later, unrelated one.
    with hub.subscribe(session_id, notify) as subscription:
        yield HubFollower(read, subscription, session_id, after)


async def tail(hub: Hub, read: ReadEvents, session_id: SessionId, after: Seq) -> AsyncIterator[Event]:
    """Yield every event past `after`, then each new one. Never ends by itself."""
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
