"""Importing: the events of another store, unchanged, once."""

import asyncio

import pytest
from msgspec.structs import replace

from holdfast.domain.errors import BadImport, ImportConflict
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, UnknownFact, encode
from holdfast.domain.ids import SessionId
from holdfast.domain.limits import READ_EVENTS_MAX
from holdfast.store.ports import Append, Store
from tests.conformance.factories import StoreHome
from tests.support.turn_events import IDS, created, turn_facts, turn_with_tool


def ignore_progress(done: int, total: int) -> None:
    """Ignore the progress of a check."""


def journal(*facts: f.AnyFact | UnknownFact) -> list[Event]:
    all_facts = (f.SessionCreated("imported"), *facts)
    return [Event(seq, 1_600_000_000_000 + seq, *encode(fact)) for seq, fact in enumerate(all_facts, 1)]


async def stored_events(store: Store, session_id: SessionId) -> list[Event]:
    found: list[Event] = []
    while batch := await store.read(session_id, found[-1].seq if found else 0, 1_000):
        found += batch
    return found


async def test_events_are_kept_as_they_are(store: Store) -> None:
    session_id, events = IDS.session(), journal(*turn_with_tool(1), *turn_facts(2, "capybara"))
    assert await store.import_session(session_id, events) == len(events)
    assert await stored_events(store, session_id) == events
    assert (await store.session(session_id)).created_at == events[0].at
    assert len(await store.search("capybara", 10)) == 1
    assert list(await store.check(False, ignore_progress)) == []


async def test_importing_again_adds_nothing(store: Store) -> None:
    session_id, events = IDS.session(), journal(*turn_facts(1))
    await store.import_session(session_id, events)
    assert await store.import_session(session_id, events) == 0
    assert await stored_events(store, session_id) == events


async def test_importing_a_longer_copy_adds_the_rest(store: Store) -> None:
    session_id, events = IDS.session(), journal(*turn_facts(1), *turn_facts(2))
    await store.import_session(session_id, events[:5])
    assert await store.import_session(session_id, events) == len(events) - 5
    assert await store.import_session(session_id, events[:3]) == 0
    assert await stored_events(store, session_id) == events


async def test_importing_a_conflicting_copy_is_refused(store: Store) -> None:
    session_id, events = IDS.session(), journal(*turn_facts(1))
    await store.import_session(session_id, events)
    for other in (replace(events[3], at=0), replace(events[3], body=b"{}"), replace(events[3], version=9)):
        changed = [*events[:3], other, *events[4:]]
        with pytest.raises(ImportConflict) as refused:
            await store.import_session(session_id, changed)
        assert refused.value.fields == {"session_id": session_id, "seq": 4}
    assert await stored_events(store, session_id) == events


async def test_either_copy_may_have_been_pruned(store: Store) -> None:
    events = journal(*turn_facts(1, answer=("a", "b")), *turn_facts(2))
    pruned = [event for event in events if event.kind not in f.DELTA_KINDS]
    one, two = IDS.session(), IDS.session()
    await store.import_session(one, events)
    assert await store.import_session(one, pruned) == 0
    await store.import_session(two, pruned)
    assert await store.import_session(two, events) == 0
    assert await stored_events(store, two) == pruned
    assert list(await store.check(False, ignore_progress)) == []


async def test_a_long_conversation_is_imported_whole(store: Store) -> None:
    facts = [f.SessionRenamed(str(n), "user") for n in range(2 * READ_EVENTS_MAX + 5)]
    session_id, events = IDS.session(), journal(*facts)
    assert await store.import_session(session_id, events) == len(events)
    assert await stored_events(store, session_id) == events
    assert (await store.session(session_id)).title == facts[-1].title


async def test_what_does_not_begin_a_conversation_is_refused(store: Store) -> None:
    events = journal(*turn_facts(1))
    before = await store.totals()
    damaged = [*events[:3], replace(events[3], body=b'{"turn":'), *events[4:]]
    for wrong in (events[1:], events[::-1], [*events[:3], *events[1:]], damaged):
        with pytest.raises(BadImport):
            await store.import_session(IDS.session(), wrong)
    assert await store.import_session(IDS.session(), []) == 0
    after = await store.totals()
    assert (after.sessions, after.events) == (before.sessions, before.events)
    assert list(await store.check(False, ignore_progress)) == []


async def test_two_imports_at_once_are_one(store: Store, home: StoreHome) -> None:
    session_id, events = IDS.session(), journal(*turn_facts(1))
    other = await home.open()
    counts = await asyncio.gather(
        store.import_session(session_id, events), other.import_session(session_id, events)
    )
    assert sorted(counts) == [0, len(events)]


async def test_an_imported_conversation_can_be_followed_and_goes_on(store: Store) -> None:
    session_id, events = IDS.session(), journal(*turn_facts(1))
    await store.import_session(session_id, events[:4])
    tail = store.tail(session_id, 4)
    following = asyncio.ensure_future(anext(tail))
    await asyncio.sleep(0.01)
    await store.import_session(session_id, events)
    assert await asyncio.wait_for(following, 30) == events[4]
    await tail.aclose()
    (receipt,) = await store.append(Append(session_id, turn_facts(2)))
    assert receipt.first_seq == len(events) + 1


NEWER = (
    UnknownFact("dream_recorded", 1, b'{"dream":"  spaced  ","n":1.50}'),
    UnknownFact("turn_accepted", 7, b'{"turn":"none of the fields we know"}'),
    UnknownFact("text_appended", 2, b'{"chunks":["a"]}'),
)


async def test_what_a_newer_program_wrote_is_kept_and_passed_on(store: Store, home: StoreHome) -> None:
    new = created()
    await store.append(new)
    tail = store.tail(new.session_id, 1)
    await store.append(Append(new.session_id, (*NEWER, *turn_facts(1))))
    streamed = [await anext(tail) for _ in NEWER]
    await tail.aclose()
    assert [event.fact for event in streamed] == list(NEWER)
    assert [(event.kind, event.version, event.body) for event in streamed] == [
        (fact.kind, fact.of_version, fact.body) for fact in NEWER
    ]
    await store.search("anything", 10)
    await store.close()
    again = await home.open()
    assert list(await again.read(new.session_id, 1, 3)) == streamed
    assert len((await again.messages(new.session_id, None, 10)).messages) == 2
    assert list(await again.check(False, ignore_progress)) == []
    copy = IDS.session()
    await again.import_session(copy, await stored_events(again, new.session_id))
    assert await stored_events(again, copy) == await stored_events(again, new.session_id)
