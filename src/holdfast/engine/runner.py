"""Execute this process's runs, each under a lease that the runner renews.

A limited number of runs executes at once; the others wait, first come first served. A conversation has at
most one run that can execute, so none starves another conversation.
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
from holdfast.engine.ports import AgentForSession, ConversationContexts
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
"""Time that a process waits, after losing a run, to learn which output was saved."""


class Runner:
    """Start runs, renew their leases, and end each in a settled state.

    Calls `on_completed` with the session of each completed run. Executes `concurrency` runs at once; a
    waiting run holds no lease, and its journal is unchanged. `resume` decides what becomes of an interrupted
    run.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        agent_for_session: AgentForSession,
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
        self._agent_for_session = agent_for_session
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
        """Return whether this process executes the run or has it waiting for a slot."""
        return run_id in self._tasks

    @property
    def running(self) -> int:
        return len(self._tasks) - len(self._waiting)

    @property
    def waiting(self) -> int:
        """Return the number of runs that wait for a slot."""
        return len(self._waiting)

    def start_run(self, session_id: SessionId, run_id: RunId, lease: Lease | None = None) -> None:
        """Execute a run in the background, unless the server is stopping.

        If the run is executing already, it starts once more afterwards: a person may answer a waiting run
        before its task has quite ended.
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
        """Stop working on a run that is over according to the journal."""
        task = self._tasks.get(run_id)
        if task is not None:
            task.cancel()

    async def start_next_queued(self, session_id: SessionId) -> None:
        """Start the session's next queued run, if no other run is before it."""
        run_ids: list[RunId] = []

        def decide(view: SessionStateView) -> Facts:
            run = next_queued_run(view)
            run_ids[:] = [run.id] if run is not None else []
            return runs.dequeue(run) if run is not None else ()

        with suppress(HoldfastError):  # Deleted meanwhile, or a fault: the next sweep tries again.
            await self._store.append(Append(session_id, decide))
            for run_id in run_ids:
                self.start_run(session_id, run_id)

    async def stop(self, grace_s: float) -> None:
        """Let runs finish their step for at most `grace_s`, then interrupt the rest."""
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
                # A waiting run holds no lease: another process may have a free slot for it.
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
        """Claim the right to work on a run; release it again if the caller is cancelled meanwhile.

        Otherwise the next process would take a run that a person has answered for an interrupted one. Raises
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
        """Claim a run. Raises LeaseLost if another process began it meanwhile and is gone.

        Marks such a run as interrupted; recovery decides whether it continues.
        """
        lease = await self.claim(run_id)
        if not lease.was_free and await self.mark_interrupted(session_id, lease):
            await self.release_lease(lease)
            raise LeaseLost(run_id=run_id)
        return lease

    async def _execute(self, session_id: SessionId, lease: Lease, renewing: "asyncio.Task[None]") -> None:
        try:
            session = await self._store.session(session_id)
            worker = self._agent_for_session(session)
            workspace = await self._workspace(session)
            context = self._contexts.acquire(session_id)
            recorder = RunRecorder(self._store, context, session_id, lease, workspace, self.instructions)
            self._recorders[lease.run_id] = recorder
            await recorder.record(lambda view: _start(view, lease.run_id))
            if await worker.run(recorder) == "completed":
                self._on_completed(session_id)
        except LeaseLost:
            # The run ended, or another process has it: this one may only deliver late output.
            # The renewal notices the loss too, and must not cancel the delivery.
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
            return  # The journal still has the run: the sweep continues it when the store is back.
        # The edge of a run: any error ends it, and becomes its recorded failure.
        except Exception as error:
            await self._fail(session_id, lease, error)

    async def _workspace(self, session: SessionRow) -> Path:
        """Return the run's folder.

        A server that stopped while the conversation moved may have left the folder with the previous session:
        move it then.
        """
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

        # If the failure cannot be recorded, recovery finds the run and marks it as interrupted.
        with suppress(HoldfastError):
            await self._store.append(Append(session_id, decide, fence=lease.fence))

    async def _deliver(self, session_id: SessionId, lease: Lease) -> None:
        """Deliver the output that this process still had when it lost the run."""
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
        """Record that no more output of this process will arrive."""

        def decide(view: SessionStateView) -> Facts:
            run = view.run(lease.run_id)
            if run is None or run.pending is None or run.pending.process_id != lease.process_id:
                return ()
            return runs.finish_recovery(run, recovered=False)

        await self._store.append(Append(session_id, decide))

    async def spool(self) -> None:
        """Spool output that a stalled store has not taken; delete the spool once the store has it."""
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
        """Record that a run's process is gone, with all its output; return False if none was working.

        `was_running` says that the process was working, so that a run between two steps is interrupted too.
        If the process is alive but past its lease, more output may arrive, and the notice says so. `graceful`
        says that it was asked to stop.
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
    """Insert late output before the run's notice; return whether there was any."""
    decided: list[Facts] = []

    def decide(view: SessionStateView) -> Facts:
        decided[:] = [late_output.recover_output(view, run_id, deltas, ids)]
        return decided[0]

    await store.append(Append(session_id, decide))
    return bool(decided[0])


def _is_between_steps(view: SessionStateView, run: RunRow) -> bool:
    """Return whether a person has answered the run and no process has continued it since."""
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
            return ()  # A person's answer has continued it already.
        case _:
            raise LeaseLost(run_id=run_id)


def _run(view: SessionStateView, run_id: RunId) -> RunRow:
    run = view.run(run_id)
    if run is None:
        raise NoSuchRun(run_id=run_id)
    return run


def next_queued_run(view: SessionStateView) -> RunRow | None:
    """Return the queued run to start: the first open run, if it follows a completed one.

    Behind a failed, cancelled or interrupted run it waits until a person starts it.
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
