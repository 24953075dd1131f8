"""What every door talks to: a message comes in, is kept, is answered, and is looked after until it is."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import structs

from holdfast.domain.clock import Clock
from holdfast.domain.decisions.questions import Reply
from holdfast.domain.decisions.turns import IfBusy
from holdfast.domain.errors import HoldfastError, NoSuchSession, SessionMoved, ToolRefused
from holdfast.domain.events import facts as f
from holdfast.domain.events.parts import AnyPart
from holdfast.domain.files import ModelCannotTake, files_among
from holdfast.domain.ids import CallId, Ids, RunId, Seq, SessionId, TurnId
from holdfast.domain.limits import SUCCESSORS_MAX
from holdfast.domain.secrets import Masking, identity
from holdfast.domain.shell.rules import ONCE, Allowing
from holdfast.domain.state.rows import SessionRow, ToolRow
from holdfast.engine.compaction import Summaries
from holdfast.engine.conversation_page import ConversationPage, read_page
from holdfast.engine.drafts import Drafts
from holdfast.engine.file_changes import RunChanges
from holdfast.engine.permissions import Permissions
from holdfast.engine.ports import NO_FILES, Contexts, Files, Workers
from holdfast.engine.recovery import Recovery
from holdfast.engine.resume_policy import NO_AGENTS, OfAgents, ResumePolicy
from holdfast.engine.runner import Runner
from holdfast.engine.session_commands import Accepted, Verbs
from holdfast.engine.successor import Moves
from holdfast.engine.titles import Ask, Titles
from holdfast.store.ports import Snapshot, Store
from holdfast.store.spool import Spools

LOOK_EVERY_S = 1.0
"""How soon another process's death is noticed."""
SPOOL_EVERY_S = 0.5
UNUSED_EVERY_S = 30.0
"""How often it is looked for what is held ready and nobody uses."""
TEXTS_EVERY_S = 21_600.0
"""The same, of texts that no open run was told."""


class Engine:
    """Verbs that also set the work going, or stop it. Belongs to one event loop."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        ids: Ids,
        workers: Workers,
        folder: Path,
        resume: f.Resume,
        ask_title: Ask | None,
        runs_at_once: int,
        contexts: Contexts,
        mask: Masking = identity,
        permissions: Permissions | None = None,
        boundary: Callable[[SessionId], None] = lambda session_id: None,
        of_agents: OfAgents = NO_AGENTS,
        expand: Callable[[str], str] = str,
        files: Files = NO_FILES,
        summarise_above: float = 0.0,
    ) -> None:
        self.store = store
        self._boundary = boundary
        """Told of each session that is over for now: memory is told what was said, in its own time."""
        self.mask = mask
        """What people write goes through it before it is kept or told."""
        self.expand = expand
        """What a message says: of one that calls a prompt, what that says. Doors ask, before they send."""
        self.permissions = permissions or Permissions(store, clock, ids, ())
        self.drafts = Drafts(store, mask)
        self.changes = RunChanges(store, folder, files, mask)
        self._workers = workers
        self._of_agents = of_agents
        self._resume = policy = ResumePolicy(resume, of_agents)
        self.verbs = Verbs(store, ids, policy, self._halt, mask)
        self._titles = Titles(store, self.verbs, ask_title)
        spools = Spools(folder, store.own_process)
        self.contexts = contexts
        store.note_changes(contexts.note)
        self.runner = Runner(
            store, clock, ids, workers, folder, spools, self._completed, runs_at_once, policy,
            contexts, mask,
        )  # fmt: skip
        self.summaries = Summaries(store, self.verbs, workers, contexts, clock, summarise_above)
        self.moves = Moves(
            store, ids, mask, self.summaries, folder, self.runner.begin, boundary, self.permissions.carry
        )  # fmt: skip
        self.recovery = Recovery(store, clock, ids, self.runner, spools, policy)
        self._chores: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Mark what a crash cut off; after this every reader sees it. Then look after it for ever."""
        await self.recovery.mark()
        self._chores = [
            asyncio.create_task(_for_ever(self.recovery.sweep, LOOK_EVERY_S)),
            asyncio.create_task(_for_ever(self.runner.spool, SPOOL_EVERY_S)),
            asyncio.create_task(_for_ever(self.contexts.sweep, UNUSED_EVERY_S)),
            asyncio.create_task(_for_ever(self.runner.texts.prune, TEXTS_EVERY_S)),
        ]

    async def stop(self, grace_s: float) -> None:
        """Stop working; what is under way is left so that the next start goes on with it."""
        until = asyncio.get_running_loop().time() + grace_s
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self.runner.stop(grace_s)
        await self._titles.close()
        await self.summaries.close()
        await self.contexts.close(max(0.0, until - asyncio.get_running_loop().time()))

    def change(self, resume: f.Resume, runs_at_once: int, summarise_above: float) -> None:
        """Another policy from now on, and room for more or fewer runs at a time."""
        self._resume.usual = resume
        self.summaries.above = summarise_above
        self.runner.slots.resize(runs_at_once)

    async def create(self, created: f.SessionCreated, session_id: SessionId | None = None) -> SessionId:
        """Begin a session, by a name that was given out or a new one. Raises SessionExists.

        The one that it names as the previous one is over for now. It works in its agent's folder, if that has
        one.
        """
        if not created.workspace:
            # Written down with it: a conversation stays in its folder whatever becomes of the agent's file.
            created = structs.replace(created, workspace=self._of_agents.workspace(created.agent))
        session_id = await self.verbs.create(created, session_id)
        if created.previous_session_id is not None:
            self._boundary(created.previous_session_id)
        return session_id

    async def clear(self, session_id: SessionId, expect: Seq | None = None) -> None:
        await self.verbs.clear(session_id, expect)
        self._boundary(session_id)

    async def delete(self, session_id: SessionId, expect: Seq | None = None, notes: bool = False) -> None:
        await self.verbs.delete(session_id, expect, notes)
        self._boundary(session_id)

    async def send(
        self,
        session_id: SessionId,
        parts: tuple[AnyPart, ...],
        key: str | None = None,
        if_busy: IfBusy = "queue",
    ) -> Accepted:
        """Keep a message, then answer it. Durable on return. Raises Busy where that is to be rejected.

        Where the conversation has gone on in another session, it is kept there: the receipt says where.
        Raises SuccessorDeleted if that one was deleted.
        """
        sent_to = session_id
        for _ in range(SUCCESSORS_MAX):
            try:
                await self._check_files(session_id, parts, key)
                return self._begin(await self.verbs.accept(session_id, parts, key, if_busy))
            except SessionMoved as moved:
                session_id = SessionId(str(moved.fields["successor"]))
            except NoSuchSession:
                # One that was deleted since it went on is gone; what is sent there is not.
                successor = await self.store.successor(session_id)
                if successor is None:
                    raise await self.moves.lost(sent_to, session_id) from None
                session_id = successor
        raise NoSuchSession(session_id=sent_to)

    async def kept(self, session_id: SessionId, key: str) -> Accepted | None:
        """The message with this key, if it is there already or where the conversation has gone on."""
        for _ in range(SUCCESSORS_MAX):
            with suppress(NoSuchSession):
                if (kept := await self.verbs.kept(session_id, key)) is not None:
                    return kept
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
    ) -> Accepted:
        """Edit or try again, then answer that."""
        await self._check_files(session_id, parts or ())
        return self._begin(await self.verbs.replace(session_id, turn_id, parts, expect))

    async def messages(self, session_id: SessionId, before: str | None, limit: int) -> ConversationPage:
        """Return a page of the conversation. Recover the page's interrupted runs first."""

        def read(snapshot: Snapshot) -> ConversationPage:
            return read_page(snapshot, session_id, before, limit)

        page = await self.store.snapshot(read)
        if not page.pending_runs:
            return page
        for run_id in page.pending_runs:
            await self.recovery.heal(*await self.store.run(run_id))
        return await self.store.snapshot(read)

    async def cancel(self, run_id: RunId) -> None:
        await self.verbs.cancel(run_id)

    async def resume(self, run_id: RunId) -> None:
        self.runner.begin(await self.verbs.resume(run_id), run_id)

    async def resolve(
        self,
        run_id: RunId,
        call_id: CallId,
        decision: f.Decision,
        text: str | None = None,
        allowing: Allowing = ONCE,
    ) -> None:
        """A person's word on a call, then on with the run if that was all it waited for."""
        if decision == "rerun":
            await self._refuse_while_running(run_id, call_id)
        forbidden = self.permissions.forbidden
        done = await self.verbs.resolve(run_id, call_id, decision, text, allowing, forbidden)
        if allowing.scope != "once":
            # After the answer: whoever answers too late makes no rule.
            here = done.session_id if allowing.scope == "session" else None
            await self.permissions.add(done.tool, done.rule, here)
        if done.goes_on:
            self.runner.begin(done.session_id, run_id)

    async def answer(self, run_id: RunId, call_id: CallId, reply: Reply, key: str = "") -> None:
        """A person's answer to a question, then on with the run if that was all it waited for."""
        done = await self.verbs.answer(run_id, call_id, reply, key)
        if done.goes_on:
            self.runner.begin(done.session_id, run_id)

    async def _check_files(
        self, session_id: SessionId, parts: tuple[AnyPart, ...], key: str | None = None
    ) -> None:
        """Refuse what cannot be shown to the model, unless it was kept before. Raises ModelCannotTake."""
        if not files_among(parts):
            return
        worker = self._workers(await self.store.session(session_id))
        try:
            await worker.check_files(parts)
        except ModelCannotTake:
            if key is None or not await self.verbs.is_kept(session_id, key):
                raise

    async def _refuse_while_running(self, run_id: RunId, call_id: CallId) -> None:
        def read(snapshot: Snapshot) -> tuple[SessionRow, Sequence[ToolRow]]:
            session_id, _ = snapshot.run(run_id)
            return snapshot.session(session_id), snapshot.tools(session_id, run_id)

        session, tools = await self.store.snapshot(read)
        worker = self._workers(session)
        for tool in tools:
            if tool.id == call_id and not await worker.is_gone(tool.name, call_id):
                raise ToolRefused(call_id=call_id, state="still running", verb="be run again")

    def _completed(self, session_id: SessionId) -> None:
        self._titles.consider(session_id)
        self.summaries.consider(session_id)

    def _begin(self, accepted: Accepted) -> Accepted:
        if accepted.begins is not None:
            self.runner.begin(accepted.session_id, accepted.begins)
        return accepted

    def _halt(self, run_id: RunId) -> None:
        self.runner.halt(run_id)


async def _for_ever(chore: Callable[[], Awaitable[None]], every_s: float) -> None:
    while True:
        # A fault of the store is told to whoever asks it for something; here it is only waited out.
        with suppress(HoldfastError, OSError):
            await chore()
        await asyncio.sleep(every_s)
