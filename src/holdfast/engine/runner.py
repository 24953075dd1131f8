"""Runs at work in this process: each holds a lease that it renews, and stops when it has lost it.

So many are worked on at once; the others wait in line, first come first served. A conversation has at most
one run that can be worked on, so none keeps the others from their turn.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from holdfast.aio.resizable_semaphore import ResizableSemaphore
from holdfast.domain.clock import Clock, Instant
from holdfast.domain.decisions import endings, late_output, runs
from holdfast.domain.decisions.late_output import UnsavedDeltas
from holdfast.domain.errors import HoldfastError, LeaseHeld, LeaseLost, NoSuchRun, RunRefused, StoreFault
from holdfast.domain.events import facts as f
from holdfast.domain.ids import IdGenerator, RunId, SessionId
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.domain.state.rows import RunRow, SessionRow
from holdfast.domain.state.session_state import Facts, SessionStateView
from holdfast.engine.instructions import InstructionStore
from holdfast.engine.ports import ConversationContexts, WorkerFactory
from holdfast.engine.recorder import RunRecorder, ServerStopping
from holdfast.engine.resume_policy import ResumePolicy
from holdfast.engine.workspaces import move_workspace, workspace_path
from holdfast.store.ports import Append, Lease, Store
from holdfast.store.spool import Spools

LEASE_MS = 10_000
RENEW_EVERY_S = 2.5
SPOOL_AFTER_S = 2.0
"""A store that has not taken a delta for this long is stalled."""
DELIVER_S = 30.0
"""How long a process that lost a run waits to learn what of its output was saved."""


class Runner:
    """Starts runs, keeps their leases, ends them in a settled state whatever happens.

    `completed` is called with the session of each run that came to its end. `at_once` is how many are worked
    on at the same time; a run that waits in line holds no lease, and is as the journal says. `resume` is what
    becomes of one that is cut off.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        worker_factory: WorkerFactory,
        folder: Path,
        spools: Spools,
        on_completed: Callable[[SessionId], None],
        concurrency: int,
        resume: ResumePolicy,
        contexts: ConversationContexts,
        mask: MaskFunction = no_mask,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._worker_factory = worker_factory
        self._contexts = contexts
        self._folder = folder
        self._spools = spools
        self._on_completed = on_completed
        self._resume = resume
        self._mask = mask
        self._tasks: dict[RunId, asyncio.Task[None]] = {}
        self._restarts: dict[RunId, Lease | None] = {}
        self._recorders: dict[RunId, RunRecorder] = {}
        self.instructions = InstructionStore(store, clock)
        self.slots = ResizableSemaphore(concurrency)
        self._waiting: dict[RunId, asyncio.Task[None]] = {}
        self._stopping = False

    def is_active(self, run_id: RunId) -> bool:
        """Whether this process looks after the run: works on it, or has it in line."""
        return run_id in self._tasks

    @property
    def running(self) -> int:
        return len(self._tasks) - len(self._waiting)

    @property
    def waiting(self) -> int:
        """Runs that wait until another has ended or needs a person."""
        return len(self._waiting)

    def start_run(self, session_id: SessionId, run_id: RunId, lease: Lease | None = None) -> None:
        """Carry out a run in the background, unless the server is stopping.

        If that is being done, it is begun once more afterwards: a run that waits for a person may be answered
        before its work has quite ended.
        """
        if self._stopping:
            return
        if run_id in self._waiting and lease is None:
            return
        if run_id in self._tasks:
            self._restarts[run_id] = lease or self._restarts.get(run_id)
            return
        task = asyncio.create_task(self._run_when_slot_free(session_id, run_id, lease), name=run_id)
        self._tasks[run_id] = task
        task.add_done_callback(lambda _: self._on_task_done(session_id, run_id))

    def _on_task_done(self, session_id: SessionId, run_id: RunId) -> None:
        del self._tasks[run_id]
        if run_id in self._restarts:
            self.start_run(session_id, run_id, self._restarts.pop(run_id))

    def cancel_work(self, run_id: RunId) -> None:
        """Stop working on a run that the journal says is over."""
        task = self._tasks.get(run_id)
        if task is not None:
            task.cancel()

    async def start_next_queued(self, session_id: SessionId) -> None:
        """Begin the next queued run, if it is its turn."""
        run_ids: list[RunId] = []

        def decide(view: SessionStateView) -> Facts:
            run = next_queued_run(view)
            run_ids[:] = [run.id] if run is not None else []
            return runs.dequeue(run) if run is not None else ()

        with suppress(HoldfastError):  # Deleted meanwhile, or a fault: the next sweep looks again.
            await self._store.append(Append(session_id, decide))
            for run_id in run_ids:
                self.start_run(session_id, run_id)

    async def stop(self, grace_s: float) -> None:
        """Let runs reach the end of a step, for at most `grace_s`; the rest is left to be resumed."""
        self._stopping = True
        for waiting in self._waiting.values():
            waiting.cancel()
        for recorder in self._recorders.values():
            recorder.stop()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run_when_slot_free(self, session_id: SessionId, run_id: RunId, lease: Lease | None) -> None:
        task = asyncio.current_task()
        assert task is not None, "it was made for this"
        if self.slots.is_full:
            self._waiting[run_id] = task
        try:
            if lease is not None and self.slots.is_full:
                # Whoever waits holds nothing: another process may well have room for it.
                await self.release_lease(lease)
                lease = None
            await self.slots.acquire()
        finally:
            self._waiting.pop(run_id, None)
        try:
            await self._run_with_lease(session_id, run_id, lease)
        finally:
            self.slots.release()

    async def release_lease(self, lease: Lease) -> None:
        with suppress(StoreFault):
            await self._store.release(lease)

    async def _run_with_lease(self, session_id: SessionId, run_id: RunId, lease: Lease | None) -> None:
        try:
            lease = lease or await self._claim_live(session_id, run_id)
        except (LeaseHeld, LeaseLost, RunRefused, NoSuchRun, StoreFault):
            return
        renewing = asyncio.create_task(self._renew(lease, asyncio.current_task()))
        try:
            await self._execute(session_id, lease, renewing)
        finally:
            renewing.cancel()
            recorder = self._recorders.pop(run_id, None)
            if recorder is not None:
                recorder.release()
            await self.release_lease(lease)
        await self.start_next_queued(session_id)

    async def claim(self, run_id: RunId) -> Lease:
        """The right to work on a run. Whoever is cancelled meanwhile leaves nobody holding it.

        Else the next process would take a run that a person has answered for one that was cut off. Raises
        LeaseHeld, RunRefused, NoSuchRun, StoreFault.
        """
        claiming = asyncio.ensure_future(self._store.claim(run_id, LEASE_MS))
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            with suppress(HoldfastError):
                await self.release_lease(await claiming)
            raise

    async def _claim_live(self, session_id: SessionId, run_id: RunId) -> Lease:
        """Claim a run to work on. Raises LeaseLost if another process began it meanwhile and is gone.

        That one is marked then, as any run is whose process is gone; whether it goes on is not decided here.
        """
        lease = await self.claim(run_id)
        if not lease.was_free and await self.mark_interrupted(session_id, lease):
            await self.release_lease(lease)
            raise LeaseLost(run_id=run_id)
        return lease

    async def _execute(self, session_id: SessionId, lease: Lease, renewing: "asyncio.Task[None]") -> None:
        try:
            session = await self._store.session(session_id)
            worker = self._worker_factory(session)
            workspace = await self._workspace(session)
            context = self._contexts.acquire(session_id)
            recorder = RunRecorder(self._store, context, session_id, lease, workspace, self.instructions)
            self._recorders[lease.run_id] = recorder
            await recorder.record(lambda view: _start(view, lease.run_id))
            if await worker.run(recorder) == "completed":
                self._on_completed(session_id)
        except LeaseLost:
            # It was ended, or another process has it: nothing more of it is ours to write as new work.
            # The renewal finds out too, and must not cut off what is handed in here.
            renewing.cancel()
            await self._deliver(session_id, lease)
        except ServerStopping:
            await self._interrupt(session_id, lease)
        except asyncio.CancelledError:
            if self._stopping:
                await self._interrupt(session_id, lease)
            else:
                await self._deliver(session_id, lease)
            raise
        except StoreFault:
            return  # Still the journal's: the sweep takes it up again when the store is back.
        # The edge of a run: whatever went wrong is how it ended, and is said.
        except Exception as error:
            await self._fail(session_id, lease, error)

    async def _workspace(self, session: SessionRow) -> Path:
        """Where the run works. A server that stopped may have left it to the session before this one."""
        workspace = workspace_path(self._folder, session.id, session.workspace)
        previous = session.previous_session_id if not session.workspace and not workspace.exists() else None
        if previous is not None and await self._store.successor(previous) == session.id:
            await move_workspace(self._folder, previous, session.id)
        return workspace

    async def _fail(self, session_id: SessionId, lease: Lease, error: Exception) -> None:
        code = error.code if isinstance(error, HoldfastError) else "internal_error"
        failure = f.Failure(code, self._mask(str(error)) or type(error).__name__)

        def decide(view: SessionStateView) -> Facts:
            return endings.fail(view, _run(view, lease.run_id), failure, view.message_events)

        # What cannot even be failed stays as it is; whoever looks after interrupted runs takes it up.
        with suppress(HoldfastError):
            await self._store.append(Append(session_id, decide, fence=lease.fence))

    async def _deliver(self, session_id: SessionId, lease: Lease) -> None:
        """Hand in what this process still had when it lost the run."""
        run_id = lease.run_id
        recorder = self._recorders.get(run_id)
        if recorder is None:
            return
        await recorder.pending_deltas.wait_settled(DELIVER_S)
        deltas = recorder.pending_deltas.remaining()
        with suppress(HoldfastError):
            if not deltas or not await deliver_late_output(
                self._store, self._ids, session_id, run_id, deltas
            ):
                await self._finish_output_recovery(session_id, lease)
            if recorder.pending_deltas.spooled:
                await asyncio.to_thread(self._spools.delete, run_id)

    async def _finish_output_recovery(self, session_id: SessionId, lease: Lease) -> None:
        """Whoever waits for this process to hand something in waits no longer."""

        def decide(view: SessionStateView) -> Facts:
            run = view.run(lease.run_id)
            if run is None or run.pending is None or run.pending.process_id != lease.process_id:
                return ()
            return runs.finish_recovery(run, recovered=False)

        await self._store.append(Append(session_id, decide))

    async def spool(self) -> None:
        """Keep what a stalled store has not taken for too long; let it go once the store has it."""
        for run_id, recorder in list(self._recorders.items()):
            pending_deltas = recorder.pending_deltas
            if pending_deltas.stalled_s() > SPOOL_AFTER_S:
                pending_deltas.spooled = True
                await asyncio.to_thread(self._spools.write, run_id, pending_deltas.remaining())
            elif pending_deltas.spooled:
                pending_deltas.spooled = False
                await asyncio.to_thread(self._spools.delete, run_id)

    async def _interrupt(self, session_id: SessionId, lease: Lease) -> None:
        recorder = self._recorders.get(lease.run_id)
        with suppress(HoldfastError):
            was_running = recorder is not None and recorder.has_written
            await self.mark_interrupted(session_id, lease, was_running, graceful=True)

    async def mark_interrupted(
        self, session_id: SessionId, lease: Lease, was_running: bool = False, graceful: bool = False
    ) -> bool:
        """Say that a run's process is gone, with all there is of its output; False if none was at work.

        One that is known to have been is cut off between two steps too. If that process is alive after all,
        only past its lease, more may come: the notice says so. `orderly`: it was asked to end.
        """
        decided: list[Facts] = []

        def decide(view: SessionStateView) -> Facts:
            run, session = _run(view, lease.run_id), view.session()
            decided[:] = [()]
            was_answered = not was_running and lease.was_free and _is_between_steps(view, run)
            if run.status == "running" and not was_answered:
                asks_user = self._resume.policy_for(session) == "ask"
                facts = endings.interrupt(
                    view, run, self._ids.message(), view.message_events, asks_user, graceful
                )
                decided[:] = [[*facts, *_pending(facts, lease, self._clock.now_ms())]]
            return decided[0]

        await self._store.append(Append(session_id, decide, fence=lease.fence))
        return bool(decided[0])

    async def _renew(self, lease: Lease, work: "asyncio.Task[None] | None") -> None:
        while True:
            await asyncio.sleep(RENEW_EVERY_S)
            try:
                await self._store.renew(lease, LEASE_MS)
            except LeaseLost:
                if work is not None:
                    work.cancel()
                return
            except StoreFault:
                continue


async def deliver_late_output(
    store: Store, ids: IdGenerator, session_id: SessionId, run_id: RunId, deltas: Sequence[UnsavedDeltas]
) -> bool:
    """Bring late output to its place before the notice; whether there was any."""
    decided: list[Facts] = []

    def decide(view: SessionStateView) -> Facts:
        decided[:] = [late_output.recover_output(view, run_id, deltas, ids)]
        return decided[0]

    await store.append(Append(session_id, decide))
    return bool(decided[0])


def _is_between_steps(view: SessionStateView, run: RunRow) -> bool:
    """Whether nothing of a run is under way: a person has answered it, and nobody has begun since."""
    writing = any(row.role == "assistant" for row in view.streaming_messages(run.turn))
    return not writing and all(tool.state != "started" for tool in view.open_tools(run.id))


def _pending(facts: Facts, lease: Lease, now_ms: Instant) -> list[f.AnyFact]:
    notice = facts[-1]
    assert isinstance(notice, f.RunInterrupted)
    if lease.fenced_process is None:
        return []
    return [f.RecoveryPending(notice.run_id, notice.turn, notice.place, lease.fenced_process, now_ms)]


def _start(view: SessionStateView, run_id: RunId) -> Facts:
    run = _run(view, run_id)
    match run.status:
        case "accepted":
            return runs.start(run)
        case "interrupted":
            return runs.resume(run)
        case "running":
            return ()  # A person's answer has set it going already.
        case _:
            raise LeaseLost(run_id=run_id)


def _run(view: SessionStateView, run_id: RunId) -> RunRow:
    run = view.run(run_id)
    if run is None:
        raise NoSuchRun(run_id=run_id)
    return run


def next_queued_run(view: SessionStateView) -> RunRow | None:
    """The queued run whose turn it is: the first that is open, behind one that completed.

    Behind a failed, cancelled or interrupted run it waits, until a person lets it begin.
    """
    open_runs = view.open_runs()
    if not open_runs or open_runs[0].status != "queued":
        return None
    first = open_runs[0]
    for number in range(first.turn - 1, 0, -1):
        turn = view.turn(number)
        if turn is None or turn.status != "live" or turn.run_id is None:
            continue
        previous_run = view.run(turn.run_id)
        return first if previous_run is None or previous_run.status == "completed" else None
    return first
