"""M: memory is owed until paid. One process with a real store, and real processes that are killed."""

import asyncio
import gc
import sys
import time
import weakref
from pathlib import Path

import pytest

from holdfast import app
from holdfast.domain.clock import FakeClock, SystemClock
from holdfast.domain.errors import ProviderFailure
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import Text
from holdfast.domain.ids import Ids, SessionId
from holdfast.domain.limits import AGENT_CACHE_IDLE_MS
from holdfast.domain.ranges import numbers_in
from holdfast.domain.secrets import Mask
from holdfast.domain.state.changes import ReadBack
from holdfast.domain.state.projections import fold
from holdfast.memory.ports import Owner
from holdfast.memory.provider_resolver import digest_of
from holdfast.memory.scheduler import Outcome
from holdfast.models.ports import ModelFailure
from holdfast.settings.settings import Settings
from holdfast.store.sqlite.store import SqliteStore
from tests.support.fake_memory_providers import Home, Keeper, Stubborn, home
from tests.support.in_process_app import Lever, calls
from tests.witness_memory.watching import INSTALLED, Witness

A, B = Owner("a"), Owner("b")
SOON_S = 30
"""What may take a moment on a busy machine, and never takes so long."""


async def test_a_commit_that_finishes_late_leaves_a_turn_completed_meanwhile_owed(tmp_path: Path) -> None:
    """M1"""
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        keeper.hold = asyncio.Event()
        commit = asyncio.create_task(here.lifecycle.settle(session_id, asked=True))
        await keeper.called.wait()
        await here.turn(session_id, "two")
        keeper.answers = ["late", ProviderFailure(detail="not now")]
        keeper.hold.set()
        assert (await commit).paid == 1
        assert [(row.state, row.turns) for row in await here.debts(session_id)] == [
            ("paid", ((1, 1),)), ("failed", ((2, 2),))
        ]  # fmt: skip
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("paid", 1)
        assert [segment.messages[0].text for segment in keeper.calls] == ["one", "two", "two"]


async def test_a_failed_commit_stays_owed_by_its_owner_and_the_next_one_pays_it(tmp_path: Path) -> None:
    """M2"""
    a, b = Keeper("a"), Keeper("b")
    async with home(tmp_path, a, b) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        a.answers = [ProviderFailure(detail="the disk is full")]
        failed = await here.lifecycle.settle(session_id, asked=True)
        assert failed.status == "failed" and "the disk is full" in failed.detail
        (row,) = await here.debts(session_id)
        assert (row.state, row.owner) == ("failed", digest_of(A))
        assert row.failure is not None and "the disk is full" in row.failure.detail
        await here.lifecycle.enrol(session_id, B)
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("paid", 1)
        assert len(a.kept) == 1 and not b.calls
        first, again = a.calls
        assert (first.key, first.messages) == (again.key, again.messages)


async def test_work_without_an_owner_adopts_the_one_that_is_named_and_keeps_it(tmp_path: Path) -> None:
    """M3"""
    a, b = Keeper("a"), Keeper("b")
    async with home(tmp_path, a, b) as here:
        here.attic.present = None
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        assert [row.owner for row in await here.debts(session_id)] == [""]
        a.answers = [ProviderFailure(detail="not now")]
        assert (await here.lifecycle.settle(session_id, await here.keep("a"), asked=True)).status == "failed"
        await here.lifecycle.enrol(session_id, B)
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("paid", 1)
        assert len(a.kept) == 1 and not b.calls
        # And where none is named, the one at hand.
        await here.lifecycle.evict(session_id)
        await here.turn(session_id, "two")
        await here.lifecycle.enrol(session_id, B)
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("paid", 1)
        assert len(b.kept) == 1


async def test_a_replacement_owns_only_what_is_completed_from_then_on(tmp_path: Path) -> None:
    """M4"""
    a, b = Keeper("a"), Keeper("b")
    async with home(tmp_path, a, b) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        here.attic.present = B
        assert await here.lifecycle.enrol(session_id, B) == here.lifecycle.registered(session_id)
        await here.turn(session_id, "two")
        owed = [(row.turns, row.owner) for row in await here.debts(session_id)]
        assert owed == [(((1, 1),), digest_of(A)), (((2, 2),), digest_of(B))]
        a.answers = [ProviderFailure(detail="not now")]
        await here.lifecycle.settle(session_id)
        assert len(a.calls) == 1 and not b.calls, "the older owner comes first"
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("paid", 2)
        assert [[said.messages[0].text for said in each.kept.values()] for each in (a, b)] == [
            ["one"],
            ["two"],
        ]


async def test_a_commit_pays_the_oldest_with_its_own_owner_whoever_asked(tmp_path: Path) -> None:
    """M5"""
    a, b = Keeper("a"), Keeper("b")
    async with home(tmp_path, a, b) as here:
        session_id = await here.here.begin()
        for owner, text in ((A, "one"), (B, "two"), (A, "three")):
            here.attic.present = owner
            await here.turn(session_id, text)
        b.answers = [ProviderFailure(detail="no")]
        stopped = await here.lifecycle.settle(
            session_id, digest_of(B)
        )  # A boundary goes on until one fails …
        assert (stopped.status, stopped.paid) == ("failed", 1)
        assert await here.states(session_id) == ["paid", "failed", "owed"]
        assert [[said.turns for said in each.calls] for each in (a, b)] == [[((1, 1),)], [((2, 2),)]]
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("paid", 2)  # … or all is paid.
        assert await here.states(session_id) == ["paid"] * 3
        assert [len(keeper.kept) for keeper in (a, b)] == [2, 1]


async def test_an_owner_without_a_completed_turn_commits_nothing_and_says_so(tmp_path: Path) -> None:
    """M6"""
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        await here.lifecycle.enrol(session_id, Owner("keeper"))
        assert await here.lifecycle.settle(session_id, asked=True) == Outcome("nothing")
        assert await here.lifecycle.settle(session_id) == Outcome("nothing")
        assert not keeper.calls


async def test_owed_work_is_found_after_its_owner_is_gone_and_paid_by_one_that_is_supplied(
    tmp_path: Path,
) -> None:
    """M7"""
    a, b = Keeper("a"), Keeper("b")
    async with home(tmp_path, a, b, stop_s=0.0) as here:
        first, second = await here.here.begin(), await here.here.begin()
        for session_id in (first, second):
            await here.turn(session_id, "one")
    async with home(tmp_path, a, b) as here:
        assert here.lifecycle.registered(first) == "" and not a.calls
        assert [row.owner for row in await here.debts(first)] == [digest_of(A)]
        assert [debt.session_id for debt in await here.ledger.open_debts(10)] == [first, second]
        # Made again from its snapshot.
        assert await here.lifecycle.settle(first, asked=True) == Outcome("paid", 1)
        del here.keepers["a"]
        refused = await here.lifecycle.settle(second, asked=True)
        assert (refused.status, refused.paid) == ("no_owner", 0) and "a is not installed" in refused.detail
        assert await here.states(second) == ["owed"] and not b.calls
        assert await here.lifecycle.settle(second, await here.keep("b"), asked=True) == Outcome("paid", 1)
        assert len(b.kept) == 1


async def test_shutdown_waits_for_a_commit_in_flight_and_pays_what_was_completed_meanwhile(
    tmp_path: Path,
) -> None:
    """M8"""
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id, other = await here.here.begin(), await here.here.begin()
        await here.turn(session_id, "one")
        keeper.hold = asyncio.Event()
        here.lifecycle.boundary(session_id)
        await keeper.called.wait()
        await here.turn(session_id, "two")
        await here.turn(other, "three")
        stop = asyncio.create_task(here.lifecycle.stop(SOON_S))
        await asyncio.sleep(0.05)
        assert not stop.done()
        keeper.hold.set()
        await stop
        assert await here.states(session_id) == ["paid", "paid"] and await here.states(other) == ["paid"]
        here.lifecycle.boundary(session_id)  # After the stop: nothing happens.
        assert len(keeper.calls) == 3


async def test_shutdown_keeps_its_deadline_and_what_it_leaves_is_paid_after_the_next_start(
    tmp_path: Path,
) -> None:
    """M8"""
    keeper = Stubborn()
    keeper.hold = asyncio.Event()
    async with home(tmp_path, keeper, stop_s=0.1) as here:
        session_id, other = await here.here.begin(), await here.here.begin()
        await here.turn(session_id, "one")
        await here.turn(other, "two")
        here.lifecycle.boundary(session_id)
        await keeper.called.wait()
        before = time.monotonic()
        await here.lifecycle.stop(0.1)
        assert time.monotonic() - before < SOON_S  # The provider would never have ended.
        assert await here.states(session_id) == ["failed"]  # It takes the key: it is told again.
        (key,) = {row.key for row in await here.debts(session_id)}
    keeper.hold.set()
    later = Keeper()
    async with home(tmp_path, later) as here:
        await here.lifecycle.start(3600)
        await here.until_states(session_id, "paid")
        await here.until_states(other, "paid")
        assert key in later.kept and len(later.kept) == 2


async def test_a_new_session_that_names_the_previous_one_is_a_boundary_for_it(tmp_path: Path) -> None:
    """M9"""
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        assert await here.states(session_id) == ["owed"]
        await here.here.engine.create(f.SessionCreated(previous_session_id=session_id))
        await here.until_states(session_id, "paid")
        await here.turn(session_id, "two")
        await here.here.engine.clear(session_id)  # As is clearing it.
        await here.until_states(session_id, "paid", "paid")


async def let_go(here: Home, clock: FakeClock) -> None:
    """Have the cache let go of every conversation, as nobody has used one for a while."""
    await here.here.until_at_rest()
    clock.advance(AGENT_CACHE_IDLE_MS)
    await here.here.contexts.sweep()
    assert here.here.contexts.entries == 0


async def test_eviction_commits_before_the_agent_is_dropped_then_forgets_it(tmp_path: Path) -> None:
    """M10: of a conversation that is no longer held ready."""
    keeper, clock = Keeper(), FakeClock()
    async with home(tmp_path, keeper, clock=clock) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        keeper.hold = asyncio.Event()
        await let_go(here, clock)
        async with asyncio.timeout(SOON_S):
            await keeper.called.wait()
        assert here.lifecycle.registered(session_id) == digest_of(Owner("keeper"))
        keeper.hold.set()
        await here.here.contexts.close(SOON_S)  # What leaves has left then.
        assert await here.states(session_id) == ["paid"] and here.lifecycle.registered(session_id) == ""
        here.attic.present = None
        await here.turn(session_id, "two")
        outcome = await here.lifecycle.settle(session_id, asked=True)
        assert (outcome.status, outcome.paid) == ("no_owner", 0)
        assert await here.states(session_id) == ["paid", "owed"] and len(keeper.calls) == 1


async def test_the_program_tells_memory_of_a_conversation_that_it_holds_ready_no_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M10: put together as `holdfast serve` does it, with a provider that was installed."""
    witness, clock = Witness(tmp_path / "witness"), FakeClock(SystemClock().now_ms())
    monkeypatch.syspath_prepend(str(INSTALLED))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    monkeypatch.setenv("WITNESS_MEMORY", witness.environ["WITNESS_MEMORY"])
    settings = Settings(data=tmp_path / "data", model="demo", memory="witness")
    store = await SqliteStore.open(settings.data, clock=clock)
    staff = await app._hire(
        app._Given(store, settings, "http://127.0.0.1:1", {}, Mask(()), clock, Ids(clock))
    )
    engine = staff.engine
    try:
        session_id = await engine.create(f.SessionCreated())
        await engine.send(session_id, (Text("Count to 1"),))
        await witness.until(lambda: not engine.runner.at_work, "rest")
        assert witness.turns(session_id) == {}
        clock.advance(AGENT_CACHE_IDLE_MS)
        await engine.contexts.sweep()
        await engine.contexts.close(SOON_S)
        assert witness.turns(session_id) == {1: 1}
    finally:
        await engine.stop(0.0)
        await staff.dismiss()
        await store.close()


async def test_eviction_waits_for_a_commit_in_flight_and_closes_once(tmp_path: Path) -> None:
    """M11: though it is let go from several sides."""
    keeper, clock = Keeper(), FakeClock()
    async with home(tmp_path, keeper, clock=clock) as here:
        session_id, other, contexts = await here.here.begin(), await here.here.begin(), here.here.contexts
        await here.turn(session_id, "one")
        keeper.hold = asyncio.Event()
        here.lifecycle.boundary(session_id)
        async with asyncio.timeout(SOON_S):
            await keeper.called.wait()
        await here.turn(session_id, "two")
        await here.here.until_at_rest()
        held = contexts.hold(session_id, is_run=False)
        fold = weakref.ref(await held.fold(100_000, _not_read))
        held.release()
        del held
        await let_go(here, clock)
        leaving = [asyncio.create_task(here.lifecycle.evict(session_id)) for _ in range(2)]
        leaving.append(asyncio.create_task(contexts.close(SOON_S)))
        await here.turn(other, "Meanwhile there is all the time in the world.")
        assert fold() is not None and not any(task.done() for task in leaving)
        keeper.hold.set()
        await asyncio.gather(*leaving)
        gc.collect()
        assert fold() is None and here.lifecycle.registered(session_id) == ""
        assert await here.states(session_id) == ["paid", "paid"] and len(keeper.calls) == 2


async def test_eviction_waits_a_bounded_time_for_a_provider_that_hangs_and_the_debt_stays(
    tmp_path: Path,
) -> None:
    """M11"""
    keeper, clock = Keeper(), FakeClock()
    async with home(tmp_path, keeper, clock=clock, stop_s=0.1, evict_s=0.1) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        keeper.hold = asyncio.Event()
        await let_go(here, clock)
        async with asyncio.timeout(SOON_S):
            await here.here.contexts.close(2 * SOON_S)
        assert keeper.called.is_set() and await here.states(session_id) == ["committing"]
        assert here.lifecycle.registered(session_id) == ""


async def _not_read() -> ReadBack:
    raise AssertionError("it is held")


async def test_nothing_waits_for_memory_while_a_commit_hangs(tmp_path: Path) -> None:
    """M12: turns, clearing, other sessions, and enrolling one for which another is let go."""
    keeper = Keeper()
    async with home(tmp_path, keeper, held=1, stop_s=0.1) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        keeper.hold = asyncio.Event()
        async with asyncio.timeout(SOON_S):
            other = await here.here.begin()
            await here.turn(other, "Enrolled, so the first is let go, and that hangs.")
            await keeper.called.wait()
            assert await here.states(session_id) == ["committing"]
            for number in range(3):
                await here.turn(session_id, f"turn {number}")
                await here.turn(other, f"turn {number}")
            await here.here.engine.clear(session_id)
            await here.here.engine.clear(other)
            await here.turn(session_id, "after")
        assert not keeper.kept
        assert (await here.debts(session_id))[0].state == "committing"


async def test_a_handle_is_let_go_when_there_is_no_room_the_longest_unused_first(tmp_path: Path) -> None:
    """M12"""
    keeper = Keeper()
    async with home(tmp_path, keeper, held=2) as here:
        first, second, third = [await here.here.begin() for _ in range(3)]
        for session_id in (first, second):
            await here.turn(session_id, "one")
        await here.lifecycle.enrol(first, Owner("keeper"))  # Used again: the other is the longest unused.
        await here.lifecycle.enrol(third, Owner("keeper"))
        await here.until_states(second, "paid")

        async def is_gone() -> bool:
            return not here.lifecycle.registered(second)

        await here.here.until(is_gone)
        assert here.lifecycle.registered(first) and here.lifecycle.registered(third)
        assert await here.states(first) == ["owed"]


async def test_a_completed_turn_is_marked_in_its_own_settling_and_nothing_else_is(tmp_path: Path) -> None:
    """M13"""
    lever = Lever("lever", "unsafe")
    lever.hold = asyncio.Event()
    keeper = Keeper()
    async with home(tmp_path, keeper, levers=(lever,)) as here:
        session_id = await here.here.begin()
        await here.turn(session_id, "one")
        here.here.model.steps = [[ModelFailure(detail="no such model", retryable=False)]]
        failed = await here.here.say(session_id, "two")
        await here.here.until_run(failed.run_id, "failed")
        here.here.model.steps = [calls("lever")]
        cancelled = await here.here.say(session_id, "three")
        await lever.started.wait()
        assert cancelled.run_id is not None
        await here.here.engine.cancel(cancelled.run_id)
        await here.turn(session_id, "four")
        (row,) = await here.debts(session_id)
        assert (row.state, row.turns) == ("owed", ((1, 1), (4, 4))) and not keeper.calls
        events = await here.here.store.read(session_id, 0, 1000)
        completed = {e.fact.run_id: e.fact for e in events if isinstance(e.fact, f.RunCompleted)}
        assert all(fact.owed and fact.owner == row.owner for fact in completed.values())
        for end in range(len(events) + 1):  # A crash leaves a prefix: none has one without the other.
            book = fold(session_id, events[:end])
            owed = {turn for debt in book.debts.values() for turn in numbers_in(debt.turns)}
            assert owed == {run.turn for run in book.runs.values() if run.status == "completed"}


async def test_what_is_not_to_be_remembered_is_not_owed(tmp_path: Path) -> None:
    """M13"""
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        passing = await here.here.engine.create(f.SessionCreated(remember=False))
        await here.turn(passing, "one")
        here.attic.is_on = False
        off = await here.here.begin()
        await here.turn(off, "two")
        assert await here.debts(passing) == [] and await here.debts(off) == []
        events = [e.fact for e in await here.here.store.read(passing, 0, 1000)]
        assert [fact.owed for fact in events if isinstance(fact, f.RunCompleted)] == [False]
        assert await here.lifecycle.settle(passing) == Outcome("nothing") and not keeper.calls


async def test_many_turns_make_one_commit_and_a_further_boundary_calls_nobody(tmp_path: Path) -> None:
    """M14"""
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        session_id = await here.here.begin()
        for number in range(5):
            await here.turn(session_id, f"turn {number}")
        assert await here.lifecycle.settle(session_id) == Outcome("paid", 1)
        (told,) = keeper.calls
        assert told.turns == ((1, 5),) and len(told.messages) == 10
        head = await here.here.store.head(session_id)
        assert await here.lifecycle.settle(session_id) == Outcome("nothing")
        assert len(keeper.calls) == 1 and await here.here.store.head(session_id) == head


@pytest.mark.parametrize("nobody", ["", None])
async def test_an_empty_session_id_is_a_safe_no_op_everywhere(tmp_path: Path, nobody: str | None) -> None:
    """M15"""
    keeper = Keeper()
    async with home(tmp_path, keeper) as here:
        life = here.lifecycle
        assert await life.enrol(nobody, A) == ""
        assert life.registered(nobody) == ""
        assert await life.settle(nobody, await here.keep("keeper"), asked=True) == Outcome("nothing")
        assert await life.settle(nobody, asked=True) == Outcome("nothing")
        life.boundary(nobody)
        await life.evict(nobody)
        await life.resolve(nobody, 1, "drop")
        await life.stop(1)
        assert not keeper.calls and not life.counts
        assert await life.settle(SessionId("s_0000000000000000"), asked=True) == Outcome("nothing")
