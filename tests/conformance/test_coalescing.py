"""Streams: waiting deltas are merged into one event, without loss, and limited by capacity."""

import asyncio

import pytest

from holdfast.domain.errors import LeaseLost, NoSuchSession
from holdfast.domain.events import facts as f
from holdfast.domain.ids import CallId, SessionId
from holdfast.domain.limits import DELTA_BYTES_MAX, PENDING_APPENDS_MAX
from holdfast.store.ports import Append, Fence, Store
from tests.support.turn_events import IDS, TurnEvents, created


async def start_streaming(store: Store) -> tuple[SessionId, TurnEvents, int]:
    """Return a session whose first answer is streaming, and its head."""
    new, story = created(), TurnEvents()
    await store.append(new)
    (receipt,) = await store.append(Append(new.session_id, story.opening()))
    return new.session_id, story, receipt.last_seq


async def deltas(store: Store, session_id: SessionId, after: int) -> list[f.AnyFact]:
    return [event.fact for event in await store.read(session_id, after, 1_000)]


async def test_text_that_waits_together_becomes_fewer_events(store: Store) -> None:
    session_id, story, head = await start_streaming(store)
    words = [f"word{n} " for n in range(1_000)]
    waiting = [store.submit(Append(session_id, (story.text(word),))) for word in words]
    receipts = [(await each)[0] for each in waiting]
    found = await deltas(store, session_id, head)
    assert "".join(fact.text for fact in found) == "".join(words)
    assert len(found) < len(words) / 10
    # Each receipt covers the event that holds its text.
    assert [r.last_seq for r in receipts] == sorted(r.last_seq for r in receipts)
    assert receipts[-1].last_seq == head + len(found)


async def test_order_across_kinds_messages_and_calls_is_kept(store: Store) -> None:
    session_id, story, head = await start_streaming(store)
    one, two = CallId("c1"), CallId("c2")
    facts: list[f.AnyFact] = []
    for n in range(30):
        facts += [story.reasoning(f"t{n}"), story.text(f"a{n}"), story.text(f"b{n}")]
        facts += [story.tool_arguments(one, f"x{n}"), story.tool_arguments(two, f"y{n}")]
        facts += [f.SessionRenamed(f"title {n}", "user"), story.text(f"c{n}")]
    await asyncio.gather(*(store.submit(Append(session_id, (fact,))) for fact in facts))
    assert merge_by_subject(await deltas(store, session_id, head)) == merge_by_subject(facts)


def merge_by_subject(facts: list[f.AnyFact]) -> list[tuple[object, str]]:
    """Join the text of adjacent deltas with the same subject: no merging may change the result."""
    merged: list[tuple[object, str]] = []
    for fact in facts:
        subject = (type(fact), getattr(fact, "message_id", ""), getattr(fact, "call_id", ""))
        subject += (getattr(fact, "stream", ""),)
        text = getattr(fact, "text", None)
        if text is not None and merged and merged[-1][0] == subject:
            merged[-1] = (subject, merged[-1][1] + text)
        else:
            merged.append((subject, text if text is not None else repr(fact)))
    return merged


async def test_both_streams_of_a_tool_stay_apart(store: Store) -> None:
    session_id, story, _ = await start_streaming(store)
    (receipt,) = await store.append(Append(session_id, (story.message_settled(), story.tool_intended())))
    facts = [
        story.tool_output("out "),
        story.tool_output("more"),
        story.tool_output("err", "stderr"),
        story.tool_output("end"),
    ]
    await asyncio.gather(*(store.submit(Append(session_id, (fact,))) for fact in facts))
    assert merge_by_subject(await deltas(store, session_id, receipt.last_seq)) == merge_by_subject(facts)


async def test_writers_with_different_claims_are_never_joined(store: Store) -> None:
    session_id, story, head = await start_streaming(store)
    lease = await store.claim(story.run_id, 60_000)
    stale = Fence(story.run_id, lease.epoch - 1)
    waiting = []
    for n in range(40):
        fence = lease.fence if n % 2 else stale
        waiting.append(store.submit(Append(session_id, (story.text(f"{n} "),), fence=fence)))
    tried = await asyncio.gather(*waiting, return_exceptions=True)
    assert [isinstance(each, LeaseLost) for each in tried] == [n % 2 == 0 for n in range(40)]
    found = await deltas(store, session_id, head)
    assert "".join(fact.text for fact in found) == "".join(f"{n} " for n in range(40) if n % 2)


@pytest.mark.parametrize("piece", ["x" * 1_000, "会" * 1_000, "\U0001f600" * 1_000])
async def test_one_event_never_holds_more_joined_text_than_its_bound(store: Store, piece: str) -> None:
    session_id, story, head = await start_streaming(store)
    waiting = [store.submit(Append(session_id, (story.text(piece),))) for _ in range(300)]
    await asyncio.gather(*waiting)
    found = await deltas(store, session_id, head)
    assert "".join(fact.text for fact in found) == piece * 300
    assert max(len(fact.text.encode()) for fact in found) <= DELTA_BYTES_MAX


async def test_an_append_with_a_precondition_or_several_facts_is_left_as_it_is(store: Store) -> None:
    session_id, story, head = await start_streaming(store)
    waiting = [store.submit(Append(session_id, (story.text("a"),)))]
    waiting += [store.submit(Append(session_id, (story.text("b"), story.text("c"))))]
    waiting += [store.submit(Append(session_id, (story.text("d"),), expect=head + 3))]
    receipts = [(await each)[0] for each in waiting]
    assert [(r.first_seq, r.last_seq) for r in receipts] == [
        (head + 1, head + 1), (head + 2, head + 3), (head + 4, head + 4),
    ]  # fmt: skip


async def test_text_for_no_session_is_refused_with_all_that_joined_it(store: Store) -> None:
    _, story, _ = await start_streaming(store)
    waiting = [store.submit(Append(IDS.session(), (story.text("x"),))) for _ in range(3)]
    waiting += [store.submit(Append(SessionId("s_none"), (story.text("x"),))) for _ in range(3)]
    tried = await asyncio.gather(*waiting, return_exceptions=True)
    assert {type(each) for each in tried} == {NoSuchSession}


async def test_capacity_is_available_once_pending_appends_are_stored(store: Store) -> None:
    session_id, story, head = await start_streaming(store)
    count = 2 * PENDING_APPENDS_MAX
    waiting = [store.submit(Append(session_id, (story.text("x"),))) for _ in range(count)]
    await asyncio.wait_for(store.wait_for_capacity(), 30)
    assert sum(not each.done() for each in waiting) < PENDING_APPENDS_MAX
    await asyncio.gather(*waiting)
    await asyncio.wait_for(store.wait_for_capacity(), 30)
    found = await deltas(store, session_id, head)
    assert sum(len(fact.text) for fact in found) == count


async def test_waiting_for_capacity_bounds_a_fast_caller(store: Store) -> None:
    session_id, story, _ = await start_streaming(store)
    waiting: list[object] = []
    for _ in range(3):
        for _ in range(PENDING_APPENDS_MAX // 2):
            await store.wait_for_capacity()
            waiting.append(store.submit(Append(session_id, (story.text("x"),))))
    assert sum(not future.done() for future in waiting) <= PENDING_APPENDS_MAX
    await asyncio.gather(*waiting)


async def test_a_cancelled_append_is_atomic_and_affects_no_other_append(store: Store) -> None:
    session_id, story, head = await start_streaming(store)
    facts = [f.SessionRenamed("a", "user"), f.SessionRenamed("b", "user")]
    mine = asyncio.ensure_future(store.append(Append(session_id, facts)))
    other = asyncio.ensure_future(store.append(Append(session_id, (story.text("x"),))))
    await asyncio.sleep(0)
    mine.cancel()
    (receipt,) = await other
    assert receipt.last_seq - head in (1, 3)
    assert await store.head(session_id) == receipt.last_seq
