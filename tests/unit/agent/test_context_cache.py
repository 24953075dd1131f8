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
from holdfast.domain.state.changes import Change, ReadBack
from holdfast.domain.transcript.transcript import TranscriptFold

CHARS = 1_000


def named(n: int) -> SessionId:
    return SessionId(f"s_{n:016}")


ONE = named(1)


class Shelf:
    """What would be read back: counts how often it is asked."""

    def __init__(self, head: int | None = 1, size_bytes: int = 100, is_all: bool = True) -> None:
        self.head, self.size_bytes, self.is_all = head, size_bytes, is_all
        self.reads = 0

    async def __call__(self) -> ReadBack:
        self.reads += 1
        return ReadBack(TranscriptFold(), self.head, self.size_bytes, self.is_all)


def looked(session_id: SessionId = ONE, head: int = 1, version: int = 1) -> Change:
    """A change of ours that says nothing but where the session stands."""
    return Change(session_id, head + 1, head, version, version)


def told(fact: f.AnyFact, seq: int, before: int | None, after: int | None) -> Change:
    return Change(ONE, seq, seq, before, after, (Event(seq, 0, *encode(fact)),))


def accepted(seq: int, text: str = "Hello") -> Change:
    fact = f.TurnAccepted(TurnId(f"t{seq}"), seq, MessageId(f"m{seq}"), (Text(text),))
    return told(fact, seq, seq - 1, seq)


async def use(cache: ContextCache, session_id: SessionId = ONE, read: Shelf | None = None) -> None:
    """One run, from its beginning to its end."""
    held = cache.hold(session_id)
    cache.note(looked(session_id))
    await held.fold(CHARS, read or Shelf())
    held.release()


class Leaving:
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


async def test_the_longest_unused_is_let_go_when_there_are_too_many() -> None:
    leaving = Leaving()
    cache = ContextCache(FakeClock(), leaving, sessions_max=2)
    for n in (1, 2, 1, 3):
        await use(cache, named(n))
    await cache.close()
    assert leaving.asked == [named(2)]


async def test_the_longest_unused_is_let_go_when_there_is_too_much() -> None:
    leaving = Leaving()
    cache = ContextCache(FakeClock(), leaving, bytes_max=250)
    for n in (1, 2, 3):
        await use(cache, named(n))
    assert cache.size_bytes == 200 and cache.entries == 2
    held = cache.hold(named(2))
    cache.note(Change(named(2), 2, 2, 1, 2, (Event(2, 0, "dream_recorded", 1, b"x" * 500),)))
    assert cache.size_bytes == 700
    held.release()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert leaving.asked == [named(1), named(3), named(2)] and cache.size_bytes == 0
    await cache.close()


async def test_what_is_in_use_is_not_let_go() -> None:
    clock, leaving = FakeClock(), Leaving()
    cache = ContextCache(clock, leaving, sessions_max=1, idle_ms=1_000)
    held = cache.hold(ONE)
    await use(cache, named(2))
    clock.advance(5_000)
    await cache.sweep()
    assert cache.entries == 1
    held.release()
    await cache.close()
    assert leaving.asked == [named(2)]


async def test_what_nobody_has_used_for_a_while_is_let_go() -> None:
    clock, leaving = FakeClock(), Leaving()
    cache = ContextCache(clock, leaving, idle_ms=1_000)
    await use(cache, named(1))
    clock.advance(600)
    await use(cache, named(2))
    clock.advance(600)
    await cache.sweep()
    await asyncio.sleep(0)
    assert leaving.asked == [named(1)]
    await use(cache, named(1))
    assert cache.rebuilds == {"new": 2, "evicted": 1}
    await cache.close()


async def test_memory_is_told_before_what_is_held_is_given_back_and_nobody_waits_for_it() -> None:
    leaving = Leaving()
    leaving.may_go.clear()
    cache = ContextCache(FakeClock(), leaving, sessions_max=1)
    await use(cache, named(1))
    await use(cache, named(2))
    await asyncio.sleep(0)
    assert leaving.asked == [named(1)], "it is being told"
    await asyncio.wait_for(use(cache, named(2)), 30)
    await asyncio.wait_for(use(cache, named(1)), 30)
    assert cache.rebuilds == {"new": 2, "evicted": 1}
    leaving.may_go.set()
    await cache.close()
    assert leaving.asked == [named(1), named(2)] and cache.entries == 0


@pytest.mark.parametrize("fails", [False, True])
async def test_what_is_held_is_given_back_once_memory_is_told_however_that_went(fails: bool) -> None:
    leaving = Leaving(StoreClosed() if fails else None)
    leaving.may_go.clear()
    cache = ContextCache(FakeClock(), leaving, sessions_max=1)
    held = cache.hold(named(1))
    fold = weakref.ref(await held.fold(CHARS, Shelf()))
    held.release()
    await use(cache, named(2))
    await asyncio.sleep(0)
    assert leaving.asked == [named(1)] and fold() is not None
    leaving.may_go.set()
    await cache.close()
    gc.collect()
    assert fold() is None


async def test_a_model_that_can_be_shown_more_has_it_read_again_unless_that_was_all() -> None:
    cache = ContextCache(FakeClock())
    for is_all, rebuilds in ((False, {"new": 1, "configuration": 1}), (True, {"new": 1})):
        cache, read = ContextCache(FakeClock()), Shelf(is_all=is_all)
        await use(cache, read=read)
        held = cache.hold(ONE)
        await held.fold(2 * CHARS, read)
        await held.fold(CHARS, read)
        assert cache.rebuilds == rebuilds
        held.release()
    await cache.close()


async def test_one_that_has_grown_too_large_is_read_again() -> None:
    cache, read = ContextCache(FakeClock()), Shelf()
    await use(cache, read=read)
    for seq in range(2, 30):
        cache.note(accepted(seq, "x" * 200))
    held = cache.hold(ONE)
    cache.note(looked(head=29, version=29))
    read.head = 29
    await held.fold(CHARS, read)
    assert cache.rebuilds == {"new": 1, "evicted": 1} and cache.size_bytes == 100
    await cache.close()


async def test_what_could_not_be_read_is_not_held() -> None:
    cache = ContextCache(FakeClock())

    async def fail() -> ReadBack:
        raise StoreClosed()

    await use(cache)
    cache.note(told(f.SessionCleared(0), 9, 8, 9))
    held = cache.hold(ONE)
    with pytest.raises(StoreClosed):
        await held.fold(CHARS, fail)
    read = Shelf(head=9)
    await held.fold(CHARS, read)
    assert read.reads == 1 and cache.rebuilds == {"new": 1, "foreign": 2}
    await cache.close()


async def test_one_that_goes_on_while_it_is_read_is_read_again_but_not_for_ever() -> None:
    cache, read = ContextCache(FakeClock()), Shelf(head=None)
    await use(cache, read=read)
    assert read.reads == 3
    read.head = 1
    await use(cache, read=read)
    await use(cache, read=read)
    assert read.reads == 4 and cache.rebuilds == {"new": 1, "stale": 1} and cache.hits == 1
    await cache.close()


async def test_two_who_ask_at_once_have_it_read_once() -> None:
    cache, read = ContextCache(FakeClock()), Shelf()
    one, two = cache.hold(ONE), cache.hold(ONE)
    cache.note(looked())
    folds = await asyncio.gather(one.fold(CHARS, read), two.fold(CHARS, read))
    assert folds[0] is folds[1] and read.reads == 1 and cache.hits == 1
    await cache.close()


async def test_a_deleted_conversation_is_not_held() -> None:
    leaving = Leaving()
    cache = ContextCache(FakeClock(), leaving)
    await use(cache)
    cache.note(told(f.SessionDeleted(), 2, 1, 1))
    assert cache.entries == 0 and cache.size_bytes == 0
    await cache.close()
    assert not leaving.asked, "whoever deletes it tells memory"


async def test_a_change_that_says_nothing_of_versions_has_it_read_again() -> None:
    cache, read = ContextCache(FakeClock()), Shelf()
    await use(cache, read=read)
    cache.note(told(f.SessionRenamed("Imported", "user"), 2, None, None))
    cache.note(looked(head=2))
    read.head = 2
    await use(cache, read=read)
    assert cache.rebuilds == {"new": 1, "stale": 1}
    await cache.close()


async def test_what_another_process_had_begun_to_write_is_read_when_this_one_ends_it() -> None:
    ended = f.RunCancelled(RunId("r"))
    for seq, rebuilds in ((2, {"new": 1}), (5, {"new": 1, "foreign": 1})):
        cache, read = ContextCache(FakeClock()), Shelf()
        await use(cache, read=read)
        # From 2 to 4 there may be words that the journal has nowhere else.
        cache.note(told(ended, seq, 1, seq))
        held = cache.hold(ONE)
        cache.note(looked(head=seq, version=seq))
        read.head = seq
        await held.fold(CHARS, read)
        assert cache.rebuilds == rebuilds
        await cache.close()


async def test_a_title_from_another_process_leaves_it_as_it_is() -> None:
    cache, read = ContextCache(FakeClock()), Shelf()
    await use(cache, read=read)
    held = cache.hold(ONE)
    cache.note(looked(head=4))
    cache.note(told(f.SessionConfigured(resume="ask"), 5, 1, 5))
    await held.fold(CHARS, read)
    assert (cache.hits, read.reads) == (1, 1)
    await cache.close()


async def test_one_that_was_read_further_than_our_own_changes_finds_its_baseline_with_the_next() -> None:
    for seq, rebuilds in ((4, {"new": 1}), (5, {"new": 1, "stale": 1})):
        cache, read = ContextCache(FakeClock()), Shelf(head=3)
        await use(cache, read=read)
        # Whatever was the version at 3, this says it; unless there is something before it that was not read.
        cache.note(told(f.SessionConfigured(resume="ask"), seq, 2, seq))
        held = cache.hold(ONE)
        read.head = seq
        cache.note(looked(head=seq, version=seq))
        await held.fold(CHARS, read)
        assert cache.rebuilds == rebuilds
        await cache.close()


async def test_one_that_could_not_take_in_a_change_is_read_again() -> None:
    cache, read = ContextCache(FakeClock()), Shelf()
    await use(cache, read=read)
    with pytest.raises(msgspec.ValidationError):
        cache.note(Change(ONE, 2, 2, 1, 2, (Event(2, 0, "turn_accepted", 1, b"{"),)))
    read.head = 2
    held = cache.hold(ONE)
    cache.note(looked(head=2, version=2))
    await held.fold(CHARS, read)
    assert cache.rebuilds == {"new": 1, "stale": 1}
    await cache.close()


async def test_who_only_looks_is_not_counted_and_can_tell_that_another_process_has_gone_on() -> None:
    cache, read = ContextCache(FakeClock()), Shelf()
    await use(cache, read=read)
    looking = cache.hold(ONE, is_run=False)
    cache.note(looked())
    assert not looking.is_overtaken
    await looking.fold(CHARS, read)
    assert (cache.hits, read.reads) == (0, 1)
    cache.note(looked(head=4, version=4))
    assert looking.is_overtaken
    held = cache.hold(ONE)
    await held.fold(CHARS, Shelf(head=4))
    assert not looking.is_overtaken
    assert (cache.hits, cache.rebuilds) == (0, {"new": 1, "foreign": 1})
    await cache.close()
