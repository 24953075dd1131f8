"""What every door talks to: a message comes in, is kept, is answered, and is looked after until it is."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

from holdfast.domain import facts as f
from holdfast.domain.clock import Clock
from holdfast.domain.errors import HoldfastError, ToolRefused
from holdfast.domain.ids import CallId, Ids, RunId, Seq, SessionId, TurnId
from holdfast.domain.parts import AnyPart
from holdfast.engine.ports import Workers
from holdfast.engine.recovery import Recovery
from holdfast.engine.runner import Runner
from holdfast.engine.titles import Ask, Titles
from holdfast.engine.verbs import Accepted, Verbs
from holdfast.store.ports import MessagePage, Store
from holdfast.store.spool import Spools

LOOK_EVERY_S = 1.0
"""How soon another process's death is noticed."""
SPOOL_EVERY_S = 0.5


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
    ) -> None:
        self.store = store
        self._workers = workers
        self.verbs = Verbs(store, ids, resume, self._halt)
        self._titles = Titles(store, self.verbs, ask_title)
        spools = Spools(folder, store.own_process)
        self.runner = Runner(store, clock, ids, workers, folder, spools, self._titles.consider)
        self.recovery = Recovery(store, clock, ids, self.runner, spools, resume)
        self._chores: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Mark what a crash cut off; after this every reader sees it. Then look after it for ever."""
        await self.recovery.mark()
        self._chores = [
            asyncio.create_task(_for_ever(self.recovery.sweep, LOOK_EVERY_S)),
            asyncio.create_task(_for_ever(self.runner.spool, SPOOL_EVERY_S)),
        ]

    async def stop(self, grace_s: float) -> None:
        """Stop working; what is under way is left so that the next start goes on with it."""
        for chore in self._chores:
            chore.cancel()
        await asyncio.gather(*self._chores, return_exceptions=True)
        await self.runner.stop(grace_s)
        await self._titles.close()

    async def send(
        self, session_id: SessionId, parts: tuple[AnyPart, ...], key: str | None = None
    ) -> Accepted:
        """Keep a message, then answer it. Durable on return."""
        return self._begin(await self.verbs.accept(session_id, parts, key))

    async def replace(
        self,
        session_id: SessionId,
        turn_id: TurnId | None,
        parts: tuple[AnyPart, ...] | None,
        expect: Seq | None = None,
    ) -> Accepted:
        """Edit or try again, then answer that."""
        return self._begin(await self.verbs.replace(session_id, turn_id, parts, expect))

    async def messages(self, session_id: SessionId, before: str | None, limit: int) -> MessagePage:
        """A page of the conversation. One that still waits for output is looked after first."""
        page = await self.store.messages(session_id, before, limit)
        waiting = {m.row.run_id for m in page.messages if m.row.status == "pending" and m.row.run_id}
        for run_id in waiting:
            await self.recovery.heal(*await self.store.run(run_id))
        return await self.store.messages(session_id, before, limit) if waiting else page

    async def cancel(self, run_id: RunId) -> None:
        await self.verbs.cancel(run_id)

    async def resume(self, run_id: RunId) -> None:
        self.runner.begin(await self.verbs.resume(run_id), run_id)

    async def resolve(
        self, run_id: RunId, call_id: CallId, decision: f.Decision, text: str | None = None
    ) -> None:
        """A person's word on a call, then on with the run if that was all it waited for."""
        if decision == "rerun":
            await self._refuse_while_running(run_id, call_id)
        session_id, goes_on = await self.verbs.resolve(run_id, call_id, decision, text)
        if goes_on:
            self.runner.begin(session_id, run_id)

    async def _refuse_while_running(self, run_id: RunId, call_id: CallId) -> None:
        session_id, _ = await self.store.run(run_id)
        worker = self._workers(await self.store.session(session_id))
        for tool in await self.store.tools(session_id, run_id):
            if tool.id == call_id and not await worker.is_gone(tool.name, call_id):
                raise ToolRefused(call_id=call_id, state="still running", verb="be run again")

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
