"""Reading a session as it grows: from the store while behind, from the hub when level with it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager

from holdfast.domain.events.codec import Event
from holdfast.domain.ids import Seq, SessionId
from holdfast.domain.limits import READ_EVENTS_MAX
from holdfast.store.hub import Hub, Subscription

Read = Callable[[SessionId, Seq, int], Awaitable[Sequence[Event]]]
_POLL_S_MAX = 5.0
"""A tail looks into the store this often even if nobody tells it to."""


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
