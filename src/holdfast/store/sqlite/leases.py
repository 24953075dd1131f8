"""Leases on runs and on tasks of one process at a time. Each is a row whose epoch only grows."""

from collections.abc import Callable

from holdfast.domain.clock import Instant
from holdfast.domain.errors import LeaseHeld, LeaseLost, NoSuchRun, RunRefused
from holdfast.domain.ids import ProcessId, RunId
from holdfast.domain.limits import LEASE_GRACE_MS
from holdfast.store.ports import Lease
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.sql import RUNS, execute, fetch_one


class LeaseGrace:
    """Give a living holder time to renew an expired lease.

    If a machine or a disk stalls, all leases expire at once, and their holders are about to renew. So
    LEASE_GRACE_MS begins when another process first finds the lease expired.
    """

    def __init__(self) -> None:
        self._found: dict[str, tuple[int, Instant, Instant]] = {}
        """Epoch and expiry of each expired lease, and when this process found it expired."""

    def is_held(self, name: str, epoch: int, expires_at: Instant, now: Instant) -> bool:
        """Return whether a living holder still keeps its lease. A renewal ends the grace period."""
        if expires_at > now:
            return True
        found = self._found.get(name)
        since = min(found[2], now) if found is not None and found[:2] == (epoch, expires_at) else now
        recent = {key: each for key, each in self._found.items() if now - each[2] <= 10 * LEASE_GRACE_MS}
        self._found = recent | {name: (epoch, expires_at, since)}
        return now - since < LEASE_GRACE_MS


def claim(
    tx: Tx,
    run_id: RunId,
    process_id: ProcessId,
    lease_ms: int,
    is_alive: Callable[[ProcessId], bool],
    grace: LeaseGrace,
) -> Lease:
    """Claim a run in one compare-and-set. Raises LeaseHeld while a living process keeps it."""
    found = fetch_one(tx.db, "find_run", run_id)
    if found is None:
        raise NoSuchRun(run_id=run_id)
    row = RUNS.read(found[1:])
    if row.is_finished:
        raise RunRefused(run_id=run_id, status=row.status, verb="be claimed")
    epoch, holder, expires_at = fetch_one(tx.db, "get_lease", run_id) or (0, "", 0)
    if holder == process_id and expires_at > tx.at:
        raise LeaseHeld(run_id=run_id)
    is_others = _is_living_other(holder, process_id, is_alive)
    if is_others and grace.is_held(run_id, epoch, expires_at, tx.at):
        raise LeaseHeld(run_id=run_id)
    fenced = ProcessId(holder) if is_others else None
    return _put(tx, Lease(run_id, epoch + 1, process_id, tx.at + lease_ms, fenced, not holder))


def claim_name(
    tx: Tx,
    name: str,
    process_id: ProcessId,
    lease_ms: int,
    is_alive: Callable[[ProcessId], bool],
    grace: LeaseGrace,
) -> Lease:
    """Claim a name that is no run; its holder may claim it again."""
    epoch, holder, expires_at = fetch_one(tx.db, "get_lease", name) or (0, "", 0)
    if _is_living_other(holder, process_id, is_alive) and grace.is_held(name, epoch, expires_at, tx.at):
        raise LeaseHeld(run_id=name)
    return _put(tx, Lease(RunId(name), epoch + 1, process_id, tx.at + lease_ms))


def renew(tx: Tx, lease: Lease, lease_ms: int) -> Lease:
    _check_held(tx, lease)
    return _put(tx, Lease(lease.run_id, lease.epoch, lease.process_id, tx.at + lease_ms))


def release(tx: Tx, lease: Lease) -> None:
    row = fetch_one(tx.db, "get_lease", lease.run_id)
    if row is not None and row[0] == lease.epoch:
        # Keep the row: its epoch must go on growing, or a stale writer could match a new claim.
        execute(tx.db, "put_lease", lease.run_id, lease.epoch, "", 0)


def _is_living_other(holder: str, process_id: ProcessId, is_alive: Callable[[ProcessId], bool]) -> bool:
    return bool(holder) and holder != process_id and is_alive(ProcessId(holder))


def _check_held(tx: Tx, lease: Lease) -> None:
    row = fetch_one(tx.db, "get_lease", lease.run_id)
    if row is None or row[0] != lease.epoch or row[1] != lease.process_id:
        raise LeaseLost(run_id=lease.run_id)


def _put(tx: Tx, lease: Lease) -> Lease:
    execute(tx.db, "put_lease", lease.run_id, lease.epoch, lease.process_id, lease.expires_at)
    return lease
