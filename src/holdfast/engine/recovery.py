"""Recover the runs of dead processes: mark them, deliver their output, resume them by policy.

Every serving process does this for all runs. A claim is one compare-and-set, so only one process acts on a
run. Recovery waits for missing output as long as its process lives. Once that process is gone and no spool
names the run, a few reads that find nothing end the wait.
"""

import asyncio
from contextlib import suppress

from holdfast.domain.clock import Clock, Instant
from holdfast.domain.decisions import runs
from holdfast.domain.errors import HoldfastError, LeaseHeld, NoSuchRun, RunRefused
from holdfast.domain.ids import IdGenerator, RunId, SessionId
from holdfast.domain.limits import RECOVERY_AGE_MS_MAX, RECOVERY_READS_MAX
from holdfast.domain.state.rows import RunRow
from holdfast.domain.state.session_state import Facts, SessionStateView
from holdfast.engine.resume_policy import ResumePolicy
from holdfast.engine.runner import Runner, deliver_late_output
from holdfast.store.ports import Append, Lease, Store
from holdfast.store.spool import Spools

RECOVERY_READ_INTERVAL_MS = 500
"""Minimum time between two reads of one run's output, however many readers ask."""


class Recovery:
    """Recover runs that no process works on."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        runner: Runner,
        spools: Spools,
        resume: ResumePolicy,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._runner = runner
        self._spools = spools
        self._resume = resume
        self._last_read_at: dict[RunId, Instant] = {}
        self.recovered = 0

    async def mark_interrupted(self) -> None:
        """Mark every run whose process is gone, and deliver its spooled output. Starts nothing."""
        for session_id, run in await self._store.active_runs():
            if run.status == "running" and not self._runner.is_active(run.id):
                # A run that cannot be marked must not keep recovery from the others.
                with suppress(HoldfastError):
                    lease, _ = await self._claim(session_id, run)
                    if lease is not None:
                        await self._store.release(lease)
        await self._deliver_spools()

    async def sweep(self) -> None:
        """Mark newly interrupted runs, and start or resume every run that is due."""
        for session_id, run in await self._store.active_runs():
            if self._runner.is_active(run.id):
                continue
            # A failure in one session must not affect the others; the next sweep tries again.
            with suppress(HoldfastError):
                await self._recover_run(session_id, run)
        pending = await self._store.pending_runs()
        pending_ids = {run.id for _, run in pending}
        self._last_read_at = {name: at for name, at in self._last_read_at.items() if name in pending_ids}
        for session_id, run in pending:
            await self.recover_output(session_id, run)
        await self._deliver_spools()

    async def recover_output(self, session_id: SessionId, run: RunRow) -> None:
        """Try once to recover output that is still missing; other readers do not wait for it.

        Past the age limit it looks for nothing, and the notice becomes final.
        """
        now = self._clock.now_ms()
        if run.pending is None or now - self._last_read_at.get(run.id, 0) < RECOVERY_READ_INTERVAL_MS:
            return
        self._last_read_at[run.id] = now
        if not self._is_expired(run):
            if self._store.is_alive(run.pending.process_id):
                return
            await self._deliver_spools()
        await self._store.append(Append(session_id, lambda view: self._decide_output_recovery(view, run.id)))

    def _decide_output_recovery(self, view: SessionStateView, run_id: RunId) -> Facts:
        run = view.run(run_id)
        if run is None or run.pending is None:
            return ()
        reads = run.pending.reads + 1
        if self._is_expired(run) or reads >= RECOVERY_READS_MAX:
            return runs.finish_recovery(run, recovered=False)
        return runs.await_recovery(run, run.pending.process_id, run.pending.since, reads)

    def _is_expired(self, run: RunRow) -> bool:
        assert run.pending is not None
        return self._clock.now_ms() - run.pending.since > RECOVERY_AGE_MS_MAX

    async def _recover_run(self, session_id: SessionId, run: RunRow) -> None:
        match run.status:
            case "accepted":
                self._runner.start_run(session_id, run.id)
            case "queued":
                await self._runner.start_next_queued(session_id)
            case "running":
                lease, was_interrupted = await self._claim(session_id, run)
                if lease is not None and was_interrupted:
                    await self._deliver_spools()
                    await self._resume_or_release(session_id, run, lease)
                elif lease is not None:
                    # A person answered it: it continues, whatever the policy for interrupted runs.
                    self._runner.start_run(session_id, run.id, lease)
            case "interrupted":
                await self._resume_or_release(session_id, run, None)

    async def _claim(self, session_id: SessionId, run: RunRow) -> tuple[Lease | None, bool]:
        """Claim a run that no process works on; also return whether one had been interrupted."""
        try:
            lease = await self._runner.claim(run.id)
        except (LeaseHeld, RunRefused, NoSuchRun):
            return None, False
        try:
            was_interrupted = await self._runner.mark_interrupted(session_id, lease)
        except asyncio.CancelledError:
            await self._runner.release_lease(lease)
            raise
        self.recovered += was_interrupted
        return lease, was_interrupted

    async def _resume_or_release(self, session_id: SessionId, run: RunRow, lease: Lease | None) -> None:
        session = await self._store.session(session_id)
        if self._resume.policy_for(session) == "auto" and runs.may_resume(run):
            self._runner.start_run(session_id, run.id, lease)
        elif lease is not None:
            await self._store.release(lease)

    async def _deliver_spools(self) -> None:
        """Deliver the spools of dead processes, then delete their files."""
        for run_id, process_id, path in await asyncio.to_thread(self._spools.list_files):
            if self._store.is_alive(process_id):
                continue
            try:
                pending_deltas = await asyncio.to_thread(self._spools.read, path)
                session_id, _ = await self._store.run(run_id)
                await deliver_late_output(self._store, self._ids, session_id, run_id, pending_deltas)
            except NoSuchRun:
                pass  # Its conversation was deleted, so its output is dropped too.
            except (HoldfastError, OSError):
                continue
            await asyncio.to_thread(path.unlink, missing_ok=True)
