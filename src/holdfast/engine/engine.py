"""Accept messages, start their runs, and keep every run going until it has ended."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from holdfast.domain.clock import Clock
from holdfast.domain.decisions.questions import Reply
from holdfast.domain.decisions.turns import BusyPolicy
from holdfast.domain.errors import HoldfastError, NoSuchSession, SessionMoved, ToolRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.files import FileNotSupported, file_parts
from holdfast.domain.ids import CallId, IdGenerator, RunId, Seq, SessionId, TurnId
from holdfast.domain.limits import SUCCESSORS_MAX
from holdfast.domain.secrets import MaskFunction, no_mask
from holdfast.domain.shell.rules import ALLOW_ONCE, ApprovalGrant
from holdfast.domain.state.rows import SessionRow, ToolRow
from holdfast.engine.compaction import ConversationSummariser
from holdfast.engine.conversation_page import ConversationPage, read_page
from holdfast.engine.drafts import Drafts
from holdfast.engine.file_changes import RunFileChanges
from holdfast.engine.permissions import Permissions
from holdfast.engine.ports import NO_WORKSPACE_FILES, AgentForSession, ConversationContexts, WorkspaceFiles
from holdfast.engine.recovery import Recovery
from holdfast.engine.resume_policy import NO_AGENT_DEFAULTS, AgentDefaults, ResumePolicy
from holdfast.engine.runner import Runner
from holdfast.engine.session_commands import AcceptedMessage, SessionCommands
from holdfast.engine.successor import SessionContinuation
from holdfast.engine.titles import GenerateTitle, TitleScheduler
from holdfast.store.ports import Snapshot, Store
from holdfast.store.spool import Spools

RECOVERY_INTERVAL_S = 1.0
"""Bounds how late the engine notices that another process died."""
SPOOL_INTERVAL_S = 0.5
EVICTION_INTERVAL_S = 30.0
"""Time between two evictions of unused cached contexts."""
PRUNE_INTERVAL_S = 21_600.0
"""Time between two removals of instructions that no open run was given."""


class Engine:
    """The session commands, together with starting and stopping runs. Belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: IdGenerator,
        agent_for_session: AgentForSession,
        folder: Path,
        resume: f.ResumeMode,
        generate_title: GenerateTitle | None,
        runs_at_once: int,
        contexts: ConversationContexts,
        mask: MaskFunction = no_mask,
        permissions: Permissions | None = None,
        on_session_end: Callable[[SessionId], None] = lambda session_id: None,
        agent_defaults: AgentDefaults = NO_AGENT_DEFAULTS,
        expand_prompt: Callable[[str], str] = str,
        files: WorkspaceFiles = NO_WORKSPACE_FILES,
        summarise_above: float = 0.0,
    ) -> None:
        self.store = store
        self._on_session_end = on_session_end
        """Called with each session that is over for now; the memory queue commits it later."""
        self.mask = mask
        """Masks secrets in what people write, before the engine stores or sends it."""
        self.expand_prompt = expand_prompt
        """Expands a message that calls a prompt. Entry points call it before `send`."""
        self.permissions = permissions or Permissions(store, clock, ids, ())
        self.drafts = Drafts(store, mask)
        self.file_changes = RunFileChanges(store, folder, files, mask)
        self._agent_for_session = agent_for_session
        self._agent_defaults = agent_defaults
        self._resume = policy = ResumePolicy(resume, agent_defaults)
        self.commands = SessionCommands(store, ids, policy, self._cancel_work, mask)
        self._titles = TitleScheduler(store, self.commands, generate_title)
        spools = Spools(folder, store.own_process)
        self.contexts = contexts
        store.add_change_listener(contexts.on_change)
        self.runner = Runner(
            store, clock, ids, agent_for_session, folder, spools, self._on_run_completed, runs_at_once,
            policy, contexts, mask,
        )  # fmt: skip
        self.summaries = ConversationSummariser(
            store, self.commands, agent_for_session, contexts, clock, summarise_above
        )
        self.continuation = SessionContinuation(
            store, ids, mask, self.summaries, folder, self.runner.start_run, on_session_end,
            self.permissions.move_to_successor,
        )  # fmt: skip
        self.recovery = Recovery(store, clock, ids, self.runner, spools, policy)
        self._background_tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Mark the runs that a crash interrupted, then start the background tasks.

        After it returns, every reader sees these runs as interrupted.
        """
        await self.recovery.mark_interrupted()
        self._background_tasks = [
            asyncio.create_task(_run_periodically(self.recovery.sweep, RECOVERY_INTERVAL_S)),
            asyncio.create_task(_run_periodically(self.runner.spool, SPOOL_INTERVAL_S)),
            asyncio.create_task(_run_periodically(self.contexts.evict_idle, EVICTION_INTERVAL_S)),
            asyncio.create_task(_run_periodically(self.runner.instructions.prune, PRUNE_INTERVAL_S)),
        ]

    async def stop(self, grace_s: float) -> None:
        """Stop working. The next start continues the runs under way."""
        deadline = asyncio.get_running_loop().time() + grace_s
        for task in self._background_tasks:
            task.cancel()
        await asyncio.gather(*self._background_tasks, return_exceptions=True)
        await self.runner.stop(grace_s)
        await self._titles.close()
        await self.summaries.close()
        await self.contexts.close(max(0.0, deadline - asyncio.get_running_loop().time()))

    def reconfigure(self, resume: f.ResumeMode, runs_at_once: int, summarise_above: float) -> None:
        """Apply a new resume policy, summary threshold and number of concurrent runs."""
        self._resume.default = resume
        self.summaries.threshold = summarise_above
        self.runner.slots.resize(runs_at_once)

    async def create(self, created: f.SessionCreated, session_id: SessionId | None = None) -> SessionId:
        """Create a session with the given id or a new one. Raises SessionExists.

        The session that it names as the previous one is over for now. The new session works in its agent's
        folder, if the agent has one.
        """
        if not created.workspace:
            # Recorded with the session: it keeps its folder even if the agent's file changes.
            created = structs.replace(created, workspace=self._agent_defaults.workspace(created.agent))
        session_id = await self.commands.create(created, session_id)
        if created.previous_session_id is not None:
            self._on_session_end(created.previous_session_id)
        return session_id

    async def clear(self, session_id: SessionId, expect: Seq | None = None) -> None:
        await self.commands.clear(session_id, expect)
        self._on_session_end(session_id)

    async def delete(self, session_id: SessionId, expect: Seq | None = None, notes: bool = False) -> None:
        await self.commands.delete(session_id, expect, notes)
        self._on_session_end(session_id)

    async def send(
        self,
        session_id: SessionId,
        parts: tuple[AnyPart, ...],
        key: str | None = None,
        if_busy: BusyPolicy = "queue",
    ) -> AcceptedMessage:
        """Store a message, then answer it. Durable on return. Raises Busy if `if_busy` rejects it.

        If the conversation has continued in another session, the message goes there, and the receipt names
        that session. Raises SuccessorDeleted if that session was deleted.
        """
        original_id = session_id
        for _ in range(SUCCESSORS_MAX):
            try:
                await self._check_files(session_id, parts, key)
                return self._start_run(await self.commands.accept(session_id, parts, key, if_busy))
            except SessionMoved as moved:
                session_id = SessionId(str(moved.fields["successor"]))
            except NoSuchSession:
                # The session continued elsewhere before it was deleted: the message follows it.
                successor = await self.store.successor(session_id)
                if successor is None:
                    raise await self.continuation.missing_error(original_id, session_id) from None
                session_id = successor
        raise NoSuchSession(session_id=original_id)

    async def find_accepted(self, session_id: SessionId, key: str) -> AcceptedMessage | None:
        """Return the message with this key from the session or one of its successors, or None."""
        for _ in range(SUCCESSORS_MAX):
            with suppress(NoSuchSession):
                if (accepted := await self.commands.find_accepted(session_id, key)) is not None:
                    return accepted
            successor = await self.store.successor(session_id)
            if successor is None:
                break
            session_id = successor
        return None

    async def replace(
        self,
        session_id: SessionId,
        turn_id: TurnId | None,
        parts: tuple[AnyPart, ...] | None,
        expect: Seq | None = None,
    ) -> AcceptedMessage:
        """Edit a turn or try it again, then answer it."""
        await self._check_files(session_id, parts or ())
        return self._start_run(await self.commands.replace(session_id, turn_id, parts, expect))

    async def messages(self, session_id: SessionId, before: str | None, limit: int) -> ConversationPage:
        """Return a page of the conversation. Recover the page's interrupted runs first."""

        def read(snapshot: Snapshot) -> ConversationPage:
            return read_page(snapshot, session_id, before, limit)

        page = await self.store.snapshot(read)
        if not page.pending_runs:
            return page
        for run_id in page.pending_runs:
            await self.recovery.recover_output(*await self.store.run(run_id))
        return await self.store.snapshot(read)

    async def cancel(self, run_id: RunId) -> None:
        await self.commands.cancel(run_id)

    async def resume(self, run_id: RunId) -> None:
        self.runner.start_run(await self.commands.resume(run_id), run_id)

    async def resolve(
        self,
        run_id: RunId,
        call_id: CallId,
        decision: f.ToolDecision,
        text: str | None = None,
        allowing: ApprovalGrant = ALLOW_ONCE,
    ) -> None:
        """Apply a person's decision on a call, then continue the run if it waited for nothing else."""
        if decision == "rerun":
            await self._refuse_while_running(run_id, call_id)
        forbidden = self.permissions.denylist
        resolution = await self.commands.resolve(run_id, call_id, decision, text, allowing, forbidden)
        if allowing.scope != "once":
            # After the answer: an answer that comes too late must not create a rule.
            scope_session_id = resolution.session_id if allowing.scope == "session" else None
            await self.permissions.add(resolution.tool, resolution.rule, scope_session_id)
        if resolution.resumes:
            self.runner.start_run(resolution.session_id, run_id)

    async def answer(self, run_id: RunId, call_id: CallId, reply: Reply, key: str = "") -> None:
        """Apply a person's answer to a question, then continue the run if it waited for nothing else."""
        resolution = await self.commands.answer(run_id, call_id, reply, key)
        if resolution.resumes:
            self.runner.start_run(resolution.session_id, run_id)

    async def _check_files(
        self, session_id: SessionId, parts: tuple[AnyPart, ...], key: str | None = None
    ) -> None:
        """Raise FileNotSupported if the model cannot read one of the files.

        A message that the session already has is not refused.
        """
        if not file_parts(parts):
            return
        worker = self._agent_for_session(await self.store.session(session_id))
        try:
            await worker.check_files(parts)
        except FileNotSupported:
            if key is None or not await self.commands.has_message(session_id, key):
                raise

    async def _refuse_while_running(self, run_id: RunId, call_id: CallId) -> None:
        def read(snapshot: Snapshot) -> tuple[SessionRow, Sequence[ToolRow]]:
            session_id, _ = snapshot.run(run_id)
            return snapshot.session(session_id), snapshot.tools(session_id, run_id)

        session, tools = await self.store.snapshot(read)
        worker = self._agent_for_session(session)
        for tool in tools:
            if tool.id == call_id and not await worker.is_finished(tool.name, call_id):
                raise ToolRefused(call_id=call_id, state="still running", verb="be run again")

    def _on_run_completed(self, session_id: SessionId) -> None:
        self._titles.schedule(session_id)
        self.summaries.schedule(session_id)

    def _start_run(self, accepted: AcceptedMessage) -> AcceptedMessage:
        if accepted.run_to_start is not None:
            self.runner.start_run(accepted.session_id, accepted.run_to_start)
        return accepted

    def _cancel_work(self, run_id: RunId) -> None:
        self.runner.cancel_work(run_id)


async def _run_periodically(action: Callable[[], Awaitable[None]], interval_s: float) -> None:
    while True:
        # Each caller of the store sees its faults; the background task only tries again.
        with suppress(HoldfastError, OSError):
            await action()
        await asyncio.sleep(interval_s)
