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
from holdfast.domain.decisions.late_output import Unsaved
from holdfast.domain.errors import HoldfastError, LeaseHeld, LeaseLost, NoSuchRun, RunRefused, StoreFault
from holdfast.domain.events import facts as f
from holdfast.domain.ids import Ids, RunId, SessionId
from holdfast.domain.secrets import Masking, identity
from holdfast.domain.state.rows import RunRow, SessionRow
from holdfast.domain.state.session_state import Facts, View
from holdfast.engine.instructions import Instructions
from holdfast.engine.ports import Contexts, Workers
from holdfast.engine.recorder import RunRecorder, Stopped
from holdfast.engine.resume_policy import ResumePolicy
from holdfast.engine.workspaces import take_over, workspace_of
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
        ids: Ids,
        workers: Workers,
        folder: Path,
        spools: Spools,
        completed: Callable[[SessionId], None],
        at_once: int,
        resume: ResumePolicy,
        contexts: Contexts,
        mask: Masking = identity,
    ) -> None:
        self._store = store
        self._clock = clock
        self._ids = ids
        self._workers = workers
        self._contexts = contexts
        self._folder = folder
        self._spools = spools
        self._completed = completed
        self._resume = resume
        self._mask = mask
        self._tasks: dict[RunId, asyncio.Task[None]] = {}
        self._again: dict[RunId, Lease | None] = {}
        self._recorders: dict[RunId, RunRecorder] = {}
        self.texts = Instructions(store, clock)
        self.slots = ResizableSemaphore(at_once)
        self._in_line: dict[RunId, asyncio.Task[None]] = {}
        self._stopping = False

    def is_at_work(self, run_id: RunId) -> bool:
        """Whether this process looks after the run: works on it, or has it in line."""
        return run_id in self._tasks

    @property
    def at_work(self) -> int:
        return len(self._tasks) - len(self._in_line)

    @property
    def in_line(self) -> int:
        """Runs that wait until another has ended or needs a person."""
        return len(self._in_line)

    def begin(self, session_id: SessionId, run_id: RunId, lease: Lease | None = None) -> None:
        """Carry out a run in the background, unless the server is stopping.

        If that is being done, it is begun once more afterwards: a run that waits for a person may be answered
        before its work has quite ended.
        """
        if self._stopping:
            return
        if run_id in self._in_line and lease is None:
            return
        if run_id in self._tasks:
            self._again[run_id] = lease or self._again.get(run_id)
            return
        task = asyncio.create_task(self._take_turn(session_id, run_id, lease), name=run_id)
        self._tasks[run_id] = task
        task.add_done_callback(lambda _: self._ended(session_id, run_id))

    def _ended(self, session_id: SessionId, run_id: RunId) -> None:
        del self._tasks[run_id]
        if run_id in self._again:
            self.begin(session_id, run_id, self._again.pop(run_id))

    def halt(self, run_id: RunId) -> None:
        """Stop working on a run that the journal says is over."""
        task = self._tasks.get(run_id)
        if task is not None:
            task.cancel()

    async def drain(self, session_id: SessionId) -> None:
        """Begin the next queued run, if it is its turn."""
        begun: list[RunId] = []

        def decide(view: View) -> Facts:
            run = next_in_line(view)
            begun[:] = [run.id] if run is not None else []
            return runs.dequeue(run) if run is not None else ()

        with suppress(HoldfastError):  # Deleted meanwhile, or a fault: the next sweep looks again.
            await self._store.append(Append(session_id, decide))
            for run_id in begun:
                self.begin(session_id, run_id)

    async def stop(self, grace_s: float) -> None:
        """Let runs reach the end of a step, for at most `grace_s`; the rest is left to be resumed."""
        self._stopping = True
        for waiting in self._in_line.values():
            waiting.cancel()
        for recorder in self._recorders.values():
            recorder.stop()
        tasks = list(self._tasks.values())
        if tasks:
            await asyncio.wait(tasks, timeout=grace_s)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _take_turn(self, session_id: SessionId, run_id: RunId, lease: Lease | None) -> None:
        task = asyncio.current_task()
        assert task is not None, "it was made for this"
        if self.slots.is_full:
            self._in_line[run_id] = task
        try:
            if lease is not None and self.slots.is_full:
                # Whoever waits holds nothing: another process may well have room for it.
                await self.let_go(lease)
                lease = None
            await self.slots.acquire()
        finally:
            self._in_line.pop(run_id, None)
        try:
            await self._carry_out(session_id, run_id, lease)
        finally:
            self.slots.release()

    async def let_go(self, lease: Lease) -> None:
        with suppress(StoreFault):
            await self._store.release(lease)

    async def _carry_out(self, session_id: SessionId, run_id: RunId, lease: Lease | None) -> None:
        try:
            lease = lease or await self._claim(session_id, run_id)
        except (LeaseHeld, LeaseLost, RunRefused, NoSuchRun, StoreFault):
            return
        renewing = asyncio.create_task(self._renew(lease, asyncio.current_task()))
        try:
            await self._work(session_id, lease, renewing)
        finally:
            renewing.cancel()
            recorder = self._recorders.pop(run_id, None)
            if recorder is not None:
                recorder.release()
            await self.let_go(lease)
        await self.drain(session_id)

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
                await self.let_go(await claiming)
            raise

    async def _claim(self, session_id: SessionId, run_id: RunId) -> Lease:
        """Claim a run to work on. Raises LeaseLost if another process began it meanwhile and is gone.

        That one is marked then, as any run is whose process is gone; whether it goes on is not decided here.
        """
        lease = await self.claim(run_id)
        if not lease.was_free and await self.mark(session_id, lease):
            await self.let_go(lease)
            raise LeaseLost(run_id=run_id)
        return lease

    async def _work(self, session_id: SessionId, lease: Lease, renewing: "asyncio.Task[None]") -> None:
        try:
            session = await self._store.session(session_id)
            worker = self._workers(session)
            workspace = await self._workspace(session)
            context = self._contexts.hold(session_id)
            recorder = RunRecorder(self._store, context, session_id, lease, workspace, self.texts)
            self._recorders[lease.run_id] = recorder
            await recorder.record(lambda view: _start(view, lease.run_id))
            if await worker.carry_out(recorder) == "completed":
                self._completed(session_id)
        except LeaseLost:
            # It was ended, or another process has it: nothing more of it is ours to write as new work.
            # The renewal finds out too, and must not cut off what is handed in here.
            renewing.cancel()
            await self._deliver(session_id, lease)
        except Stopped:
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
        workspace = workspace_of(self._folder, session.id, session.workspace)
        before = session.previous_session_id if not session.workspace and not workspace.exists() else None
        if before is not None and await self._store.successor(before) == session.id:
            await take_over(self._folder, before, session.id)
        return workspace

    async def _fail(self, session_id: SessionId, lease: Lease, error: Exception) -> None:
        code = error.code if isinstance(error, HoldfastError) else "internal_error"
        failure = f.Failure(code, self._mask(str(error)) or type(error).__name__)

        def decide(view: View) -> Facts:
            return endings.fail(view, _run(view, lease.run_id), failure, view.written)

        # What cannot even be failed stays as it is; whoever looks after interrupted runs takes it up.
        with suppress(HoldfastError):
            await self._store.append(Append(session_id, decide, fence=lease.fence))

    async def _deliver(self, session_id: SessionId, lease: Lease) -> None:
        """Hand in what this process still had when it lost the run."""
        run_id = lease.run_id
        recorder = self._recorders.get(run_id)
        if recorder is None:
            return
        await recorder.unsaved.settled(DELIVER_S)
        unsaved = recorder.unsaved.left()
        with suppress(HoldfastError):
            if not unsaved or not await deliver(self._store, self._ids, session_id, run_id, unsaved):
                await self._have_nothing_more(session_id, lease)
            if recorder.unsaved.spooled:
                await asyncio.to_thread(self._spools.drop, run_id)

    async def _have_nothing_more(self, session_id: SessionId, lease: Lease) -> None:
        """Whoever waits for this process to hand something in waits no longer."""

        def decide(view: View) -> Facts:
            run = view.run(lease.run_id)
            if run is None or run.pending is None or run.pending.process_id != lease.process_id:
                return ()
            return runs.finish_recovery(run, recovered=False)

        await self._store.append(Append(session_id, decide))

    async def spool(self) -> None:
        """Keep what a stalled store has not taken for too long; let it go once the store has it."""
        for run_id, recorder in list(self._recorders.items()):
            unsaved = recorder.unsaved
            if unsaved.stalled_s() > SPOOL_AFTER_S:
                unsaved.spooled = True
                await asyncio.to_thread(self._spools.write, run_id, unsaved.left())
            elif unsaved.spooled:
                unsaved.spooled = False
                await asyncio.to_thread(self._spools.drop, run_id)

    async def _interrupt(self, session_id: SessionId, lease: Lease) -> None:
        recorder = self._recorders.get(lease.run_id)
        with suppress(HoldfastError):
            was_at_work = recorder is not None and recorder.has_written
            await self.mark(session_id, lease, was_at_work, orderly=True)

    async def mark(
        self, session_id: SessionId, lease: Lease, was_at_work: bool = False, orderly: bool = False
    ) -> bool:
        """Say that a run's process is gone, with all there is of its output; False if none was at work.

        One that is known to have been is cut off between two steps too. If that process is alive after all,
        only past its lease, more may come: the notice says so. `orderly`: it was asked to end.
        """
        decided: list[Facts] = []

        def decide(view: View) -> Facts:
            run, session = _run(view, lease.run_id), view.session()
            decided[:] = [()]
            was_answered = not was_at_work and lease.was_free and _is_between_steps(view, run)
            if run.status == "running" and not was_answered:
                asks = self._resume.of(session) == "ask"
                facts = endings.interrupt(view, run, self._ids.message(), view.written, asks, orderly)
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


async def deliver(
    store: Store, ids: Ids, session_id: SessionId, run_id: RunId, unsaved: Sequence[Unsaved]
) -> bool:
    """Bring late output to its place before the notice; whether there was any."""
    decided: list[Facts] = []

    def decide(view: View) -> Facts:
        decided[:] = [late_output.deliver(view, run_id, unsaved, ids)]
        return decided[0]

    await store.append(Append(session_id, decide))
    return bool(decided[0])


def _is_between_steps(view: View, run: RunRow) -> bool:
    """Whether nothing of a run is under way: a person has answered it, and nobody has begun since."""
    writing = any(row.role == "assistant" for row in view.streaming(run.turn))
    return not writing and all(tool.state != "started" for tool in view.open_tools(run.id))


def _pending(facts: Facts, lease: Lease, now_ms: Instant) -> list[f.AnyFact]:
    notice = facts[-1]
    assert isinstance(notice, f.RunInterrupted)
    if lease.fenced is None:
        return []
    return [f.RecoveryPending(notice.run_id, notice.turn, notice.place, lease.fenced, now_ms)]


def _start(view: View, run_id: RunId) -> Facts:
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


def _run(view: View, run_id: RunId) -> RunRow:
    run = view.run(run_id)
    if run is None:
        raise NoSuchRun(run_id=run_id)
    return run


def next_in_line(view: View) -> RunRow | None:
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
        before = view.run(turn.run_id)
        return first if before is None or before.status == "completed" else None
    return first
