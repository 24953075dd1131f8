"""Fan-out within a process: the same objects to all readers, and a bound on what one may leave unread."""

from holdfast.domain.events.codec import Event
from holdfast.domain.events.facts import DELTA_KINDS, FACTS_BY_KIND
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import SUBSCRIBER_EVENTS_MAX, WATCH_SESSIONS_MAX
from holdfast.store.hub import UNLISTED_KINDS, Hub, open_follower

ONE, TWO = SessionId("s_one"), SessionId("s_two")


def event(seq: int, kind: str = "session_renamed") -> Event:
    return Event(seq, 0, kind, 1, b"{}")


class CountingWakeup:
    def __init__(self) -> None:
        self.rung = 0

    def notify(self) -> None:
        self.rung += 1


def test_every_reader_of_a_session_gets_the_same_objects() -> None:
    hub, bell, news = Hub(), CountingWakeup(), event(1)
    one, two = hub.subscribe(ONE, bell.notify), hub.subscribe(ONE, bell.notify)
    with one as first, two as second, hub.subscribe(TWO, bell.notify) as other:
        hub.publish([(ONE, news)])
        assert first.take(0)[0] is second.take(0)[0] is news
        assert other.take(0) == []
    assert bell.rung == 2


def test_what_was_read_from_the_store_already_is_not_shown_again() -> None:
    hub = Hub()
    with hub.subscribe(ONE, lambda: None) as reader:
        hub.publish([(ONE, event(seq)) for seq in (1, 2, 3)])
        assert [each.seq for each in reader.take(2)] == [3]
        assert reader.take(2) == []


def test_a_slow_subscription_overflows_at_its_bound() -> None:
    hub, bell = Hub(), CountingWakeup()
    with hub.subscribe(ONE, bell.notify) as reader:
        hub.publish([(ONE, event(seq)) for seq in range(1, SUBSCRIBER_EVENTS_MAX + 1)])
        assert not reader.overflowed
        hub.publish([(ONE, event(SUBSCRIBER_EVENTS_MAX + 1))])
        hub.publish([(ONE, event(SUBSCRIBER_EVENTS_MAX + 2))])
        assert reader.overflowed
        assert reader.take(0) == [], "what is left has a hole in it"
        reader.clear()
        assert not reader.overflowed
        hub.publish([(ONE, event(SUBSCRIBER_EVENTS_MAX + 3))])
        assert [each.seq for each in reader.take(0)] == [SUBSCRIBER_EVENTS_MAX + 3]
    assert bell.rung == SUBSCRIBER_EVENTS_MAX + 3


def test_resync_all_makes_every_reader_query_the_store() -> None:
    hub, bell = Hub(), CountingWakeup()
    with hub.subscribe(ONE, bell.notify) as first, hub.subscribe(TWO, bell.notify) as second:
        hub.resync_all()
        assert first.overflowed and second.overflowed
    assert bell.rung == 2


def test_a_closed_subscription_is_removed() -> None:
    hub, bell = Hub(), CountingWakeup()
    with hub.subscribe(ONE, bell.notify):
        pass
    hub.publish([(ONE, event(1))])
    hub.resync_all()
    assert bell.rung == 0


def test_a_watch_reports_each_changed_session_once() -> None:
    hub, bell = Hub(), CountingWakeup()
    with hub.watch(bell.notify) as one, hub.watch(bell.notify) as two:
        hub.publish([(ONE, event(1)), (TWO, event(1)), (ONE, event(2))])
        assert one.take_changed() == two.take_changed() == frozenset({ONE, TWO})
        assert one.take_changed() == frozenset()
    assert bell.rung == 2, "once for each, whatever came in one commit"
    hub.publish([(ONE, event(3))])
    assert bell.rung == 2


def test_deltas_notify_no_watch() -> None:
    hub, bell = Hub(), CountingWakeup()
    with hub.watch(bell.notify) as watch:
        for kind in DELTA_KINDS:
            hub.publish([(ONE, event(seq, kind)) for seq in range(100)])
        assert (bell.rung, watch.take_changed()) == (0, frozenset())
        hub.publish([(ONE, event(1, "text_appended")), (TWO, event(1, "run_completed"))])
        assert (bell.rung, watch.take_changed()) == (1, frozenset({TWO}))
    assert DELTA_KINDS < UNLISTED_KINDS < set(FACTS_BY_KIND)


def test_an_event_of_an_unknown_kind_notifies_watches() -> None:
    hub, bell = Hub(), CountingWakeup()
    with hub.watch(bell.notify) as watch:
        hub.publish([(ONE, event(1, "something_new"))])
        assert watch.take_changed() == frozenset({ONE})


def test_an_overflowed_watch_asks_for_a_full_resync() -> None:
    hub, bell = Hub(), CountingWakeup()
    with hub.watch(bell.notify) as watch:
        for n in range(WATCH_SESSIONS_MAX):
            hub.publish([(SessionId(f"s_{n}"), event(1))])
        hub.publish([(ONE, event(1))])
        assert watch.take_changed() is None
        hub.resync_all()
        assert watch.take_changed() is None
        hub.notify_changed(frozenset({TWO}))
        assert watch.take_changed() == frozenset({TWO})


async def test_a_reader_that_misses_an_event_reads_it_from_the_store() -> None:
    hub, journal = Hub(), [event(seq) for seq in range(1, 7)]

    async def read(session_id: SessionId, after: int, limit: int) -> list[Event]:
        return [each for each in journal if each.seq > after]

    with open_follower(hub, read, ONE, 0, lambda: None) as follower:
        assert [each.seq for each in await follower.next_events()] == [1, 2, 3, 4, 5, 6]
        assert list(await follower.next_events()) == []
        journal += [event(seq) for seq in (7, 8, 9)]
        hub.publish([(ONE, journal[6])])
        assert [each.seq for each in await follower.next_events()] == [7]
        hub.publish([(ONE, journal[8])])
        assert [each.seq for each in await follower.next_events()] == [8, 9]
        journal += [event(seq) for seq in (10, 11, 12)]
        hub.publish([(ONE, journal[9]), (ONE, journal[11])])
        assert [each.seq for each in await follower.next_events()] == [10, 11, 12]
