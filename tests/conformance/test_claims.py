"""Leases: which process may work on a run, and how every other one is fenced."""

import asyncio

import pytest

from holdfast.domain.clock import FakeClock
from holdfast.domain.errors import LeaseHeld, LeaseLost, NoSuchRun, RunRefused
from holdfast.domain.events import facts as f
from holdfast.domain.ids import RunId, SessionId
from holdfast.domain.limits import LEASE_GRACE_MS
from holdfast.store.ports import Append, Fence, Lease, Store
from tests.conformance.factories import StoreHome
from tests.support.turn_events import TurnEvents, created

LEASE_MS = 10_000


async def create_started_turn(store: Store) -> tuple[SessionId, TurnEvents]:
    new, story = created(), TurnEvents()
    await store.append(new)
    await store.append(Append(new.session_id, story.opening()))
    return new.session_id, story


def append_word(session_id: SessionId, story: TurnEvents, fence: Fence | None) -> Append:
    return Append(session_id, (story.text("word "),), fence=fence)


async def test_a_claim_allows_fenced_appends(store: Store, clock: FakeClock) -> None:
    session_id, story = await create_started_turn(store)
    lease = await store.claim(story.run_id, LEASE_MS)
    assert (lease.run_id, lease.expires_at) == (story.run_id, clock.now_ms() + LEASE_MS)
    await store.append(append_word(session_id, story, lease.fence))


async def test_a_live_claim_excludes_other_processes(store: Store, home: StoreHome, clock: FakeClock) -> None:
    _, story = await create_started_turn(store)
    other = await home.open(clock)
    await store.claim(story.run_id, LEASE_MS)
    clock.advance(LEASE_MS - 1)
    for each in (other, store):
        with pytest.raises(LeaseHeld):
            await each.claim(story.run_id, LEASE_MS)


async def test_a_lease_that_ran_out_can_be_claimed_and_fences_its_holder(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    session_id, story = await create_started_turn(store)
    other = await home.open(clock)
    old = await store.claim(story.run_id, LEASE_MS)
    clock.advance(LEASE_MS)
    with pytest.raises(LeaseHeld):
        await other.claim(story.run_id, LEASE_MS)
    clock.advance(LEASE_GRACE_MS)
    new = await other.claim(story.run_id, LEASE_MS)
    assert new.epoch > old.epoch and new.process_id != old.process_id
    head = await store.head(session_id)
    with pytest.raises(LeaseLost):
        await store.append(append_word(session_id, story, old.fence))
    with pytest.raises(LeaseLost):
        await store.renew(old, LEASE_MS)
    await store.release(old)
    assert await store.head(session_id) == head
    await other.append(append_word(session_id, story, new.fence))


async def test_a_holder_may_renew_its_lease_after_a_machine_pause(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    """A pause lets every lease expire. The first process to wake must not take the runs of the others."""
    session_id, story = await create_started_turn(store)
    other = await home.open(clock)
    run, name = await store.claim(story.run_id, LEASE_MS), await store.claim_name("channel:x", LEASE_MS)
    for _ in range(3):
        clock.advance(10 * LEASE_MS)
        for _ in range(2):
            with pytest.raises(LeaseHeld):
                await other.claim(story.run_id, LEASE_MS)
            with pytest.raises(LeaseHeld):
                await other.claim_name("channel:x", LEASE_MS)
            clock.advance(LEASE_GRACE_MS - 1)
            run, name = await store.renew(run, LEASE_MS), await store.renew(name, LEASE_MS)
            clock.advance(LEASE_MS)
    await store.append(append_word(session_id, story, run.fence))


async def test_exactly_one_of_many_concurrent_claims_wins(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    _, story = await create_started_turn(store)
    stores = [store, await home.open(clock), await home.open(clock)]
    tried = await asyncio.gather(
        *(stores[n % 3].claim(story.run_id, LEASE_MS) for n in range(12)), return_exceptions=True
    )
    assert sum(isinstance(each, Lease) for each in tried) == 1
    assert sum(isinstance(each, LeaseHeld) for each in tried) == 11


async def test_renewing_extends_the_same_claim(store: Store, home: StoreHome, clock: FakeClock) -> None:
    session_id, story = await create_started_turn(store)
    other = await home.open(clock)
    lease = await store.claim(story.run_id, LEASE_MS)
    clock.advance(LEASE_MS - 1)
    renewed = await store.renew(lease, LEASE_MS)
    assert (renewed.epoch, renewed.expires_at) == (lease.epoch, clock.now_ms() + LEASE_MS)
    clock.advance(LEASE_MS - 1)
    with pytest.raises(LeaseHeld):
        await other.claim(story.run_id, LEASE_MS)
    await store.append(append_word(session_id, story, lease.fence))


async def test_releasing_a_lease_frees_the_run_and_voids_the_claim(store: Store, home: StoreHome) -> None:
    session_id, story = await create_started_turn(store)
    other = await home.open()
    lease = await store.claim(story.run_id, LEASE_MS)
    await store.release(lease)
    with pytest.raises(LeaseLost):
        await store.append(append_word(session_id, story, lease.fence))
    with pytest.raises(LeaseLost):
        await store.renew(lease, LEASE_MS)
    again = await other.claim(story.run_id, LEASE_MS)
    assert again.epoch > lease.epoch
    await store.release(lease)
    await other.append(append_word(session_id, story, again.fence))


async def test_epochs_only_grow(store: Store) -> None:
    _, story = await create_started_turn(store)
    epochs: list[int] = []
    for _ in range(5):
        lease = await store.claim(story.run_id, LEASE_MS)
        epochs.append(lease.epoch)
        await store.release(lease)
    assert epochs == sorted(set(epochs))


async def test_epochs_survive_reopening(store: Store, home: StoreHome, clock: FakeClock) -> None:
    _, story = await create_started_turn(store)
    lease = await store.claim(story.run_id, LEASE_MS)
    await store.close()
    again = await home.open(clock)
    # Whoever closed has let go of life: no need to wait for the lease to run out.
    assert (await again.claim(story.run_id, LEASE_MS)).epoch > lease.epoch


async def test_a_killed_holders_run_is_claimable_at_once(store: Store, home: StoreHome) -> None:
    _, story = await create_started_turn(store)
    child = home.start_child("claim", story.run_id, str(1_000_000_000_000))
    with child:
        assert child.stdout is not None
        await asyncio.to_thread(child.stdout.readline)
        epoch = int(await asyncio.to_thread(child.stdout.readline))
        with pytest.raises(LeaseHeld):
            await store.claim(story.run_id, LEASE_MS)
        child.kill()
    assert (await store.claim(story.run_id, LEASE_MS)).epoch > epoch


async def test_a_run_that_is_over_cannot_be_claimed_or_written_for(store: Store) -> None:
    session_id, story = await create_started_turn(store)
    lease = await store.claim(story.run_id, LEASE_MS)
    await store.append(Append(session_id, (story.message_settled(), story.completed()), fence=lease.fence))
    with pytest.raises(RunRefused):
        await store.claim(story.run_id, LEASE_MS)
    with pytest.raises(LeaseLost):
        await store.append(append_word(session_id, story, lease.fence))
    with pytest.raises(LeaseLost):
        await store.renew(lease, LEASE_MS)
    await store.release(lease)


async def test_cancelling_fences_the_late_writes_of_the_run(store: Store) -> None:
    session_id, story = await create_started_turn(store)
    lease = await store.claim(story.run_id, LEASE_MS)
    late = [store.submit(append_word(session_id, story, lease.fence))]
    late += [store.submit(Append(session_id, (story.cancelled(), f.TurnsUndone(1))))]
    late += [store.submit(append_word(session_id, story, lease.fence))]
    tried = await asyncio.gather(*late, return_exceptions=True)
    assert [isinstance(each, LeaseLost) for each in tried] == [False, False, True]


async def test_an_interrupted_run_can_be_claimed_again(store: Store, clock: FakeClock) -> None:
    session_id, story = await create_started_turn(store)
    lease = await store.claim(story.run_id, LEASE_MS)
    clock.advance(LEASE_MS)
    notice = f.RunInterrupted(story.run_id, 1, 1_000_001, story.message_id)
    await store.append(Append(session_id, (notice,)))
    assert (await store.claim(story.run_id, LEASE_MS)).epoch > lease.epoch


async def test_an_unknown_run_cannot_be_claimed(store: Store) -> None:
    with pytest.raises(NoSuchRun):
        await store.claim(RunId("r_none"), LEASE_MS)
    session_id, story = await create_started_turn(store)
    await store.append(Append(session_id, (f.SessionDeleted(),)))
    with pytest.raises(NoSuchRun):
        await store.claim(story.run_id, LEASE_MS)


async def test_an_unknown_fence_is_refused(store: Store) -> None:
    session_id, story = await create_started_turn(store)
    for epoch in (0, 1):
        with pytest.raises(LeaseLost):
            await store.append(append_word(session_id, story, Fence(story.run_id, epoch)))


async def test_a_waiting_run_is_released_at_once_and_fences_its_holder(
    store: Store, home: StoreHome, clock: FakeClock
) -> None:
    """A kill between waiting and releasing leaves nothing that looks interrupted."""
    session_id, story = await create_started_turn(store)
    old = await store.claim(story.run_id, LEASE_MS)
    await store.append(Append(session_id, (f.RunWaiting(story.run_id, "approval"),), fence=old.fence))
    with pytest.raises(LeaseLost):
        await store.append(append_word(session_id, story, old.fence))
    new = await (await home.open(clock)).claim(story.run_id, LEASE_MS)
    assert new.was_free and new.fenced_process is None and new.epoch > old.epoch
    await store.release(old)
    await store.append(append_word(session_id, story, new.fence))
