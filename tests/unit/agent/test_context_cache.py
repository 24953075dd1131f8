"""Conversations held ready: which are let go and how, and when one is read again."""

import asyncio
import gc
import weakref

import msgspec
import pytest

from holdfast.agent.context_cache import ContextCache
from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import StoreClosed
from holdfast.domain.events import facts as f
from holdfast.domain.events.codec import Event, encode
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import MessageId, RunId, SessionId, TurnId
from holdfast.domain.state.changes import CommittedChange, LoadedContext
from holdfast.domain.transcript.transcript import TranscriptFold

CHARS = 1_000


def named(n: int) -> SessionId:
    return SessionId(f"s_{n:016}")


ONE = named(1)


class FakeLoader:
    """What would be read back: counts how often it is asked."""

    def __init__(self, head: int | None = 1, size_bytes: int = 100, is_all: bool = True) -> None:
        self.head, self.size_bytes, self.is_all = head, size_bytes, is_all
        self.reads = 0

    async def __call__(self) -> LoadedContext:
        self.reads += 1
        return LoadedContext(TranscriptFold(), self.head, self.size_bytes, self.is_all)


def empty_change(session_id: SessionId = ONE, head: int = 1, version: int = 1) -> CommittedChange:
    """A change of ours that says nothing but where the session stands."""
    return CommittedChange(session_id, head + 1, head, version, version)


def change_of(fact: f.AnyFact, seq: int, before: int | None, after: int | None) -> CommittedChange:
    return CommittedChange(ONE, seq, seq, before, after, (Event(seq, 0, *encode(fact)),))


def accepted(seq: int, text: str = "Hello") -> CommittedChange:
    fact = f.TurnAccepted(TurnId(f"t{seq}"), seq, MessageId(f"m{seq}"), (Text(text),))
    return change_of(fact, seq, seq - 1, seq)


async def run_once(cache: ContextCache, session_id: SessionId = ONE, read: FakeLoader | None = None) -> None:
    """One run, from its beginning to its end."""
    held = cache.acquire(session_id)
    cache.on_change(empty_change(session_id))
    await held.fold(CHARS, read or FakeLoader())
    held.release()


class BlockingEviction:
    """Who lets go of conversations, as memory would: when it is told to."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[SessionId] = []
        self.error = error
        self.may_go = asyncio.Event()
        self.may_go.set()

    async def __call__(self, session_id: SessionId) -> None:
        self.asked.append(session_id)
        await self.may_go.wait()
        if self.error is not None:
            raise self.error


async def test_the_least_recently_used_context_is_evicted_above_the_count_limit() -> None:
    leaving = BlockingEviction()
    cache = ContextCache(FakeClock(), leaving, sessions_max=2)
    for n in (1, 2, 1, 3):
        await run_once(cache, named(n))
    await cache.close()
    assert leaving.asked == [named(2)]


async def test_the_least_recently_used_context_is_evicted_above_the_size_limit() -> None:
    leaving = BlockingEviction()
    cache = ContextCache(FakeClock(), leaving, bytes_max=250)
    for n in (1, 2, 3):
        await run_once(cache, named(n))
    assert cache.size_bytes == 200 and cache.entry_count == 2
    held = cache.acquire(named(2))
    cache.on_change(CommittedChange(named(2), 2, 2, 1, 2, (Event(2, 0, "dream_recorded", 1, b"x" * 500),)))
    assert cache.size_bytes == 700
    held.release()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert leaving.asked == [named(1), named(3), named(2)] and cache.size_bytes == 0
    await cache.close()


async def test_a_context_in_use_is_not_evicted() -> None:
    clock, leaving = FakeClock(), BlockingEviction()
    cache = ContextCache(clock, leaving, sessions_max=1, idle_ms=1_000)
    held = cache.acquire(ONE)
    await run_once(cache, named(2))
    clock.advance(5_000)
    await cache.evict_idle()
    assert cache.entry_count == 1
    held.release()
    await cache.close()
    assert leaving.asked == [named(2)]


async def test_idle_contexts_are_evicted() -> None:
    clock, leaving = FakeClock(), BlockingEviction()
    cache = ContextCache(clock, leaving, idle_ms=1_000)
    await run_once(cache, named(1))
    clock.advance(600)
    await run_once(cache, named(2))
    clock.advance(600)
    await cache.evict_idle()
    await asyncio.sleep(0)
    assert leaving.asked == [named(1)]
    await run_once(cache, named(1))
    assert cache.rebuilds == {"new": 2, "evicted": 1}
    await cache.close()


async def test_eviction_commits_memory_first_without_blocking() -> None:
    leaving = BlockingEviction()
    leaving.may_go.clear()
    cache = ContextCache(FakeClock(), leaving, sessions_max=1)
    await run_once(cache, named(1))
    await run_once(cache, named(2))
    await asyncio.sleep(0)
    assert leaving.asked == [named(1)], "it is being told"
    await asyncio.wait_for(run_once(cache, named(2)), 30)
    await asyncio.wait_for(run_once(cache, named(1)), 30)
    assert cache.rebuilds == {"new": 2, "evicted": 1}
    leaving.may_go.set()
    await cache.close()
    assert leaving.asked == [named(1), named(2)] and cache.entry_count == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_a_context_is_released_after_the_eviction_hook_even_if_it_fails(fails: bool) -> None:
    leaving = BlockingEviction(StoreClosed() if fails else None)
    leaving.may_go.clear()
    cache = ContextCache(FakeClock(), leaving, sessions_max=1)
    held = cache.acquire(named(1))
    fold = weakref.ref(await held.fold(CHARS, FakeLoader()))
    held.release()
    await run_once(cache, named(2))
    await asyncio.sleep(0)
    assert leaving.asked == [named(1)] and fold() is not None
    leaving.may_go.set()
    await cache.close()
    gc.collect()
    assert fold() is None


async def test_a_larger_window_rebuilds_an_incomplete_context() -> None:
    cache = ContextCache(FakeClock())
    for is_all, rebuilds in ((False, {"new": 1, "configuration": 1}), (True, {"new": 1})):
        cache, read = ContextCache(FakeClock()), FakeLoader(is_all=is_all)
        await run_once(cache, read=read)
        held = cache.acquire(ONE)
        await held.fold(2 * CHARS, read)
        await held.fold(CHARS, read)
        assert cache.rebuilds == rebuilds
        held.release()
    await cache.close()


async def test_a_context_that_grew_too_large_is_rebuilt() -> None:
    cache, read = ContextCache(FakeClock()), FakeLoader()
    await run_once(cache, read=read)
    for seq in range(2, 30):
        cache.on_change(accepted(seq, "x" * 200))
    held = cache.acquire(ONE)
    cache.on_change(empty_change(head=29, version=29))
    read.head = 29
    await held.fold(CHARS, read)
    assert cache.rebuilds == {"new": 1, "evicted": 1} and cache.size_bytes == 100
    await cache.close()


async def test_a_context_that_failed_to_load_is_not_cached() -> None:
    cache = ContextCache(FakeClock())

    async def fail() -> LoadedContext:
        raise StoreClosed()

    await run_once(cache)
    cache.on_change(change_of(f.SessionCleared(0), 9, 8, 9))
    held = cache.acquire(ONE)
    with pytest.raises(StoreClosed):
        await held.fold(CHARS, fail)
    read = FakeLoader(head=9)
    await held.fold(CHARS, read)
    assert read.reads == 1 and cache.rebuilds == {"new": 1, "foreign": 2}
    await cache.close()


async def test_a_context_changing_while_loading_is_reloaded_a_limited_number_of_times() -> None:
    cache, read = ContextCache(FakeClock()), FakeLoader(head=None)
    await run_once(cache, read=read)
    assert read.reads == 3
    read.head = 1
    await run_once(cache, read=read)
    await run_once(cache, read=read)
    assert read.reads == 4 and cache.rebuilds == {"new": 1, "stale": 1} and cache.hits == 1
    await cache.close()


async def test_concurrent_requests_load_a_context_once() -> None:
    cache, read = ContextCache(FakeClock()), FakeLoader()
    one, two = cache.acquire(ONE), cache.acquire(ONE)
    cache.on_change(empty_change())
    folds = await asyncio.gather(one.fold(CHARS, read), two.fold(CHARS, read))
    assert folds[0] is folds[1] and read.reads == 1 and cache.hits == 1
    await cache.close()


async def test_a_deleted_conversation_is_not_cached() -> None:
    leaving = BlockingEviction()
    cache = ContextCache(FakeClock(), leaving)
    await run_once(cache)
    cache.on_change(change_of(f.SessionDeleted(), 2, 1, 1))
    assert cache.entry_count == 0 and cache.size_bytes == 0
    await cache.close()
    assert not leaving.asked, "whoever deletes it tells memory"


async def test_a_change_without_versions_causes_a_rebuild() -> None:
    cache, read = ContextCache(FakeClock()), FakeLoader()
    await run_once(cache, read=read)
    cache.on_change(change_of(f.SessionRenamed("Imported", "user"), 2, None, None))
    cache.on_change(empty_change(head=2))
    read.head = 2
    await run_once(cache, read=read)
    assert cache.rebuilds == {"new": 1, "stale": 1}
    await cache.close()


async def test_ending_a_message_begun_by_another_process_causes_a_rebuild() -> None:
    ended = f.RunCancelled(RunId("r"))
    for seq, rebuilds in ((2, {"new": 1}), (5, {"new": 1, "foreign": 1})):
        cache, read = ContextCache(FakeClock()), FakeLoader()
        await run_once(cache, read=read)
        # From 2 to 4 there may be words that the journal has nowhere else.
        cache.on_change(change_of(ended, seq, 1, seq))
        held = cache.acquire(ONE)
        cache.on_change(empty_change(head=seq, version=seq))
        read.head = seq
        await held.fold(CHARS, read)
        assert cache.rebuilds == rebuilds
        await cache.close()


async def test_a_title_from_another_process_causes_no_rebuild() -> None:
    cache, read = ContextCache(FakeClock()), FakeLoader()
    await run_once(cache, read=read)
    held = cache.acquire(ONE)
    cache.on_change(empty_change(head=4))
    cache.on_change(change_of(f.SessionConfigured(resume="ask"), 5, 1, 5))
    await held.fold(CHARS, read)
    assert (cache.hits, read.reads) == (1, 1)
    await cache.close()


async def test_a_context_loaded_past_our_changes_gets_its_baseline_from_the_next_change() -> None:
    for seq, rebuilds in ((4, {"new": 1}), (5, {"new": 1, "stale": 1})):
        cache, read = ContextCache(FakeClock()), FakeLoader(head=3)
        await run_once(cache, read=read)
        # Whatever was the version at 3, this says it; unless there is something before it that was not read.
        cache.on_change(change_of(f.SessionConfigured(resume="ask"), seq, 2, seq))
        held = cache.acquire(ONE)
        read.head = seq
        cache.on_change(empty_change(head=seq, version=seq))
        await held.fold(CHARS, read)
        assert cache.rebuilds == rebuilds
        await cache.close()


async def test_a_context_that_failed_to_apply_a_change_is_rebuilt() -> None:
    cache, read = ContextCache(FakeClock()), FakeLoader()
    await run_once(cache, read=read)
    with pytest.raises(msgspec.ValidationError):
        cache.on_change(CommittedChange(ONE, 2, 2, 1, 2, (Event(2, 0, "turn_accepted", 1, b"{"),)))
    read.head = 2
    held = cache.acquire(ONE)
    cache.on_change(empty_change(head=2, version=2))
    await held.fold(CHARS, read)
    assert cache.rebuilds == {"new": 1, "stale": 1}
    await cache.close()


async def test_reading_without_a_run_is_not_counted_and_detects_foreign_changes() -> None:
    cache, read = ContextCache(FakeClock()), FakeLoader()
    await run_once(cache, read=read)
    looking = cache.acquire(ONE, is_run=False)
    cache.on_change(empty_change())
    assert not looking.is_changed_elsewhere
    await looking.fold(CHARS, read)
    assert (cache.hits, read.reads) == (0, 1)
    cache.on_change(empty_change(head=4, version=4))
    assert looking.is_changed_elsewhere
    held = cache.acquire(ONE)
    await held.fold(CHARS, FakeLoader(head=4))
    assert not looking.is_changed_elsewhere
    assert (cache.hits, cache.rebuilds) == (0, {"new": 1, "foreign": 1})
    await cache.close()
