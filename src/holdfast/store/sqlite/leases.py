"""Who may work on a run, or do what one process at a time may do: a row for each, whose epoch only grows."""

from collections.abc import Callable

from holdfast.domain.errors import LeaseHeld, LeaseLost, NoSuchRun, RunRefused
from holdfast.domain.ids import ProcessId, RunId
from holdfast.store.ports import Lease
from holdfast.store.sqlite.journal import Tx
from holdfast.store.sqlite.rows import RUNS
from holdfast.store.sqlite.sql import one, run


def claim(
    tx: Tx, run_id: RunId, process_id: ProcessId, lease_ms: int, is_alive: Callable[[ProcessId], bool]
) -> Lease:
    """One compare-and-set: free, dead or run out, else LeaseHeld."""
    found = one(tx.db, "find_run", run_id)
    if found is None:
        raise NoSuchRun(run_id=run_id)
    row = RUNS.read(found[1:])
    if row.is_over:
        raise RunRefused(run_id=run_id, status=row.status, verb="be claimed")
    epoch, holder, expires_at = one(tx.db, "get_lease", run_id) or (0, "", 0)
    if holder and expires_at > tx.at and is_alive(ProcessId(holder)):
        raise LeaseHeld(run_id=run_id)
    fenced = ProcessId(holder) if holder and holder != process_id and is_alive(ProcessId(holder)) else None
    return _put(tx, Lease(run_id, epoch + 1, process_id, tx.at + lease_ms, fenced, not holder))


def claim_name(
    tx: Tx, name: str, process_id: ProcessId, lease_ms: int, is_alive: Callable[[ProcessId], bool]
) -> Lease:
    """The same for what is no run; who holds it already may claim it again."""
    epoch, holder, expires_at = one(tx.db, "get_lease", name) or (0, "", 0)
    if holder and holder != process_id and expires_at > tx.at and is_alive(ProcessId(holder)):
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
