"""Who may work on a run, or do what one process at a time may do: a row for each, whose epoch only grows."""

from collections.abc import Callable

from holdfast.domain.clock import Instant
from holdfast.domain.errors import LeaseHeld, LeaseLost, NoSuchRun, RunRefused
from holdfast.domain.ids import ProcessId, RunId
from holdfast.domain.limits import LEASE_GRACE_MS
from holdfast.store.ports import Lease
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.rows import RUNS
from holdfast.store.sqlite.sql import one, run


class Expired:
    """Remember when this process first saw that the lease of a living process had run out.

    A machine or a disk that stood still lets every lease run out at once. So a living holder gets
    LEASE_GRACE_MS from then on to renew its lease, before another process takes the run.
    """

    def __init__(self) -> None:
        self._seen: dict[str, tuple[int, Instant, Instant]] = {}

    def may_take(self, name: str, epoch: int, expires_at: Instant, now: Instant) -> bool:
        """Return whether the holder has had its time. A renewal since then begins it anew."""
        seen = self._seen.get(name)
        since = min(seen[2], now) if seen is not None and seen[:2] == (epoch, expires_at) else now
        recent = {key: each for key, each in self._seen.items() if now - each[2] <= 10 * LEASE_GRACE_MS}
        self._seen = recent | {name: (epoch, expires_at, since)}
        return now - since >= LEASE_GRACE_MS


def claim(
    tx: Tx,
    run_id: RunId,
    process_id: ProcessId,
    lease_ms: int,
    is_alive: Callable[[ProcessId], bool],
    expired: Expired,
) -> Lease:
    """One compare-and-set: free, dead or run out for LEASE_GRACE_MS, else LeaseHeld."""
    found = one(tx.db, "find_run", run_id)
    if found is None:
        raise NoSuchRun(run_id=run_id)
    row = RUNS.read(found[1:])
    if row.is_over:
        raise RunRefused(run_id=run_id, status=row.status, verb="be claimed")
    epoch, holder, expires_at = one(tx.db, "get_lease", run_id) or (0, "", 0)
    is_others = bool(holder) and holder != process_id and is_alive(ProcessId(holder))
    if (holder == process_id or is_others) and expires_at > tx.at:
        raise LeaseHeld(run_id=run_id)
    if is_others and not expired.may_take(run_id, epoch, expires_at, tx.at):
        raise LeaseHeld(run_id=run_id)
    fenced = ProcessId(holder) if is_others else None
    return _put(tx, Lease(run_id, epoch + 1, process_id, tx.at + lease_ms, fenced, not holder))


def claim_name(
    tx: Tx,
    name: str,
    process_id: ProcessId,
    lease_ms: int,
    is_alive: Callable[[ProcessId], bool],
    expired: Expired,
) -> Lease:
    """The same for what is no run; who holds it already may claim it again."""
    epoch, holder, expires_at = one(tx.db, "get_lease", name) or (0, "", 0)
    if (
        holder
        and holder != process_id
        and is_alive(ProcessId(holder))
        and (expires_at > tx.at or not expired.may_take(name, epoch, expires_at, tx.at))
    ):
        raise LeaseHeld(run_id=name)
    return _put(tx, Lease(RunId(name), epoch + 1, process_id, tx.at + lease_ms))


def renew(tx: Tx, lease: Lease, lease_ms: int) -> Lease:
    _check(tx, lease)
    return _put(tx, Lease(lease.run_id, lease.epoch, lease.process_id, tx.at + lease_ms))


def release(tx: Tx, lease: Lease) -> None:
    row = one(tx.db, "get_lease", lease.run_id)
    if row is not None and row[0] == lease.epoch:
        # The row stays: its epoch must go on growing, or a stale writer could match a new claim.
        run(tx.db, "put_lease", lease.run_id, lease.epoch, "", 0)


def _check(tx: Tx, lease: Lease) -> None:
    row = one(tx.db, "get_lease", lease.run_id)
    if row is None or row[0] != lease.epoch or row[1] != lease.process_id:
        raise LeaseLost(run_id=lease.run_id)


def _put(tx: Tx, lease: Lease) -> Lease:
    run(tx.db, "put_lease", lease.run_id, lease.epoch, lease.process_id, lease.expires_at)
    return lease
